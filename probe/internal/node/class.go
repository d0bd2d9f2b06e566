package node

import (
	"context"

	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Class returns the configured class, with the class of this node's jobs in place of [options.Auto].
func (n *Node) Class(ctx context.Context, o options.Options) result.Class {
	const configured = "configured"
	c := result.Class{Source: configured}
	if o.TrafficClass == options.Auto || o.ServiceLevel == options.Auto {
		c = n.Opts.Class(ctx)
	}
	switch {
	case o.TrafficClass != options.Auto && o.ServiceLevel == options.Auto:
		c.Source = configured + "; service level: " + c.Source
	case o.TrafficClass == options.Auto && o.ServiceLevel != options.Auto:
		c.Source += "; service level: " + configured
	}
	if o.TrafficClass != options.Auto {
		c.TrafficClass = uint8(o.TrafficClass)
	}
	if o.ServiceLevel != options.Auto {
		c.ServiceLevel = uint8(o.ServiceLevel)
	}
	return c
}
