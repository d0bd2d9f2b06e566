package round

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

const (
	warmups = 3 // latencies and transfers that do not count

	sizeTime    = 2 * time.Second        // time in which transfers of one size begin
	sizesTime   = 600 * time.Millisecond // most rail time that transfers of all sizes take
	sizeBurst   = 10 * time.Millisecond  // most time that the writes of a burst's window take
	sizeInGreat = 4 << 20                // bytes that many small messages keep in flight
	sizeDepth   = 256                    // most messages in flight
)

// chosen returns the paths of the rails that an extra names, in rail order; without names, all that work.
func (r *Round) chosen(e result.Extra) ([]*Path, error) {
	paths, err := r.usable()
	if err != nil || e.Rails == nil {
		return paths, err
	}
	for _, name := range e.Rails {
		if !slices.ContainsFunc(paths, func(p *Path) bool { return p.Local.Name == name }) {
			return nil, failure.New(failure.StageExtra, failure.NoDevice, "no rail %s of this node works by RDMA (see "+
				"railscope rails)", name)
		}
	}
	return slices.DeleteFunc(paths, func(p *Path) bool { return !slices.Contains(e.Rails, p.Local.Name) }), nil
}

// flowsOver returns new flows over the rails of paths.
func flowsOver(paths []*Path, op result.Op) (flows []*Path) {
	for _, p := range paths {
		flows = append(flows, p.over(op, 0))
	}
	return flows
}

// measureSubset measures some rails at once.
func (r *Round) measureSubset(ctx context.Context, e result.Extra) error {
	paths, err := r.chosen(e)
	if err != nil {
		return err
	}
	flows := flowsOver(paths, result.Write)
	sub, err := r.With(ctx, flows, r.Plan.QueuePairs, ExtraSamples)
	if err != nil {
		return err
	}
	r.Res.Extras = append(r.Res.Extras, failed(result.Subset, r.Plan.QueuePairs, flows)...)
	return r.carry(ctx, result.Subset, sub, flows)
}

// measureMessages measures how long single messages of each size take on each rail, written and read.
func (r *Round) measureMessages(ctx context.Context, e result.Extra) error {
	paths, err := r.chosen(e)
	if err != nil {
		return err
	}
	flows := slices.Concat(flowsOver(paths, result.Write), flowsOver(paths, result.Read))
	sub, err := r.With(ctx, flows, 1, 1)
	if err != nil {
		return err
	}
	for _, size := range e.Counts {
		m := result.Measured{Kind: result.Messages, QueuePairs: 1, Size: int64(size)}
		for _, f := range flows {
			if f.Result.Failure == nil {
				r.Progress(result.Progress{Stage: failure.StageLatency, Rail: f.Local.Name})
				l, err := r.Session.Current.Latency(ctx, worker.LatencyArgs{Rail: f.name(), Size: m.Size, N: ExtraSamples,
					Limit: latencyTime})
				f.Result.Failure = failure.As(failure.StageLatency, err)
				if err == nil {
					f.Result.Latency = (*result.Latency)(nil).Add(l.Samples, nil)
				}
				r.Res.Bytes += m.Size * int64(len(l.Samples)+warmups)
			}
			m.Flows = append(m.Flows, f.measured())
		}
		r.Res.Extras = append(r.Res.Extras, m)
		r.Tally.next()
	}
	return sub.stopFailed(ctx)
}

// Part divides a transfer of a size for each of n rails into count messages of chunk bytes, at most most.
func Part(size int64, n int, most int64) (chunk int64, count int) {
	each := (size + int64(n) - 1) / int64(n)
	for count = 1; each > most*int64(count); count *= 2 {
	}
	return max((each+int64(count)-1)/int64(count), minChunk), count
}

// SizesBytes returns the most bytes that transfers of these sizes move, in addition to bursts.
func SizesBytes(sizes []int, paths []*Path) (sum int64) {
	counts := transfers(sizes, paths)
	for i, size := range sizes {
		sum += int64(counts[i]+warmups) * (int64(size) + int64(len(paths))*minChunk)
	}
	return sum
}

// transfers returns how many transfers of each size, ascending, are timed: fewer large ones on a slow link. Time
// that small sizes leave is available to larger ones.
func transfers(sizes []int, paths []*Path) (counts []int) {
	left := 0.0 // bytes
	for _, p := range paths {
		left += p.rate() * sizesTime.Seconds()
	}
	for i, size := range sizes {
		n := max(min(int(left/float64(len(sizes)-i)/float64(size)), ExtraSamples), 1)
		counts, left = append(counts, n), left-float64(n)*float64(size)
	}
	return counts
}

