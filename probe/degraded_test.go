package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/result"
)

// TestDegraded lists what degrades a round by RDMA. Figures are MB/s; -1: not measured, or no expectation.
func TestDegraded(t *testing.T) {
	const none = -1
	type one struct {
		solo, stealing, expected float64
		failed                   bool
	}
	for _, tc := range []struct {
		name      string
		min       float64
		stealing  float64
		imbalance float64
		rails     []one
		want      bool
		short     string // rails of Shortfalls; "all": all rails together
	}{
		{"good", 0.7, 190, 0, []one{{95, 95, 100, false}, {95, 95, 100, false}}, false, ""},
		{"just good", 0.7, 140, 0, []one{{70, 70, 100, false}, {70, 70, 100, false}}, false, ""},
		{"just too little", 0.7, 139.8, 0, []one{{69.9, 69.9, 100, false}, {69.9, 69.9, 100, false}}, true, "all 0 1"},
		{"all even at 13 %", 0.7, 26, 0, []one{{13, 13, 100, false}, {13, 13, 100, false}}, true, "all 0 1"},
		{"one rail at 60 %, the sum is good", 0.7, 155, none, []one{{95, 95, 100, false}, {60, 60, 100, false}},
			true, "1"},
		{"no solos in this round", 0.7, 155, none, []one{{none, 95, 100, false}, {none, 60, 100, false}}, true, "1"},
		{"each alone is good, together they are not", 0.7, 100, 0, []one{{95, 50, 100, false}, {95, 50, 100, false}},
			true, "all"},
		{"a bad solo and a good part", 0.7, 190, 0, []one{{30, 95, 100, false}, {95, 95, 100, false}}, false, ""},
		{"one rail", 0.7, 13, none, []one{{13, 13, 100, false}}, true, "0"},
		{"one rail, good alone", 0.7, 13, none, []one{{95, 13, 100, false}}, true, "all"},
		{"less is asked for", 0.1, 26, 0, []one{{13, 13, 100, false}, {13, 13, 100, false}}, false, ""},
		{"imbalanced", 0.7, 174, 0.26, []one{{100, 100, 100, false}, {74, 74, 100, false}}, true, ""},
		{"nearly imbalanced", 0.7, 175, 0.25, []one{{100, 100, 100, false}, {75, 75, 100, false}}, false, ""},
		{"nothing is expected of software", 0.7, 26, 0, []one{{13, 13, none, false}, {13, 13, none, false}}, false, ""},
		{"of one of two", 0.7, 108, none, []one{{95, 95, 100, false}, {13, 13, none, false}}, false, ""},
		{"a rail failed", 0.7, 95, 1, []one{{95, 95, 100, false}, {none, none, none, true}}, true, ""},
		{"a rail failed of which something is expected", 0.7, 95, 1,
			[]one{{95, 95, 100, false}, {none, none, 100, true}}, true, "all"},
		{"a rail failed, and slow ones are not judged", 0, 95, 1, []one{{13, 13, 100, false}, {none, none, 100, true}},
			true, ""},
		{"nothing is judged", 0, 13, 0.9, []one{{12, 12, 100, false}, {1, 1, 100, false}}, false, ""},
		{"nothing was measured", 0.7, none, none, []one{{none, none, 100, false}}, false, ""},
	} {
		res := result.Result{Transport: result.RDMA, MinOfExpected: tc.min}
		figure := func(v float64) *float64 {
			if v < 0 {
				return nil
			}
			v *= 1e6
			return &v
		}
		flow := func(v float64) *result.Flow {
			if v < 0 {
				return nil
			}
			return &result.Flow{Bytes: int64(v * 1e6), Active: time.Second}
		}
		res.Striped = figure(tc.stealing)
		if tc.imbalance >= 0 {
			res.Imbalance = &tc.imbalance
		}
		for i, r := range tc.rails {
			rr := result.RailResult{Rail: fmt.Sprint(i), Solo: flow(r.solo), Striped: flow(r.stealing),
				Expected: figure(r.expected)}
			if r.failed {
				rr.Failure = &failure.Failure{}
			}
			res.Rails = append(res.Rails, rr)
		}
		var short []string
		for _, s := range res.Shortfalls() {
			if s.Rail == "" {
				s.Rail = "all"
			}
			short = append(short, s.Rail)
		}
		if got := strings.Join(short, " "); got != tc.short || res.Degraded() != tc.want {
			t.Errorf("%s: degraded %v, shortfalls %q; want %v, %q", tc.name, res.Degraded(), got, tc.want, tc.short)
		}
	}
}

