//go:build cgo

package verbs

import (
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// only makes a burst over one rail.
func (e *ends) only(rail int, chunk int64) (transfer.BurstDone, error) {
	e.pass += 67
	return e.run.Burst(e.rails[rail:rail+1], transfer.BurstArgs{Loads: e.loads(chunk, 8)[:1], Slow: time.Second,
		Deadline: 5 * time.Second, Pass: e.pass})
}

// TestRailDies: when a rail fails during a burst, the burst ends for all rails, and the others have delivered what the
// result says. The rail stays failed.
func TestRailDies(t *testing.T) {
	for _, tc := range []struct {
		name       string
		knobs      fakeverbs.Knobs
		queuePairs int
		want       failure.Reason
	}{
		{"retries", fakeverbs.Knobs{Rate: 64 * mib, DropAfter: mib}, 1, failure.RetryExceeded},
		{"retries, four queue pairs", fakeverbs.Knobs{Rate: 64 * mib, DropAfter: mib}, 4, failure.RetryExceeded},
		{"from the start", fakeverbs.Knobs{Blocked: true}, 1, failure.RetryExceeded},
		{"fifth write", fakeverbs.Knobs{Rate: 64 * mib, FailEvery: 5, FailStatus: 10}, 1, failure.RemoteAccess},
		{"fifth write, two queue pairs", fakeverbs.Knobs{Rate: 64 * mib, FailEvery: 5, FailStatus: 4}, 2,
			failure.LocalProt},
		{"device", fakeverbs.Knobs{Rate: 64 * mib, FailEvery: 3, FailStatus: 19}, 1, failure.DeviceFatal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			other := fakeverbs.Knobs{Rate: 64 * mib}
			e := connected(t, 4*mib, tc.queuePairs, 8, other, tc.knobs, other)
			o := transfer.BurstArgs{Loads: e.loads(256<<10, 8), Window: time.Hour, Slow: time.Hour,
				Deadline: 20 * time.Second}
			begin := time.Now()
			got, err := e.burst(o)
			if took := time.Since(begin); err != nil || took > bySurprise {
				t.Fatalf("%v after %v", err, took)
			}
			dead := got.Rails[1].Failure
			if dead == nil || dead.Reason != tc.want ||
				!strings.HasPrefix(dead.Detail, "mlx5_1: ") || got.Rails[0].Failure != nil ||
				got.Rails[2].Failure != nil {
				t.Errorf("%v, %v, %v; want %s of mlx5_1", got.Rails[0].Failure, dead, got.Rails[2].Failure, tc.want)
			}
			again, err := e.burst(o)
			if err != nil || again.Rails[1].Failure == nil || again.Rails[1].Failure.Reason != tc.want ||
				again.Rails[1].Bytes != 0 {
				t.Errorf("the next burst: %+v, %v", again, err)
			}
			if got, err := e.only(0, 4096); err != nil || got.Rails[0].Bytes != 8*4096 {
				t.Errorf("a burst over a rail that is left: %+v, %v", got, err)
			}
			if _, _, err := e.run.Latency(e.rails[1], 8, 1, time.Second); reason(err) != tc.want {
				t.Errorf("latency of a dead rail: %v", err)
			}
		})
	}
}

// TestAllRailsDie: the error is that of the first rail.
func TestAllRailsDie(t *testing.T) {
	e := connected(t, mib, 1, 8, fakeverbs.Knobs{FailEvery: 2, FailStatus: 10}, fakeverbs.Knobs{Blocked: true})
	got, err := e.burst(transfer.BurstArgs{Loads: e.loads(65536, 8), Window: time.Hour})
	if reason(err) != failure.RemoteAccess || got.Rails[1].Failure == nil ||
		got.Rails[1].Failure.Reason != failure.RetryExceeded {
		t.Errorf("%v; %+v", err, got)
	}
	if got.Rails[0].Bytes != 65536 || got.Rails[1].Bytes != 0 {
		t.Errorf("%+v", got)
	}
}

// TestDeadline abandons a rail that hangs. The other rail has ended its part, and can be verified.
func TestDeadline(t *testing.T) {
	e := connected(t, mib, 1, 8, fakeverbs.Knobs{}, fakeverbs.Knobs{HangPoll: true})
	begin := time.Now()
	got, err := e.burst(transfer.BurstArgs{Loads: e.loads(65536, 8), Window: 5 * time.Millisecond,
		Slow: 100 * time.Millisecond, Deadline: time.Second})
	if took := time.Since(begin); reason(err) != failure.Timeout || took < time.Second || took > bySurprise {
		t.Errorf("%v after %v", err, took)
	}
	if got.Rails[0].Failure != nil || got.Rails[1].Failure == nil || got.Rails[1].Failure.Reason != failure.Timeout ||
		got.Rails[0].Bytes == 0 || got.Rails[1].Bytes != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := e.only(0, 4096); err != nil {
		t.Errorf("the rail that is left: %v", err)
	}
}

// TestCancel stops a burst from another goroutine, and reads its progress. The burst returns soon, whether or not
// writes in flight complete.
func TestCancel(t *testing.T) {
	for name, knobs := range map[string]fakeverbs.Knobs{"drains": {Rate: 64 * mib},
		"hangs": {Rate: 64 * mib, Latency: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			e := connected(t, mib, 1, 8, fakeverbs.Knobs{Rate: 64 * mib}, knobs)
			done := make(chan struct{})
			go func() {
				defer close(done)
				e.until(func() bool { return e.run.Progress()[0] > mib })
				e.run.Cancel()
			}()
			o := transfer.BurstArgs{Loads: e.loads(65536, 8), Window: time.Hour, Slow: time.Hour,
				Deadline: 20 * time.Second}
			begin := time.Now()
			got, err := e.burst(o)
			<-done
			if took := time.Since(begin); reason(err) != failure.Canceled || took > 15*
				time.Second || got.Rails[0].Bytes <= mib {
				t.Errorf("%v after %v: %+v", err, took, got)
			}
			if hung := got.Rails[1].Failure; (hung != nil) != (name == "hangs") || hung != nil &&
				hung.Reason != failure.Canceled {
				t.Errorf("%v", hung)
			}
			if got, err := e.burst(o); reason(err) != failure.Canceled || got.Rails[0].Bytes != 0 ||
				got.Rails[0].Writes[0] != 0 {
				t.Errorf("after Cancel: %v, %+v", err, got)
			}
			if samples, _, err := e.run.Latency(e.rails[0], 8, 8,
				time.Second); reason(err) != failure.Canceled || len(samples) != 0 {
				t.Errorf("after Cancel: %v, %v", err, samples)
			}
		})
	}
}

// until waits for a condition, for at most a few seconds.
func (e *ends) until(fn func() bool) {
	for begin := time.Now(); !fn(); time.Sleep(100 * time.Microsecond) {
		if time.Since(begin) > 5*time.Second {
			e.t.Error("it does not come true")
			return
		}
	}
}

// TestCancelEnd cancels while only the end of a burst, which has no bytes, is in flight.
func TestCancelEnd(t *testing.T) {
	e := connected(t, 4096, 1, 1, fakeverbs.Knobs{Latency: 60 * time.Millisecond})
	go func() {
		e.until(func() bool { return e.run.Progress()[0] == 4096 })
		e.run.Cancel()
	}()
	if got, err := e.burst(e.single(4096, 1)); reason(err) != failure.Canceled || got.Rails[0].Bytes != 4096 ||
		e.run.Progress()[0] != 4096 {
		t.Errorf("%v, %+v", err, got)
	}
}
