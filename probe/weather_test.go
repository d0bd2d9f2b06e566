//go:build cgo && linux

package probe

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/probe/internal/linerate"
	"github.com/railscope/railscope/probe/options"
)

// maxWeatherOff is the largest error of a figure relative to what the rail carries in the measured window.
const maxWeatherOff = 0.02

// weather is a set of conditions of the rails and the polling thread.
type weather struct {
	name   string
	fair   bool           // nothing is wrong, so there must be a figure
	rail   linerate.Rail  // condition of all rails, without rate and queue pairs
	sick   *linerate.Rail // condition of one rail, with its rate relative to the others; nil: as the others
	thread linerate.Model
}

var weathers = []weather{
	{name: "fair", fair: true},
	{name: "turns of 16 KiB", fair: true, rail: linerate.Rail{Quantum: 16 << 10}},
	{name: "turns of 64 KiB", fair: true, rail: linerate.Rail{Quantum: 64 << 10}},
	{name: "RTT 5-50 us", fair: true, rail: linerate.Rail{RTT: 5 * us, RTTJitter: 45 * us}},
	{name: "completions by 4, 16 us", fair: true, rail: linerate.Rail{Group: 4, Hold: 16 * us}},
	{name: "completions by 8, 1 us", fair: true, rail: linerate.Rail{Group: 8, Hold: us}},
	{name: "completions by 16, 200 us", rail: linerate.Rail{Group: 16, Hold: 200 * us}},
	{name: "completions by 31, 447 us", rail: linerate.Rail{Group: 31, Hold: 447 * us}},
	{name: "pause .05 in .2 ms", rail: vary(linerate.Weather{Pause: 50 * us, PauseEvery: 200 * us})},
	{name: "pause .5 in 5 ms", rail: vary(linerate.Weather{Pause: 500 * us, PauseEvery: 5 * ms})},
	{name: "pause 1 in 10 ms", rail: vary(linerate.Weather{Pause: ms, PauseEvery: 10 * ms})},
	{name: "pause 3 in 20 ms", rail: vary(linerate.Weather{Pause: 3 * ms, PauseEvery: 20 * ms})},
	{name: "pause 2 in 4 ms", rail: vary(linerate.Weather{Pause: 2 * ms, PauseEvery: 4 * ms})},
	{name: "ramp 1 ms", rail: vary(linerate.Weather{Ramp: ms, RampFrom: 0.1})},
	{name: "ramp 3 ms", rail: vary(linerate.Weather{Ramp: 3 * ms, RampFrom: 0.1})},
	{name: "ramp 10 ms", rail: vary(linerate.Weather{Ramp: 10 * ms, RampFrom: 0.1})},
	{name: "ramp 30 ms", rail: vary(linerate.Weather{Ramp: 30 * ms, RampFrom: 0.1})},
	{name: "CNP every 2 ms", rail: vary(linerate.Weather{Cut: 300 * us, CutEvery: 2 * ms})},
	{name: "CNP, back in 20 ms", rail: vary(linerate.Weather{Cut: 20 * ms, CutEvery: 30 * ms})},
	{name: "jitter 10 % per .1 ms", rail: vary(linerate.Weather{JitterEvery: 100 * us, Jitter: 0.1})},
	{name: "jitter 30 % per 1 ms", rail: vary(linerate.Weather{JitterEvery: ms, Jitter: 0.3})},
	{name: "a loss in 500 writes, NAK", rail: linerate.Rail{LosesEvery: 500}},
	{name: "a loss in 100, RTO 16 ms", rail: linerate.Rail{LosesEvery: 100, Silent: true, Timeout: 16 * ms}},
	{name: "a loss in 500, RTO 67 ms", rail: linerate.Rail{LosesEvery: 500, Silent: true}},
	{name: "one rail at 10 %", fair: true, sick: &linerate.Rail{Rate: 0.1}},
	{name: "one rail pauses 1 in 5 ms", sick: &linerate.Rail{Rate: 1, Weather: linerate.Weather{Pause: ms,
		PauseEvery: 5 * ms}}},
	{name: "one rail ramps 10 ms", sick: &linerate.Rail{Rate: 1, Weather: linerate.Weather{Ramp: 10 * ms, RampFrom: 0.1}}},
	{name: "one rail loses, RTO 16 ms", sick: &linerate.Rail{Rate: 1, LosesEvery: 100, Silent: true, Timeout: 16 * ms}},
	{name: "all share a link", fair: true, rail: linerate.Rail{Shared: true}},
	{name: "stall 1 ms once", thread: linerate.Model{Stall: ms, First: 2 * ms}},
	{name: "stall .3 in ~3 ms", thread: linerate.Model{Stall: 300 * us, Every: 3 * ms, Random: 1}},
	{name: "stall 1 in ~10 ms", thread: linerate.Model{Stall: ms, Every: 10 * ms, Random: 1}},
	{name: "pauses 60 %, stalls", rail: vary(linerate.Weather{Pause: 600 * us, PauseEvery: ms}),
		thread: linerate.Model{Stall: 400 * us, Every: 2 * ms, Random: 1}},
	{name: "pauses, stalls", rail: vary(linerate.Weather{Pause: 500 * us, PauseEvery: 2 * ms}),
		thread: linerate.Model{Stall: 300 * us, Every: 2 * ms, Random: 1}},
	{name: "CNPs, stalls", rail: vary(linerate.Weather{Cut: 2 * ms, CutEvery: 4 * ms}),
		thread: linerate.Model{Stall: 500 * us, Every: 4 * ms, Random: 1}},
	{name: "RTO 16 ms, stalls", rail: linerate.Rail{LosesEvery: 100, Silent: true, Timeout: 16 * ms},
		thread: linerate.Model{Stall: 300 * us, Every: 3 * ms, Random: 1}},
	{name: "groups of 8, stalls", rail: linerate.Rail{Group: 8, Hold: 60 * us},
		thread: linerate.Model{Stall: 250 * us, Every: 2 * ms, Random: 1}},
}

