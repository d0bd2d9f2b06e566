package probe

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// job fills rails with traffic of others, until stop is called, in the direction that rounds from a to b do not use.
func (p *pairOfNodes) job(node string, rails ...int) (stop func()) {
	p.t.Helper()
	counter := map[string]string{"a": "port_rcv_data", "b": "port_xmit_data"}[node]
	var stops []func()
	for _, i := range rails {
		stops = append(stops, p.foreign(node, i, counter))
	}
	return func() {
		var stopping sync.WaitGroup
		for _, s := range stops {
			stopping.Go(s)
		}
		stopping.Wait()
	}
}

// busyPair returns a pair whose rounds wait for gaps. The devices carry 4 ms in each write, so that a burst takes as
// long as a busy machine delays the polling thread.
func busyPair(t *testing.T) *pairOfNodes {
	p := newPair(t, 2, nil)
	p.opts.WhenBusy, p.opts.GapWait, p.opts.GapBurst = options.WhenBusyGap, 20*time.Second, 100*time.Millisecond
	p.opts.Depth = 32
	return p
}

// whenWaiting calls do as soon as node a waits for a gap with an open session.
func (p *pairOfNodes) whenWaiting(do func()) {
	p.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if p.a.Gaps.Slot.Holder() != "" && len(p.fabric.Left()) > 0 && p.a.Slot.Holder() == "" {
			do()
			return
		}
	}
	p.t.Error("the round does not wait for a gap")
}

// left returns the reason why each rail was left out of the bursts, in order.
func left(res *result.Result) (list []result.Reason) {
	for i := range res.Rails {
		reason := result.Reason("")
		if f := res.Rails[i].Left; f != nil {
			reason = f.Reason
		}
		list = append(list, reason)
	}
	return list
}

// TestReached: while others use all rails of an end, the peer is reached over each, within what a lease for that
// allows. No burst is made, and the round is neither good nor bad.
func TestReached(t *testing.T) {
	for _, tc := range []struct {
		why, busy string
		budget    string // end without budget
		reason    result.Reason
		detail    string
	}{
		{"this node's rails are busy", "a", "", failure.Busy, "carries other traffic"},
		{"the peer's rails are busy", "b", "", failure.Busy, "on the peer"},
		{"this node has no budget", "", "a", failure.Budget, "this node's probe budget is used up"},
		{"the peer has no budget", "", "b", failure.Budget, "the peer's probe budget"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			p := newPair(t, 2, nil)
			if tc.busy != "" {
				p.job(tc.busy, 0, 1)
			}
			switch tc.budget {
			case "a":
				p.a.AskBudget.Resize(time.Nanosecond)
				p.a.SetBudget(options.Budget{Share: 1e-12})
				_, _ = p.a.AskBudget.Reserve(time.Nanosecond)
			case "b":
				p.setBudget(1)
				_, _ = p.b.AnswerBudget.Reserve(time.Nanosecond)
			}
			before := p.answerBytes()
			res := p.scheduled(p.a)
			p.clean()
			if res.Outcome != result.Reached || res.Transport != result.RDMA || res.Reason != tc.reason ||
				!strings.Contains(res.Detail, tc.detail) || res.RetryAfter != 0 || len(res.Failures) > 0 ||
				res.Measured() || res.Verified || res.BurstSkipped == nil || res.BurstSkipped.Reason != tc.reason {
				t.Errorf("%s because of %q (%s), %v", res.Outcome, res.Reason, res.Detail, res.Failures)
			}
			for i := range res.Rails {
				one := &res.Rails[i]
				if one.Latency == nil || one.PathMTU == 0 || one.Left == nil || one.Busy != (tc.busy != "") {
					t.Errorf("rail %d: %+v", i, *one)
				}
				if one.Bytes == 0 || one.Bytes+80*int64(p.opts.LatencySamples) > protocol.ReachBytes {
					t.Errorf("rail %d carried %d bytes", i, one.Bytes)
				}
			}
			if used := before - p.answerBytes(); used > 1e6 {
				t.Errorf("%.0f bytes of the peer's budget", used)
			}
			if res := p.scheduled(p.a); res.Outcome != result.Skipped || res.Reason != failure.Cooldown {
				t.Errorf("right afterwards: %s because of %q", res.Outcome, res.Reason)
			}
		})
	}
}

