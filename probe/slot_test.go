package probe

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// TestFairness: a peer that held the slot while others were denied waits as long as it held it, or until one of them
// has had it; nobody else waits.
func TestFairness(t *testing.T) {
	a, b, self := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.Addr{}
	type step struct {
		do   func(*slot)
		wait map[netip.Addr]time.Duration
	}
	begin := func(who netip.Addr) func(*slot) { return func(s *slot) { s.start(who) } }
	refused := func(who netip.Addr) func(*slot) { return func(s *slot) { s.deny(who) } }
	sleep := func(d time.Duration) func(*slot) { return func(*slot) { time.Sleep(d) } }
	end := func(s *slot) {
		s.place <- struct{}{} // which release frees
		s.release()
	}
	for why, steps := range map[string][]step{
		"alone": {{do: begin(a)}, {do: sleep(time.Minute)},
			{do: end, wait: map[netip.Addr]time.Duration{a: 0, b: 0, self: 0}}},
		"its own second request": {{do: begin(a)}, {do: refused(a)}, {do: sleep(time.Minute)},
			{do: end, wait: map[netip.Addr]time.Duration{a: 0}}},
		"others turned away": {{do: begin(a)}, {do: sleep(time.Minute)}, {do: refused(b)},
			{do: end, wait: map[netip.Addr]time.Duration{a: time.Minute, b: 0, self: 0}},
			{do: sleep(40 * time.Second), wait: map[netip.Addr]time.Duration{a: 20 * time.Second}},
			{do: sleep(20 * time.Second), wait: map[netip.Addr]time.Duration{a: 0}}},
		"this node turned away": {{do: begin(a)}, {do: sleep(time.Second)}, {do: refused(self)},
			{do: end, wait: map[netip.Addr]time.Duration{a: time.Second, b: 0}}},
		"another had its turn": {{do: begin(a)}, {do: sleep(time.Minute)}, {do: refused(b)}, {do: end}, {do: begin(b)},
			{do: end, wait: map[netip.Addr]time.Duration{a: 0, b: 0}}},
		"this node's own round": {
			{do: begin(a)}, {do: sleep(time.Minute)}, {do: refused(b)}, {do: end},
			{do: begin(self)}, {do: sleep(time.Second)}, {do: refused(b)},
			{do: end, wait: map[netip.Addr]time.Duration{a: 59 * time.Second, b: 0, self: 0}},
		},
		"this node had its turn": {
			{do: begin(a)}, {do: sleep(time.Minute)}, {do: refused(self)}, {do: end},
			{do: begin(self)}, {do: end, wait: map[netip.Addr]time.Duration{a: 0}},
		},
		"refused between two": {{do: begin(a)}, {do: end}, {do: refused(b), wait: map[netip.Addr]time.Duration{a: 0}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			slot := newSlot()
			for i, s := range steps {
				s.do(slot)
				for who, want := range s.wait {
					if got := slot.cooldown(who); got != want {
						t.Errorf("%s, step %d: %v waits %v, want %v", why, i, who, got, want)
					}
				}
			}
		})
	}
}

// TestGreedyPeer: a peer that holds the slot whenever this node wants to ask has to wait for as long as it held it.
func TestGreedyPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFound(t, "x:1")
		defer f.node.Close()
		greedy := netip.MustParseAddr("10.0.0.66")
		f.publish()
		if _, ok := f.node.slot.acquire(t.Context(), 0, greedy, "answering greedy"); !ok {
			t.Fatal("the slot is taken")
		}
		f.node.slot.start(greedy)
		time.Sleep(4 * time.Second)
		if !f.postpone("x:1") {
			t.Error("asked while the slot is taken")
		}
		f.node.slot.release()
		if wait := f.node.slot.cooldown(greedy); wait != 4*time.Second {
			t.Errorf("it waits %v, want 4s", wait)
		}
		if f.postpone("x:1") {
			t.Error("not asked although the slot is free")
		}
	})
}

