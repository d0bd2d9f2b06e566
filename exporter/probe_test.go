package exporter

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/exporter/internal/exportertest"
	exporterprobe "github.com/railscope/railscope/exporter/probe"
	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

func newTestProbe(peers ...string) *exporterprobe.Source {
	return probeOf(probeStats(), peers...)
}

func probeOf(stats options.Stats, peers ...string) *exporterprobe.Source {
	p := exporterprobe.NewSource(func() options.Stats { return stats })
	p.Now = func() time.Time { return noon.Add(6 * time.Hour) }
	p.SetPeers(peers)
	return p
}

func probeStats() options.Stats {
	return options.Stats{Running: true, BudgetSeconds: 18, Leases: 1, WorkerRestarts: 2, Up: true,
		Interval: time.Minute, Full: 5 * time.Hour,
		Refused: []options.Refusal{{Reason: "timeout", Count: 3}, {Reason: "unauthorized", Count: 0}}}
}

func flow(mib int64, took time.Duration) *result.Flow {
	return &result.Flow{Bytes: mib << 20, Active: took}
}

const peerA, peerB, peerC = "a:10092", "b:10092", "c:10092"

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// healthy returns a round with all values: latency, solos, baselines.
func healthy(peer string) result.Result {
	r := result.Result{
		Peer: peer, PeerNode: "node-a", Start: noon, Duration: 1500 * time.Millisecond,
		Outcome: result.OK, Transport: result.RDMA, Verified: true,
		Striped: new(2.2e10), Static: new(2e10), Imbalance: new(0.02), Scaling: new(0.98), FinishSkew: new(0.05),
		Speedup: new(8.0),
		TCP: []result.TCPResult{{Streams: 1, BytesPerSecond: 1e9, Retransmits: 3, PathMTU: 9000},
			{Streams: 4, BytesPerSecond: 2.75e9, Retransmits: 4, PathMTU: 1500}},
	}
	for i, rail := range []string{"0", "1"} {
		r.Rails = append(r.Rails, result.RailResult{
			Rail: rail, Device: "mlx5_" + rail, Port: 1, PeerRail: rail, PeerDevice: "mlx5_" + rail,
			GIDIndex: 3, GID: fmt.Sprintf("::ffff:10.0.%d.1", i), GIDReason: "RoCE v2, IPv4", PathMTU: 4096,
			Latency: &result.Latency{Samples: []time.Duration{900, 2000, 2100, 2100, 5000 * time.Duration(i+1),
				200 * time.Millisecond}},
			Solo: flow(64, 5*time.Millisecond), Bytes: 128 << 20, Retransmits: new(uint64(2)),
			Striped:  flow(32, 3*time.Millisecond),
			Expected: new(1.25e10), CounterMismatch: new(0.001 * float64(i+1)),
		})
	}
	return r
}

// withExtras adds bursts of loopback, paths and pairs of rails.
func withExtras(r result.Result) result.Result {
	add := func(kind result.Kind, flows ...result.MeasuredFlow) {
		for i := range flows {
			flows[i].Op = result.Write
		}
		r.Extras = append(r.Extras, result.Measured{Kind: kind, QueuePairs: 1, Flows: flows})
	}
	for i, rail := range []string{"0", "1"} {
		add(result.Loopback, result.MeasuredFlow{Rail: rail, Other: rail, Goodput: new(1.2e10)})
		for path := range 4 {
			f := result.MeasuredFlow{Rail: rail, Path: path, Goodput: new(1e10), Loss: &result.Loss{Packets: 1000}}
			if path == 2 && i == 1 {
				f.Loss.Retransmits = 20
			}
			add(result.Paths, f)
		}
		add(result.Contention, result.MeasuredFlow{Rail: rail, Goodput: new(1e10)})
		add(result.GPU, result.MeasuredFlow{Rail: rail, Goodput: new(1.2e10)})
		r.Extras[len(r.Extras)-1].Memory = "cuda_dmabuf"
	}
	add(result.Contention, result.MeasuredFlow{Rail: "0", Goodput: new(9e9)}, result.MeasuredFlow{Rail: "1", Goodput: new(1e10)})
	return r
}

// brief returns a round without solos and baselines.
func brief(peer string) result.Result {
	r := healthy(peer)
	r.Start = noon.Add(time.Minute)
	r.Scaling, r.Speedup, r.TCP, r.Striped = nil, nil, nil, new(2.1e10)
	for i := range r.Rails {
		r.Rails[i].Solo = nil
	}
	return r
}

