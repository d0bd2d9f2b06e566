package probe

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestScheduleHolds: while a node is reserved, its schedule contacts no peer, even for an overdue round.
func TestScheduleHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFound(t, "x:1")
		defer f.Node.Close()
		f.Publish()
		if f.Postpone("x:1", true) {
			t.Error("an overdue round is postponed")
		}
		if _, ok := f.Node.Reserved.Take(node.ReservedHere, "measuring", time.Hour); !ok {
			t.Fatal("it is reserved already")
		}
		if !f.Postpone("x:1", true) {
			t.Error("an overdue round comes between")
		}
		f.Node.Reserved.End(node.ReservedHere)
		if f.Postpone("x:1", true) {
			t.Error("the reservation did not end")
		}
	})
}

// TestReservation: there is one holder at a time, which others cannot end. The reservation ends by timeout.
func TestReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(node.Reservation)
		take := func(key string, want bool) {
			t.Helper()
			if other, ok := r.Take(key, "held by "+key, node.RingReserved); ok != want || ok != (other == "") {
				t.Errorf("%s: %t, %q", key, ok, other)
			}
		}
		take("a", true)
		take("a", true)
		take("b", false)
		r.End("b")
		if got := r.Against("b"); got != "held by a" || r.Against("a") != "" {
			t.Errorf("%q", got)
		}
		time.Sleep(node.RingReserved)
		take("b", true)
		r.End("b")
		take("a", true)
	})
}

// TestReservedShare: all peers together have a node reserved for half of the time, however they renew. The node's
// own user does not wait for that.
func TestReservedShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(node.Reservation)
		const hours = 4
		var held time.Duration
		for end := time.Now().Add(hours * time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
			key := []string{"a", "b"}[time.Now().Unix()/600%2]
			_, _ = r.Take(key, "x", node.RingReserved)
			if r.Against("") != "" {
				held += time.Second
			}
		}
		if part := held.Hours() / hours; part < 0.4 || part > 0.6 {
			t.Errorf("reserved for %.2f of the time", part)
		}
		time.Sleep(node.RingReserved)
		if _, ok := r.Take(node.ReservedHere, "x", node.MaxReserved); !ok {
			t.Error("the node's own user is refused")
		}
	})
}

// TestAskerIsNext: an interactive asker that finds the peer busy is served next, before the peer's schedule and
// before others.
func TestAskerIsNext(t *testing.T) {
	p := preparePair(t, 1, nil)
	resp, err := target.NewResponder(p.b, p.opts)
	if err != nil {
		t.Fatal(err)
	}
	first, second := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	ask := func(from netip.Addr, waits bool, ring string) *failure.Failure {
		l, f := resp.Grant(t.Context(), protocol.LeaseRequest{Node: from.String(), Instance: "i", RailSeconds: 0.01,
			Waits:       waits,
			Reservation: ring}, from)
		if l != nil {
			l.End(nil)
			<-l.Finished
		}
		return f
	}
	wants := func(why string, f *failure.Failure, part string) {
		t.Helper()
		if (f == nil) != (part == "") || f != nil && (f.Reason != failure.Busy || !strings.Contains(f.Detail, part)) {
			t.Errorf("%s: %v, want %q", why, f, part)
		}
	}
	if _, ok := p.b.Slot.Acquire(t.Context(), 0, netip.Addr{}, "asking c"); !ok {
		t.Fatal("taken")
	}
	wants("by schedule", ask(first, false, ""), "asking c")
	if other := p.b.Reserved.Against(""); other != "" {
		t.Errorf("a scheduled round reserves: %s", other)
	}
	wants("by hand", ask(first, true, ""), "asking c")
	p.b.Slot.Release()
	wants("another", ask(second, false, ""), "about to answer 10.0.0.1")
	if p.b.Reserved.Against("") == "" {
		t.Error("the schedule may come between")
	}
	wants("again", ask(first, true, ""), "")
	wants("another afterwards", ask(second, false, ""), "")
	if _, ok := p.b.Reserved.Take(protocol.ReservedByRing("r"), "reserved for a ring", node.RingReserved); !ok {
		t.Fatal("reserved")
	}
	wants("beside a ring", ask(first, true, ""), "reserved for a ring")
	wants("of the ring", ask(first, true, "r"), "")
}

// TestWorkerEndReported: a node whose worker is killed while it answers reports why, and what it was doing.
func TestWorkerEndReported(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, slowly)
	ended := make(chan string, 8)
	p.b.Opts.WorkerEnded = func(why, during string) { ended <- why + ", " + during }
	res := p.during(failure.StageSolo, func() { p.signal("b", unix.SIGKILL) })
	if res.Reason != failure.PeerWorker {
		t.Fatalf("%s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
	}
	select {
	case got := <-ended:
		if got != "signal: killed, answering a" || len(ended) > 0 {
			t.Errorf("%q, and %d more", got, len(ended))
		}
	default:
		t.Error("nothing was reported")
	}
}

// TestRingBesideSchedules: nodes that ask each other all the time pause their schedules for a ring, and continue
// afterwards.
func TestRingBesideSchedules(t *testing.T) {
	p := preparePair(t, 2, nil)
	nodes, all := ringOf(t, p, everybody)
	var rounds atomic.Int64
	for i, n := range all {
		opts := p.opts
		opts.Interval, opts.Timeout, opts.SoloEvery, opts.Budget = time.Second, 20*time.Second, 1,
			options.Budget{Share: 1}
		opts.Peers = slices.Delete(slices.Clone(nodes), i, i+1)
		prober := schedule.NewProber(n, opts, func(r result.Result) {
			if r.Outcome != result.Skipped {
				rounds.Add(1)
			}
		}, quiet(options.Events{}))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { prober.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
	}
	if !within(3*time.Minute, func() bool { return rounds.Load() > 3 }) {
		t.Fatal("no rounds")
	}
	for i := range 2 {
		res, err := Ring(t.Context(), p.opts.Security, nodes, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range res.Members {
			if m.Failure != nil && (m.Failure.Reason == failure.Busy || m.Failure.Reason == failure.Cooldown) {
				t.Errorf("ring %d, %s: %v", i, m.Node, m.Failure)
			}
		}
	}
	for _, n := range all {
		if other := n.Reserved.Against(""); other != "" {
			t.Errorf("%s is still %s", n.Name(), other)
		}
	}
	before := rounds.Load()
	if !within(3*time.Minute, func() bool { return rounds.Load() > before }) {
		t.Error("the schedules do not go on")
	}
}
