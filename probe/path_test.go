package probe

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// connectedAs runs one round, and returns the queue pairs of both ends as connected in it.
func (p *pairOfNodes) connectedAs() (res result.Result, asker, target []fakeverbs.QueuePair) {
	p.t.Helper()
	var once sync.Once
	res = Bench(p.t.Context(), p.a, p.opts, p.peer, func(now result.Progress) {
		if now.Stage == failure.StageLatency {
			once.Do(func() {
				asker, target = p.fabric.QueuePairs("a", "mlx5_0"), p.fabric.QueuePairs("b", "mlx5_0")
			})
		}
	})
	p.clean()
	return res, asker, target
}

// TestRoundClass: both ends use the class of the asker's jobs, and the same path in each round.
func TestRoundClass(t *testing.T) {
	p := newPair(t, 1, nil)
	jobs := result.Class{TrafficClass: 106, ServiceLevel: 3, Source: "NCCL_IB_TC of python (PID 7)"}
	p.a.Opts.Class = func(context.Context) result.Class { return jobs }
	p.opts.QueuePairs = 2
	res, asker, target := p.connectedAs()
	if res.Outcome != result.OK || res.Class != jobs {
		t.Fatalf("%+v", res)
	}
	for _, q := range append(slices.Clone(asker), target...) {
		if q.TrafficClass != 106 || q.ServiceLevel != 3 || q.FlowLabel == 0 {
			t.Errorf("%+v", q)
		}
	}
	if len(asker) != 2 || len(target) != 2 {
		t.Errorf("%d and %d queue pairs", len(asker), len(target))
	}
	again, asker2, target2 := p.connectedAs()
	if again.Outcome != result.OK || !slices.Equal(asker, asker2) || !slices.Equal(target, target2) {
		t.Errorf("first %+v and %+v, then %+v and %+v", asker, target, asker2, target2)
	}
}

// TestPathBounds: a peer's claims about its path are limited.
func TestPathBounds(t *testing.T) {
	for i := range 300 {
		open := protocol.OpenRequest{Transport: worker.RDMA, Buffer: 4096, Depth: 1, QueuePairs: 1,
			ServiceLevel: uint8(i), Rails: []protocol.OpenRail{{Rail: "0"}}}
		if err := open.Check(); (err == nil) != (uint8(i) <= 15) {
			t.Errorf("service level %d: %v", uint8(i), err)
		}
		open = protocol.OpenRequest{Transport: worker.RDMA, Buffer: 4096, Depth: 1, QueuePairs: i - 1,
			Rails: []protocol.OpenRail{{Rail: "0"}}}
		if err := open.Check(); (err == nil) != (i > 1 && i-1 <= rail.MaxQueuePairs) {
			t.Errorf("%d queue pairs: %v", i-1, err)
		}
		if err := protocol.CheckEnd(worker.End{AckDelay: uint8(i)}, 1); (err == nil) != (uint8(i) <= 31) {
			t.Errorf("acknowledgement delay %d: %v", uint8(i), err)
		}
		h := protocol.Hello{Node: "a", Instance: "b", Rails: []protocol.HelloRail{{Name: "0", Port: 1, Members: i - 1}}}
		if err := h.Check(); (err == nil) != (i > 0 && i-1 <= worker.MaxRails) {
			t.Errorf("%d members: %v", i-1, err)
		}
	}
}

// TestRetryCountDocumented: the documentation has the retry count of queue pairs.
func TestRetryCountDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/probe.md")
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("retry count %d,", round.RetryCount); !strings.Contains(string(page), text) {
		t.Errorf("docs/probe.md does not have %q", text)
	}
}

// TestRoundHardware: a device that cannot be probed, at either end, causes a fallback with that reason.
func TestRoundHardware(t *testing.T) {
	for _, c := range []struct {
		name, node string
		change     func(*fakeverbs.Device)
		pkey       uint16
		want       result.Reason
		says       string
	}{
		{"EFA here", "a", func(d *fakeverbs.Device) { d.CreateQPErrno = uint64(syscall.EOPNOTSUPP) }, 0, failure.NoRC,
			"no RC queue pairs"},
		{"EFA there", "b", func(d *fakeverbs.Device) { d.CreateQPErrno = uint64(syscall.EOPNOTSUPP) }, 0, failure.NoRC,
			"on the peer: "},
		{"iWARP here", "a", func(d *fakeverbs.Device) { d.IWARP = true }, 0, failure.IWARP, "mlx5_0 is an iWARP device"},
		{"iWARP there", "b", func(d *fakeverbs.Device) { d.IWARP = true }, 0, failure.IWARP, "on the peer: "},
		{"no such partition", "b", func(d *fakeverbs.Device) { d.InfiniBand = true }, 0x8001, failure.PKey,
			"compare probe.pkey"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, 1, func(node string, _ int, d *fakeverbs.Device) {
				if node == c.node {
					c.change(d)
				}
			})
			p.opts.PKey = c.pkey
			res := p.round()
			if res.Outcome != result.Fallback || res.Reason != c.want || !strings.Contains(res.Detail, c.says) {
				t.Errorf("%s, %s: %s; want %s with %q", res.Outcome, res.Reason, res.Detail, c.want, c.says)
			}
		})
	}
}
