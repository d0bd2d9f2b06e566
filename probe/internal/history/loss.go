package history

import (
	"github.com/railscope/railscope/probe/result"
)

const lossEvents = 5

const lossBursts = 2

const lossSiblings = 4 // multiple of the siblings' loss

const rememberLoss = 5 // rounds remembered, with the current one

const recentLoss = 2 // newest rounds with at least one event: a repaired path is healthy after them

// lossRound is the loss of one rail in one round, as a node remembers it.
type lossRound struct {
	events, packets uint32
	bursts          uint8
	unseen          bool // the peer counts loss events and had none
}

// noteLoss adds a round to the memory of a rail.
func (r *PastRail) noteLoss(l *result.Loss) {
	var now lossRound
	if l != nil {
		now = lossRound{uint32(min(l.Retransmits, 1<<30)), uint32(min(l.Packets, 1<<30)), uint8(min(l.Bursts, 100)),
			l.PeerEvents != nil && *l.PeerEvents == 0}
	}
	copy(r.loss[1:], r.loss[:])
	r.loss[0] = now
}

// sums adds up the remembered rounds. seen: the peer had loss events as well, or does not count them.
func (r *PastRail) sums() (events, packets float64, bursts int, recent, seen bool) {
	for i, l := range r.loss {
		events, packets = events+float64(l.events), packets+float64(l.packets)
		if l.events > 0 {
			bursts += max(int(l.bursts), 1)
			recent, seen = recent || i < recentLoss, seen || !l.unseen
		}
	}
	return events, packets, bursts, recent, seen
}

// judgeLoss decides which rails are lossy, after the round has been noted.
func (p *PastPeer) judgeLoss(res *result.Result) {
	for i := range res.Rails {
		rail := &res.Rails[i]
		r := p.Rail(rail.Rail)
		if r == nil || rail.Loss == nil {
			continue
		}
		events, packets, bursts, recent, seen := r.sums()
		var others, sent float64
		for j := range p.Rails {
			if other := &p.Rails[j]; other != r {
				e, n, _, _, _ := other.sums()
				others, sent = others+e, sent+n
			}
		}
		rail.Lossy = recent && seen && events >= lossEvents && bursts >= lossBursts &&
			events >= result.LossAbove*packets &&
			(sent == 0 || events >= lossEvents+lossSiblings*packets*others/sent)
		if rail.Lossy {
			rail.LossEvents, rail.LossPackets = int64(events), int64(packets)
		}
	}
}
