package probe

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// judged is a rail of a round for judge, in MB/s; -1 is nil.
type judged struct {
	stealing, solo, capacity float64
	failed, unpaired         bool
	rate                     float64 // rate of the peer's port
}

func (l judged) path(i int) *round.Flow {
	p := &round.Flow{Result: &result.RailResult{}, Peer: &protocol.HelloRail{}}
	p.Local.Name = fmt.Sprint(i)
	flow := func(rate float64) *result.Flow {
		if rate < 0 {
			return nil
		}
		return &result.Flow{Bytes: int64(rate * 1e6), Active: time.Second}
	}
	p.Result.Striped, p.Result.Solo, p.Result.Capacity = flow(l.stealing), flow(l.solo), stats.Positive(l.capacity)
	p.Peer.Rate = l.rate
	if l.failed {
		p.Result.Failure = &failure.Failure{}
	}
	if l.unpaired {
		p.Peer = nil
	}
	return p
}

func TestJudge(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		why                string
		stealing           float64
		rails              []judged
		imbalance, scaling float64 // none: no figure
	}{
		{"even", 200, []judged{{100, 100, 0, false, false, 0}, {100, 100, 0, false, false, 0}}, 0, 1},
		{"one at a half", 150, []judged{{100, 100, 0, false, false, 0}, {50, 50, 0, false, false, 0}}, 0.5, 1},
		{"each what it should", 150, []judged{{100, 100, 100, false, false, 0}, {50, 50, 50, false, false, 0}}, 0, 1},
		{"a shared wire", 100, []judged{{50, 100, 0, false, false, 0}, {50, 100, 0, false, false, 0}}, 0, 0.5},
		{"one broke in the end", 100, []judged{{100, 100, 0, false, false, 0}, {40, 100, 0, true, false, 0}}, 1, none},
		{"one was never there", 100, []judged{{100, 100, 0, false, false, 0}, {none, none, 0, true, false, 0}}, 1, none},
		{"one has no peer", 100, []judged{{100, 100, 0, false, false, 0}, {none, none, 0, true, true, 0}}, none, none},
		{"no solos in this round", 200, []judged{{100, none, 0, false, false, 0}, {100, none, 0, false, false, 0}},
			0, none},
		{"one carried nothing", 100, []judged{{100, 100, 0, false, false, 0}, {none, 100, 0, false, false, 0}}, 1, none},
		{"one rail", 100, []judged{{100, 100, 0, false, false, 0}}, none, none},
		{"two of three are left", 200, []judged{{100, 100, 0, false, false, 0}, {100, 100, 0, false, false, 0},
			{none, none, 0, true, false, 0}}, 1, 1},
		{"two of three are left, and the third has a solo", 200, []judged{{100, 100, 0, false, false, 0},
			{100, 100, 0, false, false, 0}, {40, 100, 0, true, false, 0}}, 1, 1},
		{"nothing alone", 200, []judged{{100, 0, 0, false, false, 0}, {100, 0, 0, false, false, 0}}, 0, none},
		{"two rates", 140, []judged{{100, 100, 100, false, false, 100}, {40, 40, 50, false, false, 50}}, none, 1},
		{"the worst group", 260, []judged{{100, 100, 100, false, false, 100}, {40, 40, 50, false, false, 50},
			{20, 20, 50, false, false, 50}, {100, 100, 100, false, false, 100}}, 0.5, 1},
		{"dead, its rate unknown", 200, []judged{{100, 100, 100, false, false, 100}, {100, 100, 100, false, false, 100},
			{none, none, 0, true, false, 0}}, 1, 1},
		{"nothing was measured", none, []judged{{none, 100, 0, false, false, 0}}, none, none},
	} {
		r := round.Round{}
		for i, l := range tc.rails {
			r.Flows = append(r.Flows, l.path(i))
		}
		round.Judge(&r.Res, r.Flows)
		if tc.stealing >= 0 {
			tc.stealing *= 1e6
		}
		for what, v := range map[string][2]float64{"stealing": {value(r.Res.Striped), tc.stealing}, "imbalance": {value(r.Res.Imbalance), tc.imbalance},
			"scaling": {value(r.Res.Scaling), tc.scaling}} {
			if math.Abs(v[0]-v[1]) > 1e-9 {
				t.Errorf("%s: %s %v, want %v", tc.why, what, v[0], v[1])
			}
		}
	}
}

