package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/probe/result"
)

// roundOf returns a good round over rails with these rates in Gb/s, of 100 Gb/s each.
func roundOf(gigabits ...float64) result.Result {
	r := result.Result{Peer: "b", Outcome: result.OK, Transport: result.RDMA, Verified: true, MinOfExpected: 0.7,
		Striped: new(0.0)}
	best := slices.Max(gigabits)
	for i, g := range gigabits {
		flow := &result.Flow{Bytes: int64(g * 1e9 / 8), Active: time.Second}
		r.Rails = append(r.Rails, result.RailResult{Rail: fmt.Sprint(i), Netdev: fmt.Sprintf("eth%d", i),
			PeerRail: fmt.Sprint(i), PathMTU: 4096, Solo: flow, Striped: flow, Share: new(g / best)})
		*r.Striped += g * 1e9 / 8
	}
	if imbalance := 1 - slices.Min(gigabits)/best; len(gigabits) > 1 {
		r.Imbalance = &imbalance
	}
	return r
}

// pathsOf returns n paths of a rail. Those in lost lose packets; path dead carries nothing (-1: none).
func pathsOf(rail string, n int, lost map[int]*result.Loss, dead int) (list []result.Measured) {
	for i := range n {
		f := result.MeasuredFlow{Rail: rail, Op: result.Write, Path: i, UDPPort: uint16(50000 + i), Goodput: new(1e9),
			Loss: &result.Loss{Packets: 1000}}
		if lost[i] != nil {
			f.Loss = lost[i]
		}
		if i == dead {
			f.Goodput, f.Loss, f.Failure = nil, nil, &result.Failure{Stage: "reach", Reason: "retry_exceeded"}
		}
		list = append(list, result.Measured{Kind: result.Paths, Flows: []result.MeasuredFlow{f}})
	}
	return list
}

// gpusOf returns one burst with a kind of memory, after failed ones.
func gpusOf(memory string, failed ...result.Reason) (list []result.Measured) {
	for _, reason := range failed {
		list = append(list, result.Measured{Kind: result.GPU,
			Failure: &result.Failure{Reason: reason, Detail: "as tried"}})
	}
	return append(list, result.Measured{Kind: result.GPU, Memory: memory, Flows: []result.MeasuredFlow{
		{Rail: "0", Op: result.Write, Goodput: new(1e10)}}})
}

// pairsOf returns 3 rails measured alone at one rate, and in pairs.
func pairsOf(alone float64, pairs map[string]float64) (list []result.Measured) {
	flow := func(rail string, v float64) result.MeasuredFlow {
		return result.MeasuredFlow{Rail: rail, Op: result.Write, Goodput: &v}
	}
	for _, rail := range []string{"0", "1", "2"} {
		list = append(list, result.Measured{Kind: result.Contention, Flows: []result.MeasuredFlow{flow(rail, alone)}})
	}
	for _, names := range slices.Sorted(maps.Keys(pairs)) {
		a, b, _ := strings.Cut(names, " ")
		list = append(list, result.Measured{Kind: result.Contention,
			Flows: []result.MeasuredFlow{flow(a, pairs[names]/2),
				flow(b, pairs[names]/2)}})
	}
	return list
}

// failedAt makes rails fail.
func failedAt(r result.Result, stage result.Stage, reason result.Reason, rails ...int) result.Result {
	for _, i := range rails {
		f := result.Failure{Rail: fmt.Sprint(i), Stage: stage, Reason: reason, Detail: fmt.Sprintf("on mlx5_%d", i)}
		r.Rails[i].Failure, r.Rails[i].Striped, r.Failures = &f, nil, append(r.Failures, f)
	}
	return r
}

// fallback turns a round into a fallback, with the reason of its first failure.
func fallback(r result.Result) result.Result {
	first := r.Failures[0]
	r.Outcome, r.Transport, r.Reason = result.Fallback, result.TCP, first.Reason
	r.Detail = fmt.Sprintf("rail %s and 1 more: %s", first.Rail, first.Detail)
	return r
}

