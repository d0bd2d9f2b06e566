package probe

import (
	"context"

	"github.com/railscope/railscope/probe/internal/failure"
)

// measureGPU measures RDMA WRITE from the GPU nearest to each rail to the peer's: each rail alone, then all at once.
// The kinds of memory are tried in turn; the first that a rail has counts. The memory is freed after that.
func (r *round) measureGPU(ctx context.Context, e Extra) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	defer func() { _ = r.session.end() }() // memory of GPUs does not wait for the next session
	memories := e.Memories
	if memories == nil {
		memories = Memories()
	}
	var last *failure.Failure
	for _, kind := range memories {
		var flows []*path
		for _, p := range paths {
			flows = append(flows, p.over(Write, 0))
		}
		with := *r
		with.memory = kind
		sub, err := with.with(ctx, flows, r.plan.QueuePairs, extraSamples)
		r.res.Bytes = with.res.Bytes
		if err != nil {
			return err
		}
		if last = noneOf(flows); last != nil { // another kind may work
			r.res.Extras = append(r.res.Extras, Measured{Kind: GPU, Memory: kind, Failure: last})
			continue
		}
		for i, f := range flows {
			if f.result.Failure != nil {
				m := failed(GPU, r.plan.QueuePairs, flows[i:i+1])
				m[0].Memory = kind
				r.res.Extras = append(r.res.Extras, m...)
			} else if err := r.carry(ctx, GPU, sub, flows[i:i+1]); err != nil {
				return err
			}
		}
		if len(flows) > 1 {
			return r.carry(ctx, GPU, sub, flows)
		}
		return nil
	}
	return nil // each kind says why not
}

// noneOf returns why no flow works, nil if one does: the failure of the first.
func noneOf(flows []*path) *failure.Failure {
	for _, f := range flows {
		if f.result.Failure == nil {
			return nil
		}
	}
	return flows[0].result.Failure
}