// TestUnpairedNotExpected: the expectation is the sum over paired rails. With a single one, only its own shortfall
// is reported. A member of a ring has only paired rails.
func TestUnpairedNotExpected(t *testing.T) {
	slow := func(stealing float64) result.RailResult {
		f := &result.Flow{Bytes: int64(stealing * 1e6), Active: time.Second}
		return result.RailResult{Rail: "0", PeerRail: "0", Solo: f, Striped: f, Expected: new(100e6)}
	}
	for stealing, want := range map[float64]string{95: "[]", 13: "[{0 1.3e+07 1e+08}]"} {
		res := result.Result{Transport: result.RDMA, MinOfExpected: 0.7, Striped: new(stealing * 1e6)}
		res.Rails = []result.RailResult{slow(stealing), {Rail: "1", Unpaired: true}, {Rail: "2", Unpaired: true}}
		if got := fmt.Sprint(res.Shortfalls()); got != want || res.Degraded() != (want != "[]") {
			t.Errorf("%v MB/s: shortfalls %s, degraded %v", stealing, got, res.Degraded())
		}
		if ring := target.NewRingResult(res); ring.Rails != 1 || ring.AllRails != 1 || ring.RailFailure != nil {
			t.Errorf("a member of a ring: %+v", ring)
		}
	}
}

