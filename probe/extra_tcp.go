package probe

import (
	"context"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// pageStreams are the connections per rail over which pages are moved: those of the better baseline on most networks.
const pageStreams = 4

// measureTCPTime measures how long messages take over TCP, from write to the acknowledgement of the target's process.
func (r *round) measureTCPTime(ctx context.Context, e Extra) error {
	lanes := r.lanes()
	paths := r.tcpPaths(lanes)
	var loads []worker.Load
	for _, p := range paths {
		loads = append(loads, r.plan.tcpLoad(p, 1, len(paths)))
	}
	if len(lanes) == 0 {
		return failure.New(failure.StageExtra, failure.NoAddress, "no address of this node is in one subnet with one of "+
			"the peer's")
	}
	broken, err := r.openTCP(ctx, lanes, loads, 1)
	if err != nil {
		return err
	}
	for _, size := range e.Counts {
		m := Measured{Kind: TCPTime, Size: int64(size), TCP: &TCPResult{Streams: 1}}
		for _, p := range paths {
			if slices.Contains(broken, p.name()) {
				continue
			}
			l, err := r.session.current.Latency(ctx, worker.LatencyArgs{Rail: p.name(), Size: m.Size, N: extraSamples,
				Limit: latencyTime})
			one := MeasuredFlow{Rail: p.local.Name, Latency: (*Latency)(nil).add(l.Samples, nil)}
			one.Failure = failure.As(failure.StageExtra, err)
			r.res.Bytes += m.Size * int64(len(l.Samples))
			m.Flows = append(m.Flows, one)
		}
		r.res.Extras = append(r.res.Extras, m)
	}
	return nil
}

// measurePages measures reads of pages of a KV cache, which lie apart in the peer's memory: over the first rail, over
// all at once, and for comparison the same pages over TCP.
func (r *round) measurePages(ctx context.Context, e Extra) error {
	paths, err := r.chosen(e)
	if err == nil {
		err = r.readPages(ctx, paths, e.Counts)
	}
	if over := r.pagesOverTCP(ctx, e.Counts); err == nil {
		err = over
	}
	return err
}

func (r *round) readPages(ctx context.Context, paths []*path, pages []int) error {
	flows := flowsOver(paths, Read)
	with := *r
	most := with.plan.chunk(float64(slices.Max(pages)), int64(slices.Max(pages)))
	for _, page := range pages {
		with.plan.least = max(with.plan.least, int64(page)*with.plan.ofMessages(int64(page), most).slots(r.plan.QueuePairs))
	}
	depth := with.plan.Depth
	with.plan.Depth = max(depth, sizeDepth)
	sub, err := with.with(ctx, flows, r.plan.QueuePairs, extraSamples)
	if r.res.Bytes = with.res.Bytes; err != nil {
		return err
	}
	r.res.Extras = append(r.res.Extras, failed(Pages, r.plan.QueuePairs, flows)...)
	sub.plan.Depth = depth
	plan := sub.plan
	for _, page := range pages {
		sub.size, sub.plan = int64(page), plan.ofMessages(int64(page), most)
		for _, n := range slices.Compact([]int{1, len(flows)}) {
			if err := r.carry(ctx, Pages, sub, flows[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *round) pagesOverTCP(ctx context.Context, pages []int) error {
	plan := r.plan
	defer func() { r.plan = plan }()
	for _, page := range pages {
		r.plan.message = min(int64(page), maxTCPChunk)
		res, err := r.tcp(ctx, failure.StageBaseline, pageStreams)
		if err != nil {
			return err
		}
		r.res.Extras = append(r.res.Extras, Measured{Kind: Pages, Size: int64(page), TCP: &res})
	}
	return nil
}
