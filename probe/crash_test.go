package probe

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

func slowly(_ string, _ int, d *fakeverbs.Device) { d.Rate = 4e6 }

// TestWorkerKilled: a worker killed during a burst, on either end, costs that round its RDMA. After the back-off,
// the next round is OK.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"a", "b"} {
		t.Run("in the middle, of "+node, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 1, slowly)
			res := p.during(failure.StageSolo, func() { p.signal(node, unix.SIGKILL) })
			want := map[string]failure.Reason{"a": failure.WorkerCrashed, "b": failure.PeerWorker}[node]
			if res.Outcome != result.Fallback || res.Reason != want || !res.Verified {
				t.Fatalf("%s because of %q (%s), %v", res.Outcome, res.Reason, res.Detail, res.Failures)
			}
			if !strings.Contains(res.Detail, "signal: killed") || strings.Contains(res.Detail,
				"on the peer: ") != (node == "b") {
				t.Errorf("how and where it ended is not said: %s", res.Detail)
			}
			p.clean()
			p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.Rate = 200e6 })
			time.Sleep(1100 * time.Millisecond) // longer than the first back-off
			res = p.round()
			if res.Outcome != result.OK {
				t.Errorf("the next round: %s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
			}
			if n := p.a.Worker.Restarts() + p.b.Worker.Restarts(); n != 1 {
				t.Errorf("%d restarts", n)
			}
		})
		t.Run("between rounds, of "+node, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 1, nil)
			for range 3 {
				if res := p.round(); res.Outcome != result.OK {
					t.Fatalf("%s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
				}
				pid := p.signal(node, unix.SIGKILL)
				if !within(5*time.Second, func() bool { return unix.Kill(pid, 0) == unix.ESRCH }) {
					t.Fatal("the worker does not die")
				}
				time.Sleep(100 * time.Millisecond) // longer than it takes to record the exit of the worker
			}
		})
	}
}

// TestWorkerStopped: a stopped worker is killed, and the round falls back to TCP.
func TestWorkerStopped(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, slowly)
	p.opts.Timeout = 40 * time.Second
	before := p.a.Worker
	start := time.Now()
	go func() {
		if within(20*time.Second, func() bool { return p.a.Slot.Holder() != "" && len(p.fabric.Left()) > 0 }) {
			p.signal("a", unix.SIGSTOP)
		}
	}()
	res := p.ask()
	if res.Outcome != result.Fallback || res.Reason != failure.WorkerTimeout || before.Restarts() != 1 {
		t.Errorf("%s because of %q (%s) after %v, %d restarts", res.Outcome, res.Reason, res.Detail, time.Since(start),
			before.Restarts())
	}
	p.clean()
}

// TestWorkerHangsInPost: a worker whose provider does not return is killed.
func TestWorkerHangsInPost(t *testing.T) {
	t.Parallel()
	p := impatientPair(t)
	p.opts.Timeout = 40 * time.Second
	p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.HangPost = true })
	res := p.round()
	if res.Outcome != result.Fallback || res.Reason != failure.WorkerTimeout ||
		res.Failures[0].Stage != failure.StageReach {
		t.Errorf("%s because of %q (%s), %v", res.Outcome, res.Reason, res.Detail, res.Failures)
	}
}

// TestWorkerHangsThere: if the target's worker hangs, the asker learns it in time, and continues.
func TestWorkerHangsThere(t *testing.T) {
	t.Parallel()
	p := impatientPair(t)
	p.opts.Timeout = 40 * time.Second
	p.fabric.Set("b", "mlx5_0", func(k *fakeverbs.Knobs) { k.HangOpen = true })
	res := p.round()
	if res.Outcome != result.Fallback || res.Reason != failure.PeerWorker || !strings.HasPrefix(res.Detail,
		"on the peer: the worker process did not answer") {
		t.Errorf("%s because of %q (%s), %v", res.Outcome, res.Reason, res.Detail, res.Failures)
	}
}

// TestCancel: an interrupted round stops at once in any stage, and no worker has to be killed.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, stage := range []failure.Stage{failure.StageHello, failure.StageLease, failure.StageConnect,
		failure.StageReach, failure.StageSolo, failure.StageStriped, failure.StageBaseline} {
		t.Run(string(stage), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var at time.Time
			res := Bench(ctx, p.a, p.opts, p.peer, func(g result.Progress) {
				if g.Stage == stage && at.IsZero() {
					at = time.Now()
					cancel()
				}
			})
			took := time.Since(at)
			p.clean()
			if at.IsZero() {
				t.Fatalf("never came to %s: %s because of %q (%s)", stage, res.Outcome, res.Reason, res.Detail)
			}
			if took > p.opts.Timeout/2 {
				t.Errorf("it took %v", took)
			}
			if stage == failure.StageBaseline { // the results of RDMA stay valid
				if res.Outcome != result.OK || len(res.Failures) > 0 {
					t.Errorf("%s because of %q (%s), %v", res.Outcome, res.Reason, res.Detail, res.Failures)
				}
			} else if res.Outcome != result.Skipped || res.Reason != failure.Canceled ||
				res.Transport != result.NoTransport {
				t.Errorf("%s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
			}
			if n := p.a.Worker.Restarts() + p.b.Worker.Restarts(); n > 0 {
				t.Errorf("%d workers were killed", n)
			}
		})
	}
}

// TestBudgetOfBrokenRound: bytes moved before a round was interrupted are charged to both nodes.
func TestBudgetOfBrokenRound(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, slowly)
	const budget = 64 << 20 // 19 kB per second
	p.opts.Budget = options.Budget{Bytes: budget}
	p.setBudget(budget)
	ctx, cancel := context.WithCancel(t.Context())
	res := Bench(ctx, p.a, p.opts, p.peer, func(g result.Progress) {
		if g.Stage == failure.StageSolo && g.Done > 1<<20 {
			cancel()
		}
	})
	if res.Reason != failure.Canceled || res.Bytes < 1<<20 {
		t.Errorf("%s because of %q, %d bytes", res.Outcome, res.Reason, res.Bytes)
	}
	p.clean()
	for what, left := range map[string]float64{"asked": p.a.AskBudget.Remaining() * p.rate("a"),
		"answered": p.answerBytes()} {
		if used := budget - left; used < 0.9*float64(res.Bytes) || used > float64(res.Bytes) {
			t.Errorf("%s: charged %.0f bytes of %d", what, used, res.Bytes)
		}
	}
}
