package probe

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/result"
)

// TestRoundByRDMA: a full round over two equal rails measures and verifies everything by RDMA, and leaves nothing
// behind.
func TestRoundByRDMA(t *testing.T) {
	p := newPair(t, 2, nil)
	res := p.round()
	t.Logf("%+v", res)
	if os.Getenv(otherWorker) != "" && res.Reason == failure.Disturbed && res.Verified {
		t.Skip("an emulated thread did not poll in time: the bytes were verified, and there is no figure")
	}
	if res.Outcome != result.OK || res.Transport != result.RDMA || res.Reason != "" || !res.Verified ||
		len(res.Failures) != 0 {
		t.Fatalf("outcome %s by %s, reason %q, verified %v, failures %v", res.Outcome, res.Transport, res.Reason,
			res.Verified, res.Failures)
	}
	if res.PeerNode != "b" || res.Peer != p.peer {
		t.Errorf("peer %s calls itself %q", res.Peer, res.PeerNode)
	}
	for what, v := range map[string]*float64{"stealing": res.Striped, "static": res.Static, "imbalance": res.Imbalance,
		"scaling": res.Scaling, "skew": res.FinishSkew} {
		if v == nil {
			t.Errorf("%s was not measured", what)
		}
	}
	for i, r := range res.Rails {
		if r.PeerRail != r.Rail || r.PathMTU != 4096 || r.GIDIndex != 3 || r.GID != address4("a",
			i) || r.Latency == nil || len(r.Latency.Samples) != 20 || r.Solo == nil || r.Striped == nil ||
			r.Bytes < r.Solo.Bytes+r.Striped.Bytes {
			t.Errorf("rail %d: %+v", i, r)
		}
		if r.CounterMismatch == nil || *r.CounterMismatch > 0.01 {
			t.Errorf("rail %d: counters moved by %v", i, r.CounterBytes)
		}
	}
}

// TestBaselines: a full round measures TCP with one and with four streams per rail, for comparison.
func TestBaselines(t *testing.T) {
	res := newPair(t, 2, nil).round()
	if len(res.TCP) != 2 || res.TCP[0].Streams != 1 || res.TCP[1].Streams != 4 || res.Speedup == nil {
		t.Errorf("%+v, speed-up %v of %+v", res.TCP, res.Speedup, res)
	}
}

