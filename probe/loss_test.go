package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/result"
)

// TestLossy shows when a rail is lossy. Each round is "events/packets" of each rail, with suffixes for the bursts
// that had events and for those that the peer saw. The last round is judged.
func TestLossy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why, rounds, want string
	}{
		{"nothing is lost", "0/600 0/600", ""},
		{"1 % in one round, in solo and striped burst", "0/600 6/600x2", "1"},
		{"many events in a single burst", "0/600 60/600x1", ""},
		{"the same again a round later", "0/600 60/600x1, 0/600 50/600x1", "1"},
		{"0.1 %, an event now and then", "0/900 2/900x1, 0/900 0/900, 0/900 1/900x1, 0/900 2/900x1", "1"},
		{"four events", "0/900 2/900x1, 0/900 2/900x1", ""},
		{"two rounds without an event: repaired", "0/900 9/900x2, 0/900 0/900, 0/900 0/900", ""},
		{"one round without an event", "0/900 9/900x2, 0/900 0/900", "1"},
		{"five rounds ago, and one event now", "0/900 4/900x2" + strings.Repeat(", 0/900 0/900", 4) + ", 0/900 1/900x1",
			""},
		{"less than 1 in 10,000", "0/100000 9/100000x2", ""},
		{"at 400 Gb/s, 0.1 %", "0/200000 200/200000x2", "1"},
		{"both alike: a congested fabric", "8/900x2 9/900x2", ""},
		{"four times as much", "2/900x2 8/900x2", ""},
		{"five more than that", "2/900x2 13/900x2", "1"},
		{"of eight, one", "0/900 1/900x1 0/900 12/900x2 0/900 0/900 1/900x1 0/900", "3"},
		{"a single rail", "9/900x2", "0"},
		{"it is not counted", "- -", ""},
		{"the peer saw nothing: a job's peer died", "0/600 20/600x2p0", ""},
		{"the peer saw some of it", "0/600 20/600x2p0, 0/600 1/600x1p1", "1"},
		{"the peer saw nothing this time", "0/600 20/600x2p9, 0/600 1/600x1p0", "1"},
	} {
		p := &history.PastPeer{}
		var res *result.Result
		for round := range strings.SplitSeq(tc.rounds, ", ") {
			fields := strings.Fields(round)
			res = resultOf(len(fields), time.Now())
			for i, f := range fields {
				l, seen := &result.Loss{}, uint64(0)
				n, _ := fmt.Sscanf(f, "%d/%dx%dp%d", &l.Retransmits, &l.Packets, &l.Bursts, &seen)
				if n >= 2 {
					res.Rails[i].Loss = l
				}
				if n == 4 {
					l.PeerEvents = &seen
				}
			}
			p.Note(res, false)
		}
		var lossy []string
		for _, one := range res.Rails {
			if one.Lossy {
				lossy = append(lossy, one.Rail)
			}
		}
		if got := strings.Join(lossy, " "); got != tc.want || res.Degraded() != (tc.want != "") {
			t.Errorf("%s: lossy %q, want %q", tc.why, got, tc.want)
		}
	}
}

// lose increases the lost packets in a rail's counters, which are named as on mlx5.
func (p *pairOfNodes) lose(node, device, counter string, total int) {
	p.t.Helper()
	dir := filepath.Join(p.fabric.Sysfs(node), "class/infiniband", device, "ports/1/hw_counters")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, counter), fmt.Appendf(nil, "%d\n", total), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// TestRoundLossy: a rail whose loss counters move during the bursts of a round is lossy, with evidence from both
