package probe

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

// TestAgreement: which bursts in a row say that the rails share a bottleneck. A round is the goodput of its striped
// bursts in MB/s, with solos of 100 on each of two rails in a full one, else those of the last.
func TestAgreement(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why, rounds string
		want        bool
	}{
		{"one burst", "full 120", false},
		{"two", "full 120 130", false},
		{"three of one round", "full 120 130 110", true},
		{"three, the second good", "full 120 190 110", false},
		{"a full round and the next two", "full 120, 130, 140", true},
		{"a good one between", "full 120, 185, 140, 120", false},
		{"none without solos", "120, 120, 120", false},
		{"gone", "full 120 130 110, 190", false},
		{"it stays", "full 120 130 110, 120, 130", true},
		{"a healthy pair: 4 of 30 are low", "full 190, 170, 190, 188, 175, full 192, 150, 190", false},
	} {
		p := &pastPeer{}
		var res *Result
		for text := range strings.SplitSeq(tc.rounds, ", ") {
			r := twoRails(p, strings.HasPrefix(text, "full"))
			for run := range strings.FieldsSeq(strings.TrimPrefix(text, "full")) {
				var rate float64
				if _, err := fmt.Sscan(run, &rate); err != nil {
					t.Fatal(err)
				}
				r.res.Stealing = new(rate * 1e6)
				r.noteScaling()
			}
			p.note(&r.res, r.evenAlone, false)
			res = &r.res
		}
		if res.Bottleneck != tc.want {
			t.Errorf("%s: %v, want %v", tc.why, res.Bottleneck, tc.want)
		}
	}
}

// twoRails is a round over two rails that carry 100 MB/s alone.
func twoRails(past *pastPeer, full bool) *round {
	r := &round{past: past, plan: plan{full: full}}
	r.res = *resultOf(2, time.Now())
	for i := range r.res.Rails {
		one := &r.res.Rails[i]
		if full {
			one.Solo = &Flow{Bytes: 100e6, Active: time.Second}
		}
		r.paths = append(r.paths, &path{local: localRail{Rail: rail.Rail{Name: one.Rail}}, peer: &helloRail{}, result: one})
	}
	return r
}

// third adds a rail that failed.
func (r *round) third(peer *helloRail) {
	r.res.Rails = append(r.res.Rails, RailResult{Rail: "2", Failure: &Failure{}})
	for i, p := range r.paths {
		p.result = &r.res.Rails[i]
	}
	r.paths = append(r.paths, &path{local: localRail{Rail: rail.Rail{Name: "2"}}, peer: peer, result: &r.res.Rails[2]})
}

// TestBottleneckElse: what explains a low scaling better.
func TestBottleneckElse(t *testing.T) {
	t.Parallel()
	for why, tc := range map[string]struct {
		change func(*round)
		want   bool
	}{
		"nothing": {func(*round) {}, true},
		"a rail is lossy": {func(r *round) {
			r.res.Rails[1].Loss = &Loss{Retransmits: 9, Packets: 900, Bursts: 2}
		}, false},
		"others used a rail":            {func(r *round) { r.res.Rails[1].Others = new(1e6) }, false},
		"a rail is missing":             {func(r *round) { r.res.Missing = []MissingRail{{Rail: "2", Known: true}} }, false},
		"an interface without a device": {func(r *round) { r.res.Missing = []MissingRail{{Rail: "2"}} }, true},
		"a rail failed, one is left":    {func(r *round) { r.res.Rails[1].Failure = &Failure{} }, false},
		"a third has no partner":        {func(r *round) { r.third(nil) }, true},
		"a third failed":                {func(r *round) { r.third(&helloRail{}) }, true},
	} {
		r := twoRails(&pastPeer{}, true)
		tc.change(r)
		for range agreeing {
			r.res.Stealing = new(120e6)
			r.noteScaling()
		}
		if r.past.note(&r.res, r.evenAlone, false); r.res.Bottleneck != tc.want {
			t.Errorf("%s: %v", why, r.res.Bottleneck)
		}
	}
}

