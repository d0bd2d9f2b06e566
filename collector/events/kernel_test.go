package events

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/netnstest"
	"github.com/railscope/railscope/internal/notice"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rtnl"
)

// TestEventsOfKernel: what the running kernel announces of a link and its addresses is counted right, also of a link
// that existed before, and a flood of announcements ends in a loss or in right counts.
func TestEventsOfKernel(t *testing.T) {
	n := netnstest.New(t, "link add eth0 type veth peer name far\nlink set eth0 addrgenmode none up\n"+
		"link set far addrgenmode none up")
	s := New(Options{
		Rails: func() rail.Snapshot {
			return rail.Snapshot{Rails: []rail.Rail{{Name: "0", Device: "mlx5_0", Port: 1, Netdev: "eth0"}}}
		},
		Names: func() (map[uint32]string, error) { return nil, nil },
		List: func() (list []rtnl.Change, err error) {
			err = n.In(func() (err error) { list, err = rtnl.List(); return err })
			return list, err
		},
		Listen: func(ctx context.Context, g notice.Group, on func(notice.Message)) error {
			return n.In(func() error { return notice.Listen(ctx, g, on) })
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
		if err := n.IP("link set far down"); err != nil {
			t.Fatal(err)
		}
		settled(map[Event]uint64{LinkDown: i + 1, LinkUp: i})
		if err := n.IP("link set far up"); err != nil {
			t.Fatal(err)
		}
		settled(map[Event]uint64{LinkDown: i + 1, LinkUp: i + 1})
	}
	if err := n.IP("address add 10.0.0.1/24 dev eth0\n" +
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
	if err := n.IP(flood.String()); err != nil {
		t.Fatal(err)
	}
	if err := n.IP("link set far down"); err != nil {
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