// TestReachBounds: a lease to reach a node allows neither more memory, nor TCP, nor memory of GPUs, nor more time; nor
// a claim of the slot.
func TestReachBounds(t *testing.T) {
	p := newPair(t, 1, nil)
	p.job("b", 0)
	h := p.holder()
	if f := h.acquirePart("c", 1<<20, protocol.Measure); f == nil || f.Reason != failure.Busy {
		t.Fatalf("a lease for a whole round: %v", f)
	}
	if f := h.acquirePart("c", 1<<20, protocol.Reach); f != nil {
		t.Fatal(f)
	}
	start := time.Now()
	const rails = `"rails":[{"rail":"0","remote":{"qpns":[1],"psns":[1]}}]`
	for _, body := range []string{
		`{"transport":"rdma","buffer":69632,"depth":1,"queue_pairs":1,` + rails + `}`,
		`{"transport":"rdma","buffer":4096,"depth":1,"queue_pairs":1,"memory":"cuda_dmabuf",` + rails + `}`,
		`{"transport":"tcp","buffer":4096,"depth":1,"queue_pairs":1,` + rails + `}`,
	} {
		if _, f := h.do(http.MethodPost, h.id+"/open", body); f.Reason != failure.Budget {
			t.Errorf("%s: %v", body, f)
		}
	}
	if _, f := h.do(http.MethodPost, h.id+"/claim", `{"rails":["0"]}`); f.Reason != failure.Protocol {
		t.Errorf("a claim: %v", f)
	}
	f := h.ended()
	if took := time.Since(start); f.Reason != failure.LeaseLost || took < protocol.ReachTime-time.Second ||
		took > protocol.ReachTime+3*time.Second {
		t.Errorf("the lease ends after %v: %v", took, f)
	}
}

// TestGapClaim: a claim of the slot without a verification ends with its lease, which others can have then. A claim of
// rails that are not quiet takes nothing.
func TestGapClaim(t *testing.T) {
	p := newPair(t, 1, nil)
	stop := p.job("b", 0)
	h := p.holder()
	if f := h.acquirePart("c", 1<<20, protocol.Gap); f != nil {
		t.Fatal(f)
	}
	if text, f := h.do(http.MethodPost, h.id+"/claim", `{"rails":["0"]}`); f.Reason != "" || strings.Contains(text, `"0"`) ||
		p.b.Slot.Holder() != "" {
		t.Errorf("a claim of a busy rail: %s %v, the slot is %q", text, f, p.b.Slot.Holder())
	}
	if f := p.holder().acquirePart("d", 1<<20, protocol.Gap); f == nil || f.Reason != failure.Busy || f.RetryAfter == 0 {
		t.Errorf("a second lease for a gap: %v", f)
	}
	stop()
	for {
		e, err := h.events.Next()
		if err != nil || e.End != nil {
			t.Fatalf("the rail is never quiet: %v %v", e.End, err)
		}
		if len(e.Quiet.Rails) == 1 {
			break
		}
	}
	if text, f := h.do(http.MethodPost, h.id+"/claim", `{"rails":["0","x"]}`); f.Reason != "" || text != `{"rails":["0"]}`+"\n" {
		t.Fatalf("a claim: %s %v", text, f)
	}
	if holder := p.b.Slot.Holder(); holder == "" {
		t.Error("the slot is free")
	}
	for {
		e, err := h.events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.End != nil {
			if e.End.Reason != failure.LeaseLost || !strings.Contains(e.End.Detail, "no verification") {
				t.Errorf("the lease ended: %v", e.End)
			}
			break
		}
	}
	p.clean()
}

// TestWholeRound: an older railscope sends over all rails, so it has no lease while others use one of them. To others
// the grant names that rail.
func TestWholeRound(t *testing.T) {
	p := newPair(t, 2, nil)
	p.job("b", 1)
	h := p.holder()
	if f := h.acquirePart("c", 1<<20, protocol.Whole); f == nil || f.Reason != failure.Busy || f.Rail != "1" {
		t.Errorf("an older railscope: %v", f)
	}
	if f := h.acquirePart("c", 1<<20, protocol.Measure); f != nil {
		t.Errorf("this version: %v", f)
	}
}

// TestReachFallback: RDMA that does not work is found while others use the rails, without a transfer over TCP.
func TestReachFallback(t *testing.T) {
	p := newPair(t, 2, nil)
	p.job("a", 0, 1)
	for i := range 2 {
		p.fabric.Set("a", fmt.Sprintf("mlx5_%d", i), func(k *fakeverbs.Knobs) { k.Blocked = true })
	}
	res := p.scheduled(p.a)
	if res.Outcome != result.Fallback || res.Transport != result.TCP || res.Reason != failure.RetryExceeded ||
		len(res.TCP) > 0 || res.BurstSkipped != nil {
		t.Errorf("%s over %s because of %q (%s), %v", res.Outcome, res.Transport, res.Reason, res.Detail, res.TCP)
	}
	p.clean()
}

// TestGap: a round waits until the rails of both ends are quiet, and bursts in the gap over all of them, or alone over
// one that a slow machine quietens later.
func TestGap(t *testing.T) {
	for _, node := range []string{"a", "b"} {
		t.Run(node, func(t *testing.T) {
			p := busyPair(t)
			stop := p.job(node, 0, 1)
			go p.whenWaiting(stop)
			res := p.scheduled(p.a)
			p.clean()
			if res.Outcome != result.OK || !res.InGap || !res.Verified || res.Striped == nil ||
				res.BurstSkipped != nil ||
				res.TCP != nil || res.Waited <= 0 || res.Waited > res.Duration {
				t.Errorf("%s because of %q (%s), %v; waited %v of %v", res.Outcome, res.Reason, res.Detail, res.Failures,
					res.Waited, res.Duration)
			}
			for i := range res.Rails {
				if one := &res.Rails[i]; (one.Striped == nil) == (one.Solo == nil) || !one.Busy || one.Left != nil {
					t.Errorf("rail %d: %+v", i, *one)
				}
			}
		})
	}
}

