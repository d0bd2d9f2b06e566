package node

import (
	"fmt"
	"maps"
	"sync"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/protocol"
)

// OwnTraffic counts the bytes that the probe's own transfers put on the wire, by [rail.Key]. Safe for concurrent
// use.
type OwnTraffic struct {
	mu    sync.Mutex // protects rails
	rails OwnBytes
}

// OwnBytes are bytes on the wire by [rail.Key].
type OwnBytes map[string]OwnRail

// OwnRail holds the bytes of one rail, in the directions of [rail.Directions].
type OwnRail struct {
	All [rail.Directions]uint64 `json:"all"`
	TCP [rail.Directions]uint64 `json:"tcp"` // bytes over TCP, included in the total
}

// Add records payload that was written over a rail, in packets of this MTU; 0: unknown.
func (o *OwnTraffic) Add(r rail.Rail, direction int, payload int64, mtu int, overTCP bool) {
	if payload <= 0 || r.Device == "" {
		return
	}
	if mtu <= 0 {
		mtu = 4096
	}
	var sum OwnRail
	sum.All[direction] = uint64(WireBytes(payload, mtu, true))
	if overTCP {
		sum.TCP = sum.All
	}
	o.addWire(r.Key(), sum)
}

// addWire records bytes on the wire of a rail.
func (o *OwnTraffic) addWire(key string, more OwnRail) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rails == nil {
		o.rails = OwnBytes{}
	}
	sum := o.rails[key]
	for d := range rail.Directions {
		sum.All[d] += more.All[d]
		sum.TCP[d] += more.TCP[d]
	}
	o.rails[key] = sum
}

// OwnTraffic returns the bytes that the probe's own transfers, asked and answered, have put on a rail's wire since
// the start. settled is false during a transfer, whose bytes are not yet counted. It does not block.
func (n *Node) OwnTraffic(r rail.Rail) (bytes [rail.Directions]uint64, settled bool) {
	settled = n.Slot.Holder() == ""
	n.Own.mu.Lock()
	defer n.Own.mu.Unlock()
	return n.Own.rails[r.Key()].All, settled
}

// AllOwnTraffic returns [Node.OwnTraffic] of all rails that carried some. It does not block.
func (n *Node) AllOwnTraffic() OwnBytes {
	n.Own.mu.Lock()
	defer n.Own.mu.Unlock()
	return maps.Clone(n.Own.rails)
}

// AddOwn adds the bytes of a measurement by another process of this node.
func (n *Node) AddOwn(own OwnBytes) error {
	rails, _ := n.Opts.Rails() // rails that cannot be read are left out
	keys := map[string]bool{}
	for _, r := range rails {
		keys[r.Key()] = true
	}
	var payload uint64
	for key, sum := range own {
		if !keys[key] {
			return fmt.Errorf("%.80q is no rail of this node", key)
		}
		for d, bytes := range sum.All {
			if bytes > protocol.MaxWritten || sum.TCP[d] > bytes {
				return fmt.Errorf("%d bytes over %s, %d of them over TCP", bytes, key, sum.TCP[d])
			}
		}
		payload += max(sum.All[rail.Transmit], sum.All[rail.Receive])
	}
	for key, sum := range own {
		n.Own.addWire(key, sum)
	}
	n.Recent.Add(int64(payload))
	return nil
}
