package probe

import (
	"context"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/trafficclass"
)

// Auto stands for an option that the round finds.
const Auto = -1

// Class is which queues of switches and adapters RDMA packets of a round used.
type Class = trafficclass.Choice

// class returns the configured class, with what the jobs of this node use in place of [Auto].
func (n *Node) class(ctx context.Context, o Options) Class {
	const configured = "configured"
	c := Class{Source: configured}
	if o.TrafficClass == Auto || o.ServiceLevel == Auto {
		c = n.opts.Class(ctx)
	}
	switch {
	case o.TrafficClass != Auto && o.ServiceLevel == Auto:
		c.Source = configured + "; service level: " + c.Source
	case o.TrafficClass == Auto && o.ServiceLevel != Auto:
		c.Source += "; service level: " + configured
	}
	if o.TrafficClass != Auto {
		c.TrafficClass = uint8(o.TrafficClass)
	}
	if o.ServiceLevel != Auto {
		c.ServiceLevel = uint8(o.ServiceLevel)
	}
	return c
}

// queuePairs returns how many connect each pair of rails: as configured, else two for each member of a bond, of which
// all packets of one queue pair take the same.
func queuePairs(configured int, paths []*path) int {
	if configured != Auto {
		return configured
	}
	pairs := 1
	for _, p := range paths {
		pairs = max(pairs, 2*p.local.Members)
		if p.peer != nil {
			pairs = max(pairs, 2*p.peer.Members)
		}
	}
	return min(pairs, rail.MaxQueuePairs)
}