// measureSizes measures transfers of each size, in equal parts over all rails: the goodput of many in flight, in
// messages of at most 1 MiB, and the time of a single one.
func (r *Round) measureSizes(ctx context.Context, e result.Extra) error {
	paths, err := r.chosen(e)
	if err != nil {
		return err
	}
	op := result.Write
	if e.Read {
		op = result.Read
	}
	flows := flowsOver(paths, op)
	plan := r.Plan
	plan.Rails = len(flows)
	most := plan.Longest(flows)
	for _, size := range e.Counts {
		for n := range flows { // memory for any number of flows that still work
			chunk, _ := Part(int64(size), n+1, most)
			at := plan.OfMessages(chunk, most)
			plan.least = max(plan.least, chunk*at.slots(at.QueuePairs))
		}
	}
	sub, err := openSizes(ctx, r, result.Sizes, flows, plan)
	if err != nil {
		return err
	}
	plan = sub.Plan
	counts := transfers(e.Counts, paths)
	for i, size := range e.Counts {
		live := slices.DeleteFunc(slices.Clone(flows), func(f *Path) bool { return f.Result.Failure != nil })
		if len(live) == 0 {
			return nil
		}
		chunk, count := Part(int64(size), len(live), most)
		sub.size, sub.Plan = int64(size), plan.OfMessages(chunk, most)
		at := len(r.Res.Extras)
		if err := r.carry(ctx, result.Sizes, sub, flows); err != nil {
			return err
		}
		least := min(int64(len(live)), max(int64(size)/minChunk, 1)) // a transfer of two pages goes over two rails
		one, err := r.timeTransfers(ctx, live[:least], chunk, count, counts[i])
		if err != nil {
			return err
		}
		if len(r.Res.Extras) > at {
			r.Res.Extras[at].Transfer = one
		}
		r.Tally.next()
	}
	return nil
}

// openSizes opens flows for messages of several sizes, whose plan has the memory that they need. The bursts of kind of
// flows that do not open are recorded as failed.
func openSizes(ctx context.Context, r *Round, kind result.Kind, flows []*Path, plan Plan) (*Round, error) {
	with := *r
	with.Plan = plan
	with.Plan.Depth = max(plan.Depth, sizeDepth)
	sub, err := with.With(ctx, flows, r.Plan.QueuePairs, ExtraSamples)
	r.Res.Bytes = with.Res.Bytes
	if err != nil {
		return nil, err
	}
	r.Res.Extras = append(r.Res.Extras, failed(kind, r.Plan.QueuePairs, flows)...)
	sub.Plan.Depth = plan.Depth
	return sub, nil
}

// Longest returns the longest message of a transfer over paths: 1 MiB or, on slow links, a length that leaves
// enough budget for all sizes.
func (p Plan) Longest(paths []*Path) int64 {
	slowest := float64(transfer.MaxChunk)
	for _, one := range paths {
		slowest = min(slowest, one.rate()*sizeBurst.Seconds()/BurstWrites)
	}
	return p.Chunk(slowest, transfer.MaxChunk)
}

// OfMessages returns the plan with messages of chunk bytes. most is the plan's own chunk, whose memory limits the
// depth.
func (p Plan) OfMessages(chunk, most int64) Plan {
	p.message = chunk
	room := max(most*p.slots(p.QueuePairs)/chunk/2-int64(2*p.QueuePairs), 1)
	p.Depth = max(p.Depth, int(min(sizeInGreat/chunk, sizeDepth, room)))
	return p
}

// timeTransfers makes n transfers over all working flows, one after the other.
func (r *Round) timeTransfers(ctx context.Context, flows []*Path, chunk int64, count, n int) (*result.Latency, error) {
	args := worker.TransfersArgs{N: n, Limit: min(sizeTime, r.timeLeft(ctx)), Deadline: r.timeLeft(ctx)}
	for _, f := range flows {
		if f.Result.Failure == nil {
			args.Shares = append(args.Shares, worker.Share{Rail: f.name(), Chunk: chunk, Count: count})
		}
	}
	r.Progress(result.Progress{Stage: failure.StageLatency})
	l, err := r.Session.Current.Transfers(ctx, args)
	r.Res.Bytes += int64(len(l.Samples)+warmups) * chunk * int64(count) * int64(len(args.Shares))
	f := failure.As(failure.StageExtra, err)
	if f == nil {
		return (*result.Latency)(nil).Add(l.Samples, nil), nil
	}
	for _, one := range flows {
		if one.name() == f.Rail {
			one.Result.Failure = f
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