// TestRound: each fault is reported once under its own name, without its consequences.
func TestRound(t *testing.T) {
	seen := map[string]bool{}
	for _, tc := range []struct {
		why    string
		result result.Result
		change func(*result.Result)
		want   []string
	}{
		{"good", roundOf(95, 95), nil, nil},
		{"one rail lossy", roundOf(95, 60), func(r *result.Result) {
			one := &r.Rails[1]
			one.Lossy, one.LossEvents, one.LossPackets = true, 31, 3100
			one.Loss = &result.Loss{Retransmits: 12, PeerEvents: new(uint64(9)), Packets: 700, Bursts: 2}
			one.CounterMismatch, r.Scaling = new(0.2), new(0.8)
		}, []string{"warning lossy_rail rail 1: rail 1 loses packets: 31 retransmissions in 3100 packets of the last " +
			"rounds, 12 of them in this one; packets out of sequence or twice: 9 at the peer; it carries 63 % of its share"}},
		{"lossy, and an older peer", roundOf(95, 95), func(r *result.Result) {
			r.Rails[0].Lossy, r.Rails[0].Loss = true, &result.Loss{Retransmits: 5}
			r.Rails[0].LossEvents, r.Rails[0].LossPackets = 5, 600
		}, []string{"warning lossy_rail rail 0: rail 0 loses packets: 5 retransmissions in 600 packets of the last rounds, " +
			"5 of them in this one; packets out of sequence or twice: not reported by the peer"}},
		{"a shaper for both", roundOf(60, 35), func(r *result.Result) {
			r.Bottleneck, r.EvenAlone, r.Scaling = true, true, new(0.5)
		}, []string{"warning shared_bottleneck peer b: rails 0 and 1 together reach 50 % of their sum: " +
			"they share a bottleneck"}},
		{"the same in a round without solos", roundOf(60, 35), func(r *result.Result) {
			r.Bottleneck, r.EvenAlone = true, true
		}, []string{"info shared_bottleneck peer b: rails 0 and 1 together reach less than 90 % of their sum: " +
			"they share a bottleneck"}},
		{"a slow host", roundOf(95, 40), func(r *result.Result) {
			r.Rails[1].Expected, r.Extras = new(12.5e9),
				[]result.Measured{{Kind: result.Loopback, Flows: []result.MeasuredFlow{
					{Rail: "1", Other: "1", Op: result.Write, Goodput: new(5.5e9)}}}}
			r.Rails[1].Share, r.Imbalance = new(1.0), new(0.0)
		}, []string{"warning host_bottleneck rail 1: rail 1 carries 40 Gb/s to the peer, and to itself 44 Gb/s of the 100 Gb/s " +
			"expected: its PCIe link, memory or adapter limits it, not the wire"}},
		{"a slow wire", roundOf(95, 40), func(r *result.Result) {
			r.Rails[1].Expected, r.Extras = new(12.5e9),
				[]result.Measured{{Kind: result.Loopback, Flows: []result.MeasuredFlow{
					{Rail: "1", Other: "1", Op: result.Write, Goodput: new(12e9)}}}}
			r.Rails[1].Share, r.Imbalance = new(1.0), new(0.0)
		}, []string{"warning goodput_below_expected rail 1: rail 1 carries 40 Gb/s, 40 % of the 100 Gb/s expected; to itself " +
			"it carries 96 Gb/s: the wire or the peer limits it, not this host"}},
		{"GPUs behind the host", roundOf(95, 95), func(r *result.Result) {
			r.Extras = gpusOf("cuda_host", "no_dmabuf", "no_peermem")
		}, []string{"info gpu_memory_staged peer b: adapters do not reach the memory of GPUs, only pinned memory of the " +
			"hosts: no_dmabuf: as tried; no_peermem: as tried"}},
		{"GPUs of AMD behind the host", roundOf(95, 95), func(r *result.Result) {
			r.Extras = gpusOf("rocm_host", "no_dmabuf")
		}, []string{"info gpu_memory_staged peer b: adapters do not reach the memory of GPUs, only pinned memory of " +
			"the hosts: no_dmabuf: as tried"}},
		{"a GPU that uses the host's memory", roundOf(95, 95), func(r *result.Result) {
			r.Extras = gpusOf("cuda_host", "unified_memory", "unified_memory")
		}, nil},
		{"peermem in place of dma-buf", roundOf(95, 95), func(r *result.Result) {
			r.Extras = gpusOf("cuda_peermem", "no_dmabuf")
		}, nil},
		{"two lossy paths of 16", roundOf(95, 95), func(r *result.Result) {
			r.Extras, r.Outcome = pathsOf("1", 16, map[int]*result.Loss{3: {Retransmits: 30, Packets: 1000}}, 9), result.Degraded
		}, []string{"warning lossy_path rail 1: 2 of 16 paths of rail 1 lose packets, up to 100 %: UDP source ports 50003 and " +
			"50009"}},
		{"a cable that loses some, whatever the label", roundOf(95, 95), func(r *result.Result) {
			r.Extras = pathsOf("1", 4, map[int]*result.Loss{0: {Retransmits: 2, Packets: 1000}, 1: {Retransmits: 2,
				Packets: 1000}, 2: {Retransmits: 9, Packets: 1000}}, -1)
		}, nil},
		{"all paths lossy", roundOf(95, 95), func(r *result.Result) {
			l := &result.Loss{Retransmits: 30, Packets: 1000}
			r.Extras = pathsOf("1", 2, map[int]*result.Loss{0: l, 1: l}, -1)
		}, nil},
		{"a retransmission", roundOf(95, 95), func(r *result.Result) {
			r.Extras = pathsOf("1", 4, map[int]*result.Loss{2: {Retransmits: 2, Packets: 1000}}, -1)
		}, nil},
		{"two of three rails behind one bottleneck", roundOf(95, 95, 95), func(r *result.Result) {
			r.Extras = pairsOf(12e9, map[string]float64{"0 1": 12e9, "0 2": 24e9, "1 2": 23.9e9})
		}, []string{"info shared_bottleneck peer b: rails 0 and 1 together reach 50 % of what each carries alone"}},
		{"a low scaling once", roundOf(95, 95), func(r *result.Result) { r.Scaling = new(0.85) }, nil},
		{"more than the sum of each", roundOf(95, 95), func(r *result.Result) {
			r.Scaling, r.Rails[0].Expected, r.Rails[1].Expected = new(1.99), new(11e9), new(11e9)
		}, []string{"info scaling_high peer b: all rails together carried 199 % of the sum of each alone"}},
		{"about the sum of each", roundOf(95, 95), func(r *result.Result) {
			r.Scaling, r.Rails[0].Expected, r.Rails[1].Expected = new(1.05), new(11e9), new(11e9)
		}, nil},
		{"more than the sum, software", roundOf(95, 95), func(r *result.Result) {
			r.Scaling, r.Rails[0].Expected = new(1.2), new(11e9)
		}, nil},
		{"slower than TCP once", roundOf(95, 95), func(r *result.Result) { r.Speedup = new(0.93) }, nil},
		{"slower than TCP", roundOf(95, 95), func(r *result.Result) {
			r.Speedup, r.SlowerThanTCP = new(0.5), true
		}, []string{"info slower_than_tcp peer b: RDMA is slower than TCP here (speed-up 0.50)"}},
		{"0.15 % of loss on both rails", roundOf(95, 95), func(r *result.Result) {
			for i := range r.Rails {
				r.Rails[i].Loss = &result.Loss{Retransmits: 3, PeerEvents: new(uint64(3)), Packets: 2000, Bursts: 2}
			}
		}, []string{"info lossy_rail rail 0: rail 0 lost packets: 3 retransmissions in 2000 packets (0.15 %); packets out of " +
			"sequence or twice: 3 at the peer", "info lossy_rail rail 1: rail 1 lost packets: 3 retransmissions in 2000 packets " +
			"(0.15 %); packets out of sequence or twice: 3 at the peer"}},
		{"one retransmission, and those of another connection", roundOf(95, 95), func(r *result.Result) {
			r.Rails[0].Loss = &result.Loss{Retransmits: 1, Packets: 2000, Bursts: 1}
			r.Rails[1].Loss = &result.Loss{Retransmits: 9, PeerEvents: new(uint64(0)), Packets: 2000, Bursts: 1}
		}, nil},
		{"packets that overtake each other", roundOf(95, 60), func(r *result.Result) {
			r.Rails[1].Lossy, r.Rails[1].LossEvents, r.Rails[1].LossPackets = true, 31, 31000
			r.Rails[1].Loss = &result.Loss{Retransmits: 12, PeerEvents: new(uint64(9000)), Packets: 31000, Bursts: 2}
		}, []string{"warning out_of_sequence rail 1: packets over rail 1 overtake each other: 9000 out of sequence or twice at " +
			"the peer, for 12 retransmissions in 31000 packets"}},
		{"others, and what they cause", roundOf(95, 66), func(r *result.Result) {
			r.Rails[1].Others, r.Failures = new(5e9/8), []result.Failure{{Stage: "baseline", Reason: "timeout"}}
		}, []string{"info other_traffic rail 1: other traffic took 5 Gb/s of rail 1 during the burst"}},
		{"a step", roundOf(95, 95), func(r *result.Result) {
			r.Failures = []result.Failure{{Rail: "1", Stage: "baseline", Reason: "timeout", Detail: "no byte"}}
		}, []string{"info step_failed rail 1: rail 1 failed at baseline: timeout: no byte"}},
		{"less than on other days", roundOf(95, 95), func(r *result.Result) {
			r.Rails[1].Expected = new(25e9)
			r.MinOfExpected = 0.1
			r.Rails[1].Past = &baseline.Past{Best: 24e9, Latest: 12e9, On: time.Unix(1e9, 0).UTC()}
		}, []string{"warning goodput_degraded rail 1: rail 1 carries 96 Gb/s alone, 50 % of the 192 Gb/s on 2001-09-09 (median " +
			"of its best day of the last 7)"}},
		{"one slow rail is one finding", roundOf(95, 40), func(r *result.Result) {
			for i := range r.Rails {
				r.Rails[i].Expected = new(12.5e9)
			}
		}, []string{"warning goodput_below_expected rail 1: rail 1 carries 40 Gb/s, 40 % of the 100 Gb/s expected"}},
		{"good alone, half together", roundOf(50, 50), func(r *result.Result) {
			for i := range r.Rails {
				r.Rails[i].Expected, r.Rails[i].Solo = new(12.5e9), &result.Flow{Bytes: 12e9, Active: time.Second}
			}
			r.Bottleneck, r.EvenAlone, r.Scaling = true, true, new(0.52)
		}, []string{"warning shared_bottleneck peer b: rails 0 and 1 together reach 52 % of their sum: they share a " +
			"bottleneck"}},
		{"rails of two bandwidths that nothing explains", roundOf(95, 66), nil,
			[]string{"warning imbalance rail 1: rail 1 carries 69 % of its share (imbalance 0.31)"}},
		{"a few percent less", roundOf(95, 80), nil,
			[]string{"info imbalance rail 1: rail 1 carries 84 % of its share (imbalance 0.16)"}},
		{"bytes that were not sent", roundOf(95, 95), func(r *result.Result) {
			r.Rails[0].CounterMismatch = new(0.2)
		}, []string{"info counter_mismatch rail 0: the counter of rail 0 differs from the bytes sent by 20 %: other traffic, " +
			"retransmissions, or bytes on another path"}},
		{"small packets and other versions", roundOf(95, 95), func(r *result.Result) {
			r.Rails[0].PathMTU = 1024
			r.Mismatches = []result.Mismatch{{Component: "kernel", Here: "6.8", There: "6.12"}}
		}, []string{"info path_mtu_small rail 0: small packets: a path MTU of 1024 B or less; 4096 B need an MTU of 4200 on " +
			"both ends and on the path", "info version_mismatch peer b: kernel differs: 6.8 here, 6.12 there"}},
		{"corrupted", roundOf(95, 95), func(r *result.Result) {
			r.Outcome, r.Transport, r.Reason, r.Detail = result.Failed, result.NoTransport, "data_mismatch", "3 bytes"
			r.Failures = []result.Failure{{Stage: "verify", Reason: "data_mismatch"}}
		}, []string{"critical data_mismatch peer b: the probe of b failed: data_mismatch: 3 bytes"}},
		{"no answer", result.Result{Peer: "b", Outcome: result.Failed, Reason: "peer_unreachable", Detail: "no route"}, nil,
			[]string{"warning probe_failed peer b: the probe of b failed: peer_unreachable: no route"}},
		{"a port down here, one there", failedAt(failedAt(roundOf(95, 95, 95), "open", "port_down", 1), "open", "port_down",
			2), func(r *result.Result) {
			r.Rails[2].Failure = r.Rails[2].Failure.OnPeer()
			r.Failures[1] = *r.Rails[2].Failure
		}, []string{"warning rail_failed rail 1: rail 1 was not used: port_down: on mlx5_1",
			"warning rail_failed rail 2: rail 2 was not used: port_down: on the peer: on mlx5_2"}},
		{"a long latency", roundOf(95, 95), func(r *result.Result) {
			r.Rails[1].Uneven = &result.Uneven{Latency: 2612345 * time.Nanosecond, Siblings: 521 * time.Microsecond,
				Before: 530 * time.Microsecond}
		}, []string{"warning latency_uneven rail 1: the fastest small write over rail 1 took 2.612ms, over its siblings " +
			"521µs, before 530µs"}},
		{"others", roundOf(95, 60), func(r *result.Result) {
			r.Rails[1].Others, r.Rails[1].Share, r.Imbalance = new(35e9/8), new(1.0), new(0.0)
			r.Rails[1].CounterMismatch = new(0.58)
		}, []string{"info other_traffic rail 1: other traffic took 35 Gb/s of rail 1 during the burst"}},
		{"a rail deleted here", roundOf(95), func(r *result.Result) {
			r.Missing = []result.MissingRail{{Rail: "1", Device: "mlx5_1", Known: true, Detail: "this node had it before"}}
			r.Imbalance = new(1.0)
		}, []string{"critical rail_missing rail 1: rail 1 (mlx5_1) is missing: this node had it before"}},
		{"a rail deleted there", failedAt(roundOf(95, 95), "open", "no_peer_rail", 1), func(r *result.Result) {
			r.Missing = []result.MissingRail{{Rail: "1", Device: "mlx5_1", Peer: true, Known: true,
				Detail: "the peer had it before"}}
		}, []string{"critical rail_missing peer b: the peer's rail for rail 1 (mlx5_1) is missing: the peer had it before"}},
		{"a peer with fewer rails", roundOf(95, 95, 0, 0), func(r *result.Result) {
			r.PeerRails, r.Imbalance = 2, new(0.0)
			for i := 2; i < 4; i++ {
				r.Rails[i] = result.RailResult{Rail: fmt.Sprint(i), Unpaired: true}
			}
		}, []string{"info unpaired rails 2 and 3: rails 2 and 3 are unpaired: b has 2 rails, this node 4"}},
		{"a ring of three nodes", roundOf(95, 0, 95, 0), func(r *result.Result) {
			r.PeerRails, r.Imbalance = 4, new(0.0)
			for _, i := range []int{1, 3} {
				r.Rails[i] = result.RailResult{Rail: fmt.Sprint(i), Unpaired: true}
			}
		}, []string{"info unpaired rails 1 and 3: rails 1 and 3 are unpaired: no subnet in common with a free rail of b, and " +
			"other rails are cabled crosswise"}},
		{"a peer with fewer rails that misses one", failedAt(roundOf(95, 95, 0), "open", "no_peer_rail", 1),
			func(r *result.Result) {
				r.PeerRails, r.Rails[2] = 1, result.RailResult{Rail: "2", Unpaired: true}
				r.Missing = []result.MissingRail{{Rail: "1", Device: "mlx5_1", Peer: true, Known: true,
					Detail: "the peer had it before"}}
				r.Imbalance = new(1.0)
			}, []string{
				"critical rail_missing peer b: the peer's rail for rail 1 (mlx5_1) is missing: the peer had it before",
				"info unpaired rail 2: rail 2 is unpaired: b has 1 rail, this node 3"}},
		{"other names, as many rails", failedAt(roundOf(95, 95), "open", "no_peer_rail", 1), nil, []string{
			"warning rail_failed rail 1: rail 1 was not used: no_peer_rail: on mlx5_1"}},
		{"a bond there", fallback(failedAt(roundOf(95, 95), "reach", "gid_misbound", 0, 1)), func(r *result.Result) {
			for i := range r.Rails {
				r.Rails[i].Failure = r.Rails[i].Failure.OnPeer()
			}
		}, []string{"critical fallback peer b: RDMA to b failed: gid_misbound: rail 0 and 1 more: on mlx5_0"}},
		{"an interface without a device", roundOf(95), func(r *result.Result) {
			r.Missing = []result.MissingRail{{Rail: "1", Role: "compute", Detail: "eth1 is in its subnet"}}
		}, []string{"warning rail_missing rail 1: rail 1 is missing: eth1 is in its subnet"}},
		{"an interface without a device, says an old peer", roundOf(95), func(r *result.Result) {
			r.Missing = []result.MissingRail{{Rail: "1", Detail: "eth1 is in its subnet"}}
		}, []string{"info rail_missing rail 1: rail 1 is missing: eth1 is in its subnet"}},
		{"two of four failed alike, one otherwise", failedAt(failedAt(roundOf(95, 95, 95, 95), "reach",
			"retry_exceeded", 1, 2), "open", "port_down", 3), nil, []string{
			"warning rail_failed rails 1 and 2: rails 1 and 2 were not used: retry_exceeded: on mlx5_1",
			"warning rail_failed rail 3: rail 3 was not used: port_down: on mlx5_3"}},
		{"all failed alike", fallback(failedAt(roundOf(95, 95), "reach", "retry_exceeded", 0, 1)), nil, []string{
			"critical fallback peer b: RDMA to b failed: retry_exceeded: rail 0 and 1 more: on mlx5_0"}},
		{"the peer's worker was killed", fallback(failedAt(roundOf(95, 95), "verify", "peer_worker", 0, 1)), nil, []string{
			"warning peer_worker peer b: RDMA to b was not measured: rail 0 and 1 more: on mlx5_0"}},
		{"the peer's worker was killed again and again", roundOf(95, 95), func(r *result.Result) {
			r.Outcome, r.Transport, r.Reason = result.Failed, result.NoTransport, "peer_worker"
			r.Detail = "on the peer: the worker process failed 3 times in a row"
		}, []string{"warning peer_worker peer b: RDMA to b was not measured: on the peer: the worker process failed " +
			"3 times in a row"}},
		{"our worker was killed", fallback(failedAt(roundOf(95, 95), "striped", "worker_crashed", 0, 1)), nil, []string{
			"warning fallback peer b: RDMA to b failed: worker_crashed: rail 0 and 1 more: on mlx5_0"}},
		{"the peer's GID", failedAt(roundOf(95, 95), "connect", "peer_gid", 1), nil, []string{
			"warning peer_gid rail 1: rail 1 was not used: peer_gid: on mlx5_1"}},
		{"a bond over one rail", failedAt(roundOf(95, 95), "reach", "gid_misbound", 1), nil, []string{
			"critical gid_misbound rail 1: rail 1 was not used: gid_misbound: on mlx5_1"}},
		{"a rail failed, and what is expected of all", failedAt(roundOf(95, 95), "reach", "timeout", 1),
			func(r *result.Result) {
				r.Striped = new(95e9 / 8)
				for i := range r.Rails {
					r.Rails[i].Expected = new(12.5e9)
				}
			}, []string{"warning rail_failed rail 1: rail 1 was not used: timeout: on mlx5_1"}},
		{"bonds over all rails", fallback(failedAt(roundOf(95, 95), "reach", "gid_misbound", 0, 1)), nil, []string{
			"critical fallback peer b: RDMA to b failed: gid_misbound: rail 0 and 1 more: on mlx5_0"}},
	} {
		if tc.change != nil {
			tc.change(&tc.result)
		}
		if tc.result.Outcome == result.OK && tc.result.Degraded() {
			tc.result.Outcome = result.Degraded
		}
		var got []string
		worst := finding.Info
		for _, f := range Round(tc.result) {
			got = append(got, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Check, f.Subject, f.Evidence))
			if f.Severity.Compare(worst) < 0 {
				worst = f.Severity
			}
			if lacks := doctortest.Incomplete(f); lacks != "" || strings.Contains(strings.Join(f.Fix, "\n"), untypable) {
				t.Errorf("%s: %s", tc.why, lacks)
			}
			seen[f.Check] = true
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.why, diff)
		}
		if good := tc.result.Outcome == result.OK; good != (worst == finding.Info) {
			t.Errorf("%s is %s, its worst finding %s", tc.why, tc.result.Outcome, worst)
		}
	}
	for _, c := range RoundChecks() {
		if !seen[c.ID] {
			t.Errorf("no case for %s", c.ID)
		}
	}
}

