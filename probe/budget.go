package probe

import (
	"math"
	"sync"
	"time"
)

// budget bounds the bytes that a node asks for, or answers: a bucket that holds one hour's worth and refills evenly. It belongs
// to the node, not to the worker process, so that a restart of that earns
// nothing. Safe for concurrent use.
type budget struct {
	mu      sync.Mutex // protects all following fields
	perHour float64    // bytes; also what the bucket holds
	left    float64
	at      time.Time // when left was right
}

func newBudget(perHour int64) *budget {
	return &budget{perHour: float64(perHour), left: float64(perHour), at: time.Now()}
}

// resize changes the hourly amount; what was used stays used.
func (b *budget) resize(perHour int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	b.left = min(b.left+float64(perHour)-b.perHour, float64(perHour))
	b.perHour = float64(perHour)
}

// take takes n bytes, or none and says when there will be enough.
func (b *budget) take(n int64) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	if missing := float64(n) - b.left; missing > 0 {
		return time.Duration(min(missing/b.perHour*float64(time.Hour), float64(math.MaxInt64/2))), false
	}
	b.left -= float64(n)
	return 0, true
}

// giveBack returns what was taken and not used.
func (b *budget) giveBack(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	b.left = min(b.left+float64(n), b.perHour)
}

// remaining is how many bytes are left now.
func (b *budget) remaining() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	return max(b.left, 0)
}

func (b *budget) refillLocked() {
	now := time.Now()
	b.left = min(b.left+b.perHour*now.Sub(b.at).Hours(), b.perHour)
	b.at = now
}
