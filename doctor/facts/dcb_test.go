package facts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// attr encodes one netlink attribute, padded to 4 bytes.
func attr(typ uint16, data ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, data...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

// pfcBytes encodes struct ieee_pfc with these enabled priorities, 8 possible ones and nonzero counters.
func pfcBytes(enabled byte, more ...byte) []byte {
	b := []byte{8, enabled, 0, 0, 0xff, 0x7f, 0, 0}
	for i := range 16 {
		b = binary.NativeEndian.AppendUint64(b, 1<<40+uint64(i))
	}
	return append(b, more...)
}

func dcbAnswer(attrs ...[]byte) []byte {
	return append([]byte{unix.AF_UNSPEC, dcbCmdIEEEGet, 0, 0}, bytes.Join(attrs, nil)...)
}

func ieee(attrs ...[]byte) []byte { return attr(dcbAttrIEEE, bytes.Join(attrs, nil)...) }

// askedPFC is the request of `dcb pfc show dev eth0` (iproute2 6.1, strace -e sendto -xx), on a little-endian machine.
var askedPFC = []byte{0, 21, 0, 0, 9, 0, 1, 0, 'e', 't', 'h', '0', 0, 0, 0, 0}

func TestAskPFC(t *testing.T) {
	name := attr(dcbAttrIfname, 'e', 't', 'h', '0', 0)
	ets := attr(1, bytes.Repeat([]byte{1}, 59)...)
	for _, tt := range []struct {
		name   string
		answer []byte
		errno  int
		want   uint8
		fails  error
	}{
		{"priority 3", dcbAnswer(name, ieee(ets, attr(2, pfcBytes(8)...), attr(3))), 0, 8, nil},
		{"marked as nested, longer than today",
			dcbAnswer(name, attr(dcbAttrIEEE|unix.NLA_F_NESTED, attr(2, pfcBytes(0x88, 1, 2, 3, 4)...)...),
				attr(99, 1)), 0, 0x88, nil},
		{"none", dcbAnswer(name, ieee(attr(2, pfcBytes(0)...))), 0, 0, nil},
		{"the peer's PFC is not ours", dcbAnswer(name, ieee(ets, attr(5, pfcBytes(8)...))), 0, 0, unix.EOPNOTSUPP},
		{"cut short", dcbAnswer(name, ieee(attr(2, pfcBytes(8)[:100]...))), 0, 0, unix.EOPNOTSUPP},
		{"another interface", dcbAnswer(attr(dcbAttrIfname, 'e', 't', 'h', '1', 0), ieee(attr(2, pfcBytes(8)...))), 0,
			0, unix.EOPNOTSUPP},
		{"another command", append([]byte{0, 9, 0, 0}, name...), 0, 0, unix.EOPNOTSUPP},
		{"nothing", nil, 0, 0, unix.EOPNOTSUPP},
		{"no DCB", nil, int(unix.EOPNOTSUPP), 0, unix.EOPNOTSUPP},
		{"no interface", nil, int(unix.ENODEV), 0, unix.ENODEV},
		{"refused", nil, int(unix.EPERM), 0, unix.EPERM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := nltest.Dial(func(req []netlink.Message) ([]netlink.Message, error) {
				if tt.errno != 0 {
					return nltest.Error(tt.errno, req)
				}
				h := req[0].Header
				h.Length = 0
				if little := binary.NativeEndian.Uint16([]byte{1, 0}) == 1; little &&
					!bytes.Equal(req[0].Data, askedPFC) ||
					h.Type != 78 || h.Flags != netlink.Request {
					t.Errorf("asked %+v", req[0])
				}
				return []netlink.Message{{Header: h, Data: tt.answer}}, nil
			})
			defer conn.Close()
			got, err := queryDCB(conn, "eth0")
			if got.PFC != tt.want || !errors.Is(err, tt.fails) {
				t.Errorf("%#x, %v; want %#x, %v", got.PFC, err, tt.want, tt.fails)
			}
		})
	}
}

