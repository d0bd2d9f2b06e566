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
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestAgreement: when several bursts agree that the rails share a bottleneck. A round is the goodput of its striped
// bursts in MB/s. A full round has solos of 100 on each of two rails; other rounds use the last ones.
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
		p := &history.PastPeer{}
		var res *result.Result
		for text := range strings.SplitSeq(tc.rounds, ", ") {
			r := twoRails(p, strings.HasPrefix(text, "full"))
			for run := range strings.FieldsSeq(strings.TrimPrefix(text, "full")) {
				var rate float64
				if _, err := fmt.Sscan(run, &rate); err != nil {
					t.Fatal(err)
				}
				r.Res.Striped = new(rate * 1e6)
				round.NoteScaling(&r.Res, r.Flows, r.Past, r.Plan.Full)
			}
			p.Note(&r.Res, false)
			res = &r.Res
		}
		if res.Bottleneck != tc.want {
			t.Errorf("%s: %v, want %v", tc.why, res.Bottleneck, tc.want)
		}
	}
}

// twoRails returns a round over two rails that carry 100 MB/s alone.
func twoRails(past *history.PastPeer, full bool) *round.Round {
	r := &round.Round{Pairing: round.Pairing{Past: past}, Plan: round.Plan{Full: full}}
	r.Res = *resultOf(2, time.Now())
	for i := range r.Res.Rails {
		one := &r.Res.Rails[i]
		if full {
			one.Solo = &result.Flow{Bytes: 100e6, Active: time.Second}
		}
		r.Flows = append(r.Flows, &round.Flow{Local: node.LocalRail{Rail: rail.Rail{Name: one.Rail}},
			Peer: &protocol.HelloRail{}, Result: one})
	}
	return r
}

// addThird adds a failed rail.
func addThird(r *round.Round, peer *protocol.HelloRail) {
	r.Res.Rails = append(r.Res.Rails, result.RailResult{Rail: "2", Failure: &result.Failure{}})
	for i, p := range r.Flows {
		p.Result = &r.Res.Rails[i]
	}
	r.Flows = append(r.Flows, &round.Flow{Local: node.LocalRail{Rail: rail.Rail{Name: "2"}}, Peer: peer,
		Result: &r.Res.Rails[2]})
}

// TestBottleneckElse: other causes that explain a low scaling better.
func TestBottleneckElse(t *testing.T) {
	t.Parallel()
	for why, tc := range map[string]struct {
		change func(*round.Round)
		want   bool
	}{
		"nothing": {func(*round.Round) {}, true},
		"a rail is lossy": {func(r *round.Round) {
			r.Res.Rails[1].Loss = &result.Loss{Retransmits: 9, Packets: 900, Bursts: 2}
		}, false},
		"others used a rail":            {func(r *round.Round) { r.Res.Rails[1].Others = new(1e6) }, false},
		"a rail is missing":             {func(r *round.Round) { r.Res.Missing = []result.MissingRail{{Rail: "2", Known: true}} }, false},
		"an interface without a device": {func(r *round.Round) { r.Res.Missing = []result.MissingRail{{Rail: "2"}} }, true},
		"a rail failed, one is left":    {func(r *round.Round) { r.Res.Rails[1].Failure = &result.Failure{} }, false},
		"a third has no partner":        {func(r *round.Round) { addThird(r, nil) }, true},
		"a third failed":                {func(r *round.Round) { addThird(r, &protocol.HelloRail{}) }, true},
	} {
		r := twoRails(&history.PastPeer{}, true)
		tc.change(r)
		for range history.Agreeing {
			r.Res.Striped = new(120e6)
			round.NoteScaling(&r.Res, r.Flows, r.Past, r.Plan.Full)
		}
		r.Past.Note(&r.Res, false)
		if r.Res.Bottleneck != tc.want {
			t.Errorf("%s: %v", why, r.Res.Bottleneck)
		}
	}
}

// TestOneIsLeft: a burst over one rail is no evidence of a bottleneck, and ends a row of bursts that agree on one.
func TestOneIsLeft(t *testing.T) {
	t.Parallel()
	r := twoRails(&history.PastPeer{Low: history.Agreeing - 1}, true)
	r.Res.Rails[0].Solo = &result.Flow{Bytes: 200e6, Active: time.Second}
	r.Res.Rails[1].Failure, r.Res.Striped = &result.Failure{}, new(120e6)
	round.NoteScaling(&r.Res, r.Flows, r.Past, r.Plan.Full)
	if r.Past.Low != 0 || r.Res.TogetherSeen != nil {
		t.Errorf("%d bursts agree, together %v", r.Past.Low, value(r.Res.TogetherSeen))
	}
}

// TestTogetherSeen: of several striped bursts, the best shows what the rails carry together.
func TestTogetherSeen(t *testing.T) {
	t.Parallel()
	r := twoRails(&history.PastPeer{}, true)
	for _, rate := range []float64{120e6, 150e6, 110e6} {
		r.Res.Striped = &rate
		round.NoteScaling(&r.Res, r.Flows, r.Past, r.Plan.Full)
	}
	if got := value(r.Res.TogetherSeen); got != 0.75 {
		t.Errorf("%v of what each carries alone, want 0.75", got)
	}
}

