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

	sizeTime     = 2 * time.Second        // time in which transfers of one size begin
	sizesTime    = 600 * time.Millisecond // most rail time that transfers of all sizes take
	sizeBurst    = 10 * time.Millisecond  // most time that the writes of a burst's window take
	sizeInFlight = 4 << 20                // bytes that many small messages keep in flight
	sizeDepth    = 256                    // most messages in flight
)

// messagesBytes covers writes and reads.
func messagesBytes(p Plan, e result.Extra, over carriers) int64 {
	return 2 * int64(len(over.rails)) * sumOf(e.Values) * int64(p.messageSamples()+warmups)
}

func messagesBursts(_ Plan, e result.Extra, rails []string) (list []result.Measured) {
	list = perSize(e, rails, result.Write)
	for i := range list {
		list[i].Flows = append(list[i].Flows, planned(rails, result.Read).Flows...)
	}
	return list
}

// measureMessages measures how long single messages of each size take on each rail, written and read.
func measureMessages(ctx context.Context, r *Round, e result.Extra) error {
	rails, err := r.chosen(e)
	if err != nil {
		return err
	}
	flows := slices.Concat(newFlows(rails, result.Write), newFlows(rails, result.Read))
	plan := r.Plan
	plan.QueuePairs = 1
	s, err := r.OpenFlows(ctx, plan, "", flows, 1)
	if err != nil {
		return err
	}
	for _, size := range e.Values {
		m := result.Measured{Kind: result.Messages, QueuePairs: 1, Size: int64(size)}
		for _, f := range flows {
			if f.Result.Failure == nil {
				r.Progress(result.Progress{Stage: failure.StageLatency, Rail: f.Local.Name})
				l, err := s.worker.Current.Latency(ctx, worker.LatencyArgs{Rail: f.name(), Size: m.Size,
					N: r.Plan.messageSamples(), Limit: latencyTime})
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
	return s.stopFailed(ctx)
}

// Part divides a transfer of a size for each of n rails into count messages of chunk bytes, at most most.
func Part(size int64, n int, most int64) (chunk int64, count int) {
	each := (size + int64(n) - 1) / int64(n)
	for count = 1; each > most*int64(count); count *= 2 {
	}
	return max((each+int64(count)-1)/int64(count), minChunk), count
}

// SweepBytes returns the most bytes that transfers of these sizes move, in addition to bursts.
func SweepBytes(sizes []int, flows []*Flow) (sum int64) {
	counts := transfers(sizes, flows)
	for i, size := range sizes {
		sum += int64(counts[i]+warmups) * (int64(size) + int64(len(flows))*minChunk)
	}
	return sum
}

// transfers returns how many transfers of each size, ascending, are timed: fewer large ones on a slow link. Time
// that small sizes leave is available to larger ones.
func transfers(sizes []int, flows []*Flow) (counts []int) {
	left := 0.0 // bytes
	for _, p := range flows {
		left += p.rate() * sizesTime.Seconds()
	}
	for i, size := range sizes {
		n := max(min(int(left/float64(len(sizes)-i)/float64(size)), ExtraSamples), 1)
		counts, left = append(counts, n), left-float64(n)*float64(size)
	}
	return counts
}

func sweepBytes(p Plan, e result.Extra, over carriers) int64 {
	rails := named(over.rails, e.Rails)
	bursts, _ := p.messageBursts(e, rails)
	return over.latencyBytes() + bursts + SweepBytes(e.Values, rails)
}

func sweepBursts(_ Plan, e result.Extra, rails []string) []result.Measured {
	return perSize(e, rails, sizesOp(e))
}

func sizesOp(e result.Extra) result.Op {
	if e.Read {
		return result.Read
	}
	return result.Write
}

// measureSweep measures transfers of each size, in equal parts over all rails: the goodput of many in flight, in
// messages of at most 1 MiB, and the time of a single one.
func measureSweep(ctx context.Context, r *Round, e result.Extra) error {
	rails, err := r.chosen(e)
	if err != nil {
		return err
	}
	flows := newFlows(rails, sizesOp(e))
	plan := r.Plan
	plan.Rails = len(flows)
	longest := plan.Longest(flows)
	for _, size := range e.Values {
		for n := range flows { // memory for any number of flows that still work
			chunk, _ := Part(int64(size), n+1, longest)
			at := plan.OfMessages(chunk, longest)
			plan.minMemory = max(plan.minMemory, chunk*at.slots(at.QueuePairs))
		}
	}
	s, err := openSizes(ctx, r, result.Sweep, flows, plan)
	if err != nil {
		return err
	}
	plan = s.Plan
	counts := transfers(e.Values, rails)
	for i, size := range e.Values {
		working := live(flows)
		if len(working) == 0 {
			return nil
		}
		chunk, count := Part(int64(size), len(working), longest)
		s.Plan = plan.OfMessages(chunk, longest)
		at := len(r.Res.Extras)
		if err := s.measure(ctx, result.Measured{Kind: result.Sweep, Size: int64(size)}, flows); err != nil {
			return err
		}
		used := min(int64(len(working)), max(int64(size)/minChunk, 1)) // a transfer of two pages goes over two rails
		took, err := s.timeTransfers(ctx, working[:used], worker.Share{Chunk: chunk, Count: count}, counts[i])
		if err != nil {
			return err
		}
		if len(r.Res.Extras) > at {
			r.Res.Extras[at].Transfer = took
		}
		r.Tally.next()
	}
	return nil
}

// openSizes opens flows for messages of several sizes, whose plan has the memory that they need. The bursts of kind of
// flows that do not open are recorded as failed.
func openSizes(ctx context.Context, r *Round, kind result.Kind, flows []*Flow, plan Plan) (*ExtraSession, error) {
	deep := plan
	deep.Depth = max(plan.Depth, sizeDepth)
	s, err := r.OpenFlows(ctx, deep, "", flows, ExtraSamples)
	if err != nil {
		return nil, err
	}
	s.addFailed(kind, flows)
	s.Plan.Depth = plan.Depth
	return s, nil
}

// Longest returns the longest message of a transfer over flows: 1 MiB or, on slow links, a length that leaves
// enough budget for all sizes.
func (p Plan) Longest(flows []*Flow) int64 {
	slowest := float64(transfer.MaxChunk)
	for _, f := range flows {
		slowest = min(slowest, f.rate()*sizeBurst.Seconds()/BurstWrites)
	}
	return p.Chunk(slowest, transfer.MaxChunk)
}

// OfMessages returns the plan with messages of chunk bytes. most is the plan's own chunk, whose memory limits the
// depth.
func (p Plan) OfMessages(chunk, most int64) Plan {
	p.message = chunk
	room := max(most*p.slots(p.QueuePairs)/chunk/2-int64(2*p.QueuePairs), 1)
	p.Depth = max(p.Depth, int(min(sizeInFlight/chunk, sizeDepth, room)))
	return p
}

// timeTransfers makes n transfers over all working flows, one after the other. part is the share of each flow.
func (s *ExtraSession) timeTransfers(ctx context.Context, flows []*Flow, part worker.Share,
	n int) (*result.Latency, error) {
	args := worker.TransfersArgs{N: n, Limit: min(sizeTime, timeLeft(ctx)), Deadline: timeLeft(ctx)}
	for _, p := range live(flows) {
		part.Rail = p.name()
		args.Shares = append(args.Shares, part)
	}
	s.progress(result.Progress{Stage: failure.StageLatency})
	l, err := s.worker.Current.Transfers(ctx, args)
	s.round.Res.Bytes += int64(len(l.Samples)+warmups) * part.Chunk * int64(part.Count) * int64(len(args.Shares))
	f := failure.As(failure.StageExtra, err)
	if f == nil {
		return (*result.Latency)(nil).Add(l.Samples, nil), nil
	}
	if p := flow(flows, f.Rail); p != nil {
		p.Result.Failure = f
	}
	return nil, f
}
