package round

import (
	"math"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/node"
)

// countPorts records what the port of each path counted during a burst. RDMA device counters do not include TCP;
// counters of a physical port and of a software device do.
func (r *Round) countPorts(paths []*Path, before, after map[string]rail.Traffic) {
	for _, p := range paths {
		name := p.Local.Name
		d, ok := node.TrafficBetween(before, after, name)
		if after[name].Physical {
			d, ok = node.PortTraffic(before, after, name)
		} else if p.lane && !p.Local.IsSoftware() {
			continue
		}
		if bytes := d.Out; ok {
			if p.direction() == rail.Receive {
				bytes = d.In
			}
			p.counted = new(int64(bytes))
		}
	}
}

// compareCounters compares what the port counted with what was written.
func (p *Path) compareCounters(before, after map[string]rail.Traffic) {
	d, ok := node.TrafficBetween(before, after, p.Local.Name)
	if !ok || p.Result.Stealing == nil {
		return
	}
	p.Result.CounterBytes = new(int64(d.Out))
	if b, a := before[p.Local.Name], after[p.Local.Name]; a.CountsRetransmits && a.Retransmits >= b.Retransmits {
		p.Result.Retransmits = new(a.Retransmits - b.Retransmits)
	}
	if p.Result.PathMTU > 0 && p.Local.LinkLayer == "Ethernet" && p.Result.Stealing.Moved > 0 {
		wire := node.WireBytes(p.Result.Stealing.Moved, p.Result.PathMTU, p.GID.GID.IPv4())
		p.Result.CounterMismatch = new(max(d.Out/wire-1, 1-d.Out/wire))
	}
}

// othersAbove is the excess over the probe's own bytes, as a fraction, from which a port must have carried traffic
// of others: a smaller excess may be headers of another MTU.
const othersAbove = 0.05

// NoteOthers records what others sent over each port during the striped burst: the counted bytes beyond the
// burst's. It is unknown where packets were lost or the counters are late.
func (r *Round) NoteOthers(before, after map[string]rail.Traffic) {
	for _, p := range r.Paths {
		p.Result.Others = nil // value of an earlier burst
	}
	for port, d := range node.Deltas(r.Rails, before, after) {
		var on []*Path
		own := 0.0
		for _, p := range r.LivePaths() {
			if p.Local.SharedPortKey() != port.SharedPortKey() {
				continue
			}
			on = append(on, p)
			switch mtu := p.Result.PathMTU; {
			case mtu <= 0 || !after[p.Local.Name].CountsRetransmits:
				own = math.Inf(1)
			case p.Local.LinkLayer == "Ethernet":
				own += node.WireBytes(p.Result.Stealing.Moved, mtu, p.GID.GID.IPv4())
			default:
				own += float64(p.Result.Stealing.Moved) * (1 + IbHeader/float64(mtu))
			}
		}
		if rest := d.Out - own; own > 0 && rest > othersAbove*own && !d.Resent && d.Period <= node.SettleTime &&
			d.Seconds > 0 {
			for _, p := range on {
				p.Result.Others = new(rest / d.Seconds / float64(len(on)))
				p.Result.SeenOthers = p.Result.Others
			}
		}
	}
}
