package round

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// Bursts returns the planned bursts of an extra over rails, in order and without figures. In an interactive round,
// GPU may add a second kind of memory. Bursts over bonds are not known in advance.
func (p Plan) Bursts(e result.Extra, rails []string) (list []result.Measured) {
	add := func(m result.Measured, rails []string, ops ...result.Op) {
		for _, rail := range rails {
			for _, op := range ops {
				m.Flows = append(m.Flows, result.MeasuredFlow{Rail: rail, Op: op})
			}
		}
		m.Kind = e.Kind
		list = append(list, m)
	}
	each := func(ops ...result.Op) {
		for i := 0; i < len(rails) && len(rails) > 1; i++ {
			add(result.Measured{}, rails[i:i+1], ops...)
		}
		add(result.Measured{}, rails, ops...)
	}
	sized := func(op result.Op, rails []string) {
		for _, n := range e.Counts {
			add(result.Measured{Size: int64(n)}, rails, op)
		}
	}
	switch e.Kind {
	case result.Reads:
		each(result.Read)
	case result.Both:
		each(result.Write, result.Read)
	case result.GPU:
		each(result.Write)
	case result.QueuePairs:
		for _, n := range e.Counts {
			add(result.Measured{QueuePairs: n}, rails, result.Write)
		}
	case result.Subset:
		add(result.Measured{}, rails, result.Write)
	case result.Messages:
		sized(result.Write, rails)
		for i := range list {
			for _, rail := range rails {
				list[i].Flows = append(list[i].Flows, result.MeasuredFlow{Rail: rail, Op: result.Read})
			}
		}
	case result.Sizes:
		op := result.Write
		if e.Read {
			op = result.Read
		}
		sized(op, rails)
	case result.TCPTime:
		sized("", rails)
	case result.Pages:
		for _, n := range e.Counts {
			for _, k := range slices.Compact([]int{min(1, len(rails)), len(rails)}) {
				add(result.Measured{Size: int64(n)}, rails[:k], result.Read)
			}
		}
		for _, n := range e.Counts {
			add(result.Measured{Size: int64(n), TCP: &result.TCPResult{Streams: pageStreams}}, nil)
		}
	case result.Loopback, result.Paths, result.Contention:
		p.pairsAndPaths(e, rails, func(flows ...result.MeasuredFlow) {
			list = append(list, result.Measured{Kind: e.Kind, Flows: flows})
		})
	}
	return list
}

// pairsAndPaths adds the bursts of extras that measure single rails, or two of them.
func (p Plan) pairsAndPaths(e result.Extra, rails []string, add func(...result.MeasuredFlow)) {
	for i, rail := range rails {
		one := result.MeasuredFlow{Rail: rail, Op: result.Write}
		switch e.Kind {
		case result.Loopback:
			for _, to := range rails {
				one.Other = to
				if to == rail || p.Runs > 1 {
					add(one)
				}
			}
		case result.Paths:
			for one.Path = range min(e.Counts[0], result.MaxPaths) {
				add(one)
			}
		default:
			add(one)
			for _, other := range rails[:i] {
				add(result.MeasuredFlow{Rail: other, Op: result.Write}, one)
			}
		}
	}
}

// Tally counts the bursts of a round, for its progress.
type Tally struct {
	Kind       result.Kind // extra that is measured; empty: none
	Done, all  int         // bursts of all extras: made, and planned
	Ours, upTo int         // range of the present extra within all bursts
	Other      int         // bursts of the round itself, made
	others     int         // bursts of the round itself, planned
	begun      time.Time
	end        time.Time // end of the round's time
}

// next counts a burst of an extra that was made, or could not be.
func (t *Tally) next() { t.Done = min(t.Done+1, t.upTo) }

// Begin plans the bursts over these rails.
func (t *Tally) Begin(ctx context.Context, p Plan, rails []string) {
	t.begun = time.Now()
	t.end, _ = ctx.Deadline()
	t.others = max(p.Runs, 1)
	if p.solo() {
		t.others += len(rails)
	}
	if p.Full {
		t.others += len(BaselineStreams)
	}
	for _, e := range p.ExtrasNow {
		t.all += max(len(p.Bursts(e, rails)), 1)
	}
}

// leastBursts is the number of bursts after which the remaining time can be estimated.
const leastBursts = 2

