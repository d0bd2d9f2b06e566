package bench

import (
	"cmp"
	"encoding/json"
	"io"
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/probe"
)

// jsonResult is the object of --format=json. Every key is always present; what was not measured is null.
type jsonResult struct {
	Outcome    probe.Outcome   `json:"outcome"`
	Transport  probe.Transport `json:"transport"`
	Reason     *string         `json:"reason"`
	Detail     *string         `json:"detail"`
	Verified   bool            `json:"verified"`
	Stealing   *float64        `json:"stealing_bytes_per_second"`
	Static     *float64        `json:"static_bytes_per_second"`
	Imbalance  *float64        `json:"imbalance_ratio"`
	Scaling    *float64        `json:"scaling_ratio"`
	FinishSkew *float64        `json:"finish_skew_ratio"`
	Speedup    *float64        `json:"speedup_ratio"`
	TCP        *float64        `json:"tcp_bytes_per_second"`
	TCPRTT     *float64        `json:"tcp_rtt_seconds"`
	Duration   float64         `json:"duration_seconds"`
	Class      *jsonClass      `json:"class"`
	Rails      []jsonRail      `json:"rails"`
	Failures   []jsonFailure   `json:"failures"`

	MinOfExpected *float64          `json:"min_of_expected"`
	Node          []finding.Finding `json:"node_findings"`
	Shared        []probe.Shared    `json:"shared"`
	Mismatches    []probe.Mismatch  `json:"mismatches"`
	Missing       []jsonMissing     `json:"missing"`
	Extras        []jsonExtra       `json:"extras"`

	suite.Suite
}

type jsonClass struct {
	TrafficClass uint8  `json:"traffic_class"`
	ServiceLevel uint8  `json:"service_level"`
	Source       string `json:"source"`
}

type jsonRail struct {
	Rail          string       `json:"rail"`
	Device        *string      `json:"device"`
	Port          *int         `json:"port"`
	PeerDevice    *string      `json:"peer_device"`
	GIDIndex      *int         `json:"gid_index"`
	PathMTU       *int         `json:"path_mtu_bytes"`
	Latency       *jsonLatency `json:"latency_seconds"`
	Solo          *float64     `json:"solo_bytes_per_second"`
	Slow          bool         `json:"slow"`
	StealingBytes *int64       `json:"stealing_bytes"`
	Stealing      *float64     `json:"stealing_bytes_per_second"`
	Static        *float64     `json:"static_bytes_per_second"`
	Capacity      *float64     `json:"capacity_bytes_per_second"`
	Expected      *float64     `json:"expected_bytes_per_second"`
	Share         *float64     `json:"share_ratio"`
	CounterBytes  *int64       `json:"counter_bytes"`
	Retransmits   *uint64      `json:"retransmits"`
	Loss          *jsonLoss    `json:"loss"`
	Others        *float64     `json:"others_bytes_per_second"`
	Failure       *jsonFailure `json:"failure"`
}

// jsonLoss is what the counters of both ends show of lost packets over all bursts of the round.
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

type jsonFailure struct {
	Rail   *string      `json:"rail"`
	Stage  probe.Stage  `json:"stage"`
	Reason probe.Reason `json:"reason"`
	Detail *string      `json:"detail"`
}

// simulated is the transport of rounds in the demo that would be by RDMA elsewhere, as in metrics.
const simulated = "simulated"

// WriteJSON writes the result as one object for scripts.
func WriteJSON(w io.Writer, r probe.Result, o Options) error {
	out := jsonResult{
		Suite: Suite(r, o), Outcome: r.Outcome, Transport: r.Transport, Reason: nonZero(string(r.Reason)),
		Detail: nonZero(r.Detail), Verified: r.Verified, Duration: r.Duration.Seconds(),
		Stealing: finite(r.Stealing), Static: finite(r.Static), Imbalance: finite(r.Imbalance),
		Scaling: finite(r.Scaling), FinishSkew: finite(r.FinishSkew), Speedup: finite(r.Speedup),
		Rails: []jsonRail{}, Failures: []jsonFailure{},
		Shared: append([]probe.Shared{}, r.Shared...), Mismatches: append([]probe.Mismatch{}, r.Mismatches...),
		MinOfExpected: nonZero(r.MinOfExpected), Node: append([]finding.Finding{}, besides(r, o.Node)...),
	}
	if o.Simulated && r.Transport == probe.RDMA {
		out.Transport = simulated
	}
	if best := bestTCP(r); best != nil {
		out.TCP = finite(&best.BytesPerSecond)
		out.TCPRTT = nonZero(seconds(best.RTT))
	}
	if r.Class.Source != "" {
		out.Class = new(jsonClass(r.Class))
	}
	for i := range r.Rails {
		out.Rails = append(out.Rails, newJSONRail(&r.Rails[i]))
	}
	out.Extras = jsonExtras(r)
	out.Missing = []jsonMissing{}
	for _, m := range r.Missing {
		out.Missing = append(out.Missing, jsonMissing{m.Rail, m.Device, m.Peer, m.Known, m.Detail})
	}
	for i := range r.Failures {
		out.Failures = append(out.Failures, *newJSONFailure(&r.Failures[i]))
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

func newJSONRail(r *probe.RailResult) jsonRail {
	out := jsonRail{
		Rail: r.Rail, Device: nonZero(r.Device), Port: nonZero(r.Port), PeerDevice: nonZero(r.PeerDevice),
		PathMTU: nonZero(r.PathMTU), Solo: rate(r.Solo), Stealing: rate(r.Stealing), Static: rate(r.Stealing),
		Slow: fewWrites(r), Capacity: finite(r.Capacity), Expected: finite(r.Expected), Share: finite(r.Share),
		CounterBytes: r.CounterBytes, Retransmits: r.Retransmits, Failure: newJSONFailure(r.Failure),
		Others: finite(r.Others),
	}
	if l := r.Loss; l != nil {
		out.Loss = &jsonLoss{l.Retransmits, l.PeerEvents, l.Packets}
	}
	if r.GID != "" {
		out.GIDIndex = &r.GIDIndex
	}
	if r.Stealing != nil {
		out.StealingBytes = &r.Stealing.Moved
	}
	out.Latency = newJSONLatency(r.Latency)
	return out
}

func newJSONLatency(l *probe.Latency) *jsonLatency {
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
	return &jsonPart{seconds(probe.Quantile(sorted, 0.5)), seconds(probe.Quantile(sorted, 0.99))}
}

func newJSONFailure(f *probe.Failure) *jsonFailure {
	if f == nil {
		return nil
	}
	return &jsonFailure{Rail: nonZero(f.Rail), Stage: f.Stage, Reason: f.Reason, Detail: nonZero(f.Detail)}
}

// nonZero returns v, or nil for the zero value.
func nonZero[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// finite returns v, or nil for what JSON cannot represent.
func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}

func rate(f *probe.Flow) *float64 {
	if f == nil {
		return nil
	}
	return new(f.BytesPerSecond())
}

// fewWrites reports whether a figure of the rail rests on few writes.
func fewWrites(r *probe.RailResult) bool {
	return r.Solo != nil && r.Solo.Slow || r.Stealing != nil && r.Stealing.Slow
}

// seconds are rounded to a nanosecond, without the error of the division.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e9) / 1e9 }

// bestTCP is the fastest burst over TCP; nil: none.
func bestTCP(r probe.Result) *probe.TCPResult {
	if len(r.TCP) == 0 {
		return nil
	}
	return new(slices.MaxFunc(r.TCP, func(a, b probe.TCPResult) int {
		return cmp.Compare(a.BytesPerSecond, b.BytesPerSecond)
	}))
}