// TestEvenAlone: behind one shaper, rails that are even alone are not imbalanced, whichever gets more.
func TestEvenAlone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		solo       float64 // solo rate of the second rail
		imbalanced bool
	}{{100, false}, {95, false}, {90.5, false}, {89.5, true}, {60, true}} {
		r := twoRails(&history.PastPeer{}, true)
		r.Res.MinOfExpected, r.Res.Imbalance = 0.7, new(0.41)
		r.Res.Rails[1].Solo = &result.Flow{Bytes: int64(tc.solo * 1e6), Active: time.Second}
		for range history.Agreeing {
			r.Res.Striped = new(100e6)
			round.NoteScaling(&r.Res, r.Flows, r.Past, r.Plan.Full)
		}
		r.Past.Note(&r.Res, false)
		if !r.Res.Bottleneck || r.Res.Imbalanced() != tc.imbalanced {
			t.Errorf("%v: bottleneck %v, imbalanced %v", tc.solo, r.Res.Bottleneck, r.Res.Imbalanced())
		}
	}
}

// TestSlowerThanTCP: RDMA is slower only beyond the spread of all bursts.
func TestSlowerThanTCP(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why       string
		rdma, tcp [][]float64 // rates per round
		want      bool
	}{
		{"one of each", [][]float64{{80}}, [][]float64{{100}}, false},
		{"one burst", [][]float64{{80}}, [][]float64{{100, 99}}, false},
		{"one baseline", [][]float64{{80, 82}}, [][]float64{{100}}, false},
		{"two of each", [][]float64{{80, 82}}, [][]float64{{100, 99}}, true},
		{"one burst just as fast as it has to be", [][]float64{{80, 95}}, [][]float64{{100, 100}}, false},
		{"one burst as fast", [][]float64{{80, 98}}, [][]float64{{100, 99}}, false},
		{"one baseline as slow", [][]float64{{92, 91}}, [][]float64{{100, 95}}, false},
		{"in two full rounds", [][]float64{{80}, {81}, {82}}, [][]float64{{100}, {}, {101}}, true},
		{"the last is good", [][]float64{{80}, {81}, {99}}, [][]float64{{100}, {}, {101}}, false},
		{"no baseline in the last", [][]float64{{80}, {81}, {82}}, [][]float64{{100}, {101}, {}}, false},
	} {
		p := &history.PastPeer{}
		var res *result.Result
		for i := range tc.rdma {
			res = resultOf(2, time.Now())
			res.Runs, res.TCPRuns = tc.rdma[i], tc.tcp[i]
			if len(tc.tcp[i]) > 0 {
				res.Speedup = new(tc.rdma[i][0] / tc.tcp[i][0])
			}
			p.Note(res, false)
		}
		if res.SlowerThanTCP != tc.want {
			t.Errorf("%s: %v", tc.why, res.SlowerThanTCP)
		}
	}
}

// TestRoundAgain: a low scaling is measured again, within the round's reservation. A good one is not.
func TestRoundAgain(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, func(_ string, i int, d *fakeverbs.Device) { d.Rate, d.Group = 60e6, 1 })
	p.opts.SoloEvery = 1
	prober := schedule.NewProber(p.a, withPeer(p.opts, p.peer), func(result.Result) {}, quiet(options.Events{}))
	for range 5 { // a busy machine may disturb a round
		p.a.Past.Peers = nil
		r := prober.NewRound(p.peer, false)
		res := r.Run(context.Background())
		p.clean()
		t.Logf("%s, scaling %.2f, %d runs, bottleneck %v", res.Outcome, value(res.Scaling), len(res.Runs), res.Bottleneck)
		if most := r.Plan.Bytes(r.Flows, round.TCPFlows(r.Routes(), r.Flows)); res.Bytes > most {
			t.Errorf("%d bytes of %d reserved", res.Bytes, most)
		}
		if len(res.Runs) == history.Agreeing && res.Bottleneck && res.EvenAlone && res.Outcome == result.OK &&
			math.Abs(slices.Max(res.Runs)-*res.Striped) < 1 {
			return
		}
	}
	t.Error("no round of five repeats its striped burst until three agree")
}

// TestRunsByHand: an interactive round, which has no earlier ones, repeats its striped burst for the spread.
func TestRunsByHand(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	p.chances(func(res result.Result) bool {
		t.Logf("%s, %d runs", res.Outcome, len(res.Runs))
		return res.Outcome == result.OK && len(res.Runs) == history.SingleRuns
	})
}

func withPeer(opts options.Options, peer string) options.Options {
	opts.Peers = []string{peer}
	return opts
}

