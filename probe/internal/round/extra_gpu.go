package round

import (
	"context"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/memory"
	"github.com/railscope/railscope/probe/result"
)

// measureGPU measures RDMA WRITE from the GPU nearest to each rail to the peer's: each rail alone, then all at
// once. It uses the first kind of memory that works. If that is pinned host memory, the adapters do not reach the
// GPU, and an interactive round also measures copies. The memory is freed afterwards.
func (r *Round) measureGPU(ctx context.Context, e result.Extra) error {
	paths, err := r.usable()
	if err != nil {
		return err
	}
	defer func() { _ = r.Session.End() }() // frees GPU memory now, not with the next session
	memories := e.Memories
	if memories == nil {
		memories = result.Memories()
	}
	var last *failure.Failure
	for _, kind := range memories {
		var flows []*Path
		for _, p := range paths {
			flows = append(flows, p.over(result.Write, 0))
		}
		with := *r
		with.memory = kind
		sub, err := with.With(ctx, flows, r.Plan.QueuePairs, ExtraSamples)
		r.Res.Bytes = with.Res.Bytes
		if err != nil {
			return err
		}
		last = noneOf(flows)
		if last != nil { // another kind may work
			r.Res.Extras = append(r.Res.Extras, result.Measured{Kind: result.GPU, Memory: kind, Failure: last})
			continue
		}
		for i, f := range flows {
			if f.Result.Failure != nil {
				m := failed(result.GPU, r.Plan.QueuePairs, flows[i:i+1])
				m[0].Memory = kind
				r.Res.Extras = append(r.Res.Extras, m...)
			} else if err := r.carry(ctx, result.GPU, sub, flows[i:i+1]); err != nil {
				return err
			}
			r.Tally.next()
		}
		if len(flows) > 1 {
			if err := r.carry(ctx, result.GPU, sub, flows); err != nil {
				return err
			}
		}
		if !r.ByHand || kind != string(memory.CUDAHost) {
			return nil
		}
	}
	return nil // the result of each kind has the reason
}

// noneOf returns the first failure if every flow failed, else nil.
func noneOf(flows []*Path) *failure.Failure {
	for _, f := range flows {
		if f.Result.Failure == nil {
			return nil
		}
	}
	return flows[0].Result.Failure
}
