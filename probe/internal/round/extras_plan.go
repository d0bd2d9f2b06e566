package round

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Number of 8 B writes per flow: enough for a p99, and fewer on a path that may lose packets.
const (
	ExtraSamples = 100
	pathSamples  = 20
)

// maxMessages bounds how often a message of each size is timed.
const maxMessages = 1000

// messageSamples returns how often a message of each size is timed: where somebody waits, as often as those of 8 B.
func (p Plan) messageSamples() int {
	if p.Interactive {
		return min(p.LatencySamples, maxMessages)
	}
	return ExtraSamples
}

// carriers are what the extras of a round may use: rails that can carry data by RDMA, TCP routes, and bonds.
type carriers struct {
	rails, tcp []*Flow
	bonds      []BondRoute
}

// latencyBytes returns the bytes of the latencies of one flow per rail.
func (c carriers) latencyBytes() int64 { return int64(len(c.rails)) * 8 * ExtraSamples }

// ExtraBytes returns the most bytes that the extras move: over flows by RDMA, over tcp by TCP, and over bonds.
func (p Plan) ExtraBytes(flows, tcp []*Flow, bonds []BondRoute) (sum int64) {
	over := carriers{carrying(flows), tcp, bonds}
	if p.Runs > 1 { // interactive round: see splitLatency
		sum += 2 * over.latencyBytes()
	}
	for _, e := range p.ExtrasNow {
		if m := measurementOf(e.Kind); m.atOnce != nil {
			sum += int64(m.atOnce(p, e, len(over.rails))) * (p.BurstBytes(over.rails) + over.latencyBytes())
		} else {
			sum += m.bytes(p, e, over)
		}
	}
	return sum + p.Repeats(over.rails)
}

// Bursts returns the planned bursts of an extra over rails, in order and without figures. In an interactive round,
// GPU may add a second kind of memory.
func (p Plan) Bursts(e result.Extra, rails []string) (list []result.Measured) {
	if m := measurementOf(e.Kind); m.bursts != nil {
		list = m.bursts(p, e, rails)
	}
	for i := range list {
		list[i].Kind = e.Kind
	}
	return list
}

// planned returns a burst with one flow per rail and operation.
func planned(rails []string, ops ...result.Op) (m result.Measured) {
	for _, rail := range rails {
		for _, op := range ops {
			m.Flows = append(m.Flows, result.MeasuredFlow{Rail: rail, Op: op})
		}
	}
	return m
}

// allAtOnce plans one burst over all rails.
func allAtOnce(_ Plan, _ result.Extra, rails []string) []result.Measured {
	return []result.Measured{planned(rails, result.Write)}
}

// eachThenAll plans a burst over each of several rails, then one over all.
func eachThenAll(ops ...result.Op) func(Plan, result.Extra, []string) []result.Measured {
	return func(_ Plan, _ result.Extra, rails []string) (list []result.Measured) {
		for i := 0; i < len(rails) && len(rails) > 1; i++ {
			list = append(list, planned(rails[i:i+1], ops...))
		}
		return append(list, planned(rails, ops...))
	}
}

// perSize plans a burst over all rails for each size.
func perSize(e result.Extra, rails []string, op result.Op) (list []result.Measured) {
	for _, size := range e.Values {
		m := planned(rails, op)
		m.Size = int64(size)
		list = append(list, m)
	}
	return list
}

// carrying returns the flows that can carry data.
func carrying(flows []*Flow) []*Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(p *Flow) bool {
		return p.Peer == nil || !p.Peer.Active || !p.Local.Status.Limits.Active
	})
}

// named returns the flows of rails with these names; nil: all.
func named(flows []*Flow, names []string) []*Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(p *Flow) bool {
		return names != nil && !slices.Contains(names, p.Local.Name)
	})
}

