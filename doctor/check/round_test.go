package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/probe"
)

// roundOf is a good round over rails that carry so many Gb/s of 100.
func roundOf(gigabits ...float64) probe.Result {
	r := probe.Result{Peer: "b", Outcome: probe.OK, Transport: probe.RDMA, Verified: true, MinOfExpected: 0.7,
		Stealing: new(0.0)}
	best := slices.Max(gigabits)
	for i, g := range gigabits {
		flow := &probe.Flow{Bytes: int64(g * 1e9 / 8), Active: time.Second}
		r.Rails = append(r.Rails, probe.RailResult{Rail: fmt.Sprint(i), Netdev: fmt.Sprintf("eth%d", i),
			PeerRail: fmt.Sprint(i), PathMTU: 4096, Solo: flow, Stealing: flow, Share: new(g / best)})
		*r.Stealing += g * 1e9 / 8
	}
	if imbalance := 1 - slices.Min(gigabits)/best; len(gigabits) > 1 {
		r.Imbalance = &imbalance
	}
	return r
}

// pathsOf are paths of a rail, of which some lose packets and one carries nothing; -1: none.
func pathsOf(rail string, n int, lost map[int]*probe.Loss, dead int) (list []probe.Measured) {
	for i := range n {
		f := probe.MeasuredFlow{Rail: rail, Op: probe.Write, Path: i, UDPPort: uint16(50000 + i), Goodput: new(1e9),
			Loss: &probe.Loss{Packets: 1000}}
		if lost[i] != nil {
			f.Loss = lost[i]
		}
		if i == dead {
			f.Goodput, f.Loss, f.Failure = nil, nil, &probe.Failure{Stage: "reach", Reason: "retry_exceeded"}
		}
		list = append(list, probe.Measured{Kind: probe.Paths, Flows: []probe.MeasuredFlow{f}})
	}
	return list
}

// gpusOf is one burst with a kind of memory, after others that failed.
func gpusOf(memory string, failed ...probe.Reason) (list []probe.Measured) {
	for _, reason := range failed {
		list = append(list, probe.Measured{Kind: probe.GPU, Failure: &probe.Failure{Reason: reason, Detail: "as tried"}})
	}
	return append(list, probe.Measured{Kind: probe.GPU, Memory: memory, Flows: []probe.MeasuredFlow{
		{Rail: "0", Op: probe.Write, Goodput: new(1e10)}}})
}

// pairsOf are three rails alone at one rate, and in pairs.
func pairsOf(alone float64, pairs map[string]float64) (list []probe.Measured) {
	flow := func(rail string, v float64) probe.MeasuredFlow {
		return probe.MeasuredFlow{Rail: rail, Op: probe.Write, Goodput: &v}
	}
	for _, rail := range []string{"0", "1", "2"} {
		list = append(list, probe.Measured{Kind: probe.Contention, Flows: []probe.MeasuredFlow{flow(rail, alone)}})
	}
	for _, names := range slices.Sorted(maps.Keys(pairs)) {
		a, b, _ := strings.Cut(names, " ")
		list = append(list, probe.Measured{Kind: probe.Contention, Flows: []probe.MeasuredFlow{flow(a, pairs[names]/2),
			flow(b, pairs[names]/2)}})
	}
	return list
}

// failedAt makes rails fail.
func failedAt(r probe.Result, stage probe.Stage, reason probe.Reason, rails ...int) probe.Result {
	for _, i := range rails {
		f := probe.Failure{Rail: fmt.Sprint(i), Stage: stage, Reason: reason, Detail: fmt.Sprintf("on mlx5_%d", i)}
		r.Rails[i].Failure, r.Rails[i].Stealing, r.Failures = &f, nil, append(r.Failures, f)
	}
	return r
}

// fallback makes a round fall back for the reason of its first failure.
func fallback(r probe.Result) probe.Result {
	first := r.Failures[0]
	r.Outcome, r.Transport, r.Reason = probe.Fallback, probe.TCP, first.Reason
	r.Detail = fmt.Sprintf("rail %s and 1 more: %s", first.Rail, first.Detail)
	return r
}

