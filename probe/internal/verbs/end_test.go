//go:build cgo

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

const receives = 8 // RS_RECEIVES of shim.h

// arrived waits for the end of a burst over a rail.
func (e *ends) arrived(rail, pass int, limit time.Duration) failure.Reason {
	return reason(NewRun(1).Arrived(e.peers[rail], pass, limit))
}

// must makes a burst of single writes, one per queue pair, that has to succeed.
func (e *ends) must(chunk int64) {
	e.t.Helper()
	if got, err := e.write(e.single(chunk, e.rails[0].spec.QueuePairs)); err != nil || got.Failed() {
		e.t.Fatalf("%+v, %v", got, err)
	}
}

// TestArrived waits for the end of the burst with one pass, and not of any other.
func TestArrived(t *testing.T) {
	const short = 20 * time.Millisecond
	for _, queuePairs := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(queuePairs), func(t *testing.T) {
			e := connected(t, 4096, queuePairs, queuePairs, fakeverbs.Knobs{})
			begin := time.Now()
			if got := e.arrived(0, 0, short); got != failure.Timeout || time.Since(begin) < short {
				t.Errorf("before any burst: %q", got)
			}
			e.must(4096)
			if got := e.arrived(0, e.pass+1, short); got != failure.Timeout {
				t.Errorf("the end of another burst: %q", got)
			}
			for range 3 { // each call consumes its receives, and posts new ones
				for range receives {
					e.must(4096)
				}
				if got := e.arrived(0, e.pass, time.Second); got != "" {
					t.Errorf("the last of %d bursts: %q", receives, got)
				}
			}
			for range receives {
				e.must(4096)
			}
			if _, err := e.write(e.single(4096, queuePairs)); reason(err) != failure.RNR {
				t.Errorf("%d bursts that nobody looks at: %v", receives+1, err)
			}
		})
	}
}

// TestArrivedMissing: one queue pair of four does not send the end of its burst.
func TestArrivedMissing(t *testing.T) {
	e := connected(t, 4096, 4, 4, fakeverbs.Knobs{FailEvery: 8})
	if got, err := e.write(e.single(4096, 4)); reason(err) != failure.RetryExceeded || got.Rails[0].Bytes != 4*4096 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := e.arrived(0, e.pass, 20*time.Millisecond); got != failure.Timeout {
		t.Errorf("%q", got)
	}
}

// TestArrivedEnds: a cancel ends the wait, and so does a queue pair in an error state.
func TestArrivedEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*ends, *Run)
		want failure.Reason
	}{
		"cancel": {func(_ *ends, run *Run) { run.Cancel() }, failure.Canceled},
		"stop":   {func(e *ends, _ *Run) { e.peers[0].Stop() }, failure.Flush},
	} {
		t.Run(name, func(t *testing.T) {
			e, run := connected(t, 4096, 2, 2, fakeverbs.Knobs{}), NewRun(1)
			e.must(4096)
			ended := make(chan bool) // the rail must stay open until Stop returns
			time.AfterFunc(20*time.Millisecond, func() { tc.end(e, run); close(ended) })
			begin := time.Now()
			err := run.Arrived(e.peers[0], e.pass+1, 2*bySurprise)
			took := time.Since(begin)
			<-ended
			if reason(err) != tc.want || took > bySurprise {
				t.Errorf("%v after %v, want %s", err, took, tc.want)
			}
		})
	}
	e := connected(t, 4096, 1, 1, fakeverbs.Knobs{})
	e.peers[0].Close()
	if got := e.arrived(0, 0, time.Second); got != failure.Other {
		t.Errorf("a closed rail: %q", got)
	}
}