// TestNoteOthers: bytes that a port counted beyond the burst are others', unless packets were lost or the counters
// are late.
func TestNoteOthers(t *testing.T) {
	t.Parallel()
	at := time.Now()
	reading := func(after time.Duration, bytes, retransmits uint64, period time.Duration) rail.Traffic {
		return rail.Traffic{Transmit: bytes, Port: [rail.Directions]uint64{rail.Transmit: bytes},
			Retransmits: retransmits, CountsRetransmits: true, Period: period, At: at.Add(after)}
	}
	const moved = 100 << 20
	own := uint64(node.WireBytes(moved, 4096, false))
	const ownIB = moved + moved/4096*round.IbHeader
	for _, tc := range []struct {
		why   string
		after rail.Traffic
		want  float64 // bytes per second; 0: none
		link  string  // link layer; empty: Ethernet
	}{
		{"only the burst", reading(time.Second, own, 0, 0), 0, ""},
		{"InfiniBand, only the burst", reading(time.Second, ownIB, 0, 0), 0, "InfiniBand"},
		{"InfiniBand, 30 MB/s of others", reading(2*time.Second, ownIB+60e6, 0, 0), 30e6, "InfiniBand"},
		{"headers of a smaller MTU", reading(time.Second, own*104/100, 0, 0), 0, ""},
		{"30 MB/s of others", reading(2*time.Second, own+60e6, 0, 0), 30e6, ""},
		{"retransmissions", reading(time.Second, own+60e6, 3, 0), 0, ""},
		{"late counters", reading(time.Second, own+60e6, 0, 2*time.Second), 0, ""},
	} {
		r := twoRails(&history.PastPeer{}, true)
		for _, p := range r.Flows {
			p.Local.LinkLayer, p.Result.PathMTU = cmp.Or(tc.link, "Ethernet"), 4096
			p.Result.Others = new(1e9) // value of an earlier burst
			p.Result.Striped = &result.Flow{Bytes: moved, Active: time.Second, Moved: moved}
			r.Rails = append(r.Rails, p.Local)
		}
		before := map[string]rail.Traffic{"0": reading(0, 0, 0, 0), "1": reading(0, 0, 0, tc.after.Period)}
		round.NoteOthers(r.Flows, r.Rails, before, map[string]rail.Traffic{"0": reading(tc.after.At.Sub(at), own, 0, 0), "1": tc.after})
		got := max(value(r.Res.Rails[1].Others), 0)
		if math.Abs(got-tc.want) > 10 || r.Res.Rails[0].Others != nil {
			t.Errorf("%s: %.0f, want %.0f", tc.why, got, tc.want)
		}
	}
}

// TestOthersCount: traffic of others is neither a shortfall of a rail nor an imbalance.
func TestOthersCount(t *testing.T) {
	t.Parallel()
	r := twoRails(&history.PastPeer{}, false)
	r.Res.MinOfExpected = 0.7
	for i, rate := range []int64{100e6, 60e6} {
		r.Res.Rails[i].Striped = &result.Flow{Bytes: rate, Active: time.Second}
		r.Res.Rails[i].Expected, r.Res.Rails[i].Capacity = new(100e6), new(100e6)
	}
	round.Judge(&r.Res, r.Flows)
	if !r.Res.Imbalanced() || len(r.Res.Shortfalls()) != 1 {
		t.Errorf("imbalance %v, %v", value(r.Res.Imbalance), r.Res.Shortfalls())
	}
	if a, b := value(r.Res.Rails[0].Share), value(r.Res.Rails[1].Share); a != 1 || b != 0.6 {
		t.Errorf("shares %v and %v", a, b)
	}
	r.Res.Rails[1].Others = new(38e6)
	round.Judge(&r.Res, r.Flows)
	if r.Res.Imbalanced() || len(r.Res.Shortfalls()) != 0 || *r.Res.Striped != 160e6 {
		t.Errorf("with others: imbalance %v, %v, stealing %v", value(r.Res.Imbalance), r.Res.Shortfalls(),
			*r.Res.Striped)
	}
}

// TestOthersCapped: the mean of others over a longer time does not raise a rail above its limit, and does not
// excuse another rail. Figures are GB/s, for rails of 50; the others are on rail 0.
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
		r := twoRails(&history.PastPeer{}, false)
		r.Res.MinOfExpected, r.Res.Transport = 0.7, result.RDMA
		r.Flows = nil
		r.Res.Rails = make([]result.RailResult, len(tc.rails))
		for i, rate := range tc.rails {
			one := &r.Res.Rails[i]
			*one = result.RailResult{Rail: fmt.Sprint(i), Striped: &result.Flow{Bytes: rate * 1e9, Active: time.Second},
				Expected: new(50e9), Capacity: new(50e9)}
			r.Flows = append(r.Flows, &round.Flow{Peer: &protocol.HelloRail{}, Result: one})
		}
		r.Res.Rails[0].Others = new(tc.others * 1e9)
		round.Judge(&r.Res, r.Flows)
		if got := value(r.Res.Imbalance); math.Abs(got-tc.imbalance) > 0.005 || len(r.Res.Shortfalls()) != tc.short {
			t.Errorf("%s: imbalance %.2f, want %.2f; %v", tc.why, got, tc.imbalance, r.Res.Shortfalls())
		}
	}
}
