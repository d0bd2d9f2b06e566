package probetest

import (
	"fmt"
	"testing"

	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

// Fleet is several nodes on one fake fabric, for processes that a test starts itself.
type Fleet struct{ fabric *fakeverbs.Fabric }

// NewFleet returns a fleet of nodes with Rails rails each. rate returns what a rail carries, in bytes per second.
// Without C the test is skipped.
func NewFleet(tb testing.TB, nodes int, rate func(node, rail int) uint64) *Fleet {
	tb.Helper()
	f := &Fleet{fakeverbs.New(tb)}
	for node := range nodes {
		for i := range Rails {
			d := fakeverbs.Device{Name: device(i), Netdev: netdev(i), PortRate: "2.5 Gb/sec (1X SDR)",
				GIDs: fakeverbs.RoCE(fmt.Sprintf("127.7.%d.%d", i, node+1)), Firmware: "28.39.1002"}
			d.Rate = rate(node, i)
			f.fabric.Add(f.name(node), d)
		}
	}
	return f
}

func (f *Fleet) name(node int) string { return fmt.Sprintf("node-%d", node) }

// Env returns the environment of a railscope on a node.
func (f *Fleet) Env(node int) []string {
	return append(f.fabric.Env(f.name(node)), "RAILSCOPE_PATH_SYSFS="+f.fabric.Sysfs(f.name(node)))
}

// Left returns what is left on the fabric.
func (f *Fleet) Left() []string { return f.fabric.Left() }
