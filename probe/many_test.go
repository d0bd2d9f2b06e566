package probe

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// descriptors returns how many file descriptors a process has open.
func descriptors(t *testing.T, pid string) int {
	t.Helper()
	list, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// residentMemory returns the resident memory of a process in MiB.
func residentMemory(t *testing.T, pid string) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / (1 << 20)
}

// TestSlowSetup: time limits of the control channel and of both workers grow with the numbers of rails and queue
// pairs. Here each end needs longer to connect than any other request may take.
func TestSlowSetup(t *testing.T) {
	t.Parallel()
	const queuePairs, delay = 16, 990 * time.Millisecond // the queue pairs of a rail connect one after the other
	p := newPair(t, 8, func(_ string, _ int, d *fakeverbs.Device) { d.RTRDelay = delay })
	p.opts.QueuePairs, p.opts.Timeout = queuePairs, 2*time.Minute
	res := p.round()
	measured := res.Outcome == result.OK || res.Reason == failure.Disturbed // the figure is disturbed on a busy machine
	if !measured || len(res.Failures) > 0 || res.Duration < 2*queuePairs*delay ||
		queuePairs*delay < control.AnswerTime {
		t.Errorf("%s because of %q (%s) after %v, %v", res.Outcome, res.Reason, res.Detail, res.Duration, res.Failures)
	}
	if n := p.a.Worker.Restarts() + p.b.Worker.Restarts(); n > 0 {
		t.Errorf("%d workers were killed", n)
	}
	p.clean()
}

// TestManyRounds: memory and descriptors of this process and both workers do not grow from round to round.
// RAILSCOPE_TEST_ROUNDS=1000 runs it longer.
func TestManyRounds(t *testing.T) {
	rounds, warm := 30, 10
	if n, err := strconv.Atoi(os.Getenv("RAILSCOPE_TEST_ROUNDS")); err == nil && n > 2 {
		rounds, warm = n, max(n/10, 1)
	}
	p := newPair(t, 2, nil)
	p.opts.Burst, p.opts.Budget = time.Millisecond, options.Budget{Share: 1}
	p.b.SetBudget(p.opts.Budget)
	pids := func() []string {
		list := []string{"self"}
		for _, node := range []string{"a", "b"} {
			for _, pid := range p.workers(node) {
				list = append(list, strconv.Itoa(pid))
			}
		}
		return list
	}
	var before []string
	var memory []float64
	var fds []int
	goroutines := 0
	start := time.Now()
	for i := range rounds {
		r := round.Round{Pairing: round.Pairing{Node: p.a},
			Plan: round.Plan{Options: p.opts, Full: i%p.opts.SoloEvery == 0},
			Peer: p.peer, Progress: func(result.Progress) {}}
		if res := r.Run(context.Background()); res.Outcome != result.OK || len(res.Failures) > 0 {
			t.Fatalf("round %d: %s because of %q (%s), %v", i, res.Outcome, res.Reason, res.Detail, res.Failures)
		}
		if i+1 == warm {
			debug.FreeOSMemory()
			goroutines = runtime.NumGoroutine()
			for _, pid := range pids() {
				before, memory, fds = append(before, pid), append(memory, residentMemory(t, pid)),
					append(fds, descriptors(t, pid))
			}
		}
	}
	took := time.Since(start)
	p.clean()
	debug.FreeOSMemory()
	for i, pid := range pids() {
		if i >= len(before) || before[i] != pid {
			t.Fatalf("processes %v, there were %v", pids(), before)
		}
		now, open := residentMemory(t, pid), descriptors(t, pid)
		t.Logf("process %d: %.1f MiB after %d rounds, %.1f after %d; %d descriptors, %d", i, memory[i], warm, now,
			rounds, fds[i], open)
		if now > memory[i]*1.2+8 {
			t.Errorf("process %d grew from %.1f MiB to %.1f", i, memory[i], now)
		}
		if open > fds[i]+3 {
			t.Errorf("process %d: from %d to %d descriptors", i, fds[i], open)
		}
	}
	t.Logf("%.1f rounds a second, %d goroutines, %d after %d", float64(rounds)/took.Seconds(), runtime.NumGoroutine(),
		goroutines, warm)
	if n := runtime.NumGoroutine(); n > goroutines+8 {
		t.Errorf("from %d to %d goroutines", goroutines, n)
	}
	if n := p.a.Worker.Restarts() + p.b.Worker.Restarts(); n > 0 {
		t.Errorf("%d restarts", n)
	}
}
