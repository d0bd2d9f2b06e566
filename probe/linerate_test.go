//go:build cgo && linux

package probe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/linerate"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

func gbps(v float64) float64 { return v * 1e9 / 8 }

// outcome is what a round would report for a model: goodput by rail, or disturbed.
type outcome struct {
	goodput   []float64
	disturbed bool
	failed    []bool
	writes    []int64 // writes of the last try, by rail
	bytes     int64   // bytes of all tries
	took      time.Duration
}

// planned returns the striped burst of a round over a model's rails with default options, except for the depth.
func planned(m linerate.Model, depth int) worker.BurstArgs {
	p := round.Plan{Options: options.DefaultOptions(), Rails: len(m.Rails)}
	p.Depth = depth
	p.QueuePairs = 1
	if len(m.Rails) > 0 {
		p.QueuePairs = max(m.Rails[0].QueuePairs, 1)
	}
	var loads []worker.Load
	for _, r := range m.Rails {
		path := &round.Flow{Result: &result.RailResult{Capacity: new(cmp.Or(r.Expected, r.Rate)),
			Latency: &result.Latency{Samples: []time.Duration{r.RTT}}}}
		loads = append(loads, p.Load(path))
	}
	return p.BurstArgs(loads, time.Minute)
}

// measure runs a burst over all rails, and repeats it at most three times if it is disturbed.
func measure(m linerate.Model) outcome {
	return measureBurst(m, planned(m, options.DefaultOptions().Depth))
}

func measureBurst(m linerate.Model, b worker.BurstArgs) (o outcome) {
	for range 1 + worker.MaxRepeats {
		done, _, took := linerate.Run(m, b)
		o = outcome{took: o.took + took, bytes: o.bytes}
		for i, p := range done.Rails {
			o.goodput = append(o.goodput, p.Rate())
			o.disturbed = o.disturbed || p.Disturbed
			o.failed = append(o.failed, p.Failure != nil)
			o.writes = append(o.writes, p.Bytes/b.Loads[i].Chunk)
			o.bytes += p.Bytes
		}
		if !o.disturbed {
			break
		}
		if m.Random != 0 {
			m.Random += 7919 // different stalls in the next try
		}
		if m.Every == 0 {
			m.Stall = 0 // the only stall is over
		}
	}
	return o
}

func (o outcome) sum() (sum float64) {
	for _, g := range o.goodput {
		sum += g
	}
	return sum
}

// off returns the largest error of a rail's goodput, or of its share of the sum, relative to the model.
func (o outcome) off(want func(i int) float64) (worst float64) {
	all := 0.0
	for i := range o.goodput {
		all += want(i)
	}
	for i, g := range o.goodput {
		worst = max(worst, math.Abs(g/want(i)-1), math.Abs(g/o.sum()/(want(i)/all)-1))
	}
	return worst
}

func alike(n int, r linerate.Rail) (rails []linerate.Rail) {
	r.Timeout = 67 * ms // 4.096 µs × 2^14
	for range n {
		rails = append(rails, r)
	}
	return rails
}

// Error limits of a reported figure.
const (
	maxOff     = 0.01
	maxEdge    = 0.002 // error of a stall shorter than a write
	maxScaling = 0.02
)

// stalls are the stalls of a polling thread, and how many of the 75 bursts of each may be disturbed.
var stalls = []struct {
	name      string
	model     linerate.Model
	disturbed int
}{
	{"none", linerate.Model{}, 0},
	{"0.1 once", linerate.Model{Stall: 100 * us, First: 2 * ms}, 0},
	{"1 once", linerate.Model{Stall: ms, First: 2 * ms}, 0},
	{"10 once", linerate.Model{Stall: 10 * ms, First: 2 * ms}, 0},
	{"1 at first", linerate.Model{Stall: ms, First: 50 * us}, 0},
	{"0.05 in 0.4", linerate.Model{Stall: 50 * us, First: 100 * us, Every: 400 * us}, 0},
	{"1 in 3", linerate.Model{Stall: ms, First: 300 * us, Every: 3 * ms}, 45}, // every stall lasts longer than a queue
	{"0.1 in ~2", linerate.Model{Stall: 100 * us, Every: 2 * ms, Random: 1}, 3},
	{"1 in ~10", linerate.Model{Stall: ms, Every: 10 * ms, Random: 2}, 0},
	{"10 in ~20", linerate.Model{Stall: 10 * ms, Every: 20 * ms, Random: 3}, 0},
}

