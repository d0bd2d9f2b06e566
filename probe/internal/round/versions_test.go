package round

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/result"
)

// TestAllVersions: firmware that only one end knows is a version too, equal pairs are listed once, and a rail whose
// firmware nobody knows is not listed.
func TestAllVersions(t *testing.T) {
	flow := func(here, there string) *Flow {
		return &Flow{Local: node.LocalRail{Rail: rail.Rail{Firmware: here}}, Peer: &protocol.HelloRail{Firmware: there}}
	}
	versions := protocol.Versions{Railscope: "1.2.3", Kernel: "6.1.0", RDMACore: "44.0"}
	got := allVersions(versions, protocol.Versions{}, []*Flow{flow("", ""), flow("28.39", "28.39"),
		flow("28.39", "28.39"), flow("28.39", ""), flow("", "28.39"),
		{Local: node.LocalRail{Rail: rail.Rail{Firmware: "16.1"}}}})
	want := []result.Mismatch{{Component: "railscope", Here: "1.2.3"}, {Component: "kernel", Here: "6.1.0"},
		{Component: "rdma-core", Here: "44.0"}, {Component: "firmware", Here: "28.39", There: "28.39"},
		{Component: "firmware", Here: "28.39"}, {Component: "firmware", There: "28.39"},
		{Component: "firmware", Here: "16.1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
