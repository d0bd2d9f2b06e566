package round

import (
	"context"
	"math"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/result"
)

// RingPart is this node's part in a ring: a round with its successor that waits before its bursts.
type RingPart struct {
	ID    string
	Ready chan struct{} // closed when the round waits
	Begin chan struct{} // closed by the request to start
	Done  chan struct{} // closed when the round has ended
	Gone  chan struct{} // closed when the node can be part of another ring
	Stop  context.CancelFunc
	Res   result.Result // result, valid after done
}

// wait is the step of the round that waits for the start.
func (p *RingPart) wait(ctx context.Context) error {
	close(p.Ready)
	select {
	case <-p.Begin:
		return nil
	case <-ctx.Done():
		return failure.New(failure.StageStriped, failure.Timeout, "nobody started the ring")
	}
}

// ringStep is the step of a round that waits for the start of its ring.
func (r *Round) ringStep(ctx context.Context) error {
	if r.Plan.Ring == nil {
		return nil
	}
	if r.Plan.together() {
		r.Plan.BusyAbove = math.MaxFloat64 // incoming traffic belongs to the ring
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.timeLeft(ctx)-drainTime, time.Second))
	defer cancel()
	return r.Plan.Ring.wait(ctx)
}
