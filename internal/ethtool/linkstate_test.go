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

	"github.com/railscope/railscope/internal/nlattr"
)

// Bytes of the request for a link's state, and of an answer without a reason, as net/ethtool/linkstate.c expects and
// sends them. The numbers are from ethtool_netlink.h of Linux 6.12.
const (
	askLink = "\x06\x01\x00\x00" + "\x10\x00\x01\x80" + "\x09\x00\x02\x00eth0\x00\x00\x00\x00"
	link    = "\x06\x01\x00\x00" + "\x18\x00\x01\x80" + "\x08\x00\x01\x00\x07\x00\x00\x00" +
		"\x09\x00\x02\x00eth0\x00\x00\x00\x00" + "\x05\x00\x02\x00\x00\x00\x00\x00"
)

// TestReadLinkReason: the state and its detail are text; a number that this version does not know stays a number.
func TestReadLinkReason(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
	state := func(n string) string { return "\x05\x00\x05\x00" + n + "\x00\x00\x00" }
	detail := func(n string) string { return "\x05\x00\x06\x00" + n + "\x00\x00\x00" }
	for name, tt := range map[string]struct {
		answer string
		errno  int
		want   string
		fails  error
	}{
		"no reason":       {link, 0, "", nil},
		"no cable":        {link + state("\x04"), 0, "there is no cable", nil},
		"the first state": {link + state("\x00"), 0, "autonegotiation failed", nil},
		"with a detail": {link + state("\x00") + detail("\x01"), 0, "autonegotiation failed: no " +
			"partner was detected", nil},
		"the last detail": {link + state("\x0a") + detail("\x01"), 0, "the module is not ready: it has " +
			"not left its low-power state", nil},
		"an unknown detail":         {link + state("\x03") + detail("\x63"), 0, "the signal is bad", nil},
		"a detail where none is":    {link + state("\x09") + detail("\x01"), 0, "the module is too hot", nil},
		"an unknown state":          {link + state("\x0b"), 0, "the driver's reason has the number 11", nil},
		"malformed":                 {link + "\x30\x00\x05\x00", 0, "", nlattr.ErrSize},
		"a kernel before Linux 5.9": {"", int(unix.EOPNOTSUPP), "", unix.EOPNOTSUPP},
		"no such interface":         {"", int(unix.ENODEV), "", unix.ENODEV},
	} {
		requests, answers := []string{askFamily, askLink}, []string{family, tt.answer}
		conn := nltest.Dial(func(reqs []netlink.Message) ([]netlink.Message, error) {
			if len(reqs) == 0 { // the connection is closed
				return nil, nil
			}
			if diff := cmp.Diff(requests[0], string(reqs[0].Data)); diff != "" {
				t.Errorf("%s: request (-want +got):\n%s", name, diff)
			}
			answer := answers[0]
			requests, answers = requests[1:], answers[1:]
			if answer == "" {
				return nltest.Error(tt.errno, reqs)
			}
			return []netlink.Message{{Header: reqs[0].Header, Data: []byte(answer)}}, nil
		})
		got, err := readLinkReason(conn, "eth0")
		if got != tt.want || !errors.Is(err, tt.fails) || (err == nil) != (tt.fails == nil) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, tt.want, tt.fails)
		}
	}
}

// TestReadLinkReasonOfKernel: a real kernel answers, and an interface that it lacks is an error.
func TestReadLinkReasonOfKernel(t *testing.T) {
	reason, err := ReadLinkReason("lo")
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel has no ethtool netlink")
	}
	if reason != "" || err != nil {
		t.Errorf("lo: %q, %v", reason, err)
	}
	if _, err := ReadLinkReason("none0"); !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "none0") {
		t.Errorf("an interface that is absent: %v", err)
	}
}