// TestRoundBelowExpected: adapters that carry a fraction of their rate degrade a round even if they are balanced;
// software devices do not.
func TestRoundBelowExpected(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		software []string // nodes with software devices
		rate     float64  // configured rate, Gb/s
		want     result.Outcome
		expected float64 // Gb/s; 0: no expectation
	}{
		{"hardware", nil, 0, result.Degraded, 100},
		{"software here", []string{"a"}, 0, result.OK, 0},
		{"software there", []string{"b"}, 0, result.OK, 0},
		{"software, and something is expected", []string{"a", "b"}, 50, result.Degraded, 50},
		{"software, and little is expected", []string{"a", "b"}, 0.001, result.OK, 0.001},
		{"hardware of a lower rate than expected", nil, 400, result.Degraded, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := preparePair(t, 1, func(_ string, _ int, d *fakeverbs.Device) { d.PortRate = "100 Gb/sec (4X EDR)" })
			for _, node := range tc.software {
				parent := filepath.Join(p.fabric.Sysfs(node), "class/infiniband/mlx5_0/parent")
				if err := os.WriteFile(parent, []byte("fabric0\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			p.opts.MinOfExpected = 0.7
			if tc.rate > 0 {
				p.a.Opts.Expected = expecting(expect.Configured, tc.rate)
			}
			p.serve()
			res := p.round()
			if res.Outcome != tc.want || !res.Verified || res.Transport != result.RDMA {
				t.Errorf("%s because of %q (%s), failures %v, shortfalls %v", res.Outcome, res.Reason, res.Detail,
					res.Failures, res.Shortfalls())
			}
			r := res.Rails[0]
			if r.Capacity == nil || *r.Capacity != 100e9/8 || max(value(r.Expected), 0) != tc.expected*1e9/8 {
				t.Errorf("capacity %v, expected %v", value(r.Capacity), value(r.Expected))
			}
		})
	}
}

// expecting returns a function that expects this rate of every port, in Gb/s.
func expecting(source expect.Source, rate float64) func([]rail.Rail) []expect.Rail {
	return func(rails []rail.Rail) []expect.Rail {
		list := make([]expect.Rail, len(rails))
		for i := range list {
			list[i].Rate = expect.Figure[float64]{Value: rate * 1e9 / 8, Source: source}
		}
		return list
	}
}

// TestExpectation combines what both ends expect of a path. Figures are Gb/s; 0: no expectation.
func TestExpectation(t *testing.T) {
	type end struct {
		expected, capacity float64
		source             expect.Source
		software           bool
	}
	configured, seen := expect.Configured, expect.BestSeen
	for name, tc := range map[string]struct {
		here, there end
		want        float64
	}{
		"neither end remembers anything":        {end{100, 100, "", false}, end{0, 200, "", false}, 100},
		"the peer is slower":                    {end{200, 200, "", false}, end{0, 100, "", false}, 100},
		"trained low here":                      {end{400, 100, seen, false}, end{400, 400, seen, false}, 400},
		"trained low there":                     {end{400, 400, seen, false}, end{400, 100, seen, false}, 400},
		"trained low at both ends":              {end{400, 100, seen, false}, end{400, 100, seen, false}, 400},
		"an older peer":                         {end{400, 400, seen, false}, end{0, 200, "", false}, 200},
		"a peer that was always slower":         {end{400, 400, seen, false}, end{100, 100, seen, false}, 100},
		"configured, and the peer knows more":   {end{400, 400, configured, false}, end{100, 100, seen, false}, 100},
		"configured, and the peer is only slow": {end{400, 400, configured, false}, end{0, 100, "", false}, 400},
		"configured for software":               {end{50, 100, configured, true}, end{0, 100, "", true}, 50},
		"configured for software at both ends":  {end{50, 100, configured, true}, end{40, 100, configured, true}, 40},
		"software here":                         {end{0, 100, "", true}, end{100, 100, seen, false}, 0},
		"software there":                        {end{100, 100, seen, false}, end{0, 100, "", true}, 0},
	} {
		p := &round.Flow{Local: node.LocalRail{Expected: tc.here.expected, Source: tc.here.source,
			Capacity: tc.here.capacity},
			Peer: &protocol.HelloRail{Expected: tc.there.expected, Capacity: tc.there.capacity,
				Software: tc.there.software}}
		p.Local.Software = tc.here.software
		if got := max(value(p.Expectation()), 0); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestShortfallsShared: behind one shaper, a round without solo bursts accuses no single rail, only all together.
func TestShortfallsShared(t *testing.T) {
	flow := func(rate int64) *result.Flow { return &result.Flow{Bytes: rate, Active: time.Second} }
	for solo, want := range map[*result.Flow]int{nil: 1, flow(90): 1, flow(50): 3} {
		r := result.Result{Transport: result.RDMA, MinOfExpected: 0.7, Agreed: result.Agreed{EvenAlone: true},
			Striped: new(100.0)}
		for range 2 {
			r.Rails = append(r.Rails, result.RailResult{Solo: solo, Striped: flow(50), Expected: new(100.0)})
		}
		if got := r.Shortfalls(); len(got) != want || got[0].Rail != "" {
			t.Errorf("alone %v: %+v, want %d", solo, got, want)
		}
	}
}

// TestSlowed: a rail is slow against its own past if two figures in a row agree, and it has an expectation.
func TestSlowed(t *testing.T) {
	expected, failed := 50e9, &failure.Failure{}
	for name, tc := range map[string]struct {
		rail result.RailResult
		want bool
	}{
		"no past":         {result.RailResult{Expected: &expected}, false},
		"a first figure":  {result.RailResult{Expected: &expected, Past: &baseline.Past{Best: 45e9}}, false},
		"no best":         {result.RailResult{Expected: &expected, Past: &baseline.Past{Latest: 1e9}}, false},
		"as ever":         {result.RailResult{Expected: &expected, Past: &baseline.Past{Best: 45e9, Latest: 44e9}}, false},
		"just good":       {result.RailResult{Expected: &expected, Past: &baseline.Past{Best: 100, Latest: 70}}, false},
		"just too little": {result.RailResult{Expected: &expected, Past: &baseline.Past{Best: 100, Latest: 69.9}}, true},
		"half":            {result.RailResult{Expected: &expected, Past: &baseline.Past{Best: 45e9, Latest: 22e9}}, true},
		"striped as ever": {result.RailResult{Expected: &expected, Past: &baseline.Past{Best: 48e9, Latest: 30e9},
			Striped: &result.Flow{Bytes: 48e9, Active: time.Second}}, false},
		"striped low, too": {result.RailResult{Expected: &expected, Past: &baseline.Past{Best: 48e9, Latest: 30e9},
			Striped: &result.Flow{Bytes: 29e9, Active: time.Second}}, true},
		"less is expected now": {result.RailResult{Expected: new(25e9), Past: &baseline.Past{Best: 48e9, Latest: 24e9}}, false},
		"less than that":       {result.RailResult{Expected: new(25e9), Past: &baseline.Past{Best: 48e9, Latest: 17e9}}, true},
		"software":             {result.RailResult{Past: &baseline.Past{Best: 45e9, Latest: 22e9}}, false},
		"failed: not slow, worse": {result.RailResult{Expected: &expected, Failure: failed,
			Past: &baseline.Past{Best: 2, Latest: 1}}, false},
	} {
		r := result.Result{Transport: result.RDMA, Rails: []result.RailResult{tc.rail}}
		if got := tc.rail.Slowed(); got != tc.want || r.Degraded() != (tc.want || tc.rail.Failure != nil) {
			t.Errorf("%s: slowed %v, degraded %v", name, got, r.Degraded())
		}
	}
}

// TestThrottled: a bottleneck that rails share degrades a round if it costs much of what is expected.
func TestThrottled(t *testing.T) {
	t.Parallel()
	const rate = 1e9
	for _, tc := range []struct {
		why      string
		together float64 // fraction of the sum of two rails alone
		found    bool    // several bursts agree on a bottleneck
		expected float64 // expected rate of each rail; 0: no expectation
		solos    bool    // the round has solo bursts
		want     bool
	}{
		{"half is lost", 0.5, true, 0, true, true},
		{"half is lost of adapters", 0.5, true, rate, true, true},
		{"half, in a round without solos", 0.5, true, rate, false, true},
		{"a tenth", 0.85, true, rate, true, false},
		{"just too much", 0.79, true, rate, true, true},
		{"a single burst", 0.5, false, rate, true, false},
		{"the halves of one port", 0.5, true, rate / 2, true, false},
	} {
		r := result.Result{Transport: result.RDMA, MinOfExpected: 0.1,
			Agreed:  result.Agreed{Bottleneck: tc.found, EvenAlone: tc.found},
			Striped: new(2 * rate * tc.together)}
		for range 2 {
			one := result.RailResult{Striped: &result.Flow{Bytes: int64(rate * tc.together), Active: time.Second}}
			if tc.expected > 0 {
				one.Expected = new(tc.expected)
			}
			r.Rails = append(r.Rails, one)
		}
		r.TogetherSeen = new(tc.together)
		if tc.solos {
			r.Scaling, r.TogetherSeen = r.TogetherSeen, nil
		}
		if r.Throttled() != tc.want || r.Degraded() != tc.want {
			t.Errorf("%s: throttled %v, degraded %v, want %v", tc.why, r.Throttled(), r.Degraded(), tc.want)
		}
		if tc.why == "the halves of one port" { // nothing shows what they carry
			r.Striped, r.Rails[0].Striped, r.Rails[1].Striped = nil, nil, nil
			if !r.Throttled() {
				t.Errorf("%s, without a striped burst: not throttled", tc.why)
			}
		}
	}
}

// TestOthersExcuse: traffic of others excuses a rail's latency and share, and a bottleneck of all rails, even if
// another burst than the one that counts saw it.
func TestOthersExcuse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why    string
		others func(*result.RailResult)
		want   bool
	}{
		{"nobody else", func(*result.RailResult) {}, true},
		{"others in the burst that counts", func(one *result.RailResult) { one.Others = new(1e6) }, false},
		{"others in another burst", func(one *result.RailResult) { one.SeenOthers = new(1e6) }, false},
	} {
		r := twoRails(&history.PastPeer{}, true)
		r.Res.MinOfExpected, r.Res.Imbalance, r.Res.Striped = 0.7, new(0.29), new(120e6)
		for i, latency := range []time.Duration{343 * time.Microsecond, 82 * time.Millisecond} {
			one := &r.Res.Rails[i]
			one.Latency, one.Share = (*result.Latency)(nil).Add([]time.Duration{latency}, nil), new(1-0.29*float64(i))
		}
		tc.others(&r.Res.Rails[1])
		for range history.Agreeing {
			round.NoteScaling(&r.Res, r.Flows, r.Past, r.Plan.Full)
		}
		r.Res.EvenAlone = false // which would explain the imbalance
		r.Past.Note(&r.Res, true)
		got := []bool{r.Res.Rails[1].Uneven != nil, r.Res.Imbalanced(), r.Res.Bottleneck, r.Res.Degraded()}
		for _, found := range got {
			if found != tc.want {
				t.Errorf("%s: uneven, imbalanced, bottleneck, degraded: %v, want all %v", tc.why, got, tc.want)
				break
			}
		}
	}
}

// TestReordered: packets out of sequence count as lost, unless they far exceed the packets in flight per
// retransmission.
func TestReordered(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why                  string
		retransmits, arrived uint64
		latency              time.Duration // latency of a rail of 100 Gb/s
		want                 bool
	}{
		{"nothing", 0, 0, 0, false},
		{"one for each", 118, 111, 0, false},
		{"ten for each", 12, 120, 0, false},
		{"more than ten for each", 12, 121, 0, true},
		{"a spraying LAG", 12, 40_000, 0, true},
		{"none is sent again", 0, 40_000, 0, true},
		{"none is sent again, and few arrive late", 0, 11, 0, true},
		{"30 in flight behind each loss", 12, 12 * 30, 10 * time.Microsecond, false},
		{"far more than that", 12, 12 * 600, 10 * time.Microsecond, true},
	} {
		one := result.RailResult{PathMTU: 4096, Capacity: new(12.5e9), Loss: &result.Loss{Retransmits: tc.retransmits,
			PeerEvents: &tc.arrived}}
		if tc.latency > 0 {
			one.Latency = (*result.Latency)(nil).Add([]time.Duration{tc.latency}, nil)
		}
		if got := one.Reordered(); got != tc.want {
			t.Errorf("%s: %v", tc.why, got)
		}
	}
	if (&result.RailResult{Loss: &result.Loss{Retransmits: 9}}).Reordered() {
		t.Error("an older peer")
	}
}
