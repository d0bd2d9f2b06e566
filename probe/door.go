package probe

import (
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/result"
)

// The node on which the probe runs.
type (
	// Node is this machine as the probe sees it.
	Node = node.Node
	// NodeOptions are what a Node depends on.
	NodeOptions = node.Options
	// OwnBytes are bytes that the probe itself moved.
	OwnBytes = node.OwnBytes
	// Simulation is a network of sockets on this machine in place of RDMA.
	Simulation = node.Simulation
)

// NewNode returns the node that both roles of a round share. Close it.
func NewNode(opts NodeOptions) *Node { return node.NewNode(opts) }

// CheckExtras refuses what no round can measure.
func CheckExtras(list []result.Extra) error { return round.CheckExtras(list) }

// WorkerMain runs a worker until its standard input ends, and returns its exit code.
func WorkerMain() int { return node.WorkerMain() }