// TestLowScaling: from 0.9 on, rails do not share a bottleneck. Below, the shared part is named and the burst
// counts as low for later rounds.
func TestLowScaling(t *testing.T) {
	for scaling, low := range map[float64]bool{0.7: true, 0.81: true, 0.89: true, 0.9: false, 0.91: false, 1: false} {
		r, past := round.Round{}, history.PastPeer{}
		for i := range 2 {
			p := judged{stealing: 100 * scaling, solo: 100}.path(i)
			p.Local.Status.Limits = rail.Limits{LinkKey: "a"}
			r.Flows = append(r.Flows, p)
		}
		round.Judge(&r.Res, r.Flows)
		round.NoteScaling(&r.Res, r.Flows, &past, false)
		if (len(r.Res.Shared) == 1) != low || (past.Low == 1) != low {
			t.Errorf("scaling %v: shared %v, low %d", scaling, r.Res.Shared, past.Low)
		}
	}
}

func value(p *float64) float64 {
	if p == nil {
		return -1
	}
	return *p
}

func TestShared(t *testing.T) {
	for _, tc := range []struct{ keys, want string }{
		{"a/p a/q", "PCIe link a: 0 1"},
		{"a/p b/p", "physical port p: 0 1"},
		{"a/p a/p", "PCIe link a: 0 1; physical port p: 0 1"},
		{"a/p b/q", ""},
		{"/ /", ""},
		{"a/ b/ a/ b/ c/", "PCIe link a: 0 2; PCIe link b: 1 3"},
	} {
		var paths []*round.Flow
		for i, key := range strings.Fields(tc.keys) {
			p := judged{}.path(i)
			link, port, _ := strings.Cut(key, "/")
			p.Local.Status.Limits = rail.Limits{LinkKey: link, PortKey: port}
			paths = append(paths, p)
		}
		var got []string
		for _, s := range round.SharedLinks(paths) {
			got = append(got, s.What+": "+strings.Join(s.Rails, " "))
		}
		if s := strings.Join(got, "; "); s != tc.want {
			t.Errorf("%s: %q, want %q", tc.keys, s, tc.want)
		}
	}
}

// TestEqualParts: with equal parts, the slowest rail decides.
func TestEqualParts(t *testing.T) {
	for _, tc := range []struct {
		why          string
		rates        []float64 // MB/s; -1: failed
		static, skew float64   // -1: no figure
	}{
		{"no rail", nil, -1, -1},
		{"one", []float64{600}, 600, -1},
		{"alike", []float64{300, 300}, 600, 0},
		{"one at a third", []float64{600, 200}, 400, 2. / 3},
		{"three", []float64{100, 400, 200}, 300, 0.75},
		{"one of three failed", []float64{100, -1, 200}, 200, 0.5},
		{"all failed", []float64{-1, -1}, -1, -1},
	} {
		r := round.Round{}
		for i, rate := range tc.rates {
			r.Flows = append(r.Flows, judged{stealing: rate, solo: -1, failed: rate < 0}.path(i))
		}
		round.Judge(&r.Res, r.Flows)
		if got := value(r.Res.Static); math.Abs(got-tc.static) > 1e-9 && math.Abs(got-tc.static*1e6) > 1e-3 {
			t.Errorf("%s: %v bytes per second, want %v MB/s", tc.why, got, tc.static)
		}
		if got := value(r.Res.FinishSkew); math.Abs(got-tc.skew) > 1e-9 {
			t.Errorf("%s: skew %v, want %v", tc.why, got, tc.skew)
		}
	}
}

