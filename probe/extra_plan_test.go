package probe

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// usualSizes returns the sizes of a sweep without a value.
func usualSizes() (list []int) {
	for size := 64 << 10; size <= 64<<20; size *= 2 {
		list = append(list, size)
	}
	return list
}

// TestSweepFits: at any rate, bursts of all sizes fit into the reservation of an interactive round, even if each
// moves its most and is repeated to the limit. The reservation fits into one lease of a peer with default options.
func TestSweepFits(t *testing.T) {
	for _, rate := range []float64{1, 2.5, 10, 25, 100, 400, 800} {
		for _, rails := range []int{1, 2, 8} {
			var paths []*round.Flow
			for i := range rails {
				p := ratedPath(rate)
				p.Local.Name = fmt.Sprint(i)
				paths = append(paths, p)
			}
			e := result.Extra{Kind: result.Sweep, Values: usualSizes()}
			p := round.Plan{Options: options.DefaultOptions(), Full: true, Runs: history.SingleRuns, Rails: rails,
				ExtrasNow: []result.Extra{e},
				Rate:      float64(rails) * rate * 1e9 / 8}
			r := round.Reservation{MaxBytes: p.ExtraBytes(paths, paths, nil), Spare: p.Repeats(paths)}
			moved := round.SweepBytes(e.Values, paths) // bytes that the transfers take
			for _, size := range e.Values {
				chunk, _ := round.Part(int64(size), rails, p.Longest(paths))
				of := p.OfMessages(chunk, p.Longest(paths))
				if !r.Affords(moved, of.Loads(paths)) {
					t.Errorf("%d × %g Gb/s: %d bytes do not fit", rails, rate, size)
				}
				planned, tries := of.BurstBytes(paths), int64(1)
				if r.Spare >= worker.MaxRepeats*planned {
					tries += worker.MaxRepeats
				}
				r.Spare += planned * (1 - tries)
				moved += tries * planned
			}
			need, limit := options.RailTime(p.Bytes(paths, paths)+r.MaxBytes, p.Rate),
				node.NewBudget(p.Budget.PerHour(p.Rate)).MaxLease()
			if float64(rails)*rate >= 5 && need > limit { // for slower rails a peer has to grant more
				t.Errorf("%d × %g Gb/s: it needs %v of a rail's time, a lease has %v", rails, rate, need, limit)
			}
		}
	}
}

// TestSweepOfSlowRails: all sizes are measured on rails of 2.5 Gb/s.
func TestSweepOfSlowRails(t *testing.T) {
	t.Parallel()
	p := preparePair(t, 2, func(_ string, _ int, d *fakeverbs.Device) {
		d.PortRate, d.Rate = "2.5 Gb/sec (1X SDR)", 300e6
	})
	p.b.SetBudget(options.Budget{Share: 0.25})
	p.serve()
	res := p.bench(result.Extra{Kind: result.Sweep, Values: usualSizes()})
	p.clean()
	var sizes []int
	for _, m := range res.Extras {
		sizes = append(sizes, int(m.Size))
		if m.Failure != nil || m.Transfer == nil {
			t.Errorf("%d bytes: %v", m.Size, m.Failure)
		}
	}
	if !slices.Equal(sizes, usualSizes()) {
		t.Errorf("sizes %v, %s: %s", sizes, res.Outcome, res.Detail)
	}
}

// TestMissed: each burst that an extra did not make has a result with the reason, and bursts that were made stay.
func TestMissed(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	sizes := []int{64 << 10, 128 << 10, 256 << 10}
	r := schedule.NewBench(p.a, p.opts, p.peer, func(result.Progress) {})
	r.Plan.ExtrasNow = []result.Extra{{Kind: result.Sweep, Values: sizes}, {Kind: result.Reads}}
	r.Plan.Extras = r.Plan.ExtrasNow
	r.Progress = func(at result.Progress) { // the second size uses up the bytes
		if r.Tally.Kind == result.Sweep && r.Tally.Done-r.Tally.Ours == 1 {
			r.Reserved.MaxBytes = 0
		}
	}
	res := r.Run(t.Context())
	p.clean()
	var got []string
	for _, m := range res.Extras {
		text := fmt.Sprint(m.Kind, " ", m.Size, " over ", len(m.Flows))
		if m.Failure != nil {
			text += " " + string(m.Failure.Reason)
		}
		got = append(got, text)
	}
	want := []string{"sweep 65536 over 2", "sweep 131072 over 2", "sweep 262144 over 2 budget", "read 0 over 1 budget",
		"read 0 over 1 budget", "read 0 over 2 budget"}
	if !slices.Equal(got, want) || res.Outcome != result.OK {
		t.Errorf("%q, want %q; %s %s", got, want, res.Outcome, res.Detail)
	}
}

