//go:build cgo

package worker

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

// TestSession: the target receives what the asker sent.
func TestSession(t *testing.T) {
	f, a, b := twoEnds(t)
	asker, target := connected(t, a, b)
	l, err := asker.Latency(t.Context(), LatencyArgs{Rail: "0", N: 10, Limit: time.Second})
	if err != nil || len(l.Samples) != 10 {
		t.Errorf("latency: %v %v", l, err)
	}
	done, err := burst(t.Context(), asker, size)
	if err != nil || !wrote(done, size) {
		t.Fatal(err, done)
	}
	if v, err := verify(t, target, seed, done, "0"); err != nil || v.Mismatch != -1 || v.Bytes != size {
		t.Errorf("%+v %v", v, err)
	}
	// The next burst must change every place: each pass has its own shift.
	before := done
	done, err = burst(t.Context(), asker, size)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := verify(t, target, seed, done, "0"); err != nil || v.Mismatch != -1 || v.Bytes != size {
		t.Errorf("the second burst: %+v %v", v, err)
	}
	done, err = burst(t.Context(), asker, size)
	if err != nil {
		t.Fatal(err)
	}
	done.Rails[0].Writes = before.Rails[0].Writes
	done.Rails[0].Writes[0]++ // claims one more write in the pass
	if v, err := verify(t, target, seed+1, done, "0"); err != nil || v.Mismatch < 0 {
		t.Errorf("another seed: %+v %v", v, err)
	}
	for _, tc := range []struct {
		why string
		do  func() error
	}{
		{"a rail that is not there", func() error {
			_, err := asker.Latency(t.Context(), LatencyArgs{Rail: "1", N: 1, Limit: time.Second})
			return err
		}},
		{"chunks larger than the buffer", func() error {
			_, err := asker.Burst(t.Context(), failure.StageSolo,
				BurstArgs{Loads: []Load{{Rail: "0", Chunk: size + 1, Cap: size, Depth: 1}}, Slow: time.Second,
					Deadline: time.Second}, nil)
			return err
		}},
		{"a burst of nothing", func() error { _, err := burst(t.Context(), asker, 0); return err }},
		{"no operation", func() error {
			return asker.call(t.Context(), failure.StageOpen, "dance", time.Second, nil, nil, nil)
		}},
		{"no arguments", func() error {
			return asker.call(t.Context(), failure.StageOpen, opBurst, time.Second, "x", nil, nil)
		}},
	} {
		if r := reason(t, tc.do()); r != failure.Other {
			t.Errorf("%s: %q", tc.why, r)
		}
	}
	for _, s := range []*Session{asker, target} {
		if _, err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := f.Left(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if _, err := burst(t.Context(), asker, size); reason(t, err) != failure.Other {
		t.Errorf("a burst after the end: %v", err)
	}
	if a.Restarts()+b.Restarts() > 0 {
		t.Error("a worker died")
	}
}

// TestOpenRefuses: invalid arguments open nothing.
func TestOpenRefuses(t *testing.T) {
	f, a, _ := twoEnds(t)
	rail := openArgs(1).Rails[0]
	for why, change := range map[string]func(*OpenArgs){
		"no rails":       func(o *OpenArgs) { o.Rails = nil },
		"65 rails":       func(o *OpenArgs) { o.Rails = make([]RailArg, 65) },
		"one rail twice": func(o *OpenArgs) { o.Rails = []RailArg{rail, rail} },
		"no buffer":      func(o *OpenArgs) { o.Buffer = 0 },
		"too large":      func(o *OpenArgs) { o.Buffer = MaxMemory + 1 },
		"a short key":    func(o *OpenArgs) { o.Transport, o.Key = TCP, make([]byte, 31) },
	} {
		args := openArgs(1)
		change(&args)
		if _, _, err := a.Open(t.Context(), args); reason(t, err) != failure.Other {
			t.Errorf("%s: %v", why, err)
		}
		if left := f.Left(); len(left) > 0 {
			t.Errorf("%s: left %v", why, left)
		}
	}
}

// TestCancelAtAnyMoment: a canceled burst ends early, whether the cancel comes before it, at its start or during it.
func TestCancelAtAnyMoment(t *testing.T) {
	_, a, b := twoEnds(t)
	for _, wait := range []time.Duration{-1, 0, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond,
		50 * time.Millisecond, 300 * time.Millisecond} {
		asker, _ := connected(t, a, b)
		ctx, cancel := context.WithCancel(t.Context())
		if wait < 0 {
			cancel()
		} else {
			time.AfterFunc(wait, cancel)
		}
		start := time.Now()
		done, err := burst(ctx, asker, 1<<30) // takes 10 s
		if took := time.Since(start); took > wait+5*time.Second || wrote(done, 1<<30) {
			t.Errorf("canceled after %v: %+v in %v, %v", wait, done, took, err)
		}
		cancel()
	}
	if a.Restarts() > 0 {
		t.Error("the worker was killed for it")
	}
}

// TestCrash: a crash is reported with its cause. The delay of RDMA doubles each time, TCP has none, and a successful
// burst resets it.
func TestCrash(t *testing.T) {
	f, a, b := twoEnds(t)
	tcp := OpenArgs{Transport: TCP, Buffer: size, Depth: 1, QueuePairs: 1, Key: make([]byte, 32),
		Rails: []RailArg{{Name: "0"}}}
	crash := func(want time.Duration) {
		t.Helper()
		asker, _ := connected(t, a, b)
		f.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.CrashAt = 1 })
		_, err := burst(t.Context(), asker, size)
		if reason(t, err) != failure.WorkerCrashed || !strings.Contains(err.Error(), "segmentation") {
			t.Errorf("the provider crashed: %v", err)
		}
		f.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.CrashAt = 0 })
		if _, err := burst(t.Context(), asker, size); reason(t, err) != failure.WorkerCrashed {
			t.Errorf("the session afterwards: %v", err)
		}
		if _, err := asker.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, _, err := a.Open(t.Context(), openArgs(1)); reason(t, err) != failure.WorkerBackoff {
			t.Errorf("right after: %v", err)
		}
		if s, _, err := a.Open(t.Context(), tcp); err != nil {
			t.Errorf("TCP right after: %v", err)
		} else if _, err := s.Close(); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		if wait := time.Until(a.notBefore); wait > want || wait < want-time.Second {
			t.Errorf("RDMA waits %v, want %v", wait, want)
		}
		a.notBefore = time.Now() // the delay is over
		a.mu.Unlock()
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		crash(want)
		if n := a.Restarts(); n != uint64(i+1) {
			t.Errorf("%d restarts after %d crashes", n, i+1)
		}
	}
	asker, _ := connected(t, a, b)
	if _, err := burst(t.Context(), asker, size); err != nil {
		t.Fatal(err)
	}
	crash(time.Second)
}

