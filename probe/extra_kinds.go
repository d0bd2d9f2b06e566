package probe

import (
	"context"
	"slices"

	"github.com/railscope/railscope/probe/internal/worker"
)

func (r *round) measureReads(ctx context.Context, _ Extra) error {
	return r.measureOps(ctx, Reads, Read)
}

func (r *round) measureBoth(ctx context.Context, _ Extra) error {
	return r.measureOps(ctx, Both, Write, Read)
}

// measureOps measures each rail alone, with one flow for each operation at once, then all rails.
func (r *round) measureOps(ctx context.Context, kind Kind, ops ...Op) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	var flows []*path
	for _, p := range paths {
		for _, op := range ops {
			flows = append(flows, p.over(op, 0))
		}
	}
	sub, err := r.with(ctx, flows, r.plan.QueuePairs, extraSamples)
	if err != nil {
		return err
	}
	r.res.Extras = append(r.res.Extras, failed(kind, r.plan.QueuePairs, flows)...)
	for i := 0; i < len(flows) && len(paths) > 1; i += len(ops) {
		if err := r.carry(ctx, kind, sub, flows[i:i+len(ops)]); err != nil {
			return err
		}
	}
	return r.carry(ctx, kind, sub, flows)
}

// measureQueuePairs measures all rails at once with each number of queue pairs.
func (r *round) measureQueuePairs(ctx context.Context, e Extra) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	for _, n := range e.Counts {
		var flows []*path
		for _, p := range paths {
			flows = append(flows, p.over(Write, 0))
		}
		sub, err := r.with(ctx, flows, min(n, worker.MaxQueuePairs), 1)
		if err != nil {
			return err
		}
		r.res.Extras = append(r.res.Extras, failed(QueuePairs, n, flows)...)
		if err := r.carry(ctx, QueuePairs, sub, flows); err != nil {
			return err
		}
	}
	return nil
}

// measurePaths measures each rail by flows with different labels, one at a time, and counts what each loses.
func (r *round) measurePaths(ctx context.Context, e Extra) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	for _, p := range paths {
		var flows []*path
		for n := range min(e.Counts[0], MaxPaths) {
			flows = append(flows, p.over(Write, n))
		}
		sub, err := r.with(ctx, flows, 1, pathSamples)
		if err != nil {
			return err
		}
		r.res.Extras = append(r.res.Extras, failed(Paths, 1, flows)...)
		for _, f := range flows {
			if err := r.carryPath(ctx, sub, f); err != nil {
				return err
			}
		}
		lossy, _ := r.res.LossyPaths(p.local.Name)
		for _, one := range lossy { // again: a node that was held up loses packets, too
			if err := r.carryPath(ctx, sub, flows[one.Path]); err != nil {
				return err
			}
			r.res.keepBetter(one.Rail, one.Path)
		}
	}
	return nil
}

// carryPath makes a burst over one flow, between two readings of the counters of its rail at both ends.
func (r *round) carryPath(ctx context.Context, sub *round, f *path) error {
	if f.result.Failure != nil {
		return nil
	}
	rails, counting := []localRail{f.local}, *sub
	counting.paths, counting.counted = []*path{f}, nil
	f.result.Loss, f.result.Bytes, f.sent = nil, 0, 0
	counting.countLoss(r.node.settledTraffic(ctx, rails))
	before, err := sub.peerEvents(ctx, f)
	at := len(r.res.Extras)
	if err == nil {
		err = r.carry(ctx, Paths, sub, []*path{f})
	}
	counting.countLoss(r.node.settledTraffic(ctx, rails))
	if err != nil || len(r.res.Extras) == at {
		return err
	}
	after, err := sub.peerEvents(ctx, f)
	if l := f.result.Loss; l != nil && before != nil && after != nil && *after >= *before {
		l.PeerEvents = new(*after - *before)
	}
	r.res.Extras[at].Flows[0].Loss = f.result.Loss
	return err
}

// peerEvents asks the peer how many packets have arrived out of sequence, or twice, over the rail of a flow since the
// session began; nil: it does not count them.
func (r *round) peerEvents(ctx context.Context, f *path) (*uint64, error) {
	v, err := r.client.verify(ctx, worker.VerifyArgs{Seed: r.seed, Count: true})
	if n, counted := v.Events[f.peer.Name]; err == nil && counted {
		return &n, nil
	}
	return nil, err
}

// measureContention measures two rails at a time, after each alone.
func (r *round) measureContention(ctx context.Context, _ Extra) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	var flows []*path
	for _, p := range paths {
		flows = append(flows, p.over(Write, 0))
	}
	sub, err := r.with(ctx, flows, r.plan.QueuePairs, extraSamples)
	if err != nil {
		return err
	}
	for i, f := range flows {
		if err := r.carry(ctx, Contention, sub, flows[i:i+1]); err != nil {
			return err
		}
		for j := range i {
			if flows[j].result.Failure != nil || f.result.Failure != nil {
				continue
			}
			if err := r.carryPair(ctx, sub, []*path{flows[j], f}); err != nil {
				return err
			}
		}
	}
	return nil
}

// carryPair makes a burst over two rails, and another one if they seem to share something: the better one counts.
func (r *round) carryPair(ctx context.Context, sub *round, pair []*path) error {
	for range 2 {
		if err := r.carry(ctx, Contention, sub, pair); err != nil {
			return err
		}
		of := func(p Pair) bool { return p.Rail == pair[0].local.Name && p.Other == pair[1].local.Name }
		all := Contended(r.res.Extras)
		if i := slices.IndexFunc(all, of); i < 0 || all[i].Ratio >= lowScaling {
			return nil
		}
	}
	return nil
}