// TestPlannedBursts: the bursts of each extra are made as planned.
func TestPlannedBursts(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	list := []result.Extra{{Kind: result.Reads}, {Kind: result.Bidirectional},
		{Kind: result.QueuePairs, Values: []int{1, 2}},
		{Kind: result.Loopback},
		{Kind: result.Paths, Values: []int{2}}, {Kind: result.Rails, Rails: []string{"0", "1"}}, {Kind: result.Messages,
			Values: []int{4096}},
		{Kind: result.Sweep, Values: []int{65536}}, {Kind: result.KVCache, Values: []int{4096}}, {Kind: result.TCPTime,
			Values: []int{8}}, {Kind: result.TCPStreams, Values: []int{2, 8}}}
	res := p.bench(list...)
	p.clean()
	text := func(m result.Measured) string {
		s := fmt.Sprint(m.Kind, " ", m.Size, " TCP ", m.TCP != nil && m.Kind == result.KVCache)
		for _, f := range m.Flows {
			s += fmt.Sprintf(", %s %s %s %d", f.Op, f.Rail, f.Other, f.Path)
		}
		return s
	}
	var got, want []string
	for _, m := range res.Extras {
		got = append(got, text(m))
	}
	for _, e := range list {
		for _, m := range (round.Plan{Runs: history.SingleRuns}).Bursts(e, []string{"0", "1"}) {
			if e.Kind == result.Loopback { // the other end is known only after the burst
				m.Flows = m.Flows[:1]
			}
			want = append(want, text(m))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("made\n%q\nplanned\n%q", got, want)
	}
}

// TestDisturbedRound: an interactive round whose bursts have no figure reports the reason of each.
func TestDisturbedRound(t *testing.T) {
	t.Parallel()
	done := worker.BurstDone{Rails: []worker.BurstRail{{Disturbed: true, Gap: time.Second}}}
	for once, want := range map[bool]string{false: "in each of 4 bursts", true: "in the burst"} {
		f := round.Disturbed(worker.BurstArgs{Once: once, Loads: []worker.Load{{Rail: "0", Depth: 2, Chunk: 4096}}},
			done)
		if f.Reason != failure.Disturbed || !strings.Contains(f.Detail, want) ||
			!strings.Contains(f.Detail, "raise `depth` and `burst`") {
			t.Errorf("once %v: %v", once, f)
		}
	}
	none := round.Disturbed(worker.BurstArgs{}, worker.BurstDone{Rails: []worker.BurstRail{{}}})
	if none.Reason != failure.Timeout {
		t.Errorf("a burst in which nothing completed: %v", none)
	}
}

// TestProgress: the bursts of extras are numbered, each ends with the rate of its measured window, as in its
// result, and the remaining time is known after some bursts.
func TestProgress(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	opts := p.opts
	opts.Extras, opts.Budget = []result.Extra{{Kind: result.Reads}, {Kind: result.QueuePairs, Values: []int{1, 2}}},
		options.Budget{Share: 1}
	var steps []string
	var rates []float64
	left := 0
	res := Bench(t.Context(), p.a, opts, p.peer, func(at result.Progress) {
		if at.Left > 0 {
			left++
		}
		if at.Ended && at.Stage == failure.StageExtra {
			steps, rates = append(steps, fmt.Sprintf("%d of %d: %s %s", at.Step, at.Steps, at.Rail, at.Kind)),
				append(rates, at.Rate)
		}
	})
	p.clean()
	want := []string{"1 of 5: 0 read", "2 of 5: 1 read", "3 of 5:  read", "4 of 5:  queue_pairs", "5 of 5:  queue_pairs"}
	if !slices.Equal(steps, want) || left == 0 || len(res.Extras) != len(want) {
		t.Fatalf("%q, want %q; %d reports with the time left, %d results", steps, want, left, len(res.Extras))
	}
	for i, m := range res.Extras {
		sum := 0.0
		for _, f := range m.Flows {
			if f.Goodput == nil {
				sum = math.NaN() // a disturbed burst reports no rate
				break
			}
			sum += *f.Goodput
		}
		if math.IsNaN(sum) != (rates[i] == 0) || rates[i] > 0 && math.Abs(rates[i]/sum-1) > 1e-9 {
			t.Errorf("%s: %.0f B/s reported, %.0f measured", steps[i], rates[i], sum)
		}
	}
}

// TestRateAtEnd: a burst ends with the sum of its rails' rates, or without a rate if it has no figure.
func TestRateAtEnd(t *testing.T) {
	t.Parallel()
	even := worker.BurstRail{Measured: 100, Last: time.Second}
	ramping, disturbed, failed := even, even, even
	ramping.Ramping, disturbed.Disturbed, failed.Failure = true, true, failure.New("", failure.Timeout, "")
	for why, tc := range map[string]struct {
		first worker.BurstRail
		want  float64
	}{"even": {even, 200}, "ramping": {ramping, 0}, "disturbed": {disturbed, 0}, "failed": {failed, 0}} {
		at := result.Progress{Total: 7}.AtEnd(worker.BurstDone{Rails: []worker.BurstRail{tc.first, even}})
		if at.Rate != tc.want || !at.Ended || at.Done != 7 {
			t.Errorf("%s: %+v, want a rate of %v", why, at, tc.want)
		}
	}
}

// TestTimeLeft: later bursts are estimated to take as long as earlier ones, within the round's time.
func TestTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := round.Plan{Options: options.DefaultOptions(), Full: true, Runs: history.SingleRuns,
			ExtrasNow: []result.Extra{{Kind: result.Reads}, {Kind: result.Bond}}}
		var tally round.Tally
		tally.Begin(ctx, p, []string{"0", "1"}) // 2 alone, 2 striped, 2 over TCP, 3 reads, and bonds
		for made, want := range []time.Duration{0, 0, 8 * time.Second, 7 * time.Second} {
			tally.Other = made
			if tally.Add(result.Progress{}).Left != want {
				t.Errorf("after %d bursts: %v left, want %v", made, tally.Add(result.Progress{}).Left, want)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(50 * time.Second)
		if left := tally.Add(result.Progress{}).Left; left > 6*time.Second {
			t.Errorf("%v left of a round that ends earlier", left)
		}
	})
}