// TestRoundFallsBack: when RDMA fails on all rails, the round uses TCP and reports stage and reason. Faults are in
// the library, on the wire and in the devices, on either node.
func TestRoundFallsBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why    string
		node   string // node whose devices have the fault
		fault  func(d *fakeverbs.Device)
		stage  failure.Stage
		reason failure.Reason
	}{
		{"ib_uverbs is not loaded", "a", func(d *fakeverbs.Device) {
			d.ListErrno = uint64(syscall.ENOSYS)
		}, failure.StageOpen, failure.NoUverbs},
		{"the provider is missing", "a", func(d *fakeverbs.Device) { d.Hidden = true }, failure.StageOpen,
			failure.NoProvider},
		{"no permission for the device", "a", func(d *fakeverbs.Device) {
			d.OpenErrno = uint64(syscall.EACCES)
		}, failure.StageOpen, failure.DevPerm},
		{"the device node is missing", "a", func(d *fakeverbs.Device) {
			d.OpenErrno = uint64(syscall.ENOENT)
		}, failure.StageOpen, failure.DevPerm},
		{"too little locked memory for the buffer", "a", func(d *fakeverbs.Device) {
			d.RegMRErrno = uint64(syscall.ENOMEM)
		}, failure.StageOpen, failure.Memlock},
		{"too little locked memory for a queue", "a", func(d *fakeverbs.Device) {
			d.CreateCQErrno = uint64(syscall.ENOMEM)
		}, failure.StageOpen, failure.Memlock},
		{"too little locked memory for a queue pair", "a", func(d *fakeverbs.Device) {
			d.CreateQPErrno = uint64(syscall.ENOMEM)
		}, failure.StageOpen, failure.Memlock},
		{"the port is down here", "a", func(d *fakeverbs.Device) { d.Down = true }, failure.StageOpen,
			failure.PortDown},
		{"the port is down there", "b", func(d *fakeverbs.Device) { d.Down = true }, failure.StageOpen,
			failure.PortDown},
		{"no GID", "a", func(d *fakeverbs.Device) { d.GIDs = nil }, failure.StageOpen, failure.NoGID},
		{"no GID there", "b", func(d *fakeverbs.Device) { d.GIDs = nil }, failure.StageOpen, failure.PeerGID},
		{"no permission there", "b", func(d *fakeverbs.Device) {
			d.OpenErrno = uint64(syscall.EPERM)
		}, failure.StageOpen, failure.DevPerm},
		{"RTR is refused", "a", func(d *fakeverbs.Device) {
			d.RTRErrno = uint64(syscall.EINVAL)
		}, failure.StageConnect, failure.RTREinval},
		{"RTR is refused there", "b", func(d *fakeverbs.Device) {
			d.RTRErrno = uint64(syscall.EINVAL)
		}, failure.StageConnect, failure.RTREinval},
		{"nobody answers ARP", "a", func(d *fakeverbs.Device) {
			d.RTRErrno = uint64(syscall.ETIMEDOUT)
		}, failure.StageConnect, failure.RTRUnreachable},
		{"no route", "a", func(d *fakeverbs.Device) {
			d.RTRErrno = uint64(syscall.ENETUNREACH)
		}, failure.StageConnect, failure.RTRNoRoute},
		{"nothing gets through", "b", func(d *fakeverbs.Device) { d.Blocked = true }, failure.StageReach,
			failure.RetryExceeded},
		{"full packets do not get through", "a", func(d *fakeverbs.Device) { d.DropLarger = 1500 }, failure.StageMTU,
			failure.MTUBlackHole},
		{"the peer refuses access", "a", func(d *fakeverbs.Device) {
			d.FailEvery, d.FailStatus = 1, 10
		}, failure.StageReach, failure.RemoteAccess},
		{"the device refuses its own memory", "a", func(d *fakeverbs.Device) {
			d.FailEvery, d.FailStatus = 1, 4
		}, failure.StageReach, failure.LocalProt},
		{"the peer is not ready", "a", func(d *fakeverbs.Device) {
			d.FailEvery, d.FailStatus = 1, 13
		}, failure.StageReach, failure.RNR},
		{"the device broke", "a", func(d *fakeverbs.Device) {
			d.FailEvery, d.FailStatus = 1, 19
		}, failure.StageReach, failure.DeviceFatal},
		{"the provider crashes", "a", func(d *fakeverbs.Device) { d.CrashAt = 1 }, failure.StageReach,
			failure.WorkerCrashed},
		{"the provider crashes in the middle", "a", func(d *fakeverbs.Device) { d.CrashAt = 55 }, failure.StageSolo,
			failure.WorkerCrashed},
		{"nothing ever completes", "a", func(d *fakeverbs.Device) { d.HangPoll = true }, failure.StageReach,
			failure.Timeout},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, func(node string, _ int, d *fakeverbs.Device) {
				if node == tc.node {
					tc.fault(d)
				}
			})
			res := p.round()
			// If the machine is too busy for a few writes within 200 ms, TCP has no figure.
			if res.Outcome != result.Fallback || res.Transport != result.TCP || res.Reason != tc.reason ||
				!res.Verified ||
				res.Bytes == 0 || len(res.TCP) > 1 || len(res.TCP) == 1 && res.TCP[0].BytesPerSecond <= 0 {
				t.Fatalf("%s by %s because of %q (%s), verified %v, TCP %+v, failures %v", res.Outcome, res.Transport,
					res.Reason, res.Detail, res.Verified, res.TCP, res.Failures)
			}
			if f := res.Failures[0]; f.Stage != tc.stage || f.Reason != tc.reason {
				t.Errorf("first failure %v, want %s: %s", f, tc.stage, tc.reason)
			}
			if res.Striped != nil || res.Imbalance != nil {
				t.Errorf("figures of RDMA where there was none: %+v", res)
			}
			if !strings.Contains(res.Detail, " ") {
				t.Errorf("the detail is no sentence: %q", res.Detail)
			}
		})
	}
}

// TestRoundSurvivesProvider: a provider that hangs costs one round. The worker is killed, and the next round has a
// new one.
func TestRoundSurvivesProvider(t *testing.T) {
	t.Parallel()
	p := impatientPair(t)
	p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.HangOpen = true })
	res := p.round()
	if res.Outcome != result.Fallback || res.Reason != failure.WorkerTimeout || p.a.Worker.Restarts() != 1 {
		t.Fatalf("%s because of %q (%s), %d restarts", res.Outcome, res.Reason, res.Detail, p.a.Worker.Restarts())
	}
	// On a very busy machine, the first back-off is already over.
	soon := res.Duration < 10800*time.Millisecond
	res = p.round()
	if soon && (res.Outcome != result.Fallback || res.Reason != failure.WorkerBackoff) {
		t.Fatalf("right after: %s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
	}
	p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.HangOpen = false })
	for deadline := time.Now().Add(20 * time.Second); res.Outcome != result.OK && time.Now().Before(deadline); {
		res = p.round()
	}
	if res.Outcome != result.OK {
		t.Errorf("when the provider is well again: %s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
	}
}

