package lldp

import (
	"bytes"
	"errors"
	"net"
	"os"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/netnstest"
)

// send sends an Ethernet frame.
func send(from *net.Interface, to net.HardwareAddr, protocol uint16, payload []byte) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	at := unix.SockaddrLinklayer{Protocol: networkOrder(protocol), Ifindex: from.Index, Halen: 6}
	copy(at.Addr[:], to)
	return unix.Sendto(fd, payload, 0, &at)
}

// TestSocket receives frames of an interface that was joined and no others, also after an attempt to widen its filter.
func TestSocket(t *testing.T) {
	n := netnstest.New(t, "link add near type veth peer name far\nlink set near up\nlink set far up")
	err := n.In(func() error {
		near, err := net.InterfaceByName("near")
		if err != nil {
			return err
		}
		far, err := net.InterfaceByName("far")
		if err != nil {
			return err
		}
		s, err := Open()
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Join(near.Index); err != nil {
			t.Error(err)
		}
		// veth passes every frame, but an adapter only those of addresses that were joined.
		joined, err := os.ReadFile("/proc/thread-self/net/dev_mcast")
		if err != nil || !regexp.MustCompile(`(?m)near\s.*0180c200000e$`).Match(joined) {
			t.Errorf("%v, addresses:\n%s", err, joined)
		}
		if err := s.Join(1 << 20); !errors.Is(err, unix.ENODEV) {
			t.Errorf("joining an interface that does not exist: %v", err)
		}
		all := []unix.SockFilter{{Code: unix.BPF_RET, K: 0xffff}}
		if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: 1, Filter: &all[0]}); !errors.Is(err, unix.EPERM) {
			t.Errorf("another filter: %v", err)
		}
		if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL)}); err != nil {
			t.Error(err)
		}
		deadline := unix.NsecToTimeval((5 * time.Second).Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &deadline); err != nil {
			t.Error(err)
		}
		multicast, frame := groups()[0], join(text(1, 7, "leaf-a"), text(2, 5, "swp7"), tlv(3, 0, 120))
		for _, err := range []error{send(far, multicast, unix.ETH_P_IP, []byte("no")), send(far, multicast,
			unix.ETH_P_LLDP, frame)} {
			if err != nil {
				t.Error(err)
			}
		}
		var buf [MaxFrame]byte
		if b, index, err := s.Receive(&buf); !bytes.HasPrefix(b, frame) || index != near.Index || err != nil {
			t.Errorf("%q on interface %d, %v; want %q on %d", b, index, err, frame, near.Index)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