// ends.
func TestRoundLossy(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	for i := range 2 {
		p.lose("a", fmt.Sprintf("mlx5_%d", i), "packet_seq_err", 1000)
		p.lose("b", fmt.Sprintf("mlx5_%d", i), "out_of_sequence", 7)
	}
	var stages []failure.Stage
	res := Bench(t.Context(), p.a, p.opts, p.peer, func(g result.Progress) {
		if (g.Stage == failure.StageSolo || g.Stage == failure.StageStriped) && !slices.Contains(stages, g.Stage) {
			stages = append(stages, g.Stage)
			p.lose("a", "mlx5_1", "packet_seq_err", 1000+10*len(stages))
			p.lose("b", "mlx5_1", "out_of_sequence", 7+8*len(stages))
		}
	})
	p.clean()
	one := res.Rails[1]
	if res.Outcome != result.Degraded || !one.Lossy || one.Loss.Retransmits != 20 || one.Loss.Bursts != 2 ||
		one.Loss.PeerEvents == nil || *one.Loss.PeerEvents != 16 || one.LossEvents != 20 || one.LossPackets < 200 {
		t.Errorf("%s (%s), rail 1: %+v, %+v", res.Outcome, res.Detail, one, one.Loss)
	}
	if zero := res.Rails[0]; zero.Lossy || zero.Loss == nil || zero.Loss.Retransmits != 0 ||
		zero.Loss.PeerEvents == nil || *zero.Loss.PeerEvents != 0 {
		t.Errorf("rail 0: %+v", zero.Loss)
	}
}

// TestRoundNotCounted: a device without loss counters is not judged.
func TestRoundNotCounted(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	if res := p.round(); res.Outcome != result.OK || res.Rails[0].Loss != nil {
		t.Errorf("%s, %+v", res.Outcome, res.Rails[0].Loss)
	}
}

// TestUneven lists which rails have an uneven latency after the last of some rounds. A field is the two writes of a
// rail in µs, or - without any.
func TestUneven(t *testing.T) {
	t.Parallel()
	usual := strings.Repeat("500/500, ", history.UsualRounds)
	for _, tc := range []struct {
		why, rounds string
		alone       bool // a single interactive round
		want        string
	}{
		{"even", "2/2 2/2", true, ""},
		{"4 µs more, as of another socket", "2/2 6/6", true, ""},
		{"2 ms more", "2/2 2000/2100", true, "1"},
		{"twice as long", "500/500 1000/1000", true, ""},
		{"more than twice as long", "500/500 1001/1001", true, "1"},
		{"one write, not all", "2/2 2/2100", true, ""},
		{"the lab, 500 µs more", "500/480 950/990", true, ""},
		{"the lab, 2 ms more", "500/480 2500/2490", true, "1"},
		{"one round of a running node", "500/500 2500/2500", false, ""},
		{"two rounds", "500/500 2500/2500, 500/500 2500/2500", false, "1"},
		{"two rounds, and one without between", "500/500 2500/2500, 500/500 510/500, 500/500 2500/2500", false, ""},
		{"gone again", "500/500 2500/2500, 500/500 2500/2500, 500/500 500/500", false, ""},
		{"two of four", "500/500 2500/2500 500/500 2500/2500", true, "1 3"},
		{"all alike", "2500/2500 2500/2500", true, ""},
		{"a single rail without a past", "2500/2500", true, ""},
		{"a single rail, and its past", usual + "2500/2500, 2500/2500", false, "0"},
		{"then rounds without a latency", usual + strings.Repeat("-, ", history.UsualRounds) + "2500/2500, 2500/2500",
			false, "0"},
		{"too short a past", "500/500, 2500/2500, 2500/2500", false, ""},
		{"what is uneven does not become usual", usual + strings.Repeat("2500/2500, ", 30) + "2500/2500", false, "0"},
	} {
		p := &history.PastPeer{}
		var res *result.Result
		for round := range strings.SplitSeq(tc.rounds, ", ") {
			fields := strings.Fields(round)
			res = resultOf(len(fields), time.Now())
			for i, f := range fields {
				if f == "-" {
					continue
				}
				var writes [2]time.Duration
				if _, err := fmt.Sscanf(f, "%d/%d", &writes[0], &writes[1]); err != nil {
					t.Fatal(err)
				}
				res.Rails[i].Latency = (*result.Latency)(nil).Add([]time.Duration{writes[0] * 1000, writes[1] * 1000},
					nil)
			}
			p.Note(res, tc.alone)
		}
		var uneven []string
		for _, one := range res.Rails {
			if one.Uneven != nil {
				uneven = append(uneven, one.Rail)
			}
		}
		if got := strings.Join(uneven, " "); got != tc.want || res.Degraded() != (tc.want != "") {
			t.Errorf("%s: uneven %q, want %q", tc.why, got, tc.want)
		}
	}
}

