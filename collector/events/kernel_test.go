package events

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/notice"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rtnl"
)

// namespace is a network namespace of its own, in which functions can be called.
type namespace struct {
	t  *testing.T
	fd int
}

// newNamespace returns a namespace. It needs root, a kernel with veth and the command ip.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t, fd: -1}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Skip("a network namespace: ", err)
	}
	t.Cleanup(func() { unix.Close(n.fd) })
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	if err := n.ip("link add eth0 type veth peer name far"); err != nil {
		t.Skip(err)
	}
	return n
}

// in calls fn in the namespace.
func (n *namespace) in(fn func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(n.fd, unix.CLONE_NEWNET)
		if err == nil {
			err = fn()
		}
		ended <- err
	}()
	return <-ended
}

// ip runs lines of the command ip.
func (n *namespace) ip(lines string) error {
	return n.in(func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip: %w: %s", err, out)
		}
		return nil
	})
}

// TestEventsOfKernel: what the running kernel announces of a link and its addresses is counted right, also of a link
// that existed before, and a flood of announcements ends in a loss or in right counts.
func TestEventsOfKernel(t *testing.T) {
	n := newNamespace(t)
	err := n.ip("link set eth0 addrgenmode none up\nlink set far addrgenmode none up")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{
		Rails: func() rail.Snapshot {
			return rail.Snapshot{Rails: []rail.Rail{{Name: "0", Device: "mlx5_0", Port: 1, Netdev: "eth0"}}}
		},
		Names: func() (map[uint32]string, error) { return nil, nil },
		List: func() (list []rtnl.Change, err error) {
			err = n.in(func() (err error) { list, err = rtnl.List(); return err })
			return list, err
		},
		Listen: func(ctx context.Context, g notice.Group, on func(notice.Message)) error {
			return n.in(func() error { return notice.Listen(ctx, g, on) })
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	defer func() { stop(); <-ended }()
	count := func(e Event) uint64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.counts[series{"0", e}]
	}
	settled := func(want map[Event]uint64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			right := true
			for e, wanted := range want {
				right = right && count(e) == wanted
			}
			if right {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%v, want %v", s.counts, want)
			}
		}
	}
	<-s.Changed() // after the first listing
	for i := range uint64(3) {
		if err := n.ip("link set far down"); err != nil {
			t.Fatal(err)
		}
		settled(map[Event]uint64{LinkDown: i + 1, LinkUp: i})
		if err := n.ip("link set far up"); err != nil {
			t.Fatal(err)
		}
		settled(map[Event]uint64{LinkDown: i + 1, LinkUp: i + 1})
	}
	if err := n.ip("address add 10.0.0.1/24 dev eth0\n" +
		"address change 10.0.0.1/24 dev eth0 valid_lft 3600 preferred_lft 3600\naddress add 10.0.0.3/24 dev eth0\n" +
		"address del 10.0.0.3/24 dev eth0"); err != nil {
		t.Fatal(err)
	}
	settled(map[Event]uint64{AddressRemoved: 1})
	if got := count(AddressAdded); got != 2 {
		t.Errorf("%d addresses added", got)
	}
	var flood strings.Builder
	const many = 5000
	for i := range many {
		fmt.Fprintf(&flood, "address add 10.1.%d.%d/32 dev eth0\n", i/250, i%250)
	}
	before := count(AddressAdded)
	if err := n.ip(flood.String()); err != nil {
		t.Fatal(err)
	}
	if err := n.ip("link set far down"); err != nil {
		t.Fatal(err)
	}
	known := func() (carrier bool) {
		s.linking.Lock()
		defer s.linking.Unlock()
		for _, l := range s.links.byIndex {
			carrier = carrier || l.Name == "eth0" && l.Carrier
		}
		return carrier
	}
	for deadline := time.Now().Add(10 * time.Second); known(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the link is still up")
		}
	}
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	added, downs := count(AddressAdded)-before, count(LinkDown)
	if lost == 0 && (added < maxAddresses-2 || downs != 4) || added > maxAddresses {
		t.Errorf("%d of %d addresses counted, %d times down, %d losses", added, many, downs, lost)
	}
}