// messageBursts returns the most bytes that the bursts of messages of an extra move over flows, one burst per size,
// and the largest of them.
func (p Plan) messageBursts(e result.Extra, flows []*Flow) (sum, largest int64) {
	if len(flows) == 0 {
		return 0, 0
	}
	p.Rails = len(flows)
	for _, size := range e.Values {
		longest, chunk := int64(size), int64(size)
		if e.Kind == result.Sweep {
			longest = p.Longest(flows)
			chunk, _ = Part(int64(size), len(flows), longest)
		}
		bytes := p.OfMessages(chunk, longest).BurstBytes(flows)
		sum, largest = sum+bytes, max(largest, bytes)
	}
	return sum, largest
}

// Repeats returns the additional bytes that repeated bursts may move in an interactive round.
func (p Plan) Repeats(flows []*Flow) (bytes int64) {
	if p.Runs <= 1 || len(p.ExtrasNow) == 0 {
		return 0
	}
	bytes = p.BurstBytes(flows)
	for _, e := range p.ExtrasNow {
		if e.Kind == result.Sweep || e.Kind == result.KVCache {
			_, largest := p.messageBursts(e, flows)
			bytes = max(bytes, largest)
		}
	}
	return bytes
}

func sumOf(sizes []int) (sum int64) {
	for _, size := range sizes {
		sum += int64(size)
	}
	return sum
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

// Begin plans the bursts over these rails, before it is known which of them work.
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
	t.planExtras(p, func(result.Extra) []string { return rails })
}

// planExtras returns the bursts of each extra over the rails that it uses, and counts them.
func (t *Tally) planExtras(p Plan, rails func(result.Extra) []string) (plans [][]result.Measured) {
	t.all = 0
	for _, e := range p.ExtrasNow {
		plan := p.Bursts(e, rails(e))
		plans, t.all = append(plans, plan), t.all+max(len(plan), 1)
	}
	return plans
}

// minMade is the number of bursts after which the remaining time can be estimated.
const minMade = 2

// Add adds to progress the number of the present burst and the remaining time, estimated from earlier bursts.
func (t *Tally) Add(p result.Progress) result.Progress {
	if t.Kind != "" {
		p.Kind, p.Step, p.Steps = t.Kind, min(t.Done+1, t.all), t.all
	}
	made, all := min(t.Other, t.others)+t.Done, t.others+t.all
	if made >= minMade && made < all {
		left := time.Duration(float64(time.Since(t.begun)) * float64(all-made) / float64(made))
		p.Left = min(left, time.Until(t.end))
	}
	return p
}

// Plans asks the peer of a round for its rails and for what it grants, and returns what rounds with each of the lists
// of extras would need. It moves no data, and needs neither the slot nor a lease. In place of [Round.Run].
func Plans(ctx context.Context, r *Round, lists [][]result.Extra) (plans result.Plans, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Plan.Timeout)
	defer cancel()
	defer r.Free()
	err = r.exchangeHello(ctx)
	if r.Past != nil {
		<-r.Past.Turn
	}
	if err != nil {
		return plans, failure.As(failure.StageHello, err)
	}
	tcp, bonds := TCPFlows(r.Routes(), r.Flows), r.bonds()
	var rails []string
	for _, p := range carrying(r.Flows) {
		rails = append(rails, p.Local.Name)
	}
	for _, list := range lists {
		plan, t := r.Plan, Tally{}
		plan.ExtrasNow = list
		t.Begin(ctx, plan, rails)
		bytes := plan.Bytes(r.Flows, tcp) + plan.ExtraBytes(r.Flows, tcp, bonds)
		need := min(options.RailTime(bytes, plan.Rate), options.MaxTimeout)
		plans.Needs = append(plans.Needs, result.Need{Bursts: t.others + t.all, RailTime: need,
			Budget: options.BudgetFor(need)})
	}
	if g := r.Remote.Grants; g != nil {
		plans.Grants = &result.Grants{Lease: options.Seconds(g.Lease), Left: options.Seconds(g.Left)}
	}
	return plans, nil
}
