//go:build cgo

package worker

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

var keyed = OpenArgs{Transport: TCP, Buffer: size, Seed: seed, Depth: 4, QueuePairs: 2, Key: make([]byte, 32),
	Rails: []RailArg{{Name: "0"}}}

// overTCP opens an asker, and a target that accepts granted bytes.
func overTCP(t *testing.T, a, b *Worker, granted int64) (asker, target *Session) {
	t.Helper()
	there := keyed
	there.Target, there.Grant = true, granted
	target, opened := open(t, b, there)
	asker, _ = open(t, a, keyed)
	to := netip.AddrPortFrom(loopback, opened.TCPPort)
	if c, err := asker.Connect(t.Context(),
		ConnectArgs{Rails: []ConnectRail{{Name: "0", TCP: to}}}); err != nil || len(c) > 0 {
		t.Fatal(err, c)
	}
	return asker, target
}

// TestIntake: a target reports what it received over TCP, during the session and after it. It accepts no more than the
// grant, and reports nothing if the worker was killed.
func TestIntake(t *testing.T) {
	_, a, b := twoEnds(t)
	asker, target := overTCP(t, a, b, size)
	half, err := burst(t.Context(), asker, size/4)
	if err != nil || !wrote(half, size/4) {
		t.Fatal(err, half)
	}
	if in, err := target.Intake(t.Context()); err != nil || in != (Intake{Bytes: half.Rails[0].Bytes}) {
		t.Errorf("after a part of it: %+v, %v, wrote %+v", in, err, half)
	}
	done, err := burst(t.Context(), asker, size)
	if err == nil && done.Rails[0].Failure == nil {
		t.Errorf("more than was granted: %+v", done)
	}
	in, err := target.Intake(t.Context())
	if err != nil || in.Bytes > size || in.Bytes < size/4 || !in.Exceeded {
		t.Errorf("after more than was granted: %+v, %v", in, err)
	}
	if total, err := target.Close(); err != nil || total == nil || total.Bytes > in.Bytes || !total.Exceeded {
		t.Errorf("in all %+v (%v), before %+v", total, err, in)
	}

	_, target = overTCP(t, a, b, size)
	if err := unix.Kill(b.proc.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if total, _ := target.Close(); total != nil {
		t.Error("a worker that was killed is believed to have told")
	}
}

// TestOpenLeavesNothing: an open that is canceled, fails, or follows a crash too soon leaves nothing open.
func TestOpenLeavesNothing(t *testing.T) {
	f, a, b := twoEnds(t)
	for _, wait := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
		connected(t, a, b)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(wait, cancel)
		s, _, err := a.Open(ctx, openArgs(1))
		if err == nil {
			_, err = s.Close()
		} else if s != nil {
			t.Error("a session with an error")
		}
		target, _ := open(t, b, openArgs(2))
		if _, err := target.Close(); err != nil {
			t.Fatal(err)
		}
		if left := f.Left(); len(left) > 0 {
			t.Errorf("canceled after %v (%v): left %v", wait, err, left)
		}
		cancel()
	}
	connected(t, a, b)
	f.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.ListErrno = uint64(unix.ENOSYS) })
	if _, _, err := a.Open(t.Context(), openArgs(1)); reason(t, err) != failure.NoUverbs {
		t.Errorf("without ib_uverbs: %v", err)
	}
	b.Close()
	if left := f.Left(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestCloseKills: a worker that does not confirm the end of a session is killed before Close returns.
func TestCloseKills(t *testing.T) {
	f, a, b := twoEnds(t)
	asker, _ := connected(t, a, b)
	pid := a.proc.pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	asker.setup = 50 * time.Millisecond
	if _, err := asker.Close(); reason(t, err) != failure.WorkerTimeout || alive(pid) {
		t.Errorf("%v, alive: %v", err, alive(pid))
	}
	b.Close()
	if left := f.Left(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
