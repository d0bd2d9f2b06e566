package probe

import (
	"math"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/worker"
)

// budget bounds the bytes that a node asks for, or answers: a bucket that holds one hour's worth and refills evenly.
// What was used beyond what was taken is debt: nothing is taken until it is refilled. It belongs to the node, not to
// the worker process, so that a restart of that earns nothing. Safe for concurrent use.
type budget struct {
	mu         sync.Mutex // protects all following fields
	perHour    float64    // bytes; also what the bucket holds, and the most that can be owed
	balance    float64    // negative: debt
	refillRate float64    // bytes per hour at which debt is refilled: perHour, or more where that was lowered
	updated    time.Time  // when left was right
}

func newBudget(perHour int64) *budget {
	return &budget{perHour: float64(perHour), balance: float64(perHour), refillRate: float64(perHour), updated: time.Now()}
}

// resize changes the hourly amount; what was used stays used, for an hour at most:
// of a larger amount it could be more than a smaller one refills in a day.
func (b *budget) resize(perHour int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	b.balance = min(b.balance+float64(perHour)-b.perHour, float64(perHour))
	b.perHour = float64(perHour)
	b.refillRate = max(b.perHour, -b.balance)
}

// take takes n bytes, or none and says when there will be enough.
func (b *budget) reserve(n int64) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	if float64(n) > b.balance {
		hours := max(-b.balance, 0)/b.refillRate + (float64(n)-max(b.balance, 0))/b.perHour
		return time.Duration(min(hours*float64(time.Hour), float64(math.MaxInt64/2))), false
	}
	b.balance -= float64(n)
	return 0, true
}

// settle returns what was taken and not used, or charges what was used beyond it: to a debt of one hour's worth at
// most, so that one mistake, or one peer that breaks its word, does not end all rounds for a day.
func (b *budget) settle(taken, used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	left := min(b.balance+float64(taken)-float64(used), b.perHour)
	b.balance = max(left, min(b.balance, -b.perHour))
}

// mostAtOnce is the most that one lease may take: an eighth, so that the first to ask does not take the whole hour, but
// one round of default options in any case, as far as the bucket holds it.
func (b *budget) maxLease() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(max(int64(b.perHour/leasesPerHour), defaultRound()), int64(b.perHour))
}

// defaultRound is what a full round of default options may move.
func defaultRound() int64 { return roundBytes(DefaultOptions(), true, worker.MaxRails) }

// leasesPerHour is how many leases of the largest size an hour's budget is for.
const leasesPerHour = 8

// remaining is how many bytes are left now.
func (b *budget) remaining() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	return max(b.balance, 0)
}

func (b *budget) refillLocked() {
	now := time.Now()
	hours := now.Sub(b.updated).Hours()
	b.updated = now
	switch debt := -b.balance / b.refillRate; { // in hours
	case debt > hours:
		b.balance += b.refillRate * hours
		return
	case debt > 0:
		b.balance, hours = 0, hours-debt
	}
	b.balance, b.refillRate = min(b.balance+b.perHour*hours, b.perHour), b.perHour
}
