package protocol

import (
	"fmt"
	"strings"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
)

// Part is the part of a round that a lease is for.
type Part string

// Parts of a round.
const (
	// Whole is a round of an older railscope, which sends over all rails: others may use none of them.
	Whole Part = ""
	// Measure is a whole round, with bursts over the rails that others do not use.
	Measure Part = "measure"
	// Reach is a round without bursts. Its lease is granted whatever the load and the budget, for [ReachTime].
	Reach Part = "reach"
	// Gap is the wait for a gap in the traffic of others, and short bursts in it. It does not take the slot but while
	// it bursts.
	Gap Part = "gap"
)

// Limits of a lease for [Reach].
const (
	ReachTime   = 5 * time.Second
	ReachBytes  = 64 << 10 // bytes on the wire of each rail
	ReachMemory = 64 << 10 // bytes of memory for each queue pair
)

// LeaseRequest asks for a lease.
type LeaseRequest struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// RailSeconds is the time at full load of each target rail that the round takes at most.
	RailSeconds float64 `json:"rail_seconds"`
	// Waits is set if the asker retries when the target is busy: the target then serves it next.
	Waits bool `json:"waits,omitempty"`
	// Reservation is the ID of the ring or gate to which the round belongs; empty: none.
	Reservation string `json:"reservation,omitempty"`
	// Partial is set for a gate, which leaves out rails that others use; a ring needs all.
	Partial bool `json:"partial,omitempty"`
	Part    Part `json:"part,omitempty"` // an older railscope grants only leases for whole rounds
}

// LeaseEvent is one line of the answer.
type LeaseEvent struct {
	Grant *Grant           `json:"grant,omitempty"`
	End   *failure.Failure `json:"end,omitempty"` // reason why the lease was denied, or ended before its release
	Quiet *Quiet           `json:"quiet,omitempty"`
}

// Quiet lists the rails of a node that others do not use at this moment.
type Quiet struct {
	Rails []string `json:"rails"`
}

// Grant is a lease.
type Grant struct {
	ID  string        `json:"id"`
	Key []byte        `json:"key"` // key of the lease's TCP port
	TTL time.Duration `json:"ttl"` // lifetime after the last request

	Left []failure.Failure `json:"left,omitempty"` // rails of the peer over which it wants no burst, and why
}

// Released reports what a lease was used for.
type Released struct {
	Bytes int64 `json:"bytes"`
}

// Check returns what is wrong with the message.
func (l *LeaseRequest) Check() error {
	if !(l.RailSeconds > 0 && l.RailSeconds <= options.MaxTimeout.Seconds()) || l.Node == "" || l.Instance == "" {
		return fmt.Errorf("a lease of %v seconds for %.40q", l.RailSeconds, l.Node)
	}
	if l.Part != Whole && l.Part != Measure && l.Part != Reach && l.Part != Gap {
		return fmt.Errorf("a lease for %.40q", l.Part)
	}
	return CheckTexts(l.Node, l.Instance, l.Reservation)
}

// Check refuses a grant that no railscope sends.
func (g *Grant) Check() error {
	switch {
	case len(g.Key) != KeySize:
		return fmt.Errorf("a grant with a key of %d bytes", len(g.Key))
	case g.TTL < time.Second || g.TTL > MaxTTL:
		return fmt.Errorf("a grant for %v", g.TTL)
	case g.ID == "" || len(g.ID) > MaxText || strings.Trim(g.ID, Alphanumeric) != "":
		return fmt.Errorf("a grant with the ID %.40q", g.ID)
	case len(g.Left) > worker.MaxRails:
		return fmt.Errorf("a grant without %d rails: the limit is %d", len(g.Left), worker.MaxRails)
	}
	for i := range g.Left {
		Sanitize(&g.Left[i], failure.StageLease)
	}
	return nil
}

// Check returns what is wrong with the message.
func (q *Quiet) Check() error {
	if len(q.Rails) > worker.MaxRails {
		return fmt.Errorf("%d rails: the limit is %d", len(q.Rails), worker.MaxRails)
	}
	return CheckTexts(q.Rails...)
}