// TestBackoff: the delay doubles up to 5 minutes.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{})
		closed, _ := net.Pipe()
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
			w.proc = &process{conn: closed, gone: make(chan struct{})}
			close(w.proc.gone)
			w.kill(w.proc)
			if got := time.Until(w.notBefore); got != want*time.Second {
				t.Errorf("after crash %d: %v, want %v", i+1, got, want*time.Second)
			}
		}
		w.crashes = 1000
		w.proc = &process{conn: closed, gone: make(chan struct{})}
		w.kill(w.proc)
		if got := time.Until(w.notBefore); got != maxBackoff {
			t.Errorf("after a thousand: %v", got)
		}
	})
}

// TestUnkillable: the number of processes that the kernel does not release is bounded.
func TestUnkillable(t *testing.T) {
	w, _ := newWorker(t, "worker", "RAILSCOPE_LIBIBVERBS=/nonexistent")
	held := &process{gone: make(chan struct{}), pid: 4711}
	w.unkillable = []*process{held, held}
	if _, _, err := w.Open(t.Context(), openArgs(1)); reason(t, err) != failure.WorkerBackoff ||
		!strings.Contains(err.Error(), "4711") {
		t.Errorf("with two that do not end: %v", err)
	}
	close(held.gone)
	if _, _, err := w.Open(t.Context(), openArgs(1)); reason(t, err) != failure.NoLibrary {
		t.Errorf("when they have ended, without a library: %v", err)
	}
}

// TestOddWorkers: a command that is not a worker yields a reason and does not harm the exporter.
func TestOddWorkers(t *testing.T) {
	for _, tc := range []struct {
		as, says string
		command  string
	}{
		{"goner", "exit status 3", ""},
		{"stranger", "what is this?", ""},
		{"", "cannot start", "/nonexistent/railscope"},
		{"", "cannot start", "/etc/passwd"},
	} {
		w, _ := newWorker(t, tc.as)
		if tc.command != "" {
			w.opts.Command = []string{tc.command}
		}
		if _, _, err := w.Open(t.Context(), openArgs(1)); reason(t, err) != failure.WorkerCrashed ||
			!strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s%s: %v, want %q", tc.as, tc.command, err, tc.says)
		}
	}
}

// TestNoise: endless stderr output of a library blocks nothing.
func TestNoise(t *testing.T) {
	w, said := newWorker(t, "talker")
	args := openArgs(1)
	args.Transport, args.Key = TCP, make([]byte, 32)
	open(t, w, args)
	w.Close() // waits for the end of stderr
	said.mu.Lock()
	defer said.mu.Unlock()
	n := 0
	for _, line := range said.list {
		n += len(line)
		if len(line) > 4096 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	last := said.list[len(said.list)-1]
	if said.list[0] != "first" || len(said.list) < logLines || n > 2*logLines*maxLine || !strings.Contains(last, "not logged") {
		t.Errorf("%d lines of %d bytes heard, first %.40q, last %.80q", len(said.list), n, said.list[0], last)
	}
}

// parent starts a worker, prints its PID, and opens a session, which may hang.
func parent() int {
	w := New(Options{Command: []string{os.Args[0]}, Env: []string{role + "=worker"}})
	p, err := w.process(false)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, p.pid)
	go func() { _, _, _ = w.Open(context.Background(), openArgs(1)) }()
	time.Sleep(time.Minute)
	return 0
}

// TestWorkerDiesWithParent: the worker ends when the exporter is killed, even if it hangs in a provider.
func TestWorkerDiesWithParent(t *testing.T) {
	for _, hang := range []bool{false, true} {
		f, _, _ := twoEnds(t)
		f.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.HangOpen = hang })
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), f.Env("a")...), role+"=parent")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := 0
		if line, _ := bufio.NewReader(out).ReadString('\n'); len(line) > 0 {
			_, _ = fmt.Sscan(line, &pid)
		}
		if pid == 0 || !alive(pid) {
			t.Fatal("the parent has no worker")
		}
		if !hang && !within(10*time.Second, func() bool { return len(f.Left()) > 0 }) {
			t.Error("the worker opens nothing")
		} else if hang {
			time.Sleep(500 * time.Millisecond) // by now it probably hangs
		}
		if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if !within(5*time.Second, func() bool { return !alive(pid) }) {
			t.Errorf("hanging %v: the worker is still there", hang)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if left := f.Left(); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	}
}
