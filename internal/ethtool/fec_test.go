package ethtool

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
	"github.com/railscope/railscope/internal/nlattr"
)

// TestFECMode: struct ethtool_fecparam has one bit of enum ethtool_fec_config_bits, or none while it is unknown.
func TestFECMode(t *testing.T) {
	for active, want := range map[uint32]string{1: "none", 2: "auto", 4: "off", 8: "rs", 16: "baser", 32: "llrs",
		64: "", 8 | 16: ""} {
		k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": {FEC: active}}}
		if mode, err := newTestDevice(t, k.Ioctl).FECMode(); mode != want || err != nil {
			t.Errorf("%#x: %q, %v; want %q", active, mode, err, want)
		}
	}
	unknown := func(string, []byte) error { return nil } // answers 0
	if mode, err := newTestDevice(t, unknown).FECMode(); mode != "" || err != nil {
		t.Errorf("unknown: %q, %v", mode, err)
	}
	k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": {}}}
	if mode, err := newTestDevice(t, k.Ioctl).FECMode(); mode != "" || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("not supported: %q, %v", mode, err)
	}
}

// Bytes of both requests on a little-endian machine, as net/netlink/genetlink.c and net/ethtool/fec.c expect them,
// and of an answer without its statistics. The numbers are from ethtool_netlink.h of Linux 5.13.
const (
	askFamily = "\x03\x01\x00\x00" + "\x0c\x00\x02\x00ethtool\x00"
	family    = "\x01\x02\x00\x00" + "\x0c\x00\x02\x00ethtool\x00" + "\x06\x00\x01\x00\x15\x00\x00\x00"
	askFEC    = "\x1d\x01\x00\x00" + "\x18\x00\x01\x80" + "\x09\x00\x02\x00eth0\x00\x00\x00\x00" +
		"\x08\x00\x03\x00\x04\x00\x00\x00"
	fec = "\x1e\x01\x00\x00" + "\x10\x00\x01\x80" + "\x09\x00\x02\x00eth0\x00\x00\x00\x00" +
		"\x05\x00\x03\x00\x01\x00\x00\x00"
	pad = "\x04\x00\x01\x00"
)

// TestReadFEC: the total comes first, then the lanes. An empty array means that the driver does not report
// the value.
func TestReadFEC(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
	number := func(n uint64) *uint64 { return &n }
	for name, tt := range map[string]struct {
		family, fec string
		errno       int // error of the last request
		want        FEC
		fails       error
	}{
		"RS": {family, fec + "\x30\x00\x05\x80" +
			pad + "\x0c\x00\x02\x00\x07\x00\x00\x00\x01\x00\x00\x00" +
			pad + "\x0c\x00\x03\x00\x02\x00\x00\x00\x00\x00\x00\x00" +
			pad + "\x04\x00\x04\x00" + "\x04\x00\x63\x00", 0, FEC{Corrected: number(1<<32 + 7), Uncorrectable: number(2)}, nil},
		"lanes, and no uncorrectable ones": {family, fec + "\x24\x00\x05\x80" + pad +
			"\x1c\x00\x02\x00\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00",
			0, FEC{Corrected: number(3)}, nil},
		// As netdevsim of Linux 6.18 has them (drivers/net/netdevsim/ethtool.c): the first with lanes, the last too
		// large for 4 bytes.
		"a histogram": {family, fec + "\x84\x00\x05\x80" +
			pad + "\x0c\x00\x04\x00\x09\x00\x00\x00\x00\x00\x00\x00" +
			"\x34\x00\x05\x80" + "\x08\x00\x02\x00\x00\x00\x00\x00" + "\x08\x00\x03\x00\x00\x00\x00\x00" +
			"\x08\x00\x04\x00\x59\x01\x00\x00" + pad +
			"\x14\x00\x05\x00\x7d\x00\x00\x00\x00\x00\x00\x00\xdc\x00\x00\x00\x00\x00\x00\x00" +
			"\x1c\x00\x05\x80" + "\x08\x00\x02\x00\x01\x00\x00\x00" + "\x08\x00\x03\x00\x03\x00\x00\x00" +
			"\x08\x00\x04\x00\x0c\x00\x00\x00" +
			"\x20\x00\x05\x80" + "\x08\x00\x02\x00\x04\x00\x00\x00" + "\x08\x00\x03\x00\x07\x00\x00\x00" +
			"\x0c\x00\x04\x00\x02\x00\x00\x00\x01\x00\x00\x00", 0,
			FEC{Bits: number(9), Bins: []FECBin{{0, 0, 345, []uint64{125, 220}}, {1, 3, 12, nil},
				{4, 7, 1<<32 + 2, nil}}}, nil},
		"a bin of no number": {family, fec + "\x18\x00\x05\x80" + "\x14\x00\x05\x80" +
			"\x08\x00\x02\x00\x01\x00\x00\x00" + "\x08\x00\x03\x00\x03\x00\x00\x00", 0, FEC{}, nlattr.ErrSize},
		"too many bins": {family, fec + "\x20\x07\x05\x80" + strings.Repeat("\x1c\x00\x05\x80"+
			"\x08\x00\x02\x00\x01\x00\x00\x00"+"\x08\x00\x03\x00\x03\x00\x00\x00"+
			"\x08\x00\x04\x00\x0c\x00\x00\x00", 65), 0, FEC{}, nlattr.ErrSize},
		"no statistics":         {family, fec, 0, FEC{}, nil},
		"no FEC":                {family, "", int(unix.EOPNOTSUPP), FEC{}, unix.EOPNOTSUPP},
		"no such interface":     {family, "", int(unix.ENODEV), FEC{}, unix.ENODEV},
		"no ethtool netlink":    {"", "", int(unix.ENOENT), FEC{}, unix.EOPNOTSUPP},
		"malformed":             {family, fec + "\x30\x00\x05\x80", 0, FEC{}, nlattr.ErrSize},
		"malformed in the nest": {family, fec + "\x08\x00\x05\x80\x0c\x00\x02\x00", 0, FEC{}, nlattr.ErrSize},
		"short":                 {family, "\x1e", 0, FEC{}, nlattr.ErrSize},
		"a family of no number": {askFamily, "", 0, FEC{}, nlattr.ErrSize},
	} {
		t.Run(name, func(t *testing.T) {
			requests, answers := []string{askFamily, askFEC}, []string{tt.family, tt.fec}
			types := []netlink.HeaderType{unix.GENL_ID_CTRL, 0x15}
			conn := nltest.Dial(func(reqs []netlink.Message) ([]netlink.Message, error) {
				if len(reqs) == 0 { // the connection is closed
					return nil, nil
				}
				req := reqs[0]
				if diff := cmp.Diff(requests[0], string(req.Data)); diff != "" || req.Header.Type != types[0] ||
					req.Header.Flags != netlink.Request {
					t.Errorf("request of type %#x, flags %v (-want +got):\n%s", req.Header.Type, req.Header.Flags, diff)
				}
				answer := answers[0]
				requests, answers, types = requests[1:], answers[1:], types[1:]
				if answer == "" {
					return nltest.Error(tt.errno, reqs)
				}
				return []netlink.Message{{Header: req.Header, Data: []byte(answer)}}, nil
			})
			got, err := readFEC(conn, "eth0")
			if !errors.Is(err, tt.fails) || (err == nil) != (tt.fails == nil) {
				t.Errorf("%v, want %v", err, tt.fails)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
