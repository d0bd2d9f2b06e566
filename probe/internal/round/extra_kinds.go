package round

import (
	"context"
	"slices"

	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

func (r *Round) measureReads(ctx context.Context, _ result.Extra) error {
	return r.measureOps(ctx, result.Reads, result.Read)
}

func (r *Round) measureBoth(ctx context.Context, _ result.Extra) error {
	return r.measureOps(ctx, result.Both, result.Write, result.Read)
}

// measureOps measures each rail alone, with one flow per operation at once, then all rails.
func (r *Round) measureOps(ctx context.Context, kind result.Kind, ops ...result.Op) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	var flows []*Path
	for _, p := range paths {
		for _, op := range ops {
			flows = append(flows, p.over(op, 0))
		}
	}
	sub, err := r.With(ctx, flows, r.Plan.QueuePairs, ExtraSamples)
	if err != nil {
		return err
	}
	r.Res.Extras = append(r.Res.Extras, failed(kind, r.Plan.QueuePairs, flows)...)
	for i := 0; i < len(flows) && len(paths) > 1; i += len(ops) {
		if err := r.carry(ctx, kind, sub, flows[i:i+len(ops)]); err != nil {
			return err
		}
		r.Tally.next()
	}
	return r.carry(ctx, kind, sub, flows)
}

// measureQueuePairs measures all rails at once with each number of queue pairs.
func (r *Round) measureQueuePairs(ctx context.Context, e result.Extra) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	for _, n := range e.Counts {
		var flows []*Path
		for _, p := range paths {
			flows = append(flows, p.over(result.Write, 0))
		}
		sub, err := r.With(ctx, flows, min(n, worker.MaxQueuePairs), 1)
		if err != nil {
			return err
		}
		r.Res.Extras = append(r.Res.Extras, failed(result.QueuePairs, n, flows)...)
		if err := r.carry(ctx, result.QueuePairs, sub, flows); err != nil {
			return err
		}
		r.Tally.next()
	}
	return nil
}

// measurePaths measures each rail with flows of different labels, one at a time, and counts their loss.
func (r *Round) measurePaths(ctx context.Context, e result.Extra) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	for _, p := range paths {
		var flows []*Path
		for n := range min(e.Counts[0], result.MaxPaths) {
			flows = append(flows, p.over(result.Write, n))
		}
		sub, err := r.With(ctx, flows, 1, pathSamples)
		if err != nil {
			return err
		}
		r.Res.Extras = append(r.Res.Extras, failed(result.Paths, 1, flows)...)
		for _, f := range flows {
			if err := r.carryPath(ctx, sub, f); err != nil {
				return err
			}
			r.Tally.next()
		}
		lossy, _ := r.Res.LossyPaths(p.Local.Name)
		for _, one := range lossy { // a second attempt: a node that was delayed loses packets, too
			if err := r.carryPath(ctx, sub, flows[one.Path]); err != nil {
				return err
			}
			r.Res.KeepBetter(one.Rail, one.Path)
		}
	}
	return nil
}

// carryPath runs a burst over one flow, between two readings of its rail's counters at both ends.
func (r *Round) carryPath(ctx context.Context, sub *Round, f *Path) error {
	if f.Result.Failure != nil {
		return nil
	}
	rails, counting := []node.LocalRail{f.Local}, *sub
	counting.Paths, counting.counted = []*Path{f}, nil
	f.Result.Loss, f.Result.Bytes, f.sent = nil, 0, 0
	counting.CountLoss(r.Node.SettledTraffic(ctx, rails))
	before, err := sub.peerEvents(ctx, f)
	at := len(r.Res.Extras)
	if err == nil {
		err = r.carry(ctx, result.Paths, sub, []*Path{f})
	}
	counting.CountLoss(r.Node.SettledTraffic(ctx, rails))
	if err != nil || len(r.Res.Extras) == at {
		return err
	}
	after, err := sub.peerEvents(ctx, f)
	if l := f.Result.Loss; l != nil && before != nil && after != nil && *after >= *before {
		l.PeerEvents = new(*after - *before)
	}
	r.Res.Extras[at].Flows[0].Loss = f.Result.Loss
	return err
}

// peerEvents asks the peer how many packets arrived out of sequence, or twice, over the rail of a flow since the
// session began; nil: the peer does not count them.
func (r *Round) peerEvents(ctx context.Context, f *Path) (*uint64, error) {
	v, err := r.Client.Verify(ctx, worker.VerifyArgs{Seed: r.seed, Count: true})
	if n, counted := v.Events[f.Peer.Name]; err == nil && counted {
		return &n, nil
	}
	return nil, err
}

// measureContention measures two rails at a time, after each alone.
func (r *Round) measureContention(ctx context.Context, _ result.Extra) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	var flows []*Path
	for _, p := range paths {
		flows = append(flows, p.over(result.Write, 0))
	}
	sub, err := r.With(ctx, flows, r.Plan.QueuePairs, ExtraSamples)
	if err != nil {
		return err
	}
	for i, f := range flows {
		if err := r.carry(ctx, result.Contention, sub, flows[i:i+1]); err != nil {
			return err
		}
		r.Tally.next()
		for j := range i {
			if flows[j].Result.Failure == nil && f.Result.Failure == nil {
				if err := r.carryPair(ctx, sub, []*Path{flows[j], f}); err != nil {
					return err
				}
			}
			r.Tally.next()
		}
	}
	return nil
}

// carryPair runs a burst over two rails, and a second one if they seem to share something. The better one counts.
func (r *Round) carryPair(ctx context.Context, sub *Round, pair []*Path) error {
	for range 2 {
		if err := r.carry(ctx, result.Contention, sub, pair); err != nil {
			return err
		}
		of := func(p result.Pair) bool { return p.Rail == pair[0].Local.Name && p.Other == pair[1].Local.Name }
		all := result.Contended(r.Res.Extras)
		if i := slices.IndexFunc(all, of); i < 0 || all[i].Ratio >= result.SharedBelow {
			return nil
		}
	}
	return nil
}
