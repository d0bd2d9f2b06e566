package probe

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
)

// again is after what time a greedy peer asks again.
const again = 50 * time.Millisecond

// greedyNode is a node without rails, of which 10.0.0.1, 10.0.0.2, … ask for a lease again and again, and hold it for
// so long.
func greedyNode(t *testing.T, peers int, hold time.Duration) (r *target.Responder, leases []atomic.Int64) {
	opts := options.DefaultOptions()
	opts.Security.Insecure = true
	r, err := target.NewResponder(bareNode(t, "b"), opts)
	if err != nil {
		t.Fatal(err)
	}
	r.Node.GuardInterval = time.Second
	leases = make([]atomic.Int64, peers)
	var asking sync.WaitGroup
	t.Cleanup(asking.Wait)
	for i := range peers {
		asking.Go(func() {
			for t.Context().Err() == nil {
				if takeTurn(t, r, byte(i+1), hold) {
					leases[i].Add(1)
				}
				time.Sleep(again)
			}
		})
	}
	return r, leases
}

// takeTurn asks once for a lease from 10.0.0.who and holds it, and reports whether it was granted.
func takeTurn(t *testing.T, r *target.Responder, who byte, hold time.Duration) bool {
	l, denied := r.Grant(t.Context(), protocol.LeaseRequest{Node: "x", Instance: "x"}, netip.AddrFrom4([4]byte{10, 0, 0, who}))
	if denied != nil {
		return false
	}
	time.Sleep(hold)
	l.End(nil)
	<-l.Finished
	return true
}

// TestGreedyPair: peers that hold the lease by turns do not keep it from another, nor from this node.
func TestGreedyPair(t *testing.T) {
	for _, tc := range []struct {
		peers int
		hold  time.Duration
	}{{1, time.Second}, {2, 100 * time.Millisecond}, {2, time.Second}, {2, 8 * time.Second}, {3, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			r, leases := greedyNode(t, tc.peers, tc.hold)
			time.Sleep(20 * time.Second)
			// All have it once before one that had its turn has a claim again, and once more. It asks each maxRetry.
			bound := 2*time.Duration(tc.peers+1)*tc.hold + 2*protocol.RetryMost
			for name, turn := range map[string]func() bool{
				"a third": func() bool { return takeTurn(t, r, 99, 0) },
				"this node": func() bool {
					if _, ok := r.Node.Slot.Acquire(t.Context(), 0, netip.Addr{}, "asking"); !ok {
						return false
					}
					r.Node.Slot.Start(netip.Addr{})
					r.Node.Slot.Release()
					return true
				},
			} {
				for range 3 {
					start := time.Now()
					for !turn() && time.Since(start) < time.Hour {
						time.Sleep(protocol.RetryMost)
					}
					if took := time.Since(start); took > bound {
						t.Errorf("%+v: %s has its turn after %v, want %v", tc, name, took, bound)
					}
				}
			}
			synctest.Wait()
			for i := range leases {
				if leases[i].Load() == 0 {
					t.Errorf("%d peers, %v each: peer %d had none", tc.peers, tc.hold, i+1)
				}
			}
		})
	}
}

// TestClaimLapses: one that was denied and does not come back keeps the lease from nobody for longer than its claim,
// and one that was denied for another reason has no claim.
func TestClaimLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, leases := greedyNode(t, 2, time.Second)
		time.Sleep(20 * time.Second)
		for r.Node.Slot.Holder() == "" {
			time.Sleep(again / 3)
		}
		r.Node.Slot.Deny(netip.MustParseAddr("10.0.0.99"))
		synctest.Wait()
		before := leases[0].Load() + leases[1].Load()
		time.Sleep(2 * node.ClaimTime)
		synctest.Wait()
		if n := leases[0].Load() + leases[1].Load() - before; n < int64(node.ClaimTime/time.Second)*3/4 {
			t.Errorf("%d leases of a second in %v after a claim of %v", n, 2*node.ClaimTime, node.ClaimTime)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
		r, _ := greedyNode(t, 0, 0)
		s := r.Node.Slot
		hold := func(who netip.Addr) { s.Acquire(t.Context(), 0, who, ""); s.Start(who); s.Release() }
		s.Acquire(t.Context(), 0, a, "")
		s.Start(a)
		s.Acquire(t.Context(), 0, c, "") // denied
		s.Release()
		hold(b)
		if wait := s.Cooldown(b); wait != protocol.RetryLeast {
			t.Errorf("waits %v for a claim", wait)
		}
		if wait := s.Cooldown(a); wait != 0 {
			t.Errorf("one that held it when the other was denied waits %v", wait)
		}
		ask := protocol.LeaseRequest{Node: "c", Instance: r.Node.Instance + "c"}
		r.Mu.Lock()
		r.QuietUntil = time.Now().Add(time.Second)
		r.Mu.Unlock()
		if _, denied := r.Grant(t.Context(), ask, c); denied == nil || s.Cooldown(b) == 0 {
			t.Errorf("%v ends a claim although the asker was invited to retry", denied)
		}
		s.Waive(c)
		if wait := s.Cooldown(b); wait != 0 {
			t.Errorf("waits %v for one that had its turn", wait)
		}
	})
}
