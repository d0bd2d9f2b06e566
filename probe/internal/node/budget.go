package node

import (
	"cmp"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/options"
)

// NominalRate is 100 Gb/s in bytes per second. It is assumed where a rate is unknown or only a configured number.
const NominalRate = 12.5e9

// LeastLease is the rail time that a lease may always reserve, however small the budget. It exceeds what a round
// with default options needs.
const LeastLease = time.Second

// RailRate returns the sum of the rails' rates in bytes per second. It converts bytes to rail time.
func RailRate(rails []LocalRail) (sum float64) {
	for _, r := range rails {
		sum += RateOf(r.Capacity, r.IsSoftware())
	}
	return cmp.Or(sum, NominalRate)
}

// RateOf returns the rate by which bytes become time, in bytes per second.
func RateOf(capacity float64, software bool) float64 {
	if software {
		return max(capacity, NominalRate)
	}
	return capacity
}

// SetBudget sets the budget of the node's rounds and the budget of its answers.
func (n *Node) SetBudget(b options.Budget) {
	n.mu.Lock()
	n.budget = b
	n.mu.Unlock()
	perHour := b.PerHour(NominalRate) // at the nominal rate until the rails are known
	n.resize(perHour)
}

// FitBudget adapts a budget in bytes to the rate of the rails.
func (n *Node) FitBudget(rate float64) {
	n.mu.Lock()
	b := n.budget
	n.mu.Unlock()
	if b.Bytes > 0 {
		n.resize(b.PerHour(rate))
	}
}

// Budgets are the budgets of a node, each of the configured size.
type Budgets struct {
	AskBudget    *Budget // budget of rounds
	AnswerBudget *Budget // budget of leases
	GateBudget   *Budget // budget of visits that gates ask for
}

func (b Budgets) resize(perHour time.Duration) {
	for _, one := range []*Budget{b.AskBudget, b.AnswerBudget, b.GateBudget} {
		one.Resize(perHour)
	}
}

// Budget limits the time of each rail that a node uses for rounds that it asks, or answers. It is a bucket that
// holds one hour's worth and refills evenly; an overrun is debt, which is refilled before anything is reserved. It
// belongs to the node and survives a restart of the worker. Safe for concurrent use.
type Budget struct {
	Mu         sync.Mutex // protects all following fields
	perHour    float64    // nanoseconds; also the size of the bucket, and the largest debt
	Balance    float64    // nanoseconds; negative: debt
	refillRate float64    // nanoseconds of debt refilled per hour: perHour, or more after perHour was lowered
	rounds     [2]float64 // mean nanoseconds of recent rounds; second: of full rounds
	updated    time.Time  // time at which balance was computed
}

// NewBudget returns a full budget of this time in each hour.
func NewBudget(perHour time.Duration) *Budget {
	b := float64(perHour)
	return &Budget{perHour: b, Balance: b, refillRate: b, updated: time.Now()}
}

// Resize changes the hourly amount. Used time stays used, but is refilled within an hour: otherwise debt from a
// large budget could block a small one for days.
func (b *Budget) Resize(perHour time.Duration) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if float64(perHour) == b.perHour {
		return
	}
	b.refillLocked()
	b.Balance = min(b.Balance+float64(perHour)-b.perHour, float64(perHour))
	b.perHour = float64(perHour)
	b.refillRate = max(b.perHour, -b.Balance)
}

// Reserve takes n from the bucket, or returns how long until n is available. An n larger than the bucket is
// reserved when the bucket is full, and the rest is debt: every peer is measured eventually.
func (b *Budget) Reserve(n time.Duration) (wait time.Duration, ok bool) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.refillLocked()
	if need := min(float64(n), b.perHour); need > b.Balance {
		hours := max(-b.Balance, 0)/b.refillRate + (need-max(b.Balance, 0))/b.perHour
		return options.Seconds(hours * time.Hour.Seconds()), false
	}
	b.Balance -= float64(n)
	return 0, true
}

// Settle returns reserved time that was not used, or charges an overrun. The debt is capped at one hour's worth, so
// that one mistake, or one peer that exceeds its grant, does not stop all rounds for a day.
func (b *Budget) Settle(reserved, used time.Duration) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.refillLocked()
	balance := min(b.Balance+float64(reserved)-float64(used), b.perHour)
	b.Balance = max(balance, min(b.Balance, -b.perHour))
}

// MaxLease returns the most time that one lease may reserve: 1/8 of the hour, so that the first asker does not take
// all of it, but always enough for a round with default options.
func (b *Budget) MaxLease() time.Duration {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return max(time.Duration(b.perHour/options.LeasesPerHour), LeastLease)
}

// Note updates the mean duration of rounds. Full rounds have their own mean, because all rounds after a start are
// full.
func (b *Budget) Note(full bool, used time.Duration) {
	if used <= 0 {
		return
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	mean := &b.rounds[0]
	if full {
		mean = &b.rounds[1]
	}
	if *mean == 0 {
		*mean = float64(used)
	}
	*mean += (float64(used) - *mean) / 8
}

// Pace returns the mean time between rounds that the budget allows if one in soloEvery is full, plus 10 % so that
// the bucket refills. It is 0 until a round is noted.
func (b *Budget) Pace(soloEvery int) time.Duration {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	mean := b.rounds[0] + (b.rounds[1]-b.rounds[0])/float64(soloEvery)
	return options.Seconds(1.1 * mean / b.perHour * time.Hour.Seconds())
}

// Remaining returns the rail time that is left now, in seconds.
func (b *Budget) Remaining() float64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.refillLocked()
	return max(b.Balance, 0) / float64(time.Second)
}

func (b *Budget) refillLocked() {
	now := time.Now()
	hours := now.Sub(b.updated).Hours()
	b.updated = now
	switch debt := -b.Balance / b.refillRate; { // hours until the debt is refilled
	case debt > hours:
		b.Balance += b.refillRate * hours
		return
	case debt > 0:
		b.Balance, hours = 0, hours-debt
	}
	b.Balance, b.refillRate = min(b.Balance+b.perHour*hours, b.perHour), b.perHour
}

const busyWindow = 100 * time.Millisecond // time for which the rails are watched for traffic of others
