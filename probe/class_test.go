package probe

import (
	"context"
	"testing"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

func TestClass(t *testing.T) {
	jobs := result.Class{TrafficClass: 106, ServiceLevel: 3, Source: "UCX_IB_SL of python (PID 7)"}
	n := node.NewNode(node.Options{Class: func(context.Context) result.Class { return jobs }})
	defer n.Close()
	for _, c := range []struct {
		tc, sl int
		want   result.Class
	}{
		{options.Auto, options.Auto, jobs},
		{104, 0, result.Class{TrafficClass: 104, Source: "configured"}},
		{0, options.Auto, result.Class{ServiceLevel: 3, Source: "configured; service level: UCX_IB_SL of python (PID " +
			"7)"}},
		{options.Auto, 1,
			result.Class{TrafficClass: 106, ServiceLevel: 1, Source: "UCX_IB_SL of python (PID 7); service level: " +
				"configured"}},
	} {
		if got := n.Class(t.Context(), options.Options{TrafficClass: c.tc, ServiceLevel: c.sl}); got != c.want {
			t.Errorf("traffic class %d, service level %d: %+v, want %+v", c.tc, c.sl, got, c.want)
		}
	}
	unknown := node.NewNode(node.Options{})
	defer unknown.Close()
	want := result.Class{Source: "default: processes are not read"}
	if got := unknown.Class(t.Context(), options.DefaultOptions()); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestQueuePairs(t *testing.T) {
	bond := func(own, peers int) *round.Flow {
		return &round.Flow{Local: node.LocalRail{Rail: rail.Rail{Members: own}},
			Peer: &protocol.HelloRail{Members: peers}}
	}
	for _, c := range []struct {
		name       string
		configured int
		paths      []*round.Flow
		want       int
	}{
		{"no rails", options.Auto, nil, 1},
		{"no bond", options.Auto, []*round.Flow{bond(0, 0)}, 1},
		{"a bond here", options.Auto, []*round.Flow{bond(0, 0), bond(2, 0)}, 4},
		{"a bond at the peer", options.Auto, []*round.Flow{bond(0, 3)}, 6},
		{"without a peer", options.Auto, []*round.Flow{{Local: node.LocalRail{Rail: rail.Rail{Members: 2}}}}, 4},
		{"too many", options.Auto, []*round.Flow{bond(0, 64)}, rail.MaxQueuePairs},
		{"configured", 1, []*round.Flow{bond(2, 2)}, 1},
	} {
		if got := round.QueuePairs(c.configured, c.paths); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
