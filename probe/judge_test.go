package probe

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// judged is a rail of a round for judge, in MB/s; -1 is nil.
type judged struct {
	stealing, solo, capacity float64
	failed, unpaired         bool
	rate                     float64 // of the peer's port
}

func (l judged) path(i int) *path {
	p := &path{result: &RailResult{}, peer: &helloRail{}}
	p.local.Name = fmt.Sprint(i)
	flow := func(rate float64) *Flow {
		if rate < 0 {
			return nil
		}
		return &Flow{Bytes: int64(rate * 1e6), Active: time.Second}
	}
	p.result.Stealing, p.result.Solo, p.result.Capacity = flow(l.stealing), flow(l.solo), positive(l.capacity)
	p.peer.Rate = l.rate
	if l.failed {
		p.result.Failure = &failure.Failure{}
	}
	if l.unpaired {
		p.peer = nil
	}
	return p
}

func TestJudge(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		why                string
		stealing           float64
		rails              []judged
		imbalance, scaling float64 // none: nil
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
		{"two rates", 140, []judged{{100, 100, 100, false, false, 100}, {40, 40, 50, false, false, 50}}, none, 1},
		{"the worst group", 260, []judged{{100, 100, 100, false, false, 100}, {40, 40, 50, false, false, 50},
			{20, 20, 50, false, false, 50}, {100, 100, 100, false, false, 100}}, 0.5, 1},
		{"dead, its rate unknown", 200, []judged{{100, 100, 100, false, false, 100}, {100, 100, 100, false, false, 100},
			{none, none, 0, true, false, 0}}, 1, 1},
		{"nothing was measured", none, []judged{{none, 100, 0, false, false, 0}}, none, none},
	} {
		r := round{}
		for i, l := range tc.rails {
			r.paths = append(r.paths, l.path(i))
		}
		r.judge()
		if tc.stealing >= 0 {
			tc.stealing *= 1e6
		}
		for what, v := range map[string][2]float64{"stealing": {value(r.res.Stealing), tc.stealing}, "imbalance": {value(r.res.Imbalance), tc.imbalance},
			"scaling": {value(r.res.Scaling), tc.scaling}} {
			if math.Abs(v[0]-v[1]) > 1e-9 {
				t.Errorf("%s: %s %v, want %v", tc.why, what, v[0], v[1])
			}
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
		var paths []*path
		for i, key := range strings.Fields(tc.keys) {
			p := judged{}.path(i)
			link, port, _ := strings.Cut(key, "/")
			p.local.status.Limits = rail.Limits{LinkKey: link, PortKey: port}
			paths = append(paths, p)
		}
		var got []string
		for _, s := range shared(paths) {
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
		rates        []float64 // MB/s; -1: it failed
		static, skew float64   // -1: none
	}{
		{"no rail", nil, -1, -1},
		{"one", []float64{600}, 600, -1},
		{"alike", []float64{300, 300}, 600, 0},
		{"one at a third", []float64{600, 200}, 400, 2. / 3},
		{"three", []float64{100, 400, 200}, 300, 0.75},
		{"one of three failed", []float64{100, -1, 200}, 200, 0.5},
		{"all failed", []float64{-1, -1}, -1, -1},
	} {
		r := round{}
		for i, rate := range tc.rates {
			r.paths = append(r.paths, judged{stealing: rate, solo: -1, failed: rate < 0}.path(i))
		}
		r.judge()
		if got := value(r.res.Static); math.Abs(got-tc.static) > 1e-9 && math.Abs(got-tc.static*1e6) > 1e-3 {
			t.Errorf("%s: %v bytes per second, want %v MB/s", tc.why, got, tc.static)
		}
		if got := value(r.res.FinishSkew); math.Abs(got-tc.skew) > 1e-9 {
			t.Errorf("%s: skew %v, want %v", tc.why, got, tc.skew)
		}
	}
}

func TestMismatches(t *testing.T) {
	base := versions{"v1.2.3", "6.1.0-56-amd64", "44.0"}
	for _, tc := range []struct {
		there    versions
		firmware string // "ours theirs" of each rail; same driver unless theirs has a !
		want     string
	}{
		{base, "", ""},
		{versions{"1.2.9+dirty", "6.1.99-1-arm64", "44.7"}, "", ""},
		{versions{"1.3.0", "6.1.0", "44"}, "", "railscope v1.2.3 1.3.0"},
		{versions{"1.2.3", "5.15.0-100-generic", "46.0"}, "",
			"kernel 6.1.0-56-amd64 5.15.0-100-generic; rdma-core 44.0 46.0"},
		{versions{}, "", ""}, // what is not told differs from nothing
		{base, "28.39.1 28.39.1|28.39.1 28.40.0|28.39.1 28.41.0", "firmware 28.39.1 (rail 1) 28.40.0"},
		{base, "28.39.1 16.1!", ""},
		{base, "28.39.1 ", ""},
	} {
		var paths []*path
		for i, pair := range strings.Split(tc.firmware, "|") {
			ours, theirs, ok := strings.Cut(pair, " ")
			if !ok {
				continue
			}
			p := judged{}.path(i)
			p.local.Driver, p.local.Firmware, p.peer.Driver, p.peer.Firmware = "mlx5_core", ours, "mlx5_core", theirs
			if strings.HasSuffix(theirs, "!") {
				p.peer.Driver = "bnxt_en"
			}
			paths = append(paths, p)
		}
		var got []string
		for _, m := range mismatches(base, tc.there, paths) {
			got = append(got, m.Component+" "+m.Here+" "+m.There)
		}
		if s := strings.Join(got, "; "); s != tc.want {
			t.Errorf("%+v %q: %q, want %q", tc.there, tc.firmware, s, tc.want)
		}
	}
}

// TestWireBytes: full RoCE v2 packets as ports count them.
func TestWireBytes(t *testing.T) {
	for _, tc := range []struct {
		payload int64
		mtu     int
		ipv4    bool
		want    float64
	}{{4096, 4096, true, 4154}, {4096, 4096, false, 4174}, {4096, 1024, true, 4096 + 4*58},
		{1 << 30, 1024, false, 1<<30 + 78<<20}, {0, 1024, true, 0}} {
		if got := wireBytes(tc.payload, tc.mtu, tc.ipv4); math.Abs(got-tc.want) > 1e-6 {
			t.Errorf("%d bytes at MTU %d, IPv4 %v: %v, want %v", tc.payload, tc.mtu, tc.ipv4, got, tc.want)
		}
	}
}

// TestFlow: a figure of few writes is marked, and a rail without one has none.
func TestFlow(t *testing.T) {
	const chunk = 1 << 20
	loads := []worker.Load{{Chunk: chunk}}
	for _, tc := range []struct {
		rail worker.BurstRail
		want *Flow
	}{
		{worker.BurstRail{Bytes: 80 * chunk, Measured: 64 * chunk, First: time.Millisecond, Last: 6 * time.Millisecond},
			&Flow{Bytes: 64 * chunk, Active: 5 * time.Millisecond, Moved: 80 * chunk}},
		{worker.BurstRail{Bytes: 65 * chunk, Measured: 63 * chunk, Last: 3 * time.Second},
			&Flow{Bytes: 63 * chunk, Active: 3 * time.Second, Moved: 65 * chunk, Slow: true}},
		{worker.BurstRail{Measured: 64 * chunk, Last: time.Second, Disturbed: true}, nil},
		{worker.BurstRail{Measured: 64 * chunk, Last: time.Second, Failure: failure.New("", failure.Timeout, "")}, nil},
		{worker.BurstRail{Bytes: chunk}, nil},
	} {
		got := flow(new(path), loads, worker.BurstDone{Rails: []worker.BurstRail{tc.rail}}, 0)
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%+v: %+v, want %+v", tc.rail, got, tc.want)
		}
	}
}