func fallback(peer string) result.Result {
	return result.Result{
		Peer: peer, Start: noon.Add(2 * time.Minute), Duration: 3 * time.Second, Outcome: result.Fallback,
		Transport: result.TCP, Reason: "no_device", Detail: "the peer has none",
		Failures: []result.Failure{{Stage: "open", Reason: "no_device"}},
		TCP:      []result.TCPResult{{Streams: 1, BytesPerSecond: 1.1e9, Retransmits: 1, PathMTU: 1500}},
		Rails: []result.RailResult{{Rail: "0", Netdev: "eth0", Striped: flow(64, time.Second),
			Failure: &result.Failure{Stage: "open", Reason: "no_device"}}},
	}
}

func failed(peer string) result.Result {
	return result.Result{
		Peer: peer, Start: noon.Add(3 * time.Minute), Duration: time.Second, Outcome: result.Failed,
		Transport: result.NoTransport, Reason: "peer_unreachable",
		Failures: []result.Failure{{Stage: "hello", Reason: "peer_unreachable"}},
	}
}

func skipped(peer string) result.Result {
	return result.Result{Peer: peer, Start: noon.Add(4 * time.Minute), Duration: time.Millisecond,
		Outcome: result.Skipped, Transport: result.NoTransport, Reason: "busy"}
}

// TestProbeGolden compares the whole exposition after rounds of all kinds.
func TestProbeGolden(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		stats := probeStats()
		stats.Names = []options.NameStats{{Name: "peers.ns.svc:10092", Peers: 3,
			Lookups: map[string]uint64{"ok": 7, "not_found": 1}}}
		p := probeOf(stats, peerA, peerB, peerC)
		a := brief(peerA)
		a.Mismatches = []result.Mismatch{{Component: "kernel"}, {Component: "kernel"}, {Component: "moon"}}
		for _, r := range []result.Result{healthy(peerA), withExtras(a), skipped(peerA), healthy(peerB),
			fallback(peerB), skipped(peerC)} {
			p.Observe(r, nil)
		}
		s := exportertest.Scraper(t, p)
		got := exportertest.Text(t, s)
		compareGolden(t, "testdata/probe.prom", got)
		compareClientGolang(t, s)
		problems, err := promlint.New(bytes.NewReader(got)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v %v", problems, err)
		}
	})
}

// TestProbeNative: protobuf has a native histogram per rail; other formats have classic buckets of all rails.
func TestProbeNative(t *testing.T) {
	p := newTestProbe(peerA)
	p.Observe(healthy(peerA), nil)
	s := exportertest.Scraper(t, p)
	data, err := s.Exposition(expfmt.NewFormat(expfmt.TypeProtoDelim), false)
	if err != nil {
		t.Fatal(err)
	}
	dec := expfmt.NewDecoder(bytes.NewReader(data), expfmt.NewFormat(expfmt.TypeProtoDelim))
	for {
		var family dto.MetricFamily
		if err := dec.Decode(&family); err != nil {
			t.Fatalf("no histogram before %v", err)
		}
		if family.GetName() != "railscope_probe_latency_seconds" {
			continue
		}
		h := family.GetMetric()[0].GetHistogram()
		if len(family.GetMetric()) != 2 || h.GetSampleCount() != 6 || len(h.GetBucket()) != 0 || h.GetSchema() != 3 ||
			len(h.GetPositiveSpan()) == 0 {
			t.Errorf("%d series, the first %v", len(family.GetMetric()), h)
		}
		break
	}
	open, err := s.Exposition(expfmt.NewFormat(expfmt.TypeOpenMetrics), false)
	if err != nil || !strings.Contains(string(open),
		`railscope_probe_latency_seconds_bucket{load="idle",peer="a:10092",rail="",le="1e-06"} 2`) {
		t.Errorf("OpenMetrics: %v\n%s", err, open)
	}
}

// seriesOf returns the lines of one exposition by their name and labels.
func seriesOf(t *testing.T, p *exporterprobe.Source) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(string(exportertest.Text(t, exportertest.Scraper(t, p)))) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "railscope_probe_"); ok {
			i := strings.LastIndexByte(rest, ' ')
			found[rest[:i]] = rest[i+1:]
		}
	}
	if len(found) == 0 {
		t.Fatal("no series")
	}
	return found
}