func TestMismatches(t *testing.T) {
	base := protocol.Versions{Railscope: "v1.2.3", Kernel: "6.1.0-56-amd64", RDMACore: "44.0"}
	for _, tc := range []struct {
		there    protocol.Versions
		firmware string // firmware of both ends per rail, as "ours theirs"; same driver unless theirs has a !
		want     string
	}{
		{base, "", ""},
		{protocol.Versions{Railscope: "1.2.9+dirty", Kernel: "6.1.99-1-arm64", RDMACore: "44.7"}, "", ""},
		{protocol.Versions{Railscope: "1.3.0", Kernel: "6.1.0", RDMACore: "44"}, "", "railscope v1.2.3 1.3.0"},
		{protocol.Versions{Railscope: "1.2.3", Kernel: "5.15.0-100-generic", RDMACore: "46.0"}, "",
			"kernel 6.1.0-56-amd64 5.15.0-100-generic; rdma-core 44.0 46.0"},
		{protocol.Versions{}, "", ""}, // unknown versions do not differ
		{base, "28.39.1 28.39.1|28.39.1 28.40.0|28.39.1 28.41.0", "firmware 28.39.1 (rail 1) 28.40.0"},
		{base, "28.39.1 16.1!", ""},
		{base, "28.39.1 ", ""},
	} {
		var paths []*round.Flow
		for i, pair := range strings.Split(tc.firmware, "|") {
			ours, theirs, ok := strings.Cut(pair, " ")
			if !ok {
				continue
			}
			p := judged{}.path(i)
			p.Local.Driver, p.Local.Firmware, p.Peer.Driver, p.Peer.Firmware = "mlx5_core", ours, "mlx5_core", theirs
			if strings.HasSuffix(theirs, "!") {
				p.Peer.Driver = "bnxt_en"
			}
			paths = append(paths, p)
		}
		var got []string
		for _, m := range round.Mismatches(base, tc.there, paths) {
			got = append(got, m.Component+" "+m.Here+" "+m.There)
		}
		if s := strings.Join(got, "; "); s != tc.want {
			t.Errorf("%+v %q: %q, want %q", tc.there, tc.firmware, s, tc.want)
		}
	}
}

// TestWireBytes: full RoCE v2 packets are counted as ports count them.
func TestWireBytes(t *testing.T) {
	for _, tc := range []struct {
		payload int64
		mtu     int
		ipv4    bool
		want    float64
	}{{4096, 4096, true, 4154}, {4096, 4096, false, 4174}, {4096, 1024, true, 4096 + 4*58},
		{1 << 30, 1024, false, 1<<30 + 78<<20}, {0, 1024, true, 0}} {
		if got := node.WireBytes(tc.payload, tc.mtu, tc.ipv4); math.Abs(got-tc.want) > 1e-6 {
			t.Errorf("%d bytes at MTU %d, IPv4 %v: %v, want %v", tc.payload, tc.mtu, tc.ipv4, got, tc.want)
		}
	}
}

// TestFlow: a figure from few writes is marked, and a rail without a figure has none.
func TestFlow(t *testing.T) {
	const chunk = 1 << 20
	loads := []worker.Load{{Chunk: chunk}}
	for _, tc := range []struct {
		rail worker.BurstRail
		want *result.Flow
	}{
		{worker.BurstRail{Bytes: 80 * chunk, Measured: 64 * chunk, First: time.Millisecond, Last: 6 * time.Millisecond},
			&result.Flow{Bytes: 64 * chunk, Active: 5 * time.Millisecond, Moved: 80 * chunk}},
		{worker.BurstRail{Bytes: 65 * chunk, Measured: 63 * chunk, Last: 3 * time.Second},
			&result.Flow{Bytes: 63 * chunk, Active: 3 * time.Second, Moved: 65 * chunk, Slow: true}},
		{worker.BurstRail{Measured: 64 * chunk, Last: time.Second, Disturbed: true}, nil},
		{worker.BurstRail{Measured: 64 * chunk, Last: time.Second, Failure: failure.New("", failure.Timeout, "")}, nil},
		{worker.BurstRail{Bytes: chunk}, nil},
	} {
		got := round.Carried(new(round.Flow), loads, worker.BurstDone{Rails: []worker.BurstRail{tc.rail}}, 0)
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%+v: %+v, want %+v", tc.rail, got, tc.want)
		}
	}
}