// TestRoundOfOneRail: one rail's failure does not stop the round, which is still by RDMA and reports it.
func TestRoundOfOneRail(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why    string
		fault  func(d *fakeverbs.Device) // fault of the asker's rail 1
		stage  failure.Stage
		reason failure.Reason
	}{
		{"down", func(d *fakeverbs.Device) { d.Down = true }, failure.StageOpen, failure.PortDown},
		{"blocked", func(d *fakeverbs.Device) { d.Blocked = true }, failure.StageReach, failure.RetryExceeded},
		{"breaks in the middle", func(d *fakeverbs.Device) { d.DropAfter = 20 << 20 }, failure.StageStriped,
			failure.RetryExceeded},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, func(node string, i int, d *fakeverbs.Device) {
				if node == "a" && i == 1 {
					tc.fault(d)
				}
			})
			res := p.round()
			if res.Outcome != result.Degraded || res.Transport != result.RDMA || !res.Verified || res.Striped == nil ||
				res.Reason != "" {
				t.Fatalf("%s by %s because of %q (%s), failures %v", res.Outcome, res.Transport, res.Reason, res.Detail,
					res.Failures)
			}
			// A disturbed solo burst is repeated, and may already break the rail.
			if f := res.Rails[1].Failure; f == nil || f.Reason != tc.reason || f.Rail != "1" ||
				f.Stage != tc.stage && (tc.stage != failure.StageStriped || f.Stage != failure.StageSolo) {
				t.Errorf("rail 1: %v, want %s: %s", f, tc.stage, tc.reason)
			}
			if res.Rails[0].Failure != nil || res.Imbalance == nil || *res.Imbalance != 1 {
				t.Errorf("rail 0 %v, imbalance %v", res.Rails[0].Failure, res.Imbalance)
			}
		})
	}
}

// TestRoundImbalance: a rail at 1/3 of the rate shows in the striped figures, and does not slow the other rail.
func TestRoundImbalance(t *testing.T) {
	p := newPair(t, 2, func(_ string, i int, d *fakeverbs.Device) {
		d.Rate = 15e6
		if i == 1 {
			d.Rate = 5e6
		}
	})
	p.chances(func(res result.Result) bool {
		if res.Outcome != result.OK || res.Striped == nil || res.Static == nil || res.Scaling == nil {
			t.Fatalf("%s because of %q (%s), %+v", res.Outcome, res.Reason, res.Detail, res)
		}
		t.Logf("stealing %.1f MB/s of 20, static %.1f, skew %.3f, imbalance %.3f, scaling %.3f", *res.Striped/1e6,
			*res.Static/1e6, *res.FinishSkew, *res.Imbalance, *res.Scaling)
		return *res.Imbalance > 0.5 && *res.Imbalance < 0.8 && *res.FinishSkew > 0.5 && *res.Static < *res.Striped*0.7
	})
}

// chances repeats rounds until one is good: rates are measured, and a busy machine may disturb a round.
func (p *pairOfNodes) chances(good func(result.Result) bool) {
	p.t.Helper()
	for range 5 {
		if good(p.round()) {
			return
		}
	}
	p.t.Error("no round of five is as it should be")
}

// TestRoundSharedBottleneck: two rails on one link scale badly, and the link is named.
func TestRoundSharedBottleneck(t *testing.T) {
	p := newPair(t, 2, func(_ string, i int, d *fakeverbs.Device) {
		d.Rate, d.Group, d.PCIAddress = 60e6, 1, fmt.Sprintf("0000:01:00.%d", i)
	})
	p.chances(func(res result.Result) bool {
		if res.Outcome != result.OK || res.Scaling == nil {
			t.Fatalf("%s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
		}
		t.Logf("scaling %.3f, shared %+v", *res.Scaling, res.Shared)
		return *res.Scaling < 0.7 && *res.Scaling > 0.3 && len(res.Shared) == 1 &&
			res.Shared[0].What == "PCIe link 0000:01:00" && len(res.Shared[0].Rails) == 2
	})
}

// TestRoundDataMismatch: one corrupt byte fails the round, because TCP would not fix it.
func TestRoundDataMismatch(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.Corrupt = 200 })
	res := p.round()
	if res.Outcome != result.Failed || res.Reason != failure.DataMismatch || res.Verified ||
		res.Failures[len(res.Failures)-
			1].Stage != failure.StageVerify {
		t.Errorf("%s because of %q (%s), verified %v, %v", res.Outcome, res.Reason, res.Detail, res.Verified,
			res.Failures)
	}
}
