package node

import (
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/worker"
)

// BurstProgress holds the bytes of a running burst that have completed, by rail. Safe for concurrent use.
type BurstProgress struct {
	loads   []worker.Load
	rails   []LoadRail    // the rail of each load
	updated chan struct{} // holds a token after each call of set

	mu    sync.Mutex // protects all following fields
	bytes []int64
	at    time.Time // time at which bytes was read
}

// LoadRail is what a load moves, and over which rail.
type LoadRail struct {
	Name      string
	Direction int  // rail.Receive or rail.Transmit
	Home      bool // the bytes do not leave this node
}

// NewBurstProgress returns the progress of a burst of these loads, and of the rail of each.
func NewBurstProgress(loads []worker.Load, rails []LoadRail) *BurstProgress {
	return &BurstProgress{loads: loads, rails: rails, updated: make(chan struct{}, 1)}
}

// Set records the bytes that had completed at a moment, and returns their sum.
func (b *BurstProgress) Set(at time.Time, bytes []int64) int64 {
	b.mu.Lock()
	b.bytes, b.at = bytes, at
	b.mu.Unlock()
	select {
	case b.updated <- struct{}{}:
	default:
	}
	return b.Sum()
}

// Sum returns how many bytes of all loads have completed.
func (b *BurstProgress) Sum() (sum int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.bytes {
		sum += n
	}
	return sum
}

// Completed returns how many bytes of a load have completed.
func (b *BurstProgress) Completed(load int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if load >= len(b.bytes) {
		return 0
	}
	return b.bytes[load]
}

// covers reports whether the recorded bytes are from when or later.
func (b *BurstProgress) covers(when time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.at.Before(when)
}

// moved returns an upper bound of the bytes that a rail has carried, by direction: completed and in flight.
func (b *BurstProgress) moved(name string) (bytes [rail.Directions]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, l := range b.loads {
		on := b.rails[i]
		if on.Name != name {
			continue
		}
		n := int64(l.Depth) * l.Chunk
		if i < len(b.bytes) {
			n += b.bytes[i]
		}
		bytes[on.Direction] += n
		if on.Home { // some adapters count loopback traffic
			bytes[rail.Receive] += n
		}
	}
	return bytes
}
