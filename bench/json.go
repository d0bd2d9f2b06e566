package bench

import (
	"cmp"
	"io"
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/bench/steps"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// jsonResult is the object of --format=json. Every key is always present. A value that was not measured is null.
type jsonResult struct {
	Outcome    result.Outcome   `json:"outcome"`
	Transport  result.Transport `json:"transport"`
	Reason     *string          `json:"reason"`
	Detail     *string          `json:"detail"`
	Verified   bool             `json:"verified"`
	Striped    *float64         `json:"stealing_bytes_per_second"`
	Static     *float64         `json:"static_bytes_per_second"`
	Imbalance  *float64         `json:"imbalance_ratio"`
	Scaling    *float64         `json:"scaling_ratio"`
	FinishSkew *float64         `json:"finish_skew_ratio"`
	Speedup    *float64         `json:"speedup_ratio"`
	TCP        *float64         `json:"tcp_bytes_per_second"`
	TCPRTT     *float64         `json:"tcp_rtt_seconds"`
	Duration   float64          `json:"duration_seconds"`
	Class      *result.Class    `json:"class"`
	Rails      []jsonRail       `json:"rails"`
	Failures   []jsonFailure    `json:"failures"`

	MinOfExpected *float64          `json:"min_of_expected"`
	Node          []finding.Finding `json:"node_findings"`
	Shared        []result.Shared   `json:"shared"`
	Mismatches    []result.Mismatch `json:"mismatches"`
	Missing       []jsonMissing     `json:"missing"`
	jsonMeasured

	suite.Suite
}

// jsonMeasured is what was measured besides the round.
type jsonMeasured struct {
	Extras []jsonExtra  `json:"extras"`
	Steps  []steps.Done `json:"steps"` // steps of a suite, which --resume needs
}

type jsonRail struct {
	Rail         string       `json:"rail"`
	Device       *string      `json:"device"`
	Port         *int         `json:"port"`
	PeerDevice   *string      `json:"peer_device"`
	Unpaired     bool         `json:"unpaired"`
	GIDIndex     *int         `json:"gid_index"`
	PathMTU      *int         `json:"path_mtu_bytes"`
	Latency      *jsonLatency `json:"latency_seconds"`
	Solo         *float64     `json:"solo_bytes_per_second"`
	Slow         bool         `json:"slow"`
	StripedBytes *int64       `json:"stealing_bytes"`
	Striped      *float64     `json:"stealing_bytes_per_second"`
	Capacity     *float64     `json:"capacity_bytes_per_second"`
	Expected     *float64     `json:"expected_bytes_per_second"`
	Share        *float64     `json:"share_ratio"`
	CounterBytes *int64       `json:"counter_bytes"`
	Retransmits  *uint64      `json:"retransmits"`
	Loss         *jsonLoss    `json:"loss"`
	Others       *float64     `json:"others_bytes_per_second"`
	Failure      *jsonFailure `json:"failure"`

	SoloFailure    *jsonFailure `json:"solo_failure"`    // why Solo has no figure
	StripedFailure *jsonFailure `json:"striped_failure"` // why the striped burst has no figure
}

// jsonLoss is the packet loss over all bursts of the round, from the counters of both ends.
type jsonLoss struct {
	Retransmits uint64  `json:"retransmits"`
	PeerEvents  *uint64 `json:"peer_events"`
	Packets     int64   `json:"packets"`
}

type jsonMissing struct {
	Rail   string `json:"rail"`
	Device string `json:"device"`
	Peer   bool   `json:"peer"`
	Known  bool   `json:"known"`
	Detail string `json:"detail"`
}

type jsonLatency struct {
	Samples int       `json:"samples"`
	Mean    float64   `json:"mean"`
	Min     float64   `json:"min"`
	P50     float64   `json:"p50"`
	P95     float64   `json:"p95"`
	P99     float64   `json:"p99"`
	Max     float64   `json:"max"`
	Adapter *jsonPart `json:"adapter"`
	Host    *jsonPart `json:"host"`
}

// jsonPart is the adapter's or the host's part of a latency.
type jsonPart struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

type jsonFailure = suite.Failure

// WriteJSON writes the result as one object for scripts.
func WriteJSON(w io.Writer, r result.Result, o Options) error {
	s := Suite(r, o)
	r = inRailOrder(r)
	out := jsonResult{
		Suite: s, Outcome: r.Outcome, Transport: r.Transport, Reason: nonZero(string(r.Reason)),
		Detail: nonZero(r.Detail), Verified: r.Verified, Duration: r.Duration.Seconds(),
		Striped: stats.Finite(r.Striped), Static: stats.Finite(r.Static), Imbalance: stats.Finite(r.Imbalance),
		Scaling: stats.Finite(r.Scaling), FinishSkew: stats.Finite(r.FinishSkew), Speedup: stats.Finite(r.Speedup),
		Rails: []jsonRail{}, Failures: []jsonFailure{},
		Shared: append([]result.Shared{}, r.Shared...), Mismatches: append([]result.Mismatch{}, r.Mismatches...),
		MinOfExpected: nonZero(r.MinOfExpected), Node: append([]finding.Finding{}, besides(r, o.Node)...),
	}
	if o.Simulated && r.Transport == result.RDMA {
		out.Transport = result.Simulated
	}
	if best := bestTCP(r); best != nil {
		out.TCP = stats.Finite(&best.BytesPerSecond)
		out.TCPRTT = nonZero(seconds(best.RTT))
	}
	if r.Class.Source != "" {
		out.Class = &r.Class
	}
	for i := range r.Rails {
		one := newJSONRail(&r.Rails[i])
		if s.Rails[i].WhyStriped != nil {
			one.StripedFailure = newJSONFailure(cmp.Or(r.Rails[i].Left, r.StripedFailure))
		}
		out.Rails = append(out.Rails, one)
	}
	out.Extras, out.Steps = jsonExtras(r), append([]steps.Done{}, o.Steps...)
	out.Missing = []jsonMissing{}
	for _, m := range r.Missing {
		out.Missing = append(out.Missing, jsonMissing{m.Rail, m.Device, m.Peer, m.Known, m.Detail})
	}
	for i := range r.Failures {
		out.Failures = append(out.Failures, *newJSONFailure(&r.Failures[i]))
	}
	return terminal.WriteJSON(w, out)
}

func newJSONRail(r *result.RailResult) jsonRail {
	out := jsonRail{
		Rail: r.Rail, Device: nonZero(r.Device), Port: nonZero(r.Port), PeerDevice: nonZero(r.PeerDevice),
		Unpaired: r.Unpaired, PathMTU: nonZero(r.PathMTU), Solo: rate(r.Solo), Striped: rate(r.Striped),
		Slow: fewWrites(r), Capacity: stats.Finite(r.Capacity), Expected: stats.Finite(r.Expected),
		Share:        stats.Finite(r.Share),
		CounterBytes: r.CounterBytes, Retransmits: r.Retransmits, Failure: newJSONFailure(r.Failure),
		Others: stats.Finite(r.Others), SoloFailure: newJSONFailure(cmp.Or(r.SoloFailure, notAlone(r))),
	}
	if l := r.Loss; l != nil {
		out.Loss = &jsonLoss{l.Retransmits, l.PeerEvents, l.Packets}
	}
	if r.GID != "" {
		out.GIDIndex = &r.GIDIndex
	}
	if r.Striped != nil {
		out.StripedBytes = &r.Striped.Moved
	}
	out.Latency = newJSONLatency(r.Latency)
	return out
}

func newJSONLatency(l *result.Latency) *jsonLatency {
	if l == nil || len(l.Samples) == 0 {
		return nil
	}
	one := latency(l, 0)
	return &jsonLatency{one.Samples, one.Mean, one.Min, one.P50, one.P95, one.P99, one.Max, newJSONPart(l.Adapter),
		newJSONPart(l.Host)}
}

func newJSONPart(sorted []time.Duration) *jsonPart {
	if len(sorted) == 0 {
		return nil
	}
	return &jsonPart{seconds(result.Quantile(sorted, 0.5)), seconds(result.Quantile(sorted, 0.99))}
}

func newJSONFailure(f *result.Failure) *jsonFailure {
	if f == nil {
		return nil
	}
	return &jsonFailure{Rail: nonZero(f.Rail), Stage: string(f.Stage), Reason: string(f.Reason),
		Detail: nonZero(f.Detail)}
}

// nonZero returns v, or nil for the zero value.
func nonZero[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

func rate(f *result.Flow) *float64 {
	if f == nil {
		return nil
	}
	return new(f.BytesPerSecond())
}

// fewWrites reports whether a figure of the rail is based on few writes.
func fewWrites(r *result.RailResult) bool {
	return r.Solo != nil && r.Solo.Slow || r.Striped != nil && r.Striped.Slow
}

// seconds rounds to 1 ns, which removes the error of the division.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e9) / 1e9 }

// bestTCP returns the fastest burst over TCP, or nil.
func bestTCP(r result.Result) *result.TCPResult {
	if len(r.TCP) == 0 {
		return nil
	}
	return new(slices.MaxFunc(r.TCP, func(a, b result.TCPResult) int {
		return cmp.Compare(a.BytesPerSecond, b.BytesPerSecond)
	}))
}
