package probe

import (
	"math"
	"sync"
	"time"
)

// budget limits the bytes that a node asks for, or answers: a bucket that holds one hour's worth and refills evenly. An
// overrun is debt: nothing can be reserved until it is refilled. The budget belongs to the node, so that a restart of
// the worker process does not refill it. Safe for concurrent use.
type budget struct {
	mu         sync.Mutex // protects all following fields
	perHour    float64    // bytes; also the size of the bucket, and the most that can be owed
	balance    float64    // bytes; negative: debt
	refillRate float64    // bytes per hour at which debt is refilled: perHour, or more after that was lowered
	updated    time.Time  // when balance was computed
}

func newBudget(perHour int64) *budget {
	b := float64(perHour)
	return &budget{perHour: b, balance: b, refillRate: b, updated: time.Now()}
}

// resize changes the hourly amount. Used bytes stay used, but are refilled within an hour: what a large budget used
// could take a small one days to refill.
func (b *budget) resize(perHour int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	b.balance = min(b.balance+float64(perHour)-b.perHour, float64(perHour))
	b.perHour = float64(perHour)
	b.refillRate = max(b.perHour, -b.balance)
}

// reserve reserves n bytes, or none and returns when there will be enough.
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

// settle returns what was reserved and not used, or charges an overrun: up to a debt of one hour's worth, so that one
// mistake, or one peer that exceeds its grant, does not stop all rounds for a day.
func (b *budget) settle(reserved, used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	balance := min(b.balance+float64(reserved)-float64(used), b.perHour)
	b.balance = max(balance, min(b.balance, -b.perHour))
}

// maxLease is the most that one lease may reserve: 1/8, so that the first to ask does not take the whole hour, but at
// least one round with default options, as far as the bucket holds it.
func (b *budget) maxLease() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(max(int64(b.perHour/leasesPerHour), defaultPlan().bytes()), int64(b.perHour))
}

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
