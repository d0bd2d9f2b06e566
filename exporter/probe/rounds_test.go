package probe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestRecentRounds: the last rounds of each peer are kept, including skipped ones, with texts of bounded length.
func TestRecentRounds(t *testing.T) {
	p := NewSource(func() options.Stats { return options.Stats{Running: true} })
	p.SetPeers([]string{"b:1", "a:1"})
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	rate, expected, even := 2.1e10, 1.25e10, 0.02
	ok := result.Result{Peer: "a:1", Start: start, Duration: time.Second, Outcome: result.OK, Transport: result.RDMA,
		Striped: &rate, Imbalance: &even,
		Rails: []result.RailResult{
			{Rail: "0", Expected: &expected,
				Latency: &result.Latency{Samples: []time.Duration{time.Microsecond, 2 * time.Microsecond,
					9 * time.Microsecond}}},
			{Rail: "1", Expected: &expected,
				Latency: &result.Latency{Samples: []time.Duration{3 * time.Microsecond, 4 * time.Microsecond,
					5 * time.Microsecond}, Random: []time.Duration{6 * time.Microsecond, 70 * time.Microsecond}}},
		}}
	p.Observe(ok, nil)
	p.Observe(result.Result{Peer: "a:1", Start: start.Add(time.Minute), Outcome: result.Fallback, Transport: result.TCP,
		Reason: "no_device", Detail: "\x1b[2J" + strings.Repeat("x", 5000),
		TCP:      []result.TCPResult{{Streams: 1, BytesPerSecond: 1e9}, {Streams: 4, BytesPerSecond: 3e9}},
		Rails:    []result.RailResult{{Rail: "0", Expected: &expected}, {Rail: "1"}},
		Failures: slices.Repeat([]result.Failure{{Stage: "open", Reason: "made_up", Rail: "1", Detail: "no"}}, 50)}, nil)
	p.Observe(result.Result{Peer: "a:1", Start: start.Add(2 * time.Minute), Outcome: result.Skipped,
		Transport: result.NoTransport, Reason: "busy_here"}, nil)
	var samples uint64
	p.latencies(false, func(m *dto.Metric) { samples += m.GetHistogram().GetSampleCount() })
	if samples != 3+2 {
		t.Errorf("%d latencies, want all of rail 0 and those at random times of rail 1", samples)
	}
	peers, probing := p.Peers()
	if !probing || len(peers) != 2 || peers[0].Name != "b:1" || len(peers[0].Rounds) != 0 || len(peers[1].Rounds) != 3 {
		t.Fatalf("%v %+v", probing, peers)
	}
	skipped, fallback, first := peers[1].Rounds[0], peers[1].Rounds[1], peers[1].Rounds[2]
	both, p50, p99 := 2.5e10, 6e-6, 70e-6
	want := page.Round{Start: start, Duration: time.Second, Outcome: "ok", Transport: "rdma", Goodput: &rate,
		Expected: &both, Imbalance: &even, P50: &p50, P99: &p99}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("the first (-want +got):\n%s", diff)
	}
	if skipped.Outcome != "skipped" || skipped.Goodput != nil || skipped.Expected != nil || skipped.P50 != nil {
		t.Errorf("%+v", skipped)
	}
	if *fallback.Goodput != 3e9 || fallback.Expected != nil || fallback.Reason != "no_device" ||
		strings.Contains(fallback.Detail, "\x1b") || len(fallback.Detail) > maxText+len("…") {
		t.Errorf("%+v", fallback)
	}
	if len(fallback.Failures) != maxFailures || fallback.Failures[0] != "rail 1: open, other: no" {
		t.Errorf("%q", fallback.Failures)
	}
	fewer := ok
	fewer.Rails = append(slices.Clone(ok.Rails), result.RailResult{Rail: "2", Unpaired: true})
	if diff := cmp.Diff(want, roundOf(fewer, nil)); diff != "" {
		t.Errorf("beside an unpaired rail (-want +got):\n%s", diff)
	}
	unmeasured := ok
	unmeasured.Rails = []result.RailResult{{Rail: "0", Expected: &both, Latency: &result.Latency{}}}
	if got := roundOf(unmeasured, nil); got.P50 != nil || got.P99 != nil || got.Expected == nil ||
		*got.Expected != both {
		t.Errorf("one rail without a write: %+v", got)
	}
	one := result.Result{Outcome: result.Fallback, Transport: result.TCP,
		TCP: []result.TCPResult{{BytesPerSecond: 1e9}}}
	if got := roundOf(one, nil).Goodput; got == nil || *got != 1e9 {
		t.Errorf("one baseline: goodput %v", got)
	}
	slow := ok
	slow.Outcome, slow.MinOfExpected = result.Degraded, 0.85
	found := []finding.Finding{{Severity: finding.Warning, Evidence: "all rails together carry 84 %"},
		{Severity: finding.Info}}
	if got := roundOf(slow, found); got.Outcome != "degraded" || got.Reason != "" ||
		!slices.Equal(got.Failures,
			[]string{"all rails together carry 84 %"}) {
		t.Errorf("a round that is degraded: %+v", got)
	}
	unreachable := result.Failure{Stage: "hello", Reason: "peer_unreachable", Detail: "connection refused"}
	exceeded := result.Failure{Stage: "reach", Reason: "retry_exceeded", Rail: "0", Detail: "no answer"}
	for _, tt := range []struct {
		reason result.Reason
		detail string
		list   []result.Failure
		want   []string
	}{
		{"peer_unreachable", "connection refused", []result.Failure{unreachable}, nil},
		{"retry_exceeded", "rail 0 and 1 more: no answer",
			[]result.Failure{exceeded, {Stage: "reach", Reason: "retry_exceeded", Rail: "1", Detail: "no answer"}}, nil},
		{"peer_unreachable", "connection refused", []result.Failure{exceeded},
			[]string{"rail 0: reach, retry_exceeded: no answer"}},
	} {
		if diff := cmp.Diff(tt.want,
			roundOf(result.Result{Outcome: result.Failed, Reason: tt.reason, Detail: tt.detail,
				Failures: tt.list}, nil).Failures); diff != "" {
			t.Errorf("what is said beside %s (-want +got):\n%s", tt.detail, diff)
		}
	}
	if long := strings.Repeat("x", maxText); plain(long) != long || plain(long+"x") != long+"…" {
		t.Errorf("a text of %d bytes: %q, and a longer one: %q", maxText, plain(long), plain(long+"x"))
	}
	for range 100 {
		p.Observe(ok, nil)
	}
	if peers, _ := p.Peers(); len(peers[1].Rounds) != page.KeepRounds {
		t.Errorf("%d rounds are kept, want %d", len(peers[1].Rounds), page.KeepRounds)
	}
	p.SetPeers([]string{"b:1"})
	if peers, _ := p.Peers(); len(peers) != 1 {
		t.Errorf("%+v", peers)
	}
}