// TestRound: each fault by its own name, once, and nothing beside it that is only its consequence.
func TestRound(t *testing.T) {
	for _, tc := range []struct {
		why    string
		result probe.Result
		change func(*probe.Result)
		want   []string
	}{
		{"good", roundOf(95, 95), nil, nil},
		{"one rail lossy", roundOf(95, 60), func(r *probe.Result) {
			one := &r.Rails[1]
			one.Lossy, one.LossEvents, one.LossPackets = true, 31, 3100
			one.Loss = &probe.Loss{Retransmits: 12, PeerEvents: new(uint64(9)), Packets: 700, Bursts: 2}
			one.CounterMismatch, r.Scaling = new(0.2), new(0.8)
		}, []string{"warning lossy_rail rail 1: rail 1 loses packets: 31 retransmissions in 3100 packets of the last " +
			"rounds, 12 of them in this one; packets out of sequence or twice: 9 at the peer; it carries 63 % of its share"}},
		{"lossy, and an older peer", roundOf(95, 95), func(r *probe.Result) {
			r.Rails[0].Lossy, r.Rails[0].Loss = true, &probe.Loss{Retransmits: 5}
			r.Rails[0].LossEvents, r.Rails[0].LossPackets = 5, 600
		}, []string{"warning lossy_rail rail 0: rail 0 loses packets: 5 retransmissions in 600 packets of the last rounds, " +
			"5 of them in this one; packets out of sequence or twice: not reported by the peer"}},
		{"a shaper for both", roundOf(60, 35), func(r *probe.Result) {
			r.Bottleneck, r.EvenAlone, r.Scaling = true, true, new(0.5)
		}, []string{"info shared_bottleneck peer b: rails 0 and 1 together reach 50 % of their sum: " +
			"they share a bottleneck"}},
		{"the same in a round without solos", roundOf(60, 35), func(r *probe.Result) {
			r.Bottleneck, r.EvenAlone = true, true
		}, []string{"info shared_bottleneck peer b: rails 0 and 1 together reach less than 90 % of their sum: " +
			"they share a bottleneck"}},
		{"a slow host", roundOf(95, 40), func(r *probe.Result) {
			r.Rails[1].Expected, r.Extras = new(12.5e9), []probe.Measured{{Kind: probe.Loopback, Flows: []probe.MeasuredFlow{
				{Rail: "1", Other: "1", Op: probe.Write, Goodput: new(5.5e9)}}}}
			r.Rails[1].Share, r.Imbalance = new(1.0), new(0.0)
		}, []string{"warning goodput_below_expected rail 1: rail 1 carries 40 Gb/s, 40 % of the 100 Gb/s expected",
			"warning host_bottleneck rail 1: rail 1 carries 40 Gb/s to the peer, and to itself 44 Gb/s of the 100 Gb/s " +
				"expected: its PCIe link, memory or adapter limits it, not the wire"}},
		{"a slow wire", roundOf(95, 40), func(r *probe.Result) {
			r.Rails[1].Expected, r.Extras = new(12.5e9), []probe.Measured{{Kind: probe.Loopback, Flows: []probe.MeasuredFlow{
				{Rail: "1", Other: "1", Op: probe.Write, Goodput: new(12e9)}}}}
			r.Rails[1].Share, r.Imbalance = new(1.0), new(0.0)
		}, []string{"warning goodput_below_expected rail 1: rail 1 carries 40 Gb/s, 40 % of the 100 Gb/s expected; to itself " +
			"it carries 96 Gb/s: the wire or the peer limits it, not this host"}},
		{"GPUs behind the host", roundOf(95, 95), func(r *probe.Result) {
			r.Extras = gpusOf("cuda_host", "no_dmabuf", "no_peermem")
		}, []string{"info gpu_memory_staged peer b: adapters do not reach the memory of GPUs, only pinned memory of the " +
			"hosts: no_dmabuf: as tried; no_peermem: as tried"}},
		{"a GPU that uses the host's memory", roundOf(95, 95), func(r *probe.Result) {
			r.Extras = gpusOf("cuda_host", "unified_memory", "unified_memory")
		}, nil},
		{"peermem in place of dma-buf", roundOf(95, 95), func(r *probe.Result) {
			r.Extras = gpusOf("cuda_peermem", "no_dmabuf")
		}, nil},
		{"two lossy paths of 16", roundOf(95, 95), func(r *probe.Result) {
			r.Extras, r.Outcome = pathsOf("1", 16, map[int]*probe.Loss{3: {Retransmits: 30, Packets: 1000}}, 9), probe.Degraded
		}, []string{"warning lossy_path rail 1: 2 of 16 paths of rail 1 lose packets, up to 100 %: UDP source ports 50003 and " +
			"50009"}},
		{"a cable that loses some, whatever the label", roundOf(95, 95), func(r *probe.Result) {
			r.Extras = pathsOf("1", 4, map[int]*probe.Loss{0: {Retransmits: 2, Packets: 1000}, 1: {Retransmits: 2,
				Packets: 1000}, 2: {Retransmits: 9, Packets: 1000}}, -1)
		}, nil},
		{"all paths lossy", roundOf(95, 95), func(r *probe.Result) {
			l := &probe.Loss{Retransmits: 30, Packets: 1000}
			r.Extras = pathsOf("1", 2, map[int]*probe.Loss{0: l, 1: l}, -1)
		}, nil},
		{"a retransmission", roundOf(95, 95), func(r *probe.Result) {
			r.Extras = pathsOf("1", 4, map[int]*probe.Loss{2: {Retransmits: 2, Packets: 1000}}, -1)
		}, nil},
		{"two of three rails behind one bottleneck", roundOf(95, 95, 95), func(r *probe.Result) {
			r.Extras = pairsOf(12e9, map[string]float64{"0 1": 12e9, "0 2": 24e9, "1 2": 23.9e9})
		}, []string{"info shared_bottleneck peer b: rails 0 and 1 together reach 50 % of what each carries alone"}},
		{"a low scaling once", roundOf(95, 95), func(r *probe.Result) { r.Scaling = new(0.85) }, nil},
		{"slower than TCP once", roundOf(95, 95), func(r *probe.Result) { r.Speedup = new(0.93) }, nil},
		{"slower than TCP", roundOf(95, 95), func(r *probe.Result) {
			r.Speedup, r.SlowerThanTCP = new(0.5), true
		}, []string{"info slower_than_tcp peer b: RDMA is slower than TCP here (speed-up 0.50)"}},
		{"a long latency", roundOf(95, 95), func(r *probe.Result) {
			r.Rails[1].Uneven = &probe.Uneven{Latency: 2612345 * time.Nanosecond, Siblings: 521 * time.Microsecond,
				Before: 530 * time.Microsecond}
		}, []string{"warning latency_uneven rail 1: the fastest small write over rail 1 took 2.612ms, over its siblings " +
			"521µs, before 530µs"}},
		{"others", roundOf(95, 60), func(r *probe.Result) {
			r.Rails[1].Others, r.Rails[1].Share, r.Imbalance = new(35e9/8), new(1.0), new(0.0)
			r.Rails[1].CounterMismatch = new(0.58)
		}, []string{"info other_traffic rail 1: other traffic took 35 Gb/s of rail 1 during the burst"}},
		{"a rail deleted here", roundOf(95), func(r *probe.Result) {
			r.Missing = []probe.MissingRail{{Rail: "1", Device: "mlx5_1", Known: true, Detail: "this node had it before"}}
			r.Imbalance = new(1.0)
		}, []string{"critical rail_missing rail 1: rail 1 (mlx5_1) is missing: this node had it before"}},
		{"a rail deleted there", failedAt(roundOf(95, 95), "open", "no_peer_rail", 1), func(r *probe.Result) {
			r.Missing = []probe.MissingRail{{Rail: "1", Device: "mlx5_1", Peer: true, Known: true,
				Detail: "the peer had it before"}}
		}, []string{"critical rail_missing peer b: the peer's rail for rail 1 (mlx5_1) is missing: the peer had it before"}},
		{"a bond there", fallback(failedAt(roundOf(95, 95), "reach", "gid_misbound", 0, 1)), func(r *probe.Result) {
			for i := range r.Rails {
				r.Rails[i].Failure = r.Rails[i].Failure.OnPeer()
			}
		}, []string{"critical fallback peer b: RDMA to b failed: gid_misbound: rail 0 and 1 more: on mlx5_0",
			"critical gid_misbound peer b: rails 0 and 1 failed at reach: gid_misbound: on the peer: on mlx5_0"}},
		{"an interface without a device", roundOf(95), func(r *probe.Result) {
			r.Missing = []probe.MissingRail{{Rail: "1", Role: "compute", Detail: "eth1 is in its subnet"}}
		}, []string{"warning rail_missing rail 1: rail 1 is missing: eth1 is in its subnet"}},
		{"an interface without a device, says an old peer", roundOf(95), func(r *probe.Result) {
			r.Missing = []probe.MissingRail{{Rail: "1", Detail: "eth1 is in its subnet"}}
		}, []string{"info rail_missing rail 1: rail 1 is missing: eth1 is in its subnet"}},
		{"two of four failed alike, one otherwise", failedAt(failedAt(roundOf(95, 95, 95, 95), "reach",
			"retry_exceeded", 1, 2), "open", "port_down", 3), nil, []string{
			"warning rail_failed rails 1 and 2: rails 1 and 2 were not used: retry_exceeded: on mlx5_1",
			"warning rail_failed rail 3: rail 3 was not used: port_down: on mlx5_3"}},
		{"all failed alike", fallback(failedAt(roundOf(95, 95), "reach", "retry_exceeded", 0, 1)), nil, []string{
			"critical fallback peer b: RDMA to b failed: retry_exceeded: rail 0 and 1 more: on mlx5_0"}},
		{"the peer's worker was killed", fallback(failedAt(roundOf(95, 95), "verify", "peer_worker", 0, 1)), nil, []string{
			"warning peer_worker peer b: RDMA to b was not measured: rail 0 and 1 more: on mlx5_0"}},
		{"the peer's worker was killed again and again", roundOf(95, 95), func(r *probe.Result) {
			r.Outcome, r.Transport, r.Reason = probe.Failed, probe.NoTransport, "peer_worker"
			r.Detail = "on the peer: the worker process failed 3 times in a row"
		}, []string{"warning peer_worker peer b: RDMA to b was not measured: on the peer: the worker process failed " +
			"3 times in a row"}},
		{"our worker was killed", fallback(failedAt(roundOf(95, 95), "striped", "worker_crashed", 0, 1)), nil, []string{
			"warning fallback peer b: RDMA to b failed: worker_crashed: rail 0 and 1 more: on mlx5_0"}},
		{"the peer's GID", failedAt(roundOf(95, 95), "connect", "peer_gid", 1), nil, []string{
			"warning peer_gid rail 1: rail 1 was not used: peer_gid: on mlx5_1"}},
		{"bonds over all rails", fallback(failedAt(roundOf(95, 95), "reach", "gid_misbound", 0, 1)), nil, []string{
			"critical fallback peer b: RDMA to b failed: gid_misbound: rail 0 and 1 more: on mlx5_0",
			"critical gid_misbound rails 0 and 1: rails 0 and 1 failed at reach: gid_misbound: on mlx5_0"}},
	} {
		if tc.change != nil {
			tc.change(&tc.result)
		}
		if tc.result.Outcome == probe.OK && tc.result.Degraded() {
			tc.result.Outcome = probe.Degraded
		}
		var got []string
		worst := finding.Info
		for _, f := range Round(tc.result) {
			got = append(got, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Check, f.Subject, f.Evidence))
			if f.Severity.Compare(worst) < 0 {
				worst = f.Severity
			}
			if len(f.Fix) == 0 || strings.Contains(strings.Join(f.Fix, "\n"), untypable) {
				t.Errorf("%s: fix %q", tc.why, f.Fix)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.why, diff)
		}
		if good := tc.result.Outcome == probe.OK; good != (worst == finding.Info) {
			t.Errorf("%s is %s, its worst finding %s", tc.why, tc.result.Outcome, worst)
		}
	}
}