// TestUnevenKind: a latency is compared only with that of rails of the same kind.
func TestUnevenKind(t *testing.T) {
	t.Parallel()
	compute := result.RailKind{Group: rail.Group{Role: rail.Compute, LinkLayer: "Ethernet", Rate: 50e9}}
	slow, storage, software := compute, compute, compute
	slow.Group.Rate, storage.Group.Role, software.Software = 12.5e9, "storage", true
	for _, tc := range []struct {
		why  string
		kind result.RailKind // kind of the last of three rails
		want bool
	}{{"the same", compute, true}, {"another rate", slow, false}, {"another role", storage, false},
		{"a software device", software, false}} {
		res := resultOf(3, time.Now())
		for i, us := range []time.Duration{3, 3, 40} {
			res.Rails[i].Kind = compute
			res.Rails[i].Latency = (*result.Latency)(nil).Add([]time.Duration{us * time.Microsecond}, nil)
		}
		res.Rails[2].Kind = tc.kind
		(&history.PastPeer{}).Note(res, true)
		if (res.Rails[2].Uneven != nil) != tc.want {
			t.Errorf("%s: %+v", tc.why, res.Rails[2].Uneven)
		}
	}
}

// TestUnevenForLong: a longer latency becomes the usual one after some days, until it is short again.
func TestUnevenForLong(t *testing.T) {
	t.Parallel()
	p, start, hour := &history.PastPeer{}, time.Now(), 0
	for _, tc := range []struct {
		why   string
		us    time.Duration // latency of the second rail
		hours int
		want  bool // uneven at the end
	}{
		{"even", 500, 8, false},
		{"longer, for 6 days", 2500, 6 * 24, true},
		{"for 8 days", 2500, 2 * 24, false},
		{"longer still", 9000, 2, true},
		{"as before that", 2500, 2, false},
		{"even again", 500, 2, false},
		{"longer again", 2500, 2, true},
	} {
		var res *result.Result
		for range tc.hours {
			hour++
			res = resultOf(2, start.Add(time.Duration(hour)*time.Hour))
			for i, us := range []time.Duration{500, tc.us} {
				res.Rails[i].Latency = (*result.Latency)(nil).Add([]time.Duration{us * time.Microsecond}, nil)
			}
			p.Note(res, false)
		}
		if (res.Rails[1].Uneven != nil) != tc.want {
			t.Errorf("%s: %+v", tc.why, res.Rails[1].Uneven)
		}
	}
}

// TestRoundUneven: a delay of 20 ms on one rail is found.
func TestRoundUneven(t *testing.T) {
	t.Parallel()
	p := newPair(t, 3, func(_ string, i int, d *fakeverbs.Device) {
		if i == 1 {
			d.Latency = 20 * time.Millisecond
		}
	})
	p.chances(func(res result.Result) bool {
		one := res.Rails[1]
		t.Logf("%s, %+v", res.Outcome, one.Uneven)
		return res.Outcome == result.Degraded && one.Uneven != nil && one.Uneven.Latency > 19*time.Millisecond &&
			one.Uneven.Siblings < 10*time.Millisecond && len(one.Latency.Samples) == p.opts.LatencySamples &&
			slices.IsSorted(one.Latency.Samples) && res.Rails[0].Uneven == nil && res.Rails[2].Uneven == nil
	})
}