// TestDisturbedDetail: without a figure, the text names what to change: processor time or depth.
func TestDisturbedDetail(t *testing.T) {
	const chunk = 1 << 20
	done := func(gap time.Duration) worker.BurstDone { // 100 GB/s
		return worker.BurstDone{Rails: []worker.BurstRail{{Gap: gap, Disturbed: true, Measured: 1e9,
			Last: 10 * time.Millisecond}}}
	}
	load := func(rtt time.Duration) []worker.Load {
		return []worker.Load{{Rail: "3", Chunk: chunk, Depth: 16, RTT: rtt}}
	}
	for _, tc := range []struct {
		rtt  time.Duration
		done worker.BurstDone
		want string
	}{
		{4 * time.Microsecond, done(2 * time.Millisecond), "did not run for up to 2ms, longer than the queues"},
		{100 * time.Microsecond, done(2 * time.Millisecond), "did not run for up to 2ms"},
		{110 * time.Microsecond, done(60 * time.Microsecond), "raise `depth`"},
		{160 * time.Microsecond, done(10 * time.Microsecond), "the 16 writes in flight on rail 3 last 157 µs, and a round " +
			"trip takes 160µs"},
		{time.Second, worker.BurstDone{Rails: []worker.BurstRail{{Disturbed: true, Gap: time.Second}}}, "for up to 1s"},
		{4 * time.Microsecond, done(10 * time.Microsecond), "the writes of rail 3 completed too unevenly"},
		{4 * time.Microsecond, worker.BurstDone{Rails: []worker.BurstRail{{Ramping: true, Early: 25e9, Late: 40e9,
			Measured: 1, Last: 5 * time.Millisecond}}}, "rail 3 became faster until the burst ended, from 200.0 to 320.0 Gb/s in its last " +
			"window of 5ms"},
	} {
		if got := round.Disturbed(worker.BurstArgs{Loads: load(tc.rtt)}, tc.done); !strings.Contains(got.Detail,
			tc.want) {
			t.Errorf("RTT %v: %q, want %q", tc.rtt, got.Detail, tc.want)
		}
	}
}

// TestFailIdle: rails without a figure fail if they carried almost nothing beside others while the polling thread
// ran.
func TestFailIdle(t *testing.T) {
	const chunk = 1 << 20
	idle := func(bytes int64, gap time.Duration) worker.BurstRail {
		return worker.BurstRail{Bytes: bytes, Gap: gap, Disturbed: true}
	}
	for why, tc := range map[string]struct {
		rails  []worker.BurstRail
		failed string // names of failed rails
	}{
		"one beside seven":          {append(slices.Repeat([]worker.BurstRail{idle(1000*chunk, 0)}, 7), idle(chunk, 0)), "7"},
		"two, of which one is well": {[]worker.BurstRail{idle(0, 0), idle(1000*chunk, 0)}, "0"},
		"all alike":                 {[]worker.BurstRail{idle(chunk, 0), idle(chunk, 0)}, ""},
		"nothing at all":            {[]worker.BurstRail{idle(0, 0), idle(0, 0)}, ""},
		"the thread did not run":    {[]worker.BurstRail{idle(0, time.Second), idle(1000*chunk, time.Second)}, ""},
		"it has a figure":           {[]worker.BurstRail{{Bytes: chunk, Measured: chunk}, {Bytes: 1000 * chunk}}, ""},
	} {
		r := round.Session{Plan: round.Plan{Options: options.DefaultOptions()}, Res: new(result.Result)}
		for i := range tc.rails {
			p := ratedPath(400)
			p.Local.Name = fmt.Sprint(i)
			r.Flows = append(r.Flows, p)
		}
		any := r.FailIdle(r.Flows, worker.BurstDone{Rails: tc.rails})
		var failed []string
		for _, p := range r.Flows {
			if f := p.Result.Failure; f != nil && f.Reason == failure.Timeout && f.Stage == failure.StageStriped {
				failed = append(failed, f.Rail)
			}
		}
		if got := strings.Join(failed, " "); got != tc.failed || any != (tc.failed != "") {
			t.Errorf("%s: rails %q failed, want %q", why, got, tc.failed)
		}
	}
}