// TestEvenAlone: behind one shaper, rails that are even alone are not imbalanced, whoever gets more of it.
func TestEvenAlone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		solo       float64 // of the second rail
		imbalanced bool
	}{{100, false}, {95, false}, {60, true}} {
		r := twoRails(&pastPeer{}, true)
		r.res.MinOfExpected, r.res.Imbalance = 0.7, new(0.41)
		r.res.Rails[1].Solo = &Flow{Bytes: int64(tc.solo * 1e6), Active: time.Second}
		for range agreeing {
			r.res.Stealing = new(100e6)
			r.noteScaling()
		}
		if r.past.note(&r.res, r.evenAlone, false); !r.res.Bottleneck || r.res.Imbalanced() != tc.imbalanced {
			t.Errorf("%v: bottleneck %v, imbalanced %v", tc.solo, r.res.Bottleneck, r.res.Imbalanced())
		}
	}
}

// TestSlowerThanTCP: beyond the spread of all bursts only.
func TestSlowerThanTCP(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why       string
		rdma, tcp [][]float64 // of each round
		want      bool
	}{
		{"one of each", [][]float64{{80}}, [][]float64{{100}}, false},
		{"two of each", [][]float64{{80, 82}}, [][]float64{{100, 99}}, true},
		{"one burst as fast", [][]float64{{80, 98}}, [][]float64{{100, 99}}, false},
		{"one baseline as slow", [][]float64{{92, 91}}, [][]float64{{100, 95}}, false},
		{"in two full rounds", [][]float64{{80}, {81}, {82}}, [][]float64{{100}, {}, {101}}, true},
		{"the last is good", [][]float64{{80}, {81}, {99}}, [][]float64{{100}, {}, {101}}, false},
		{"no baseline in the last", [][]float64{{80}, {81}, {82}}, [][]float64{{100}, {101}, {}}, false},
	} {
		p := &pastPeer{}
		var res *Result
		for i := range tc.rdma {
			res = resultOf(2, time.Now())
			res.Runs, res.tcpRuns = tc.rdma[i], tc.tcp[i]
			if len(tc.tcp[i]) > 0 {
				res.Speedup = new(tc.rdma[i][0] / tc.tcp[i][0])
			}
			p.note(res, false, false)
		}
		if res.SlowerThanTCP != tc.want {
			t.Errorf("%s: %v", tc.why, res.SlowerThanTCP)
		}
	}
}

// TestRoundAgain: a low scaling is measured again, within what the round has reserved; a good one is not.
func TestRoundAgain(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, func(_ string, i int, d *fakeverbs.Device) { d.Rate, d.Group = 60e6, 1 })
	p.opts.SoloEvery = 1
	prober := NewProber(p.a, withPeer(p.opts, p.peer), func(Result) {}, Events{}.withDefaults())
	for range 5 { // on a busy machine a round may be late
		p.a.past.peers = nil
		r := prober.newRound(p.peer, false)
		res := r.run(context.Background())
		p.clean()
		t.Logf("%s, scaling %.2f, %d runs, bottleneck %v", res.Outcome, value(res.Scaling), len(res.Runs), res.Bottleneck)
		if most := r.plan.bytes(r.paths, r.tcpPaths(r.lanes())); res.Bytes > most {
			t.Errorf("%d bytes of %d reserved", res.Bytes, most)
		}
		if len(res.Runs) == agreeing && res.Bottleneck && res.EvenAlone && res.Outcome == OK &&
			math.Abs(slices.Max(res.Runs)-*res.Stealing) < 1 {
			return
		}
	}
	t.Error("no round of five repeats its striped burst until three agree")
}

func withPeer(opts Options, peer string) Options {
	opts.Peers = []string{peer}
	return opts
}