// cells are the outcomes of one row of the table.
type cells struct {
	n, disturbed int
	off, scaling float64 // worst errors of undisturbed bursts
}

func (c cells) String() string {
	switch c.disturbed {
	case 0:
		return fmt.Sprintf("%.2f", 100*c.off)
	case c.n:
		return fmt.Sprintf("- %d/%d", c.disturbed, c.n)
	}
	return fmt.Sprintf("%.2f %d/%d", 100*c.off, c.disturbed, c.n)
}

// TestLineRate: for every rate, number of rails and stall of the polling thread, a burst reports what the model
// carries or, if stalls leave no window free of them, that it was disturbed.
func TestLineRate(t *testing.T) {
	var head strings.Builder
	for _, s := range stalls {
		fmt.Fprintf(&head, " %11s", s.name)
	}
	t.Log("Stalls of the polling thread in ms. Cells: largest error of a rail's goodput or share in %, RTT 2 to 50 µs; " +
		"disturbed/all")
	t.Logf("rails × Gb/s %s", head.String())
	all, disturbed := cells{}, make([]int, len(stalls))
	for _, rails := range []int{1, 2, 8, 10, 16} {
		for _, rate := range []float64{25, 100, 200, 400, 800} {
			var line strings.Builder
			for i, s := range stalls {
				c := lineRate(t, s.name, s.model, rails, rate)
				fmt.Fprintf(&line, " %11v", c)
				disturbed[i] += c.disturbed
				all.n, all.disturbed = all.n+c.n, all.disturbed+c.disturbed
				all.off, all.scaling = max(all.off, c.off), max(all.scaling, c.scaling)
			}
			t.Logf("%2d × %3.0f Gb/s%s", rails, rate, line.String())
		}
	}
	for i, s := range stalls {
		if disturbed[i] > s.disturbed {
			t.Errorf("stalls %s: %d bursts are disturbed, more than %d", s.name, disturbed[i], s.disturbed)
		}
	}
	t.Logf("%d cells, %d disturbed; largest error %.2f %%, of scaling %.2f %%", all.n, all.disturbed, 100*all.off,
		100*all.scaling)
}

// lineRate measures one row of the table.
func lineRate(t *testing.T, name string, m linerate.Model, rails int, rate float64) (c cells) {
	t.Helper()
	seed := m.Random
	want := func(int) float64 { return gbps(rate) }
	for _, rtt := range []time.Duration{2 * us, 4 * us, 50 * us} {
		m.Rails = alike(rails, linerate.Rail{Rate: gbps(rate), RTT: rtt})
		if seed != 0 {
			m.Random = seed + uint64(rails)*1000 + uint64(rate) + uint64(rtt)
		}
		o := measure(m)
		c.n++
		if o.disturbed {
			c.disturbed++
			continue
		}
		off := o.off(want)
		c.off = max(c.off, off)
		if slices.Contains(o.failed, true) || !(off <= maxOff) { // NaN fails as well
			t.Errorf("%d × %v Gb/s, RTT %v, stalls %s: failed %v, off by %.3f", rails, rate, rtt, name, o.failed, off)
		}
		m.Rails = m.Rails[:1]
		if solo := measure(m); !solo.disturbed {
			scaling := math.Abs(o.sum()/(float64(rails)*solo.goodput[0]) - 1)
			c.scaling = max(c.scaling, scaling)
			if !(scaling <= maxScaling) {
				t.Errorf("%d × %v Gb/s, RTT %v, stalls %s: scaling off by %.3f", rails, rate, rtt, name, scaling)
			}
		}
	}
	return c
}

// TestEdges: a stall at any time, also where the measured window begins or ends, does not change a figure. A
// completion that waited to be polled would change it, because 64 writes are few.
func TestEdges(t *testing.T) {
	worst, cells := 0.0, 0
	for at := 10 * us; at < 7*ms; at += 10 * us {
		o := measure(linerate.Model{Rails: alike(1, linerate.Rail{Rate: gbps(25), RTT: 4 * us}), Stall: 70 * us,
			First: at})
		off := o.off(func(int) float64 { return gbps(25) })
		if o.disturbed || off > maxEdge {
			t.Errorf("25 Gb/s, a stall at %v: disturbed %v, off by %.4f", at, o.disturbed, off)
		}
		worst, cells = max(worst, off), cells+1
	}
	t.Logf("25 Gb/s, %d stalls of 70 µs, each 10 µs later: largest error %.2f %%", cells, 100*worst)
}

