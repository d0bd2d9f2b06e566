package round

import (
	"net/netip"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// name returns the path's name in this node's session.
func (p *Path) name() string { return worker.FlowName(p.Local.Name, p.Op, p.flow) }

// peerName returns the path's name in the peer's session.
func (p *Path) peerName() string {
	if p.Peer != nil {
		return worker.FlowName(p.Peer.Name, p.Op, p.flow)
	}
	return p.name()
}

// direction returns the direction of the payload on this node's rail: receive for reads, transmit for writes.
func (p *Path) direction() int {
	if p.Op == worker.Read {
		return rail.Receive
	}
	return rail.Transmit
}

// rate returns the expected rate of the path, in bytes per second.
func (p *Path) rate() float64 {
	if p.Result.Capacity != nil {
		return *p.Result.Capacity
	}
	return unknownRate
}

// rtt returns the shortest round trip of a small write over the path; 0: not measured.
func (p *Path) rtt() time.Duration {
	if p.Result.Latency == nil {
		return 0
	}
	return p.Result.Latency.Samples[0]
}

// QueuePairs returns the number of queue pairs per pair of rails: the configured one, else two per member of a
// bond, because all packets of one queue pair take the same member.
func QueuePairs(configured int, paths []*Path) int {
	if configured != options.Auto {
		return configured
	}
	pairs := 1
	for _, p := range paths {
		pairs = max(pairs, 2*p.Local.Members)
		if p.Peer != nil {
			pairs = max(pairs, 2*p.Peer.Members)
		}
	}
	return min(pairs, rail.MaxQueuePairs)
}

// Expectation returns the expected rate of the path, the lower of both ends, or nil. The present capacity of the
// peer does not lower a rate that is configured here, because it may be the fault.
func (p *Path) Expectation() *float64 {
	ours := p.Local.Expected
	switch theirs := p.Peer.Expected; {
	case ours == 0:
		return nil
	case theirs > 0:
		ours = min(ours, theirs)
	case p.Local.Source == expect.Configured:
	case p.Peer.Software:
		return nil
	case p.Peer.Capacity > 0:
		ours = min(ours, p.Peer.Capacity)
	}
	return &ours
}

// PairRails returns, for each of this node's rails, the index of the peer's rail that it is measured with; see
// [rail.Pairs].
func PairRails(own []node.LocalRail, peers []protocol.HelloRail) []int {
	return rail.Pairs(len(own), len(peers),
		func(i, j int) bool { return own[i].Name == peers[j].Name },
		func(i, j int) bool { return node.SharedPrefix(own[i].Prefixes, peers[j].Prefixes).IsValid() })
}

// live reports whether the path takes part in the transfer: it has a partner and has not failed.
func (p *Path) live() bool { return p.Result.Failure == nil && !p.Result.Unpaired }

// Path is one of this node's rails with its partner at the peer or, in an extra, one flow over them.
type Path struct {
	Op   worker.Op // empty: it writes
	flow int       // index of its first flow label
	lane bool      // a TCP path
	home bool      // both ends are on this node, and peer is not used: see loopback

	stamps bool // the adapter stamps completions: for latencies only

	Local  node.LocalRail
	Peer   *protocol.HelloRail // nil: none
	GID    rail.Choice
	Own    []protocol.HelloGID // this node's GIDs, when last examined
	end    worker.End          // this node's end, once opened
	Theirs netip.Addr          // GID of the peer's end, once opened
	Gone   bool                // the peer has lost this rail

	slowerSolo float64 // lower of two solo rates, in bytes per second; 0: measured once
	counted    *int64  // bytes counted by the port during the last burst, in an interactive round; nil: unknown
	sent       uint64  // bytes that the rail sent while loss was counted
	connected  bool    // connected, and not stopped at the target
	Result     *result.RailResult
}