// TestDisturbedCounts: a round that moved bytes counts, whatever its result: the next one is not full again.
func TestDisturbedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFound(t, "x:1")
		defer f.node.Close()
		f.publish()
		for i, tc := range []struct {
			res  Result
			want int
		}{
			{Result{Outcome: Skipped, Transport: NoTransport, Reason: failure.Disturbed, Bytes: 1 << 30}, 1},
			{Result{Outcome: Skipped, Transport: NoTransport, Reason: failure.Busy}, 1},
			{Result{Outcome: OK, Transport: RDMA, Bytes: 1 << 30}, 2},
		} {
			f.report("x:1", tc.res)
			if got := f.peers["x:1"].rounds; got != tc.want {
				t.Errorf("after result %d: %d rounds, want %d", i, got, tc.want)
			}
		}
	})
}

// TestOverdueRound: one that was denied for long waits for the transfers of both nodes, but not for a job. So does one
// that somebody waits for, and for its turn.
func TestOverdueRound(t *testing.T) {
	taken := later(retryLeast, failure.Busy, "the peer is asking somebody")
	for _, tc := range []struct {
		why     string
		overdue bool
		byHand  bool
		own     time.Duration // how long this node's slot is taken
		denied  *failure.Failure
		theirs  time.Duration // how long the peer denies
		took    time.Duration // until the lease is granted or denied
		granted bool
	}{
		{"free", false, false, 0, nil, 0, 0, true},
		{"a round in time, this node is taken", false, false, 5 * time.Second, nil, 0, slotTime, false},
		{"a round in time, the peer is taken", false, false, 0, taken, 5 * time.Second, 0, false},
		{"this node is taken", true, false, 5 * time.Second, nil, 0, 5 * time.Second, true},
		{"this node is taken for too long", true, false, time.Minute, nil, 0, overdueTime, false},
		{"the peer is taken", true, false, 0, taken, 5 * time.Second, 17 * askEvery, true},
		{"the peer is taken for too long", true, false, 0, taken, time.Minute, 34 * askEvery, false},
		{"a job", true, false, 0, deny(failure.Busy, "a job uses the rails"), time.Minute, 0, false},
		{"a cooldown", true, false, 0, later(retryLeast, failure.Cooldown, "others' turn"), time.Minute, 0, false},
		{"by hand, this node is taken", false, true, 5 * time.Second, nil, 0, 5 * time.Second, true},
		{"by hand, the peer is taken", false, true, 0, taken, 5 * time.Second, 17 * askEvery, true},
		{"by hand, a cooldown", false, true, 0, later(2*time.Second, failure.Cooldown, "others' turn"),
			2 * time.Second, 2 * time.Second, true},
		{"by hand, a long cooldown", false, true, 0, later(time.Minute, failure.Cooldown, "others' turn"),
			time.Minute, 0, false},
		{"by hand, a job", false, true, 0, deny(failure.Busy, "a job uses the rails"), time.Minute, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := NewNode(NodeOptions{Name: "self", Rails: func() ([]rail.Rail, error) { return nil, nil }})
			defer n.Close()
			if tc.own > 0 {
				n.slot.acquire(t.Context(), 0, netip.MustParseAddr("10.0.0.1"), "answering another")
				time.AfterFunc(tc.own, n.slot.release)
			}
			r := round{node: n, overdue: tc.overdue, byHand: tc.byHand, plan: plan{Options: DefaultOptions()},
				client: new(client)}
			start := time.Now()
			err := r.reserve(t.Context())
			if err == nil {
				err = r.persist(t.Context(), func() error {
					if time.Since(start) < tc.theirs {
						return tc.denied
					}
					return nil
				})
			}
			if took := time.Since(start); took != tc.took || (err == nil) != tc.granted {
				t.Errorf("%s: %v after %v, want %v after %v", tc.why, err, took, tc.granted, tc.took)
			}
			time.Sleep(time.Minute)
		})
	}
}