// TestStaged: a rail whose bytes are first copied from a GPU reports the rate of the copies or the wire, whichever
// is slower, or no figure. Stalls and the cost of the copy calls do not change that.
func TestStaged(t *testing.T) {
	for _, tc := range []struct {
		rails    int
		rate     float64
		tooFast  bool // the copies are too fast for one thread: at wire rate or faster
		disturbs int  // disturbed bursts of 50
	}{{2, 25, false, 6}, {2, 100, false, 6}, {2, 400, false, 6}, {8, 400, true, 32}} {
		disturbed := 0
		for _, part := range []float64{0.2, 0.5, 0.99, 1.5, 4} { // rate of the copies relative to the wire
			for _, s := range stalls {
				m := s.model
				m.Rails = alike(tc.rails, linerate.Rail{Rate: gbps(tc.rate), RTT: 12 * us,
					Copies: gbps(tc.rate * part)})
				o := measure(m)
				off := o.off(func(int) float64 { return gbps(tc.rate * min(part, 1)) })
				if o.disturbed {
					disturbed++
				}
				held := m.Every > 0 || tc.tooFast && part > 0.9
				if o.disturbed && !held || !o.disturbed && off > 2*maxOff {
					t.Errorf("%d × %v Gb/s, copies %v of it, stall %s: off by %.4f, disturbed %v", tc.rails, tc.rate, part, s.name,
						off, o.disturbed)
				}
			}
		}
		if disturbed > tc.disturbs {
			t.Errorf("%d × %v Gb/s: %d of 50 disturbed", tc.rails, tc.rate, disturbed)
		}
	}
}

// TestStallAnywhere: wherever the thread stalls for longer than a queue lasts, each rail is right or disturbed,
// also just before it is measured, or at the end of the burst's time.
func TestStallAnywhere(t *testing.T) {
	for _, tc := range []struct {
		copies   float64 // rate of the copies relative to the wire; 0: none
		from, to time.Duration
		slow     time.Duration // limit of the burst's time; 0: as planned
	}{{0, 0, 7 * ms, 0}, {1.5, 0, 7 * ms, 0}, {0, 7 * ms, 8 * ms, 8 * ms}} {
		for at := tc.from; at < tc.to; at += 25 * us {
			m := linerate.Model{Rails: alike(2, linerate.Rail{Rate: gbps(25), RTT: 4 * us,
				Copies: gbps(25 * tc.copies)}),
				Stall: 10 * ms, First: at}
			b := planned(m, options.DefaultOptions().Depth)
			if tc.slow > 0 {
				b.Slow, b.Writes = tc.slow, 1000
			}
			done, _, _ := linerate.Run(m, b)
			for i, p := range done.Rails {
				if off := p.Rate()/gbps(25) - 1; !p.Disturbed && math.Abs(off) > maxOff {
					t.Errorf("copies %v of the wire, a stall after %v: rail %d is off by %.3f", tc.copies, at, i, off)
				}
			}
		}
	}
}

// TestFractions: a rail at any fraction of its rate beside full ones has its own figure, or none.
func TestFractions(t *testing.T) {
	t.Log("one of 8 × 400 Gb/s at a fraction: its error in %, the others' largest, MiB in all")
	for _, f := range []float64{1, 0.98, 0.9, 2. / 3, 0.5, 1. / 3, 0.25, 0.1, 0.05, 0.03, 0.01, 0.001} {
		m := linerate.Model{Rails: alike(8, linerate.Rail{Rate: gbps(400), RTT: 4 * us, Expected: gbps(400)})}
		m.Rails[3].Rate *= f
		o := measure(m)
		want := func(i int) float64 { return m.Rails[i].Rate }
		if o.disturbed {
			t.Logf("%5.3f  disturbed, %5d MiB in %v", f, o.bytes>>20, o.took.Round(100*us))
			if f >= 0.01 {
				t.Errorf("a rail at %v: disturbed by nothing", f)
			}
			continue
		}
		t.Logf("%5.3f  %.2f %.2f, %5d MiB in %v", f, 100*math.Abs(o.goodput[3]/want(3)-1),
			100*math.Abs(o.goodput[0]/want(0)-1), o.bytes>>20, o.took.Round(100*us))
		if off := o.off(want); off > maxOff {
			t.Errorf("a rail at %v: off by %.3f", f, off)
		}
	}
}