// TestDSCP: entries of the application table by DSCP; others, and values out of range, are none. Of two priorities of
// one DSCP the higher counts.
func TestDSCP(t *testing.T) {
	app := func(selector, priority byte, protocol uint16) []byte {
		return attr(1, append([]byte{selector, priority}, binary.NativeEndian.AppendUint16(nil, protocol)...)...)
	}
	table := func(entries ...[]byte) []byte { return attr(3|unix.NLA_F_NESTED, bytes.Join(entries, nil)...) }
	var all [][]byte
	for dscp := range uint16(64) {
		all = append(all, app(5, byte(dscp/8), dscp))
	}
	for _, tt := range []struct {
		name  string
		table []byte
		want  string
	}{
		{"no table", nil, "none"},
		{"an empty one", table(), "none"},
		{"two", table(app(5, 3, 26), app(5, 6, 48)), "3=26 6=48"},
		{"ranges", table(app(5, 3, 24), app(5, 3, 25), app(5, 3, 26), app(5, 3, 30), app(5, 0, 63)), "0=63 3=24-26,30"},
		{"twice", table(app(5, 3, 26), app(5, 5, 26), app(5, 4, 26)), "5=26"},
		{"other selectors", table(app(1, 3, 0x8915), app(4, 3, 4791)), "none"},
		{"out of range", table(app(5, 8, 26), app(5, 3, 64), attr(1, 5, 3), attr(2, 5, 3, 26, 0)), "none"},
		{"the default of mlx5", table(all...), "0=0-7 1=8-15 2=16-23 3=24-31 4=32-39 5=40-47 6=48-55 7=56-63"},
	} {
		name := attr(dcbAttrIfname, 'e', 't', 'h', '0', 0)
		d, err := decodeDCB(dcbAnswer(name, ieee(attr(2, pfcBytes(8)...), tt.table)), "eth0")
		if got := d.classes(); got != tt.want || err != nil || d.PFC != 8 {
			t.Errorf("%s: %q, PFC %#x, %v; want %q", tt.name, got, d.PFC, err, tt.want)
		}
	}
}

// TestKernelDCB queries the running kernel for interfaces without PFC.
func TestKernelDCB(t *testing.T) {
	if _, err := kernelDCB("lo"); err == nil || !unsupported(err) {
		t.Errorf("lo: %v", err)
	}
	if _, err := kernelDCB("absent0"); err == nil || !unsupported(err) {
		t.Errorf("absent0: %v", err)
	}
	if _, _, err := kernelPause("lo"); err == nil || !unsupported(err) {
		t.Errorf("pause of lo: %v", err)
	}
}

// TestReadPause replies as net/ethtool/ioctl.c ethtool_get_pauseparam does.
func TestReadPause(t *testing.T) {
	var asked []byte
	rx, tx, err := readPause(func(name string, request []byte) error {
		asked = bytes.Clone(request)
		binary.NativeEndian.PutUint32(request[4:], 1) // autoneg
		binary.NativeEndian.PutUint32(request[8:], 1)
		return nil
	}, "eth0")
	if !rx || tx || err != nil {
		t.Errorf("rx %v tx %v, %v", rx, tx, err)
	}
	if want := append(binary.NativeEndian.AppendUint32(nil, unix.ETHTOOL_GPAUSEPARAM),
		make([]byte, 12)...); !bytes.Equal(want, asked) {
		t.Errorf("asked % x, want % x", asked, want)
	}
	if _, _, err := readPause(func(string, []byte) error { return unix.EOPNOTSUPP }, "eth0"); !errors.Is(err,
		unix.EOPNOTSUPP) {
		t.Error(err)
	}
}

func FuzzDecodeDCB(f *testing.F) {
	name := attr(dcbAttrIfname, 'e', 't', 'h', '0', 0)
	f.Add(dcbAnswer(name, ieee(attr(2, pfcBytes(8)...))))
	f.Add(dcbAnswer(name, ieee(attr(2, pfcBytes(8)[:7]...))))
	f.Add(dcbAnswer(name, ieee(attr(2, pfcBytes(8)...), attr(3, attr(1, 5, 3, 26, 0)...))))
	f.Add([]byte{0, 21, 0, 0, 0xff, 0xff, 13, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		dcb, err := decodeDCB(data, "eth0")
		enabled := dcb.PFC
		if err != nil && enabled != 0 && len(data) < dcbPFCSize {
			t.Errorf("%#x of %d bytes", enabled, len(data))
		}
		if err == nil && (len(data) < dcbPFCSize || !bytes.Contains(data, []byte("eth0"))) {
			t.Errorf("%#x out of % x", enabled, data)
		}
	})
}