// TestNoteOthers: what a port counted beyond the burst is others', unless packets were lost or the counters are late.
func TestNoteOthers(t *testing.T) {
	t.Parallel()
	at := time.Now()
	reading := func(after time.Duration, bytes, retransmits uint64, period time.Duration) rail.Traffic {
		return rail.Traffic{Transmit: bytes, Port: [rail.Directions]uint64{rail.Transmit: bytes}, Retransmits: retransmits,
			CountsRetransmits: true, Period: period, At: at.Add(after)}
	}
	const moved = 100 << 20
	own := uint64(wireBytes(moved, 4096, false))
	const ownIB = moved + moved/4096*ibHeader
	for _, tc := range []struct {
		why   string
		after rail.Traffic
		want  float64 // bytes per second; 0: none
		link  string  // layer; empty: Ethernet
	}{
		{"only the burst", reading(time.Second, own, 0, 0), 0, ""},
		{"InfiniBand, only the burst", reading(time.Second, ownIB, 0, 0), 0, "InfiniBand"},
		{"InfiniBand, 30 MB/s of others", reading(2*time.Second, ownIB+60e6, 0, 0), 30e6, "InfiniBand"},
		{"headers of a smaller MTU", reading(time.Second, own*104/100, 0, 0), 0, ""},
		{"30 MB/s of others", reading(2*time.Second, own+60e6, 0, 0), 30e6, ""},
		{"retransmissions", reading(time.Second, own+60e6, 3, 0), 0, ""},
		{"late counters", reading(time.Second, own+60e6, 0, 2*time.Second), 0, ""},
	} {
		r := twoRails(&pastPeer{}, true)
		for _, p := range r.paths {
			p.local.LinkLayer, p.result.PathMTU = cmp.Or(tc.link, "Ethernet"), 4096
			p.result.Others = new(1e9) // of an earlier burst
			p.result.Stealing = &Flow{Bytes: moved, Active: time.Second, Moved: moved}
			r.rails = append(r.rails, p.local)
		}
		before := map[string]rail.Traffic{"0": reading(0, 0, 0, 0), "1": reading(0, 0, 0, tc.after.Period)}
		r.noteOthers(before, map[string]rail.Traffic{"0": reading(tc.after.At.Sub(at), own, 0, 0), "1": tc.after})
		got := max(value(r.res.Rails[1].Others), 0)
		if math.Abs(got-tc.want) > 10 || r.res.Rails[0].Others != nil {
			t.Errorf("%s: %.0f, want %.0f", tc.why, got, tc.want)
		}
	}
}

// TestOthersCount: what others took is no shortfall of a rail, and no imbalance.
func TestOthersCount(t *testing.T) {
	t.Parallel()
	r := twoRails(&pastPeer{}, false)
	r.res.MinOfExpected = 0.7
	for i, rate := range []int64{100e6, 60e6} {
		r.res.Rails[i].Stealing = &Flow{Bytes: rate, Active: time.Second}
		r.res.Rails[i].Expected, r.res.Rails[i].Capacity = new(100e6), new(100e6)
	}
	if r.judge(); !r.res.Imbalanced() || len(r.res.Shortfalls()) != 1 {
		t.Errorf("imbalance %v, %v", value(r.res.Imbalance), r.res.Shortfalls())
	}
	r.res.Rails[1].Others = new(38e6)
	if r.judge(); r.res.Imbalanced() || len(r.res.Shortfalls()) != 0 || *r.res.Stealing != 160e6 {
		t.Errorf("with others: imbalance %v, %v, stealing %v", value(r.res.Imbalance), r.res.Shortfalls(),
			*r.res.Stealing)
	}
}

// TestOthersCapped: others on one rail, the mean of a longer time than the burst, do not make it better than it can
// be, and excuse no other rail. Figures are GB/s, of rails of 50; the others are on rail 0.
func TestOthersCapped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why       string
		rails     []int64
		others    float64
		imbalance float64
		short     int // findings of Shortfalls
	}{
		{"after the burst", []int64{48, 48, 48}, 17, 0.04, 0},
		{"during the burst", []int64{33, 48, 48}, 17, 0.04, 0},
		{"and the other rails are short", []int64{48, 26, 26}, 30, 0.48, 3},
	} {
		r := twoRails(&pastPeer{}, false)
		r.res.MinOfExpected, r.res.Transport = 0.7, RDMA
		r.paths = nil
		r.res.Rails = make([]RailResult, len(tc.rails))
		for i, rate := range tc.rails {
			one := &r.res.Rails[i]
			*one = RailResult{Rail: fmt.Sprint(i), Stealing: &Flow{Bytes: rate * 1e9, Active: time.Second},
				Expected: new(50e9), Capacity: new(50e9)}
			r.paths = append(r.paths, &path{peer: &helloRail{}, result: one})
		}
		r.res.Rails[0].Others = new(tc.others * 1e9)
		r.judge()
		if got := value(r.res.Imbalance); math.Abs(got-tc.imbalance) > 0.005 || len(r.res.Shortfalls()) != tc.short {
			t.Errorf("%s: imbalance %.2f, want %.2f; %v", tc.why, got, tc.imbalance, r.res.Shortfalls())
		}
	}
}