// TestLostPackets: a packet lost anywhere in a burst, also at its very end, costs only the time of its repair.
func TestLostPackets(t *testing.T) {
	fine := linerate.Model{Rails: alike(8, linerate.Rail{Rate: gbps(400), RTT: 4 * us})}
	whole := measure(fine)
	last := int(whole.writes[4])
	for _, c := range []struct {
		name    string
		loses   int
		timeout bool // no later packet shows the loss
	}{{"none", 0, false}, {"the first", 1, false}, {"in the middle", last / 2, false}, {"the last", last, true},
		{"the end", last + 1, true}} {
		m := linerate.Model{Rails: slices.Clone(fine.Rails)}
		m.Rails[4].Loses = c.loses
		o := measure(m)
		if timeout := o.took > m.Rails[4].Timeout; timeout != c.timeout {
			t.Errorf("%s: it took %v", c.name, o.took)
		}
		if off := o.off(func(int) float64 { return gbps(400) }); o.disturbed || off > maxOff {
			t.Errorf("%s: disturbed %v, off by %.3f", c.name, o.disturbed, off)
		}
		t.Logf("%-14s %.2f %% in %v", c.name, 100*o.off(func(int) float64 { return gbps(400) }), o.took)
	}
}

// TestFaults: a fault of a rail changes its figure, and no other rail's.
func TestFaults(t *testing.T) {
	fine := linerate.Rail{Rate: gbps(400), RTT: 4 * us}
	with := func(n int, r linerate.Rail) []linerate.Rail {
		rails := alike(n, fine)
		r.Timeout = 67 * ms
		rails[n/2] = r
		return rails
	}
	for _, c := range []struct {
		name  string
		model linerate.Model
		want  func(i int) float64 // goodput of rail i in Gb/s
		fails bool                // the middle rail fails
	}{
		{"one of 16 at 1/40", linerate.Model{Rails: with(16, linerate.Rail{Rate: gbps(10), RTT: 4 * us,
			Expected: gbps(400)})}, nil, false},
		{"25 beside 400 Gb/s", linerate.Model{Rails: with(2, linerate.Rail{Rate: gbps(25), RTT: 4 * us})}, nil, false},
		{"a far rail", linerate.Model{Rails: with(8, linerate.Rail{Rate: gbps(400), RTT: 100 * us})}, nil, false},
		{"a slow link", linerate.Model{Rails: alike(1, linerate.Rail{Rate: gbps(0.03), RTT: 200 * us})}, nil, false},
		{"two slow links", linerate.Model{Rails: alike(2, linerate.Rail{Rate: gbps(1), RTT: 50 * us})}, nil, false},
		{"a rail that stops", linerate.Model{Rails: with(8, linerate.Rail{Rate: gbps(400), RTT: 4 * us, Stops: 2 * ms})},
			nil, true},
		{"two rails share a link", linerate.Model{Link: gbps(400), Rails: append(alike(6, fine),
			alike(2, linerate.Rail{Rate: gbps(400), RTT: 4 * us, Shared: true})...)},
			func(i int) float64 { return gbps([]float64{400, 200}[i/6]) }, false},
		{"all rails share a link", linerate.Model{Link: gbps(1600), Rails: alike(8, linerate.Rail{Rate: gbps(400),
			RTT: 4 * us, Shared: true})},
			func(int) float64 { return gbps(200) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := measure(c.model)
			for i, g := range o.goodput {
				want := c.model.Rails[i].Rate
				if c.want != nil {
					want = c.want(i)
				}
				if o.failed[i] != (c.fails && i == len(o.goodput)/2) {
					t.Errorf("rail %d failed: %v", i, o.failed[i])
				}
				if !o.failed[i] && !o.disturbed && math.Abs(g/want-1) > maxOff {
					t.Errorf("rail %d: %.1f Gb/s, want %.1f", i, g*8/1e9, want*8/1e9)
				}
			}
			if o.disturbed && !c.fails {
				t.Error("disturbed by nothing")
			}
			t.Logf("disturbed %v, %d MiB in %v", o.disturbed, o.bytes>>20, o.took)
		})
	}
}

