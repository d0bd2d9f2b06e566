package probe

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestFairness: a peer that held the slot while others were denied waits as long as it held it, or until one of them
// has had it; nobody else waits.
func TestFairness(t *testing.T) {
	a, b, self := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.Addr{}
	type step struct {
		do   func(*node.Slot)
		wait map[netip.Addr]time.Duration
	}
	begin := func(who netip.Addr) func(*node.Slot) { return func(s *node.Slot) { s.Start(who) } }
	refused := func(who netip.Addr) func(*node.Slot) { return func(s *node.Slot) { s.Deny(who) } }
	sleep := func(d time.Duration) func(*node.Slot) { return func(*node.Slot) { time.Sleep(d) } }
	end := func(s *node.Slot) {
		s.Place <- struct{}{} // which release frees
		s.Release()
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
			slot := node.NewSlot()
			for i, s := range steps {
				s.do(slot)
				for who, want := range s.wait {
					if got := slot.Cooldown(who); got != want {
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
		defer f.Node.Close()
		greedy := netip.MustParseAddr("10.0.0.66")
		f.Publish()
		if _, ok := f.Node.Slot.Acquire(t.Context(), 0, greedy, "answering greedy"); !ok {
			t.Fatal("the slot is taken")
		}
		f.Node.Slot.Start(greedy)
		time.Sleep(4 * time.Second)
		if !f.Postpone("x:1", false) {
			t.Error("asked while the slot is taken")
		}
		f.Node.Slot.Release()
		if wait := f.Node.Slot.Cooldown(greedy); wait != 4*time.Second {
			t.Errorf("it waits %v, want 4s", wait)
		}
		if f.Postpone("x:1", false) {
			t.Error("not asked although the slot is free")
		}
	})
}

// TestDisturbedCounts: a round that made a burst counts, whatever its result: the next one is not full again.
func TestDisturbedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFound(t, "x:1")
		defer f.Node.Close()
		f.Publish()
		for i, tc := range []struct {
			res  result.Result
			want int
		}{
			{result.Result{Outcome: result.Reached, Transport: result.RDMA, Reason: failure.Disturbed, Bytes: 1 << 30,
				StripedFailure: &failure.Failure{Reason: failure.Disturbed}}, 1},
			{result.Result{Outcome: result.Reached, Transport: result.RDMA, Reason: failure.Busy, Bytes: 1 << 10}, 1},
			{result.Result{Outcome: result.Skipped, Transport: result.NoTransport, Reason: failure.Busy}, 1},
			{result.Result{Outcome: result.OK, Transport: result.RDMA, Bytes: 1 << 30}, 2},
		} {
			f.Report("x:1", tc.res)
			if got := f.Peers["x:1"].Rounds; got != tc.want {
				t.Errorf("after result %d: %d rounds, want %d", i, got, tc.want)
			}
		}
	})
}

// TestOverdueRound: one that was denied for long waits for the transfers of both nodes, but not for a job. So does one
// that somebody waits for, and for its turn.
func TestOverdueRound(t *testing.T) {
	taken := protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is asking somebody")
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
		{"a round in time, this node is taken", false, false, 5 * time.Second, nil, 0, round.SlotTime, false},
		{"a round in time, the peer is taken", false, false, 0, taken, 5 * time.Second, 0, false},
		{"this node is taken", true, false, 5 * time.Second, nil, 0, 5 * time.Second, true},
		{"this node is taken for too long", true, false, time.Minute, nil, 0, round.OverdueTime, false},
		{"this node is taken, a short timeout: skipped", true, false, time.Minute, nil, 0, -1, false},
		{"the peer is taken, a short timeout: skipped", true, false, 0, taken, time.Minute, -1, false},
		{"the peer is taken", true, false, 0, taken, 5 * time.Second, 17 * round.AskEvery, true},
		{"the peer is taken for too long", true, false, 0, taken, time.Minute, 34 * round.AskEvery, false},
		{"a job", true, false, 0, protocol.Deny(failure.Busy, "a job uses the rails"), time.Minute, 0, false},
		{"a cooldown", true, false, 0, protocol.Later(protocol.RetryLeast, failure.Cooldown, "others' turn"), time.Minute, 0, false},
		{"by hand, this node is taken", false, true, 5 * time.Second, nil, 0, 5 * time.Second, true},
		{"by hand, the peer is taken", false, true, 0, taken, 5 * time.Second, 17 * round.AskEvery, true},
		{"by hand, a cooldown", false, true, 0, protocol.Later(2*time.Second, failure.Cooldown, "others' turn"),
			2 * time.Second, 2 * time.Second, true},
		{"by hand, a long cooldown", false, true, 0, protocol.Later(time.Minute, failure.Cooldown, "others' turn"),
			time.Minute, 0, false},
		{"by hand, a job", false, true, 0, protocol.Deny(failure.Busy, "a job uses the rails"), time.Minute, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := node.NewNode(node.Options{Name: "self", Rails: func() ([]rail.Rail, error) { return nil, nil }})
			defer n.Close()
			if tc.own > 0 {
				n.Slot.Acquire(t.Context(), 0, netip.MustParseAddr("10.0.0.1"), "answering another")
				time.AfterFunc(tc.own, n.Slot.Release)
			}
			r := round.Round{Pairing: round.Pairing{Node: n, Client: new(control.Client)}, Overdue: tc.overdue,
				Plan: round.Plan{Options: options.DefaultOptions(), Interactive: tc.byHand}}
			timeout := options.DefaultOptions().Timeout
			if tc.took < 0 { // at most half of the round's time
				timeout = 8 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			start := time.Now()
			err := r.Reserve(ctx)
			if err == nil {
				err = r.Persist(ctx, func() error {
					if time.Since(start) < tc.theirs {
						return tc.denied
					}
					return nil
				})
			}
			took := time.Since(start)
			if f, ok := errors.AsType[*failure.Failure](err); tc.took < 0 && took <= timeout/2 && ok &&
				f.Reason.Skips() {
				took = tc.took
			}
			if took != tc.took || (err == nil) != tc.granted {
				t.Errorf("%s: %v after %v, want %v after %v", tc.why, err, took, tc.granted, tc.took)
			}
			time.Sleep(time.Minute)
		})
	}
}