// seeds returns how many draws of the weather's random times are tried.
func (w weather) seeds() uint64 {
	if w.thread.Random != 0 || w.rail.PauseEvery > 0 || w.rail.JitterEvery > 0 || w.sick != nil &&
		w.sick.PauseEvery > 0 {
		return 2
	}
	return 1
}

func vary(w linerate.Weather) linerate.Rail { return linerate.Rail{Weather: w} }

// model returns the weather over rails of a rate.
func (w weather) model(rails, qps int, rate float64, seed uint64) linerate.Model {
	m := w.thread
	if m.Random != 0 {
		m.Random = seed*1000 + uint64(rails)*100 + uint64(rate*8/1e9)
	}
	m.Link = rate * float64(rails) / 2
	for i := range rails {
		r := w.rail
		r.Rate = rate
		if w.sick != nil && i == rails/2 {
			r = *w.sick
			r.Rate, r.Expected = rate*w.sick.Rate, rate
		}
		r.QueuePairs, r.RTT, r.Timeout = qps, orElse(r.RTT, 4*us), orElse(r.Timeout, 67*ms)
		r.Seed = seed + 1 + uint64(i)
		m.Rails = append(m.Rails, r)
	}
	return m
}

func orElse(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}

// weatherCells are the bursts of one weather with a number of queue pairs.
type weatherCells struct {
	n, none, ramping, wrong int
	off                     float64 // worst error of bursts with a figure
}

func (c weatherCells) String() string {
	s := fmt.Sprintf("%.1f", 100*c.off)
	if c.none+c.ramping == c.n {
		return "none"
	}
	if c.none+c.ramping > 0 {
		s += fmt.Sprintf("; %d/%d", c.none+c.ramping, c.n)
	}
	return s
}

// TestWeather: under any condition of rails, queue pairs and the polling thread, each figure is what the rail
// carries in the measured window, or there is none. Where nothing is wrong there is one.
func TestWeather(t *testing.T) {
	pairs := []int{1, 2, 4, 8, 16}
	table := "| weather | 1 queue pair | 2 | 4 | 8 | 16 |\n|---|---|---|---|---|---|\n"
	var all weatherCells
	for _, w := range weathers {
		table += "| " + w.name
		for _, qps := range pairs {
			var c weatherCells
			for _, rails := range []int{1, 3} {
				for _, rate := range []float64{25, 400} {
					for seed := range w.seeds() {
						name := fmt.Sprintf("%s: %d × %v Gb/s, %d queue pairs, seed %d", w.name, rails, rate, qps, seed)
						c.add(t, name, w.model(rails, qps, gbps(rate), seed), w.fair)
					}
				}
			}
			table += fmt.Sprintf(" | %v", c)
			all.n, all.none, all.ramping = all.n+c.n, all.none+c.none, all.ramping+c.ramping
			all.wrong, all.off = all.wrong+c.wrong, max(all.off, c.off)
		}
		table += " |\n"
	}
	if runtime.GOARCH == "amd64" { // other architectures round some products differently
		compareBlock(t, "../docs/probe.md", "<!-- generated by TestWeather: make docs -->\n", table)
	}
	t.Logf("%s%d bursts: %d without a figure, %d ramping, %d wrong; largest error %.2f %%", table, all.n, all.none, all.ramping,
		all.wrong, 100*all.off)
}

var update = flag.Bool("update", false, "write the table of docs/probe.md anew")

// compareBlock compares the text between a line of a file and the next "<!-- end -->" with want.
func compareBlock(t *testing.T, file, begin, want string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 {
		t.Fatalf("%s has no block that begins with %q", file, begin)
	}
	if *update {
		got = want
		if err := os.WriteFile(file, []byte(before+begin+want+"<!-- end -->"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got; make docs writes it):\n%s", file, diff)
	}
}

// add runs a burst as a round does, with its repeats.
func (c *weatherCells) add(t *testing.T, name string, m linerate.Model, fair bool) {
	t.Helper()
	b := planned(m, options.DefaultOptions().Depth)
	c.n++
	for try := range 4 {
		done, truth, _ := linerate.Run(m, b)
		ramping, none, off := false, false, 0.0
		for i, p := range done.Rails {
			want := truth[i].Could
			if m.Rails[i].Shared || m.Rails[i].LosesEvery > 0 {
				want = truth[i].Carried
			}
			ramping = ramping || p.Ramping
			none = none || p.Disturbed || p.Failure != nil
			if !p.Disturbed && !p.Ramping {
				off = max(off, math.Abs(p.Rate()/want-1))
			}
		}
		if off > maxWeatherOff {
			t.Errorf("%s: off by %.3f", name, off)
			c.wrong++
		}
		switch {
		case fair && (none || ramping):
			t.Errorf("%s: no figure (disturbed %v, ramping %v)", name, none, ramping)
			return
		case ramping:
			c.ramping++
		case none && try < 3:
			m.Random += 7919 * min(m.Random, 1)
			if m.Every == 0 {
				m.Stall = 0
			}
			continue
		case none:
			c.none++
		}
		c.off = max(c.off, off)
		return
	}
}
