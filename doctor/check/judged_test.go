package check

import (
	"testing"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/result"
)

// TestJudges: subjects that were not read or not measured are neither good nor bad.
func TestJudges(t *testing.T) {
	f := &facts.Facts{}
	f.Rails = []facts.Rail{{Name: "0", StateID: rail.StateActive, GIDsRead: true}, {Name: "1"},
		{Name: "2", StateID: rail.StateActive}, {Name: "3", StateID: 1}}
	for _, tc := range []struct {
		check, subject string
		want           bool
	}{
		{"port_down", "rail 0", true}, {"port_down", "rail 1", false}, {"port_down", "rail 2", true},
		{"gid_missing", "rail 0", true}, {"gid_missing", "rail 2", false}, {"gid_missing", "rail 3", true},
		{"port_down", "rail 9", true}, // the rail is gone, which is another finding
		{"gpu_missing", "node", false}, {"no_rails", "node", true},
	} {
		if got := Judges(f, finding.Finding{Check: tc.check, Subject: tc.subject}); got != tc.want {
			t.Errorf("%s of %s: judged %v", tc.check, tc.subject, got)
		}
	}
	one, goodput := 1.0, 5e9
	flow := &result.Flow{Bytes: 1, Active: 1}
	busy := &result.Failure{Reason: "busy", Rail: "1"}
	partial := result.Result{Transport: result.RDMA, Striped: &goodput,
		BesideOthers: result.BesideOthers{BurstSkipped: busy},
		Rails: []result.RailResult{{Rail: "0", Striped: flow}, {Rail: "1", Load: result.Load{Busy: true, Left: busy}},
			{Rail: "2", Failure: busy}}}
	for _, tc := range []struct {
		name    string
		result  result.Result
		check   string
		want    bool
		subject string
	}{
		{"a rail that was measured", partial, "goodput_below_expected", true, "rail 0"},
		{"a rail that was left out", partial, "goodput_below_expected", false, "rail 1"},
		{"a rail that failed", partial, "goodput_below_expected", true, "rail 2"},
		{"all rails, of which one was left out", partial, "shared_bottleneck", false, "peer a"},
		{"latency of a rail that was idle", partial, "latency_uneven", true, "rail 0"},
		{"latency of a rail that others use", partial, "latency_uneven", false, "rail 1"},
		{"a rail that was left out, and works", partial, "rail_failed", true, "rail 1"},
		{"a round without a TCP baseline", result.Result{Transport: result.RDMA, Striped: &goodput}, "slower_than_tcp",
			false, ""},
		{"one with it", result.Result{Transport: result.RDMA, Striped: &goodput, Speedup: &one}, "slower_than_tcp", true, ""},
		{"a burst", result.Result{Transport: result.RDMA, Striped: &goodput}, "imbalance", true, ""},
		{"no burst", result.Result{Transport: result.RDMA}, "imbalance", false, ""},
		{"no burst, and latencies", result.Result{Transport: result.RDMA}, "latency_uneven", true, ""},
		{"no burst, and paths", result.Result{Transport: result.RDMA}, "lossy_path", false, ""},
		{"reached", result.Result{Outcome: result.Reached, Transport: result.RDMA}, "fallback", true, ""},
		{"by TCP", result.Result{Outcome: result.Fallback, Transport: result.TCP}, "imbalance", true, ""},
		{"failed", result.Result{Outcome: result.Failed, Transport: result.NoTransport}, "fallback", true, ""},
		{"skipped", result.Result{Outcome: result.Skipped, Transport: result.NoTransport}, "fallback", false, ""},
	} {
		if got := RoundJudges(&tc.result, finding.Finding{Check: tc.check, Subject: tc.subject}); got != tc.want {
			t.Errorf("%s, %s: judged %v", tc.name, tc.check, got)
		}
	}
}