// Add adds to progress the number of the present burst and the remaining time, estimated from earlier bursts.
func (t *Tally) Add(p result.Progress) result.Progress {
	if t.Kind != "" {
		p.Kind, p.Step, p.Steps = t.Kind, min(t.Done+1, t.all), t.all
	}
	made, all := min(t.Other, t.others)+t.Done, t.others+t.all
	if made >= leastBursts && made < all {
		left := time.Duration(float64(time.Since(t.begun)) * float64(all-made) / float64(made))
		p.Left = min(left, time.Until(t.end))
	}
	return p
}

// extras runs the extras. Their failures do not change the outcome of the round.
func (r *Round) extras(ctx context.Context) {
	plans := make([][]result.Measured, len(r.Plan.ExtrasNow))
	r.Tally.all = 0
	for i, e := range r.Plan.ExtrasNow {
		plans[i] = r.Plan.Bursts(e, r.railsOf(e))
		r.Tally.all += max(len(plans[i]), 1)
	}
	for i, e := range r.Plan.ExtrasNow {
		measure := map[result.Kind]func(context.Context, result.Extra) error{result.Reads: r.measureReads,
			result.Both:       r.measureBoth,
			result.QueuePairs: r.measureQueuePairs, result.Loopback: r.measureLoopback, result.Paths: r.measurePaths,
			result.Contention: r.measureContention, result.GPU: r.measureGPU, result.Subset: r.measureSubset,
			result.Messages: r.measureMessages,
			result.Sizes:    r.measureSizes, result.Pages: r.measurePages, result.TCPTime: r.measureTCPTime,
			result.Bond:   r.measureBond,
			result.OneTCP: r.measureOneTCP}[e.Kind]
		t := r.Tally
		t.Kind, t.Ours, t.upTo = e.Kind, t.Done, t.Done+max(len(plans[i]), 1)
		err := failure.As(failure.StageExtra, timeUpError(ctx))
		if err == nil {
			err = failure.As(failure.StageExtra, measure(ctx, e))
		}
		if err != nil {
			r.missed(e.Kind, plans[i], t.Done-t.Ours, err)
		}
		t.Done, t.Kind = t.upTo, ""
	}
}

// missed records why an extra made only the first of its bursts.
func (r *Round) missed(kind result.Kind, planned []result.Measured, made int, why *failure.Failure) {
	left := planned[min(made, len(planned)):]
	if kind == result.GPU || len(left) == 0 {
		left = []result.Measured{{Kind: kind}}
	}
	for _, m := range left {
		m.Failure = why
		r.Res.Extras = append(r.Res.Extras, m)
	}
}

// railsOf returns the names of the rails that an extra uses.
func (r *Round) railsOf(e result.Extra) (names []string) {
	switch paths, err := r.chosen(e); {
	case e.Kind == result.Loopback:
		for _, p := range r.Paths {
			if p.Local.Unusable(p.GID) == nil {
				names = append(names, p.Local.Name)
			}
		}
	case err == nil:
		for _, p := range paths {
			names = append(names, p.Local.Name)
		}
	}
	return names
}

// Most returns the most bytes that one burst over paths moves.
func (p Plan) Most(paths []*Path) (sum int64) {
	for _, one := range paths {
		sum += mostOf(p.Load(one))
	}
	return sum
}

// mostOf returns the most bytes that a burst moves over one path: its cap, and the writes in flight.
func mostOf(l worker.Load) int64 { return l.Cap + int64(l.Depth+1)*l.Chunk }

// messageBursts returns the most bytes that the bursts of messages of an extra move over paths, one burst per size,
// and the largest of them.
func (p Plan) messageBursts(e result.Extra, paths []*Path) (sum, largest int64) {
	if len(paths) == 0 {
		return 0, 0
	}
	p.Rails = len(paths)
	for _, size := range e.Counts {
		most, chunk := int64(size), int64(size)
		if e.Kind == result.Sizes {
			most = p.Longest(paths)
			chunk, _ = Part(int64(size), len(paths), most)
		}
		one := p.OfMessages(chunk, most).Most(paths)
		sum, largest = sum+one, max(largest, one)
	}
	return sum, largest
}

// Repeats returns the additional bytes that repeated bursts may move in an interactive round.
func (p Plan) Repeats(paths []*Path) (bytes int64) {
	if p.Runs <= 1 || len(p.ExtrasNow) == 0 {
		return 0
	}
	bytes = p.Most(paths)
	for _, e := range p.ExtrasNow {
		if e.Kind == result.Sizes || e.Kind == result.Pages {
			_, largest := p.messageBursts(e, paths)
			bytes = max(bytes, largest)
		}
	}
	return bytes
}