// TestGapOfOneRail: the other rail is measured at once; the gap has the busy one's figure, alone.
func TestGapOfOneRail(t *testing.T) {
	p := busyPair(t)
	stop := p.job("b", 1)
	go p.whenWaiting(stop)
	res := p.scheduled(p.a)
	p.clean()
	if res.Outcome != result.OK || res.InGap || res.Striped == nil || res.BurstSkipped != nil ||
		res.Rails[0].Solo == nil || res.Rails[0].Striped == nil || res.Rails[1].Solo == nil ||
		res.Rails[1].Striped != nil || *res.Striped != res.Rails[0].Striped.BytesPerSecond() {
		t.Errorf("%s because of %q (%s), %+v", res.Outcome, res.Reason, res.Detail, res.Rails)
	}
}

// TestNoGap: without a gap, no burst is made, and the wait ends in time; while a job fills one rail, the other's gaps
// are used.
func TestNoGap(t *testing.T) {
	p := busyPair(t)
	p.job("a", 0, 1)
	p.opts.GapWait = 300 * time.Millisecond
	res := p.scheduled(p.a)
	p.clean()
	if res.Outcome != result.Reached || res.Reason != failure.NoGap || res.Measured() || res.Waited < p.opts.GapWait {
		t.Errorf("%s because of %q (%s), waited %v", res.Outcome, res.Reason, res.Detail, res.Waited)
	}
}

// TestGapCollides: a burst in a gap that meets traffic of others at either end has no figure, and no other is made over
// that rail for an hour.
func TestGapCollides(t *testing.T) {
	for _, node := range []string{"a", "b"} {
		t.Run(node, func(t *testing.T) {
			p := busyPair(t)
			p.opts.GapBurst = 250 * time.Millisecond // the first report of a burst may be late
			stop := p.job("a", 0, 1)
			go p.whenWaiting(stop)
			var again func()
			r := p.newRound(func(g result.Progress) {
				if g.Stage == failure.StageStriped && g.Done > 0 && again == nil {
					again = p.job(node, 1)
				}
			})
			res := r.Run(context.Background())
			p.clean()
			if again == nil {
				t.Fatalf("no burst: %s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
			}
			if got := left(&res); got[1] != failure.Collided || res.Rails[1].Measured() || res.InGap &&
				res.Striped != nil &&
				res.Rails[0].Striped == nil {
				t.Errorf("%s because of %q (%s), left out %q", res.Outcome, res.Reason, res.Detail, got)
			}
			again()
			other := p.a
			if node == "b" {
				other = p.b
			}
			if f := other.Gaps.Collided("1"); f == nil || f.Reason != failure.Collided {
				t.Errorf("rail 1 at %s: %v", node, f)
			}
		})
	}
}

// TestGapYields: a wait ends when the node is reserved for somebody who waits.
func TestGapYields(t *testing.T) {
	p := busyPair(t)
	p.job("a", 0, 1)
	go p.whenWaiting(func() { p.a.Reserved.Take("ring x", "in a ring", time.Minute) })
	res := p.scheduled(p.a)
	if res.Outcome != result.Reached || res.Reason != failure.Busy || !strings.Contains(res.Detail, "in a ring") ||
		res.Waited >= p.opts.GapWait {
		t.Errorf("%s because of %q (%s), waited %v", res.Outcome, res.Reason, res.Detail, res.Waited)
	}
	p.clean()
}

// TestBurstWhenBusy: with when_busy: burst, the burst is made at once beside the traffic of others.
func TestBurstWhenBusy(t *testing.T) {
	p := busyPair(t)
	p.opts.WhenBusy = options.WhenBusyBurst
	p.resp.Opts.WhenBusy = options.WhenBusyBurst
	p.job("a", 0, 1)
	p.job("b", 0, 1)
	res := p.scheduled(p.a)
	p.clean()
	if res.Outcome != result.OK || res.Striped == nil || res.InGap || res.Waited != 0 || res.BurstSkipped != nil ||
		!res.Rails[0].Busy || !res.Rails[1].Busy || res.Rails[0].Solo != nil || res.TCP != nil {
		t.Errorf("%s because of %q (%s), %+v", res.Outcome, res.Reason, res.Detail, res.Rails)
	}
}

// newRound returns a round as the schedule makes it.
func (p *pairOfNodes) newRound(progress func(result.Progress)) *round.Round {
	return &round.Round{Pairing: round.Pairing{Node: p.a}, Plan: round.Plan{Options: p.opts}, Peer: p.peer,
		Progress: progress}
}
