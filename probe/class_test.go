package probe

import (
	"context"
	"testing"

	"github.com/railscope/railscope/internal/rail"
)

func TestClass(t *testing.T) {
	jobs := Class{TrafficClass: 106, ServiceLevel: 3, Source: "UCX_IB_SL of python (PID 7)"}
	n := NewNode(NodeOptions{Class: func(context.Context) Class { return jobs }})
	defer n.Close()
	for _, c := range []struct {
		tc, sl int
		want   Class
	}{
		{Auto, Auto, jobs},
		{104, 0, Class{TrafficClass: 104, Source: "configured"}},
		{0, Auto, Class{ServiceLevel: 3, Source: "configured; service level: UCX_IB_SL of python (PID 7)"}},
		{Auto, 1,
			Class{TrafficClass: 106, ServiceLevel: 1, Source: "UCX_IB_SL of python (PID 7); service level: configured"}},
	} {
		if got := n.class(t.Context(), Options{TrafficClass: c.tc, ServiceLevel: c.sl}); got != c.want {
			t.Errorf("traffic class %d, service level %d: %+v, want %+v", c.tc, c.sl, got, c.want)
		}
	}
	unknown := NewNode(NodeOptions{})
	defer unknown.Close()
	want := Class{Source: "default: processes are not read"}
	if got := unknown.class(t.Context(), DefaultOptions()); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestQueuePairs(t *testing.T) {
	bond := func(own, peers int) *path {
		return &path{local: localRail{Rail: rail.Rail{Members: own}}, peer: &helloRail{Members: peers}}
	}
	for _, c := range []struct {
		name       string
		configured int
		paths      []*path
		want       int
	}{
		{"no rails", Auto, nil, 1},
		{"no bond", Auto, []*path{bond(0, 0)}, 1},
		{"a bond here", Auto, []*path{bond(0, 0), bond(2, 0)}, 4},
		{"a bond at the peer", Auto, []*path{bond(0, 3)}, 6},
		{"without a peer", Auto, []*path{{local: localRail{Rail: rail.Rail{Members: 2}}}}, 4},
		{"too many", Auto, []*path{bond(0, 64)}, rail.MaxQueuePairs},
		{"configured", 1, []*path{bond(2, 2)}, 1},
	} {
		if got := queuePairs(c.configured, c.paths); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
