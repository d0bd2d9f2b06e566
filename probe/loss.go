package probe

import (
	"context"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/worker"
)

// When a rail is lossy: at least so many loss events in so many bursts, of this round and of the last ones with the
// peer, at this rate at least, and so many more than several times what its siblings would have lost. Where the peer
// counts what it receives out of sequence or twice, it must have seen some: else the events are of other connections of
// this node, such as those of a job whose peer died. A healthy fabric
// loses less than one packet in 10,000, or loses on all rails; a busy virtual machine retransmits some (TestLossy).
const (
	lossEvents    = 5
	lossBursts    = 2
	lossRate      = 1e-4 // events per packet
	lossSiblings  = 4    // times theirs
	rememberLoss  = 5    // rounds, with the current one
	recentLoss    = 2    // of these, in which there was an event: a path that was repaired is well after them
	packetPayload = 1024 // bytes, where the path MTU is not known
)

// Loss is what the counters at both ends say of packets that were lost on a rail, over the bursts of a round.
type Loss struct {
	Retransmits uint64 // events after which this node retransmits: sequence errors that the peer reported, timeouts
	// PeerEvents are packets that arrived out of sequence, or twice: after one loss all that were in flight. nil: the peer
	// did not report them.
	PeerEvents *uint64
	Packets    int64 // that the rail sent meanwhile, those of others too, if all were of the path MTU
	Bursts     int   // in which there were retransmits
}

// Rate is the part of the packets after which something was sent again.
func (l *Loss) Rate() float64 {
	if l.Packets == 0 {
		return 0
	}
	return float64(l.Retransmits) / float64(l.Packets)
}

// countLoss adds what a reading of the rails' counters shows since the last one: one burst, or several. The first one
// has nothing to be compared with.
func (r *round) countLoss(now map[string]rail.Traffic) {
	before := r.counted
	r.counted = now
	for _, p := range r.paths {
		b, okB := before[p.local.Name]
		a, okA := now[p.local.Name]
		if !okA || !okB || !a.CountsRetransmits || a.Retransmits < b.Retransmits || p.result.Failure != nil {
			continue
		}
		if p.result.Loss == nil {
			p.result.Loss = &Loss{}
		}
		l, n := p.result.Loss, a.Retransmits-b.Retransmits
		if l.Retransmits += n; n > 0 {
			l.Bursts++
		}
		mtu := int64(p.result.PathMTU)
		if mtu == 0 {
			mtu = packetPayload
		}
		p.sent += a.Transmit - min(b.Transmit, a.Transmit)
		l.Packets = max(p.result.Bytes, int64(p.sent)) / mtu
	}
}

// beginLoss makes the first reading.
func (r *round) beginLoss(context.Context) error {
	r.counted = r.node.traffic(r.rails)
	return nil
}

// notePeerLoss keeps what the peer counted of this round.
func (r *round) notePeerLoss(v worker.Verified) {
	for _, p := range r.paths {
		if n, ok := v.Events[p.peerName()]; ok && p.result.Loss != nil {
			p.result.Loss.PeerEvents = &n
		}
	}
}

// repeats are how many packets arrived out of sequence or twice in the session over RDMA, by rail.
func (l *lease) repeats() map[string]uint64 {
	if l.overRDMA.start == nil {
		return nil
	}
	events := map[string]uint64{}
	for name, now := range l.guard.node.traffic(l.guard.rails) {
		if before, ok := l.overRDMA.start[name]; ok && now.CountsRepeats && now.Repeats >= before.Repeats {
			events[name] = now.Repeats - before.Repeats
		}
	}
	return events
}

// lossRound is one round over one rail in the memory of a node.
type lossRound struct {
	events, packets uint32
	bursts          uint8
	unseen          bool // the peer counts such events, and had none
}

// noteLoss adds a round to the memory of a rail.
func (r *pastRail) noteLoss(l *Loss) {
	var now lossRound
	if l != nil {
		now = lossRound{uint32(min(l.Retransmits, 1<<30)), uint32(min(l.Packets, 1<<30)), uint8(min(l.Bursts, 100)),
			l.PeerEvents != nil && *l.PeerEvents == 0}
	}
	copy(r.loss[1:], r.loss[:])
	r.loss[0] = now
}

// sums adds up the rounds that are remembered. seen: the peer had such events as well, or does not count them.
func (r *pastRail) sums() (events, packets float64, bursts int, recent, seen bool) {
	for i, l := range r.loss {
		events, packets = events+float64(l.events), packets+float64(l.packets)
		if l.events > 0 {
			bursts += max(int(l.bursts), 1)
			recent, seen = recent || i < recentLoss, seen || !l.unseen
		}
	}
	return events, packets, bursts, recent, seen
}

// judgeLoss decides which rails are lossy, once the round has been noted.
func (p *pastPeer) judgeLoss(res *Result) {
	for i := range res.Rails {
		one := &res.Rails[i]
		r := p.rail(one.Rail)
		if r == nil || one.Loss == nil {
			continue
		}
		events, packets, bursts, recent, seen := r.sums()
		var others, sent float64
		for j := range p.rails {
			if other := &p.rails[j]; other != r {
				e, n, _, _, _ := other.sums()
				others, sent = others+e, sent+n
			}
		}
		if one.Lossy = recent && seen && events >= lossEvents && bursts >= lossBursts && events >= lossRate*packets &&
			(sent == 0 || events >= lossEvents+lossSiblings*packets*others/sent); one.Lossy {
			one.LossEvents, one.LossPackets = int64(events), int64(packets)
		}
	}
}
