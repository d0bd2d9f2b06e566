package round

import (
	"context"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

const packetPayload = 1024 // bytes, if the path MTU is unknown

// CountLoss adds what the rails' counters show since the last reading: one burst, or several. The first reading is
// the reference.
func (r *Round) CountLoss(now map[string]rail.Traffic) {
	before := r.counted
	r.counted = now
	for _, p := range r.Paths {
		b, okB := before[p.Local.Name]
		a, okA := now[p.Local.Name]
		if !okA || !okB || !a.CountsRetransmits || a.Retransmits < b.Retransmits || !p.live() {
			continue
		}
		if p.Result.Loss == nil {
			p.Result.Loss = &result.Loss{}
		}
		l, n := p.Result.Loss, a.Retransmits-b.Retransmits
		l.Retransmits += n
		if n > 0 {
			l.Bursts++
		}
		mtu := int64(p.Result.PathMTU)
		if mtu == 0 {
			mtu = packetPayload
		}
		p.sent += a.Transmit - min(b.Transmit, a.Transmit)
		l.Packets = max(p.Result.Bytes, int64(p.sent)) / mtu
	}
}

// beginLoss makes the reference reading.
func (r *Round) beginLoss(context.Context) error {
	r.counted = r.Node.Traffic(r.Rails)
	return nil
}

// notePeerLoss records what the peer counted in this round.
func (r *Round) notePeerLoss(v worker.Verified) {
	for _, p := range r.Paths {
		if n, ok := v.Events[p.peerName()]; ok && p.Result.Loss != nil {
			p.Result.Loss.PeerEvents = &n
		}
	}
}