// TestCures: each reason has one row, and the fix depends on the end that has the fault.
func TestCures(t *testing.T) {
	rows := map[result.Reason]int{}
	for _, c := range Cures() {
		for _, reason := range c.Reasons {
			rows[reason]++
		}
		if c.Seen == "" || c.Cure == "" {
			t.Errorf("incomplete: %+v", c)
		}
	}
	for _, reason := range result.Reasons() {
		if rows[reason] != 1 {
			t.Errorf("%s has %d rows", reason, rows[reason])
		}
		delete(rows, reason)
	}
	if len(rows) > 0 {
		t.Errorf("no reasons: %v", rows)
	}
	for _, tc := range []struct {
		failure result.Failure
		want    []string
	}{
		{result.Failure{Reason: "no_uverbs"}, []string{"# load the kernel module", "modprobe ib_uverbs"}},
		{*result.Failure{Reason: "no_uverbs"}.OnPeer(), []string{"# on b: load the kernel module",
			"# on b: modprobe ib_uverbs"}},
		{result.Failure{Reason: "from a newer peer"}, cure("other", "")},
	} {
		if diff := cmp.Diff(tc.want, cureOf(&result.Result{Peer: "b"}, tc.failure)); diff != "" {
			t.Errorf("%+v: -want +got:\n%s", tc.failure, diff)
		}
	}
}