// TestProbeVanish: which values exist after which rounds. No old value is exported as if it were current.
func TestProbeVanish(t *testing.T) {
	with := func(r result.Result, change func(*result.Result)) result.Result { change(&r); return r }
	const (
		goodput  = `goodput_bytes_per_second{mode="stealing",peer="a:10092"}`
		rail1    = `rail_goodput_bytes_per_second{mode="stealing",peer="a:10092",rail="1"}`
		solos    = `solo_rounds_total{peer="a:10092"}`
		solo1    = `rail_goodput_bytes_per_second{mode="solo",peer="a:10092",rail="1"}`
		scaling  = `scaling_ratio{peer="a:10092"}`
		speedup  = `speedup_ratio{peer="a:10092"}`
		skew     = `finish_skew_ratio{peer="a:10092"}`
		balance  = `imbalance_ratio{peer="a:10092"}`
		up1      = `rail_up{peer="a:10092",rail="1"}`
		mtu1     = `path_mtu_bytes{peer="a:10092",rail="1"}`
		tcp1     = `tcp_goodput_bytes_per_second{peer="a:10092",streams="1"}`
		tcp4     = `tcp_goodput_bytes_per_second{peer="a:10092",streams="4"}`
		tcpMTU   = `tcp_path_mtu_bytes{peer="a:10092"}`
		rdma     = `transport{peer="a:10092",transport="rdma"}`
		none     = `transport{peer="a:10092",transport="none"}`
		judged   = `last_result_timestamp_seconds{peer="a:10092"}`
		noDevice = `fallback_info{peer="a:10092",reason="no_device"}`
		bytes1   = `rail_bytes_total{peer="a:10092",rail="1"}`
		corrupt  = `verification_failures_total{peer="a:10092"}`
		writes   = `latency_seconds_count{load="idle",peer="a:10092",rail=""}`
	)
	for _, tt := range []struct {
		name   string
		rounds []result.Result
		want   map[string]string // "": absent
	}{
		{"no round yet", nil, map[string]string{rdma: "", goodput: "", judged: "", corrupt: "0",
			`rounds_total{peer="a:10092",result="ok"}`: "0", `rounds_total{peer="a:10092",result="skipped"}`: "0",
			`duration_seconds{peer="a:10092"}`: ""}},
		{"only skipped", []result.Result{skipped(peerA)},
			map[string]string{rdma: "", none: "", `rounds_total{peer="a:10092",result="skipped"}`: "1",
				judged: "", `skipped_total{peer="a:10092",reason="busy"}`: "1", `duration_seconds{peer="a:10092"}`: ""}},
		{"healthy", []result.Result{healthy(peerA)}, map[string]string{rdma: "1", none: "0", goodput: "2.2e+10",
			scaling: "0.98", solo1: "1.34217728e+10", tcp4: "2.75e+09", noDevice: "", up1: "1"}},
		{"without solos: those stay, the rest is new", []result.Result{healthy(peerA), brief(peerA)}, map[string]string{
			goodput: "2.1e+10", scaling: "0.98", speedup: "8", solos: "1", solo1: "1.34217728e+10", tcp1: "1e+09",
			tcp4: "2.75e+09", writes: "24"}},
		{"without solos ever", []result.Result{brief(peerA)}, map[string]string{goodput: "2.1e+10", solos: "0",
			scaling: "", speedup: "", solo1: "", tcp1: "", tcpMTU: ""}},
		{"a skipped round changes counters only", []result.Result{healthy(peerA), skipped(peerA)}, map[string]string{
			rdma: "1", goodput: "2.2e+10", solo1: "1.34217728e+10",
			`rounds_total{peer="a:10092",result="skipped"}`: "1", `duration_seconds{peer="a:10092"}`: "1.5"}},
		{"degraded: by RDMA",
			[]result.Result{with(healthy(peerA), func(r *result.Result) { r.Outcome = result.Degraded })},
			map[string]string{
				rdma: "1", goodput: "2.2e+10", scaling: "0.98", solo1: "1.34217728e+10", solos: "1", tcp4: "2.75e+09",
				up1: "1", noDevice: "", judged: "1.7776368015e+09",
				`rounds_total{peer="a:10092",result="degraded"}`: "1", `rounds_total{peer="a:10092",result="ok"}`: "0",
				`rounds_total{peer="a:10092",result="failed"}`:                "0",
				`fallback_info{peer="a:10092",reason="other"}`:                "",
				`failures_total{peer="a:10092",reason="other",stage="other"}`: ""}},
		{"fallback: nothing by RDMA is left", []result.Result{healthy(peerA), fallback(peerA)}, map[string]string{
			rdma: "0", goodput: "", balance: "", skew: "", scaling: "", speedup: "", rail1: "", solo1: "", up1: "",
			mtu1: "",
			`rail_goodput_bytes_per_second{mode="stealing",peer="a:10092",rail="0"}`: "",
			`rail_up{peer="a:10092",rail="0"}`:                                       "0",
			noDevice:                                                                 "1", tcp1: "1.1e+09", tcp4: "",
			judged: "1.777636923e+09", bytes1: "1.34217728e+08",
			writes: "12", `tcp_retransmits_total{peer="a:10092"}`: "8"}},
		{"failed: TCP goes, too", []result.Result{fallback(peerA), failed(peerA)},
			map[string]string{tcp1: "", none: "1", noDevice: "",
				`fallback_info{peer="a:10092",reason="peer_unreachable"}`: "1", `rail_up{peer="a:10092",rail="0"}`: "",
				`rail_bytes_total{peer="a:10092",rail="0"}`: "", judged: "1.777636981e+09",
				`failures_total{peer="a:10092",reason="peer_unreachable",stage="hello"}`: "1"}},
		{"back again: no solo of before the fallback", []result.Result{healthy(peerA), fallback(peerA), brief(peerA),
			healthy(peerA), brief(peerA), fallback(peerA), brief(peerA)}, map[string]string{
			goodput: "2.1e+10", solos: "2", scaling: "", solo1: "", noDevice: "", tcp1: "1.1e+09"}},
		{"a rail that failed has no solo", []result.Result{healthy(peerA), with(brief(peerA), func(r *result.Result) {
			r.Failures = []result.Failure{{Rail: "1", Stage: "open", Reason: "port_down"}}
			r.Rails[1] = result.RailResult{Rail: "1", Failure: &r.Failures[0]}
		})}, map[string]string{up1: "0", solo1: "", rail1: "", goodput: "2.1e+10", mtu1: "",
			`rail_up{peer="a:10092",rail="0"}`:                               "1",
			`failures_total{peer="a:10092",reason="port_down",stage="open"}`: "1"}},
		{"an unpaired rail has no gauges, and is no failure", []result.Result{healthy(peerA),
			with(brief(peerA), func(r *result.Result) {
				r.Rails[1] = result.RailResult{Rail: "1", GID: "::1", Unpaired: true}
			})}, map[string]string{up1: "", solo1: "", rail1: "", mtu1: "", goodput: "2.1e+10", scaling: "",
			`rounds_total{peer="a:10092",result="ok"}`: "2", `rail_up{peer="a:10092",rail="0"}`: "1"}},
		{"a rail that is gone has no gauges",
			[]result.Result{healthy(peerA), with(brief(peerA), func(r *result.Result) { r.Rails = r.Rails[:1] }),
				brief(peerA)}, map[string]string{
				up1: "1", solo1: "", bytes1: "2.68435456e+08"}},
		{"what arrived was not what was sent", []result.Result{with(healthy(peerA), func(r *result.Result) {
			r.Outcome, r.Reason, r.Verified, r.Failures = result.Failed, "data_mismatch", false,
				[]result.Failure{{Stage: "verify", Reason: "data_mismatch"}}
		})}, map[string]string{corrupt: "1", goodput: "2.2e+10", judged: "1.7776368015e+09",
			`fallback_info{peer="a:10092",reason="data_mismatch"}`: "1"}},
		{"words that are none of ours", []result.Result{with(failed(peerA), func(r *result.Result) {
			r.Reason, r.Failures = "evil\n", []result.Failure{{Stage: "x", Reason: "y"}, {Stage: "z", Reason: "y"}}
		}), with(failed(peerA), func(r *result.Result) { r.Failures = nil })}, map[string]string{
			`failures_total{peer="a:10092",reason="other",stage="other"}`:            "2",
			`failures_total{peer="a:10092",reason="peer_unreachable",stage="other"}`: "1"}},
		{"no numbers", []result.Result{with(healthy(peerA), func(r *result.Result) {
			zero := 0.0
			r.Imbalance, r.FinishSkew, r.Rails[1].Striped = new(zero/zero), new(-1/zero), flow(1, 0)
		})}, map[string]string{balance: "", skew: "", rail1: "0"}},
		{"TCP without a path MTU", []result.Result{with(healthy(peerA), func(r *result.Result) { r.TCP[1].PathMTU = 0 })},
			map[string]string{tcpMTU: "9000"}},
		{"a single write per rail", []result.Result{with(healthy(peerA), func(r *result.Result) {
			for i := range r.Rails {
				r.Rails[i].Latency.Samples = r.Rails[i].Latency.Samples[:1]
			}
		})}, map[string]string{writes: "2"}},
		{"a peer that is none", []result.Result{healthy("x:1")},
			map[string]string{rdma: "", `rounds_total{peer="x:1",result="ok"}`: ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newTestProbe(peerA)
			for _, r := range tt.rounds {
				p.Observe(r, nil)
			}
			got := seriesOf(t, p)
			for name, want := range tt.want {
				if got[name] != want {
					t.Errorf("%s is %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

// TestProbeSetPeers: a removed peer loses all its series and starts again when it returns; the others keep theirs.
func TestProbeSetPeers(t *testing.T) {
	p := newTestProbe(peerA, peerB, peerA)
	p.Observe(healthy(peerA), nil)
	p.Observe(healthy(peerB), nil)
	p.SetPeers([]string{peerC, peerB})
	p.Observe(healthy(peerA), nil)
	for name := range seriesOf(t, p) {
		if strings.Contains(name, peerA) {
			t.Errorf("%s is still there", name)
		}
	}
	p.SetPeers([]string{peerA, peerB})
	got := seriesOf(t, p)
	for name, want := range map[string]string{
		`rounds_total{peer="a:10092",result="ok"}`: "0", `latency_seconds_count{load="idle",peer="a:10092",rail=""}`: "",
		`rounds_total{peer="b:10092",result="ok"}`: "1", `latency_seconds_count{load="idle",peer="b:10092",rail=""}`: "12",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// TestProbeExtrasOfLast: figures of this node's rails are of the peer whose rounds measured them last. Another
// peer's round that measured only the paths to it does not replace them.
func TestProbeExtrasOfLast(t *testing.T) {
	p, loopback := newTestProbe(peerA, peerB), `loopback_goodput_bytes_per_second{rail="1"}`
	p.Observe(withExtras(healthy(peerA)), nil)
	for _, tt := range []struct {
		kinds []result.Kind
		want  string
	}{
		{nil, "1.2e+10"},
		{[]result.Kind{result.Paths}, "1.2e+10"},
		{[]result.Kind{result.GPU}, ""},
	} {
		r := withExtras(healthy(peerB))
		r.Extras = slices.DeleteFunc(r.Extras,
			func(m result.Measured) bool { return !slices.Contains(tt.kinds, m.Kind) })
		p.Observe(r, nil)
		if got := seriesOf(t, p)[loopback]; got != tt.want {
			t.Errorf("after a round with another peer and extras %q: %q, want %q", tt.kinds, got, tt.want)
		}
	}
}

// TestProbeDegradation: a solo goodput is compared with the median of earlier ones.
func TestProbeDegradation(t *testing.T) {
	p, name := newTestProbe(peerA), `rail_degradation_ratio{peer="a:10092",rail="0"}`
	solo := func(median float64) string {
		r := healthy(peerA)
		r.Rails = []result.RailResult{{Rail: "0", Solo: flow(25, time.Second), Past: &baseline.Past{Median: median}}}
		p.Observe(r, nil)
		return seriesOf(t, p)[name]
	}
	if got := solo(0); got != "" {
		t.Errorf("without a median: %q", got)
	}
	if got := solo(100 << 20); got != "0.25" {
		t.Errorf("at a quarter: %q", got)
	}
	p.Observe(brief(peerA), nil) // rail 0 keeps its value
	if got := seriesOf(t, p)[name]; got != "0.25" {
		t.Errorf("after a round without solos: %q", got)
	}
}

// TestProbeConcurrent: rounds end, peers change and scrapes read concurrently.
func TestProbeConcurrent(t *testing.T) {
	p := newTestProbe(peerA, peerB)
	s := exportertest.Scraper(t, p)
	var wg sync.WaitGroup
	for _, peer := range []string{peerA, peerB} {
		wg.Go(func() {
			for range 50 {
				for _, r := range []result.Result{healthy(peer), fallback(peer), skipped(peer), failed(peer)} {
					p.Observe(r, nil)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 100 {
			p.SetPeers([]string{peerA, peerB, peerC}[:2+i%2])
		}
	})
	for range 2 {
		wg.Go(func() {
			for range 50 {
				exportertest.Text(t, s)
				if _, err := s.Exposition(expfmt.NewFormat(expfmt.TypeProtoDelim), false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := seriesOf(t, p)[`rounds_total{peer="b:10092",result="fallback"}`]; got != "50" {
		t.Errorf("%s fallbacks of 50", got)
	}
}
