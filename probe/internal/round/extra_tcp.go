package round

import (
	"context"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// pageStreams is the number of connections per rail over which pages are moved: that of the faster baseline on most
// networks.
const pageStreams = 4

// measureTCPTime measures the time of messages over TCP, from write to the acknowledgement by the target's process.
func (r *Round) measureTCPTime(ctx context.Context, e result.Extra) error {
	lanes := r.Lanes()
	paths := r.TCPPaths(lanes)
	var loads []worker.Load
	for _, p := range paths {
		loads = append(loads, r.Plan.tcpLoad(p, 1, len(paths)))
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
		m := result.Measured{Kind: result.TCPTime, Size: int64(size), TCP: &result.TCPResult{Streams: 1}}
		for _, p := range paths {
			if slices.Contains(broken, p.name()) {
				m.Flows = append(m.Flows, result.MeasuredFlow{Rail: p.Local.Name, Failure: failure.New(failure.StageConnect,
					failure.TCPBroken, "rail %s: no connection over TCP", p.Local.Name)})
				continue
			}
			l, err := r.Session.Current.Latency(ctx, worker.LatencyArgs{Rail: p.name(), Size: m.Size, N: ExtraSamples,
				Limit: latencyTime})
			one := result.MeasuredFlow{Rail: p.Local.Name, Latency: (*result.Latency)(nil).Add(l.Samples, nil)}
			one.Failure = failure.As(failure.StageExtra, err)
			r.Res.Bytes += m.Size * int64(len(l.Samples))
			m.Flows = append(m.Flows, one)
		}
		r.Res.Extras = append(r.Res.Extras, m)
		r.Tally.next()
	}
	return nil
}

// measureOneTCP measures one connection over the first rail alone. With a single rail, the baseline has that
// figure.
func (r *Round) measureOneTCP(ctx context.Context, _ result.Extra) error {
	lanes := r.usedLanes()
	if len(lanes) < 2 {
		return nil
	}
	paths := r.TCPPaths(lanes)[:1]
	res, err := r.tcpOver(ctx, failure.StageBaseline, lanes[:1], paths, 1)
	if err == nil && res.BytesPerSecond <= 0 {
		err = tooFewWrites("rail " + lanes[0].Name)
	}
	r.Res.Extras = append(r.Res.Extras, result.Measured{Kind: result.OneTCP, TCP: &res,
		Failure: failure.As(failure.StageExtra, err),
		Flows:   []result.MeasuredFlow{{Rail: lanes[0].Name}}})
	return nil
}

// measurePages measures reads of KV cache pages, which lie apart in the peer's memory: over the first rail, over
// all at once, and over TCP for comparison.
func (r *Round) measurePages(ctx context.Context, e result.Extra) error {
	paths, err := r.chosen(e)
	if err == nil {
		err = r.readPages(ctx, paths, e.Counts)
	}
	if err != nil { // TCP does not need RDMA paths
		planned := r.Plan.Bursts(e, r.railsOf(e))
		planned = planned[:len(planned)-len(e.Counts)]
		r.missed(result.Pages, planned, r.Tally.Done-r.Tally.Ours, failure.As(failure.StageExtra, err))
		r.Tally.Done = r.Tally.Ours + len(planned)
	}
	return r.pagesOverTCP(ctx, e.Counts)
}

func (r *Round) readPages(ctx context.Context, paths []*Path, pages []int) error {
	flows := flowsOver(paths, result.Read)
	plan := r.Plan
	most := plan.Chunk(float64(slices.Max(pages)), int64(slices.Max(pages)))
	for _, page := range pages {
		plan.least = max(plan.least, int64(page)*plan.OfMessages(int64(page), most).slots(plan.QueuePairs))
	}
	sub, err := openSizes(ctx, r, result.Pages, flows, plan)
	if err != nil {
		return err
	}
	plan = sub.Plan
	for _, page := range pages {
		sub.size, sub.Plan = int64(page), plan.OfMessages(int64(page), most)
		for _, n := range slices.Compact([]int{1, len(flows)}) {
			if err := r.carry(ctx, result.Pages, sub, flows[:n]); err != nil {
				return err
			}
			r.Tally.next()
		}
	}
	return nil
}

func (r *Round) pagesOverTCP(ctx context.Context, pages []int) error {
	plan := r.Plan
	defer func() { r.Plan = plan }()
	for _, page := range pages {
		r.Plan.message = min(int64(page), maxTCPChunk)
		res, err := r.tcp(ctx, failure.StageBaseline, pageStreams)
		if err != nil {
			return err
		}
		m := result.Measured{Kind: result.Pages, Size: int64(page), TCP: &res}
		if res.BytesPerSecond <= 0 {
			m.Failure = tooFewWrites("the rails")
		}
		r.Res.Extras = append(r.Res.Extras, m)
		r.Tally.next()
	}
	return nil
}
