package probe

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/internal/worker"
)

const (
	warmups = 3 // of latencies and transfers, that do not count

	sizeTime    = 2 * time.Second        // in which transfers of one size begin
	sizesTime   = 600 * time.Millisecond // of the rails, that transfers of all sizes take at most
	sizeInGreat = 4 << 20                // bytes that many small messages keep in flight
	sizeDepth   = 256                    // messages in flight at most
)

// MinSize and MaxSize bound the sizes of Sizes, in bytes.
const (
	MinSize = transfer.Page
	MaxSize = 1 << 30
)

// chosen are the paths of the rails that an extra names; without names, all that work.
func (r *round) chosen(e Extra) ([]*path, error) {
	paths, err := r.usable()
	if err != nil || e.Rails == nil {
		return paths, err
	}
	var list []*path
	for _, name := range e.Rails {
		i := slices.IndexFunc(paths, func(p *path) bool { return p.local.Name == name })
		if i < 0 {
			return nil, failure.New(failure.StageExtra, failure.NoDevice, "no rail %s of this node works by RDMA (see "+
				"railscope rails)", name)
		}
		list = append(list, paths[i])
	}
	return list, nil
}

// flowsOver are new flows over the rails of paths.
func flowsOver(paths []*path, op Op) (flows []*path) {
	for _, p := range paths {
		flows = append(flows, p.over(op, 0))
	}
	return flows
}

// measureSubset measures some rails at once.
func (r *round) measureSubset(ctx context.Context, e Extra) error {
	paths, err := r.chosen(e)
	if err != nil {
		return err
	}
	flows := flowsOver(paths, Write)
	sub, err := r.with(ctx, flows, r.plan.QueuePairs, extraSamples)
	if err != nil {
		return err
	}
	r.res.Extras = append(r.res.Extras, failed(Subset, r.plan.QueuePairs, flows)...)
	return r.carry(ctx, Subset, sub, flows)
}

// measureMessages measures how long single messages take on each rail: of each size, written and read.
func (r *round) measureMessages(ctx context.Context, e Extra) error {
	paths, err := r.chosen(e)
	if err != nil {
		return err
	}
	flows := slices.Concat(flowsOver(paths, Write), flowsOver(paths, Read))
	sub, err := r.with(ctx, flows, 1, 1)
	if err != nil {
		return err
	}
	for _, size := range e.Counts {
		m := Measured{Kind: Messages, QueuePairs: 1, Size: int64(size)}
		for _, f := range flows {
			if f.result.Failure == nil {
				r.progress(Progress{Stage: failure.StageLatency, Rail: f.local.Name})
				l, err := r.session.current.Latency(ctx, worker.LatencyArgs{Rail: f.name(), Size: m.Size, N: extraSamples,
					Limit: latencyTime})
				if f.result.Failure = failure.As(failure.StageLatency, err); err == nil {
					f.result.Latency = (*Latency)(nil).add(l.Samples, nil)
				}
				r.res.Bytes += m.Size * int64(len(l.Samples)+warmups)
			}
			m.Flows = append(m.Flows, f.measured())
		}
		r.res.Extras = append(r.res.Extras, m)
	}
	return sub.stopFailed(ctx)
}

// part is how a transfer of a size is cut for each of n rails: into count messages of chunk bytes.
func part(size int64, n int, most int64) (chunk int64, count int) {
	each := (size + int64(n) - 1) / int64(n)
	for count = 1; each > most*int64(count); count *= 2 {
	}
	return max((each+int64(count)-1)/int64(count), minChunk), count
}

// sizesBytes is the most that transfers of these sizes move, beside bursts.
func sizesBytes(sizes []int, paths []*path) (sum int64) {
	counts := transfers(sizes, paths)
	for i, size := range sizes {
		sum += int64(counts[i]+warmups) * (int64(size) + int64(len(paths))*minChunk)
	}
	return sum
}

