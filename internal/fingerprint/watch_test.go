package fingerprint

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/testenv"
)

// step is a rise of counters at a time after the start of a fault.
type step struct {
	at   time.Duration
	rose Counts
}

// silent is how one queue pair of mlx5 counts until it gives up on a silent peer: six timeouts, each after a wait, and
// eight adaptive retransmissions (measured with retry count 7).
func silent(wait time.Duration) (steps []step) {
	for i := range 6 {
		steps = append(steps, step{time.Duration(i+1) * wait, Counts{Timeouts: 1, Adaptive: uint64(1 + i%3/2)}})
	}
	return append(steps, step{7 * wait, Counts{Failed: 1, Silent: 1}})
}

// scenarios are faults as they come in time, after §1 of the measurements, and what is to be said of them.
func scenarios() map[string]struct {
	steps []step
	want  string
} {
	const fast, slow = 500 * time.Millisecond, 8590 * time.Millisecond // timeout 14 with the floor, and timeout 20
	at := func(steps []step, after time.Duration) (moved []step) {
		for _, s := range steps {
			moved = append(moved, step{s.at + after, s.rose})
		}
		return moved
	}
	times := func(n int, steps []step, apart time.Duration) (all []step) {
		for i := range n {
			all = append(all, at(steps, time.Duration(i)*apart)...)
		}
		return all
	}
	one := func(rose Counts) []step { return []step{{0, rose}} }
	access, invalid := one(Counts{Failed: 1, Access: 1}), one(Counts{Failed: 1, Invalid: 1})
	none, local := one(Counts{Failed: 1, NotReady: 1}), one(Counts{Failed: 1})
	const oneSilent = "1 queue pair gave up on a silent peer, after 6 timeouts and 8 adaptive retransmissions"
	return map[string]struct {
		steps []step
		want  string
	}{
		"nothing":                       {nil, ""},
		"a dead queue pair, timeout 14": {silent(fast), oneSilent},
		"a dead queue pair, timeout 20": {silent(slow), oneSilent},
		"a killed process with 4 queue pairs": {times(4, silent(fast), 0), "4 queue pairs gave up on a silent " +
			"peer, after 24 timeouts and 32 adaptive retransmissions"},
		"4 queue pairs, timeout 20, one after the other": {times(4, silent(slow), time.Second), "4 queue pairs " +
			"gave up on a silent peer, after 24 timeouts and 32 adaptive retransmissions"},
		"no receive buffers":   {none, "1 queue pair gave up on a peer that posted no receive buffers"},
		"a wrong rkey":         {access, "1 request to which the peer denied access"},
		"an invalid request":   {invalid, "1 request that the peer rejected as invalid"},
		"local protection":     {local, "1 request failed at this end"},
		"three bad local keys": {times(3, local, time.Second), "3 requests failed at this end"},
		"the end of a job on an adapter that counts flushes": {one(Counts{Failed: 64, Flushed: 64}), ""},
		"a pause of the path": {one(Counts{Timeouts: 3, Adaptive: 2}), "3 timeouts " +
			"after which no queue pair failed"},
		"a killed process and a wrong rkey": {append(silent(fast), access...), oneSilent +
			"; 1 request to which the peer denied access"},
		"a wrong rkey whose queue pair had 15 more requests": {one(Counts{Failed: 16, Access: 1}), "1 request to " +
			"which the peer denied access; 15 other requests ended in an error: flushed ones of the same queue " +
			"pairs, or a fault at this end; the counters do not show which"},
		"a lossy path that dies": {append(times(9, one(Counts{Timeouts: 1}), time.Second), silent(fast)...), "1 " +
			"queue pair gave up on a silent peer, after 15 timeouts and 8 adaptive retransmissions (more than they " +
			"need: packets of others were lost as well)"},
		"all that can happen, at once": {slices.Concat(silent(fast), none, access, invalid), oneSilent + "; 1 " +
			"queue pair gave up on a peer that posted no receive buffers; 1 request to which the peer denied " +
			"access; 1 request that the peer rejected as invalid"},
		"a path that comes and goes for 7 minutes": {times(84, silent(fast)[:1], 5*time.Second),
			"84 timeouts after which no queue pair failed"},
		"a wrong rkey, a minute before a killed process": {append(at(silent(fast), time.Minute), access...), oneSilent +
			"; 1 request to which the peer denied access"},
	}
}

// texts describes what a rail's faults show together.
func texts(list []Fault) string {
	var causes []Cause
	for _, one := range list {
		causes = Add(causes, Causes(one.Rose))
	}
	slices.SortFunc(causes, func(a, b Cause) int { return int(a.Kind - b.Kind) })
	var all []string
	for _, c := range causes {
		all = append(all, c.String())
	}
	return strings.Join(all, "; ")
}

