package probe

import (
	"cmp"
	"math"
	"sync"
	"time"
)

// Budget is how much of its rails a node may use for rounds that it asks, and as much for those that it answers: these
// use the other direction.
type Budget struct {
	Share float64 // of each rail's time, for example 0.005
	Bytes int64   // per hour over all rails, instead of a share; 0: Share
}

// perHour is the time of each rail that the budget has in an hour. rate is that of the rails together, in bytes per
// second.
func (b Budget) perHour(rate float64) time.Duration {
	if b.Bytes > 0 {
		return railTime(b.Bytes, rate)
	}
	return time.Duration(b.Share * float64(time.Hour))
}

// nominalRate stands for a rate that is unknown or only a configured number, in bytes per second: 100 Gb/s.
const nominalRate = 12.5e9

// leastLease is what one lease may reserve of each rail's time however small the budget: more than a round with default
// options needs.
const leastLease = time.Second

// railRate is the rate of rails together in bytes per second, by which bytes are time of each of them.
func railRate(rails []localRail) (sum float64) {
	for _, r := range rails {
		sum += rateOf(r.capacity, r.software())
	}
	return cmp.Or(sum, nominalRate)
}

// peerRate is the same of a peer's rails.
func peerRate(rails []helloRail) (sum float64) {
	for _, r := range rails {
		sum += rateOf(r.Capacity, r.Software)
	}
	return cmp.Or(sum, nominalRate)
}

func rateOf(capacity float64, software bool) float64 {
	if software {
		return max(capacity, nominalRate)
	}
	return capacity
}

// railTime is how long rails of this rate together take for so many bytes.
func railTime(bytes int64, rate float64) time.Duration {
	return seconds(float64(bytes) / rate)
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), float64(math.MaxInt64/2)))
}

// setBudget sets the budget of the node's rounds and of its answers.
func (n *Node) setBudget(b Budget) {
	n.mu.Lock()
	n.budget = b
	n.mu.Unlock()
	perHour := b.perHour(nominalRate) // of bytes, until the rails are known
	n.askBudget.resize(perHour)
	n.answerBudget.resize(perHour)
}

// fitBudget adapts a budget of bytes to the rate of the rails.
func (n *Node) fitBudget(rate float64) {
	n.mu.Lock()
	b := n.budget
	n.mu.Unlock()
	if b.Bytes > 0 {
		n.askBudget.resize(b.perHour(rate))
		n.answerBudget.resize(b.perHour(rate))
	}
}

// budget limits the time of each rail that a node uses for rounds that it asks, or answers: a bucket that holds one
// hour's worth and refills evenly. An overrun is debt: nothing can be reserved until it is refilled. The budget belongs
// to the node, so that a restart of the worker process does not refill it. Safe for concurrent use.
type budget struct {
	mu         sync.Mutex // protects all following fields
	perHour    float64    // nanoseconds; also the size of the bucket, and the most that can be owed
	balance    float64    // nanoseconds; negative: debt
	refillRate float64    // nanoseconds per hour at which debt is refilled: perHour, or more after that was lowered
	rounds     [2]float64 // nanoseconds that a round takes, of the last ones; the second: a full round
	updated    time.Time  // when balance was computed
}

func newBudget(perHour time.Duration) *budget {
	b := float64(perHour)
	return &budget{perHour: b, balance: b, refillRate: b, updated: time.Now()}
}

// resize changes the hourly amount. Used time stays used, but is refilled within an hour: what a large budget used
// could take a small one days to refill.
func (b *budget) resize(perHour time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if float64(perHour) == b.perHour {
		return
	}
	b.refillLocked()
	b.balance = min(b.balance+float64(perHour)-b.perHour, float64(perHour))
	b.perHour = float64(perHour)
	b.refillRate = max(b.perHour, -b.balance)
}

// reserve reserves so much time, or none and returns when there will be enough. More than the bucket holds is reserved
// when it is full, and the rest is debt: every peer is measured at some time.
func (b *budget) reserve(n time.Duration) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	if need := min(float64(n), b.perHour); need > b.balance {
		hours := max(-b.balance, 0)/b.refillRate + (need-max(b.balance, 0))/b.perHour
		return seconds(hours * time.Hour.Seconds()), false
	}
	b.balance -= float64(n)
	return 0, true
}

// settle returns what was reserved and not used, or charges an overrun: up to a debt of one hour's worth, so that one
// mistake, or one peer that exceeds its grant, does not stop all rounds for a day.
func (b *budget) settle(reserved, used time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	balance := min(b.balance+float64(reserved)-float64(used), b.perHour)
	b.balance = max(balance, min(b.balance, -b.perHour))
}

// maxLease is the most that one lease may reserve: 1/8, so that the first to ask does not take the whole hour, but
// always a round with default options.
func (b *budget) maxLease() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(time.Duration(b.perHour/leasesPerHour), leastLease)
}

// note notes what a round took. Full rounds are noted apart: after a start they are all full.
func (b *budget) note(full bool, used time.Duration) {
	if used <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	mean := &b.rounds[0]
	if full {
		mean = &b.rounds[1]
	}
	if *mean == 0 {
		*mean = float64(used)
	}
	*mean += (float64(used) - *mean) / 8
}

// pace is the time between two rounds, of which one in soloEvery is full, that the budget allows on average, and 1/10
// more, so that it refills. It is 0 until a round is noted.
func (b *budget) pace(soloEvery int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	mean := b.rounds[0] + (b.rounds[1]-b.rounds[0])/float64(soloEvery)
	return seconds(1.1 * mean / b.perHour * time.Hour.Seconds())
}

// remaining is the time of each rail that is left now, in seconds.
func (b *budget) remaining() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	return max(b.balance, 0) / float64(time.Second)
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