// TestDisturbedDetail: without a figure, the text names what to change: the processor's time or the depth.
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
	} {
		if got := disturbed(load(tc.rtt), tc.done); !strings.Contains(got.Detail, tc.want) {
			t.Errorf("RTT %v: %q, want %q", tc.rtt, got.Detail, tc.want)
		}
	}
}

// TestFailIdle: of rails without a figure, those fail that carried next to nothing beside others while the polling
// thread ran.
func TestFailIdle(t *testing.T) {
	const chunk = 1 << 20
	idle := func(bytes int64, gap time.Duration) worker.BurstRail {
		return worker.BurstRail{Bytes: bytes, Gap: gap, Disturbed: true}
	}
	for why, tc := range map[string]struct {
		rails  []worker.BurstRail
		failed string // their names
	}{
		"one beside seven":          {append(slices.Repeat([]worker.BurstRail{idle(1000*chunk, 0)}, 7), idle(chunk, 0)), "7"},
		"two, of which one is well": {[]worker.BurstRail{idle(0, 0), idle(1000*chunk, 0)}, "0"},
		"all alike":                 {[]worker.BurstRail{idle(chunk, 0), idle(chunk, 0)}, ""},
		"nothing at all":            {[]worker.BurstRail{idle(0, 0), idle(0, 0)}, ""},
		"the thread did not run":    {[]worker.BurstRail{idle(0, time.Second), idle(1000*chunk, time.Second)}, ""},
		"it has a figure":           {[]worker.BurstRail{{Bytes: chunk, Measured: chunk}, {Bytes: 1000 * chunk}}, ""},
	} {
		r := round{plan: plan{Options: DefaultOptions()}}
		for i := range tc.rails {
			p := ratedPath(400)
			p.local.Name = fmt.Sprint(i)
			r.paths = append(r.paths, p)
		}
		any := r.failIdle(r.paths, worker.BurstDone{Rails: tc.rails})
		var failed []string
		for _, p := range r.paths {
			if f := p.result.Failure; f != nil && f.Reason == failure.Timeout && f.Stage == failure.StageStriped {
				failed = append(failed, f.Rail)
			}
		}
		if got := strings.Join(failed, " "); got != tc.failed || any != (tc.failed != "") {
			t.Errorf("%s: rails %q failed, want %q", why, got, tc.failed)
		}
	}
}