// port is a port of mlx5 in a directory, with all counters of its hw_counters that are read.
type port struct {
	t      *testing.T
	dir    string
	read   atomic.Pointer[string] // directory that the watch reads
	values Counts
}

func newPort(t *testing.T) *port {
	p := &port{t: t}
	p.move(t.TempDir())
	if err := os.MkdirAll(filepath.Join(p.dir, "ports/1/hw_counters"), 0o755); err != nil {
		t.Fatal(err)
	}
	for c := range p.values {
		p.values[c] = uint64(1000 + c)
	}
	p.write()
	return p
}

func (p *port) write() {
	for c, v := range p.values {
		if Counter(c) == Local { // only bnxt_re has it
			continue
		}
		file := filepath.Join(p.dir, "ports/1/hw_counters", names()[c][0])
		err := os.WriteFile(file+".new", fmt.Appendln(nil, v), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file) // a read of sysfs has a whole value
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *port) add(rose Counts) {
	for c, n := range rose {
		p.values[c] += n
	}
	p.write()
}

// move gives the rail another device.
func (p *port) move(dir string) {
	p.dir = dir
	p.read.Store(&dir)
}

func (p *port) rails() ([]rail.Rail, error) {
	return []rail.Rail{{Name: "0", Device: "mlx5_0", Port: 1, Dir: *p.read.Load()}}, nil
}

// watch starts a watch over the port.
func (p *port) watch() (w *Watch, stop func()) {
	w = NewWatch(p.rails)
	ctx, stop := context.WithCancel(p.t.Context())
	go w.Run(ctx)
	return w, stop
}

// TestWatch replays faults as they come in time, at any phase of the readings: what is said of them is right.
func TestWatch(t *testing.T) {
	all := scenarios()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		tc, score := all[name], testenv.Score{What: name}
		for phase := time.Duration(0); phase < every; phase += 700 * time.Millisecond {
			lanetest.Test(t, func(t *testing.T) {
				p := newPort(t)
				w, stop := p.watch()
				defer stop()
				time.Sleep(time.Minute + phase)
				steps := slices.Clone(tc.steps)
				slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
				start := time.Now()
				for _, s := range steps {
					time.Sleep(s.at - time.Since(start))
					p.add(s.rose)
				}
				time.Sleep(still + every + time.Second)
				score.Planted++
				if diff := cmp.Diff(tc.want, texts(w.Faults("0"))); diff != "" {
					t.Errorf("%s, phase %v (-want +got):\n%s", name, phase, diff)
				} else {
					score.Named++
				}
				time.Sleep(kept)
				if left := w.Faults("0"); left != nil {
					t.Errorf("%s: 10 minutes later: %v", name, left)
				}
			})
		}
		score.Log(t)
	}
}

// TestWatchParts: faults are apart when the counters stood still for 10 s between them, and one that goes on is
// reported after 3 minutes. A driver that was loaded anew has no fault, and nothing is known of a rail without
// counters.
func TestWatchParts(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		p := newPort(t)
		w, stop := p.watch()
		defer stop()
		time.Sleep(time.Second)
		expect := func(when string, want ...uint64) {
			t.Helper()
			var got []uint64
			for _, f := range w.Faults("0") {
				got = append(got, f.Rose[Failed])
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: requests of the faults %d, want %d", when, got, want)
			}
		}
		p.add(Counts{Failed: 1})
		time.Sleep(10 * time.Second)
		expect("after 10 s")
		p.add(Counts{Failed: 2}) // the readings are at 5, 10, 15 and 20 s
		time.Sleep(13 * time.Second)
		expect("9 s after it was read")
		time.Sleep(2 * time.Second)
		expect("11 s after it was read", 3)
		p.add(Counts{Failed: 4})
		time.Sleep(16 * time.Second)
		expect("apart", 3, 4)
		for range 39 {
			p.add(Counts{Failed: 1})
			time.Sleep(5 * time.Second)
		}
		expect("one that goes on", 3, 4, 36)
		p.values = Counts{}
		p.write()
		time.Sleep(30 * time.Second)
		expect("a driver that was loaded anew", 3, 4, 36, 3)
		lost := filepath.Join(p.dir, "ports/1/hw_counters/req_cqe_error")
		if err := os.Remove(lost); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		p.write()
		time.Sleep(2 * time.Minute)
		expect("a counter that was not read for a while", 3, 4, 36, 3)
		p.move(newPort(t).dir)
		time.Sleep(30 * time.Second)
		expect("another device", 3, 4, 36, 3)
		if got := w.Faults("1"); got != nil {
			t.Errorf("another rail: %v", got)
		}
	})
}
