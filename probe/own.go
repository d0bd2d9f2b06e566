package probe

import (
	"sync"

	"github.com/railscope/railscope/internal/rail"
)

// ownTraffic is what the probe's own transfers put on the wire, by [rail.Key]. Safe for concurrent use.
type ownTraffic struct {
	mu    sync.Mutex // protects rails
	rails map[string]*[rail.Directions]uint64
}

// add adds payload that was written over a rail, in packets of this MTU; 0: not known.
func (o *ownTraffic) add(r rail.Rail, direction int, payload int64, mtu int) {
	if payload <= 0 || r.Device == "" {
		return
	}
	if mtu <= 0 {
		mtu = 4096
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rails == nil {
		o.rails = map[string]*[rail.Directions]uint64{}
	}
	sum := o.rails[r.Key()]
	if sum == nil {
		sum = &[rail.Directions]uint64{}
		o.rails[r.Key()] = sum
	}
	sum[direction] += uint64(wireBytes(payload, mtu, true))
}

// OwnTraffic returns how many bytes the probe's own transfers have put on a rail's wire since the start, asked and
// answered ones. settled is false while one is under way, whose bytes are not counted yet. It does not block.
func (n *Node) OwnTraffic(r rail.Rail) (bytes [rail.Directions]uint64, settled bool) {
	settled = n.slot.holder() == ""
	n.own.mu.Lock()
	defer n.own.mu.Unlock()
	if sum := n.own.rails[r.Key()]; sum != nil {
		bytes = *sum
	}
	return bytes, settled
}