// TestLate: bytes that arrive after their write's acknowledgement are complete in memory only after the end of the
// burst has arrived.
func TestLate(t *testing.T) {
	e := connected(t, 4*4096, 1, 4, fakeverbs.Knobs{Latency: 30 * time.Millisecond, Late: 3})
	hang := func(on bool) { e.fabric.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.HangPost, k.Late = on, 3 }) }
	done := make(chan error)
	go func() {
		_, err := e.write(e.single(4096, 4))
		done <- err
	}()
	e.until(func() bool { return e.fabric.Writes("A", "mlx5_0") == 4 })
	hang(true) // keeps the burst from ending
	e.until(func() bool { return e.run.Progress()[0] == 4*4096 })
	e.expect(0, 4096, []int64{4})
	if at := e.wrong(0); at != 2*4096 {
		t.Errorf("all is acknowledged, and byte %d is wrong; want the third write missing", at)
	}
	if got := e.arrived(0, e.pass, 20*time.Millisecond); got != failure.Timeout {
		t.Errorf("before the end of the burst: %q", got)
	}
	hang(false)
	if got := e.arrived(0, e.pass, 5*time.Second); got != "" {
		t.Errorf("the end of the burst: %q", got)
	}
	if at := e.wrong(0); at >= 0 {
		t.Errorf("after the end of the burst byte %d is wrong", at)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLost: an acknowledged write that did not arrive is found, whether its place is empty or holds an earlier pass, of
// this burst or the previous one.
func TestLost(t *testing.T) {
	for _, tc := range []struct {
		name          string
		earlier, lose int
		ring, depth   int
		at            int // offset of the byte
	}{
		{"nothing there", 0, 3, 4, 4, 2 * 4096},
		{"an earlier pass", 0, 7, 2, 8, 0},
		{"an earlier burst", 1, 2, 4, 4, 4096},
		{"earlier bursts", 3, 7, 2, 8, 0},
		{"overwritten by the next pass", 0, 5, 2, 8, -1},
		{"none", 2, 1000, 2, 8, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := connected(t, tc.ring*4096, 1, tc.depth, fakeverbs.Knobs{})
			for range tc.earlier {
				if _, err := e.burst(e.single(4096, tc.depth)); err != nil {
					t.Fatal(err)
				}
			}
			e.fabric.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.Lose = uint64(tc.lose) })
			if _, err := e.write(e.single(4096, tc.depth)); err != nil {
				t.Fatal(err)
			}
			if got := e.arrived(0, e.pass, time.Second); got != "" {
				t.Fatal(got)
			}
			e.expect(0, 4096, []int64{int64(tc.depth)})
			if at := e.wrong(0); at != tc.at {
				t.Errorf("byte %d is wrong, want %d", at, tc.at)
			}
		})
	}
}

// TestParked: a failed write may arrive later, unless the target has stopped the rail.
func TestParked(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprint("stopped ", stopped), func(t *testing.T) {
			e := connected(t, 4*4096, 1, 4, fakeverbs.Knobs{DropAfter: 2 * 4096, Park: true}, fakeverbs.Knobs{})
			got, err := e.write(e.single(4096, 4))
			if err != nil || got.Rails[0].Failure == nil {
				t.Fatalf("%+v, %v", got, err)
			}
			if stopped {
				e.peers[0].Stop()
			}
			copy(e.want[0], e.memory[0].Bytes())
			if _, err := e.run.Burst(e.rails[1:], transfer.BurstArgs{Loads: e.loads(4096, 4)[1:], Slow: time.Second,
				Deadline: time.Second, Pass: e.pass + 67}); err != nil {
				t.Fatal(err)
			}
			if at := e.wrong(0); (at < 0) != stopped {
				t.Errorf("byte %d of the failed rail was written in the next burst", at)
			}
		})
	}
}

// regions returns the keys of a node's registered regions, by their names in the fabric.
func (e *ends) regions(node string) map[string]uint32 {
	keys := map[string]uint32{}
	for _, left := range e.fabric.Left() {
		var key uint32
		if at, what, _ := strings.Cut(left, ": "); strings.HasPrefix(at, node+"/") {
			if _, err := fmt.Sscanf(what, "MR %v of", &key); err == nil {
				keys[what] = key | 1<<31 // as in resource.c of the fake
			}
		}
	}
	return keys
}

// TestNotATarget: an asker's end reveals no memory, and a target that guesses its key and address cannot write there.
func TestNotATarget(t *testing.T) {
	for _, tc := range []struct {
		target bool
		want   failure.Reason
	}{{false, failure.RemoteAccess}, {true, ""}} {
		t.Run(fmt.Sprint(tc.target), func(t *testing.T) {
			e := connected(t, 4096, 1, 1, fakeverbs.Knobs{})
			open := func(node string, memory []byte, target bool) *Rail {
				e.fabric.Use(t, node)
				spec := e.rails[0].spec
				spec.Target = target
				r := must(e.lib.OpenRail(spec))
				if err := r.Register(AreaOf(memory)); err != nil {
					t.Fatal(err)
				}
				return r
			}
			before := e.regions("A")
			attacked := buffer(t, transfer.SourceLen)
			defer attacked.Close()
			asker, hostile := open("A", attacked.Bytes(), tc.target), open("B", e.source.Bytes(), false)
			defer asker.Close()
			defer hostile.Close()
			to := asker.Info().End
			if named := to.Addr != 0 || to.RKey != 0 || to.Size != 0; named != tc.target {
				t.Errorf("it names its memory: %+v", to)
			}
			to.Addr, to.Size = uint64(uintptr(unsafe.Pointer(&attacked.Bytes()[0]))), transfer.SourceLen
			for name, key := range e.regions("A") {
				if before[name] == 0 {
					to.RKey = key
				}
			}
			connect(t, asker, hostile)
			if err := errors.Join(asker.Expect(), hostile.Connect(to, attr())); err != nil {
				t.Fatal(err)
			}
			_, err := e.run.Burst([]*Rail{hostile}, transfer.BurstArgs{Loads: e.loads(4096, 1), Slow: time.Second,
				Deadline: time.Second})
			if got := reason(err); got != tc.want {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if untouched := !bytes.ContainsFunc(attacked.Bytes(),
				func(r rune) bool { return r != 0 }); untouched == tc.target {
				t.Errorf("untouched: %v", untouched)
			}
		})
	}
}