// TestReads: reads have their own figure, alone, beside writes in the other direction, and where the adapters'
// limit of open reads is below what the path holds. Writes have no such limit.
func TestReads(t *testing.T) {
	flow := func(n int, read bool, rtt time.Duration) []linerate.Rail {
		return alike(n, linerate.Rail{Rate: gbps(400), RTT: rtt, Read: read})
	}
	const far = 400 * us
	limited := func(rtt time.Duration, chunk int64) float64 {
		return 16 * float64(chunk) / (rtt.Seconds() + float64(chunk)/gbps(400))
	}
	for _, c := range []struct {
		name  string
		rails []linerate.Rail
		depth int
		want  func(i int, chunk int64) float64
	}{
		{"8 read", flow(8, true, 4*us), 16, nil},
		{"8 write, 8 read", append(flow(8, false, 4*us), flow(8, true, 4*us)...), 16, nil},
		{"8 write, 8 read, deep", append(flow(8, false, 4*us), flow(8, true, 4*us)...), 64, nil},
		{"8 write, 8 read, farther", append(flow(8, false, 50*us), flow(8, true, 50*us)...), 64, nil},
		{"2 write, 2 read, far", append(flow(2, false, far), flow(2, true, far)...), 64,
			func(i int, chunk int64) float64 { return []float64{gbps(400), limited(far, chunk)}[i/2] }},
	} {
		for _, s := range stalls {
			if s.disturbed > 0 {
				continue
			}
			m := s.model
			m.Rails = c.rails
			b := planned(m, c.depth)
			o := measureBurst(m, b)
			worst := 0.0
			for i, g := range o.goodput {
				want := gbps(400)
				if c.want != nil {
					want = c.want(i, b.Loads[i].Chunk)
				}
				worst = max(worst, math.Abs(g/want-1))
			}
			t.Logf("%s, stalls %s: off by %.2f %%, disturbed %v, in %v", c.name, s.name, 100*worst, o.disturbed, o.took)
			if slices.Contains(o.failed, true) || !o.disturbed && worst > maxOff || o.disturbed && s.name == "none" {
				t.Errorf("%s, stalls %s: failed %v, off by %.3f, disturbed %v", c.name, s.name, o.failed, worst, o.disturbed)
			}
		}
	}
}

// TestPause: a rail that is paused for most of a burst does not report the rate of the rest.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		pauses, resumes time.Duration
		least, most     float64 // limits of the figure relative to the rail's rate
	}{
		{time.Millisecond, time.Second, 0, 0.1}, // the pause lasts until the other rails have reached their cap
		{1500 * us, 30 * ms, 0, 0.15},           // the pause lasts until the other rails have reached their cap
		{800 * us, 12 * ms, 0.05, 0.2},          // the rail carries again just before the burst ends
		{2 * ms, 2*ms + 100*us, 0.95, 1.01},     // a short pause lowers the mean
		{100 * us, 6 * ms, 0.8, 0.9},            // the pause begins before all rails are full
	} {
		rails := alike(8, linerate.Rail{Rate: gbps(400), RTT: 4 * us})
		rails[3].Pauses, rails[3].Resumes = c.pauses, c.resumes
		o := measure(linerate.Model{Rails: rails})
		if o.disturbed {
			t.Errorf("%v to %v: disturbed", c.pauses, c.resumes)
			continue
		}
		for i, g := range o.goodput {
			least, most := 0.99, 1.01
			if i == 3 {
				least, most = c.least, c.most
			}
			if part := g / gbps(400); part < least || part > most {
				t.Errorf("%v to %v: rail %d carries %.3f of its rate, want %.2f to %.2f", c.pauses, c.resumes, i, part, least,
					most)
			}
		}
		t.Logf("pause from %v to %v: %.3f of the rate", c.pauses, c.resumes, o.goodput[3]/gbps(400))
	}
}

// TestDepth: with the largest configurable depth, a visit of a rail takes all its completions. The rate of a thread
// that cannot keep up is never reported as the rails' rate.
func TestDepth(t *testing.T) {
	for _, depth := range []int{2, 32, 128} {
		for _, rate := range []float64{25, 400, 800} {
			m := linerate.Model{Rails: alike(16, linerate.Rail{Rate: gbps(rate), RTT: 4 * us})}
			o := measureBurst(m, planned(m, depth))
			off := 0.0
			for _, g := range o.goodput {
				off = max(off, math.Abs(g/gbps(rate)-1))
			}
			t.Logf("16 × %3.0f Gb/s, %3d deep: off by %.2f %%, disturbed %v", rate, depth, 100*off, o.disturbed)
			if !o.disturbed && off > maxOff {
				t.Errorf("16 × %v Gb/s, %d deep: off by %.3f", rate, depth, off)
			}
		}
	}
}