// ofSpark returns a round of a DGX Spark whose rail 1 carries these rates by RDMA and by TCP, in Gb/s of 100 Gb/s.
func ofSpark(rdma, tcp float64) result.Result {
	r := roundOf(95, rdma)
	for i := range r.Rails {
		one := &r.Rails[i]
		one.Soldered, one.Expected, one.Capacity, one.Share = true, new(12.5e9), new(12.5e9), new(1.0)
	}
	r.Imbalance = new(0.0)
	r.TCP = []result.TCPResult{{Streams: 4, Rails: []result.TCPRail{{Rail: "0", BytesPerSecond: 9e9},
		{Rail: "1", BytesPerSecond: tcp * 1e9 / 8}}}}
	return r
}

// TestBadStart: an adapter that started badly has its own fix: below 1/4 by both transports, with correct port and PCIe
// link, on a machine of that kind.
func TestBadStart(t *testing.T) {
	for _, tc := range []struct {
		why    string
		result result.Result
		change func(*result.RailResult)
		want   bool
	}{
		{"13 Gb/s by both", ofSpark(13, 13), nil, true},
		{"TCP is good", ofSpark(13, 60), nil, false},
		{"a third", ofSpark(33, 13), nil, false},
		{"another machine", ofSpark(13, 13), func(one *result.RailResult) { one.Soldered = false }, false},
		{"PCIe trained down", ofSpark(13, 13), func(one *result.RailResult) { one.Capacity = new(3e9) }, false},
		{"others use it", ofSpark(13, 13), func(one *result.RailResult) { one.Others = new(1e9) }, false},
	} {
		if tc.change != nil {
			tc.change(&tc.result.Rails[1])
		}
		got := false
		for _, f := range Round(tc.result) {
			got = got || f.Check == "goodput_below_expected" && strings.Contains(f.Fix[0], "take its power away")
		}
		if got != tc.want {
			t.Errorf("%s: %v, %+v", tc.why, got, Round(tc.result))
		}
	}
}
