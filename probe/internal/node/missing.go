package node

import (
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
)

// Missing returns the rails that this node had and has lost.
func (n *Node) Missing() []rail.Missing {
	if n.Opts.Missing == nil {
		return nil
	}
	list := n.Opts.Missing()
	return list[:min(len(list), worker.MaxRails)]
}

func (n *Node) helloMissing() (list []protocol.HelloMissing) {
	if n.Opts.Missing != nil {
		list = []protocol.HelloMissing{} // an empty list is a valid answer
	}
	for _, m := range n.Missing() {
		list = append(list, protocol.HelloMissing{Name: m.Name, Device: m.Device})
	}
	return list
}

// Role returns the last known role of a rail; empty: it was not present since the start.
func (n *Node) Role(name string) string {
	n.railsMu.Lock()
	defer n.railsMu.Unlock()
	return n.Roles[name]
}