// transfers is how many transfers of each size, ascending, are timed: fewer of the great ones on a slow link. What
// small ones leave is for the others.
func transfers(sizes []int, paths []*path) (counts []int) {
	left := 0.0 // bytes
	for _, p := range paths {
		left += p.rate() * sizesTime.Seconds()
	}
	for i, size := range sizes {
		n := max(min(int(left/float64(len(sizes)-i)/float64(size)), extraSamples), 1)
		counts, left = append(counts, n), left-float64(n)*float64(size)
	}
	return counts
}

// measureSizes measures transfers of each size, in equal parts over all rails: what many in flight carry, in messages
// of at most 1 MiB, and how long one alone takes.
func (r *round) measureSizes(ctx context.Context, e Extra) error {
	paths, err := r.chosen(e)
	if err != nil {
		return err
	}
	op := Write
	if e.Read {
		op = Read
	}
	flows := flowsOver(paths, op)
	with := *r
	with.plan.rails = len(flows)
	most := with.plan.chunk(transfer.MaxChunk, transfer.MaxChunk)
	for _, size := range e.Counts {
		for n := range flows { // as many as work then
			chunk, _ := part(int64(size), n+1, most)
			at := with.plan.ofMessages(chunk, most)
			with.plan.least = max(with.plan.least, chunk*at.slots(at.QueuePairs))
		}
	}
	depth := with.plan.Depth
	with.plan.Depth = max(depth, sizeDepth)
	sub, err := with.with(ctx, flows, r.plan.QueuePairs, extraSamples)
	if r.res.Bytes = with.res.Bytes; err != nil {
		return err
	}
	r.res.Extras = append(r.res.Extras, failed(Sizes, r.plan.QueuePairs, flows)...)
	sub.plan.Depth = depth
	plan := sub.plan
	counts := transfers(e.Counts, paths)
	for i, size := range e.Counts {
		live := slices.DeleteFunc(slices.Clone(flows), func(f *path) bool { return f.result.Failure != nil })
		if len(live) == 0 {
			return nil
		}
		chunk, count := part(int64(size), len(live), most)
		sub.size, sub.plan = int64(size), plan.ofMessages(chunk, most)
		at := len(r.res.Extras)
		if err := r.carry(ctx, Sizes, sub, flows); err != nil {
			return err
		}
		least := min(int64(len(live)), max(int64(size)/minChunk, 1)) // a transfer of two pages goes over two rails
		one, err := r.timeTransfers(ctx, live[:least], chunk, count, counts[i])
		if err != nil {
			return err
		}
		if len(r.res.Extras) > at {
			r.res.Extras[at].Transfer = one
		}
	}
	return nil
}

// ofMessages is the plan with messages of so many bytes; most is what fits into the memory with its own depth.
func (p plan) ofMessages(chunk, most int64) plan {
	p.message = chunk
	room := max(most*p.slots(p.QueuePairs)/chunk/2-int64(2*p.QueuePairs), 1)
	p.Depth = max(p.Depth, int(min(sizeInGreat/chunk, sizeDepth, room)))
	return p
}

// timeTransfers makes n transfers over all flows that work, one after the other.
func (r *round) timeTransfers(ctx context.Context, flows []*path, chunk int64, count, n int) (*Latency, error) {
	args := worker.TransfersArgs{N: n, Limit: min(sizeTime, r.timeLeft(ctx)), Deadline: r.timeLeft(ctx)}
	for _, f := range flows {
		if f.result.Failure == nil {
			args.Shares = append(args.Shares, worker.Share{Rail: f.name(), Chunk: chunk, Count: count})
		}
	}
	l, err := r.session.current.Transfers(ctx, args)
	r.res.Bytes += int64(len(l.Samples)+warmups) * chunk * int64(count) * int64(len(args.Shares))
	f := failure.As(failure.StageExtra, err)
	if f == nil {
		return (*Latency)(nil).add(l.Samples, nil), nil
	}
	for _, one := range flows {
		if one.name() == f.Rail {
			one.result.Failure = f
			return nil, f
		}
	}
	return nil, f
}

func sumOf(sizes []int) (sum int64) {
	for _, size := range sizes {
		sum += int64(size)
	}
	return sum
}
