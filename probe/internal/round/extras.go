package round

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/verbs"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// measurement is one row of the table of what a round can measure besides its own bursts.
type measurement struct {
	kind   result.Kind
	values bool // an extra of the kind needs values
	// atOnce returns the number of bursts that an extra makes, counted in bursts over all rails; nil: see bytes.
	atOnce func(p Plan, e result.Extra, rails int) int
	// bytes returns the most bytes that an extra moves otherwise.
	bytes func(p Plan, e result.Extra, over carriers) int64
	// bursts returns the bursts of an extra over rails, in order and without figures; nil: not known in advance.
	bursts func(p Plan, e result.Extra, rails []string) []result.Measured
	run    func(ctx context.Context, r *Round, e result.Extra) error
}

// measurements returns the table, one row for each of [result.Kinds].
func measurements() []measurement {
	times := func(n int) func(Plan, result.Extra, int) int { return func(Plan, result.Extra, int) int { return n } }
	return []measurement{
		{kind: result.Reads, atOnce: times(2), bursts: eachThenAll(result.Read), run: measureOps(true, result.Read)},
		{kind: result.Bidirectional, atOnce: times(4), bursts: eachThenAll(result.Write, result.Read),
			run: measureOps(true, result.Write, result.Read)},
		{kind: result.QueuePairs, values: true, bursts: queuePairsBursts, run: measureQueuePairs,
			atOnce: func(_ Plan, e result.Extra, _ int) int { return len(e.Values) }},
		{kind: result.Loopback, bursts: loopbackBursts, run: measureLoopbacks,
			atOnce: func(p Plan, _ result.Extra, rails int) int { return loopbacksPerRail(p, rails) }},
		{kind: result.Paths, values: true, bursts: labelsBursts, run: measureLabels,
			atOnce: func(_ Plan, e result.Extra, _ int) int { return e.Values[0] }},
		{kind: result.Contention, bursts: contentionBursts, run: measureContention,
			atOnce: func(_ Plan, _ result.Extra, rails int) int { return rails }},
		{kind: result.GPU, bursts: eachThenAll(result.Write), run: measureGPU, // twice for a second kind of memory
			atOnce: func(p Plan, _ result.Extra, _ int) int { return 2 * max(p.Runs, 1) }},
		{kind: result.Rails, atOnce: times(1), bursts: allAtOnce, run: measureOps(false, result.Write)},
		{kind: result.Messages, values: true, bytes: messagesBytes, bursts: messagesBursts, run: measureMessages},
		{kind: result.Sweep, values: true, bytes: sweepBytes, bursts: sweepBursts, run: measureSweep},
		{kind: result.KVCache, values: true, bytes: kvCacheBytes, bursts: kvCacheBursts, run: measureKVCache},
		{kind: result.TCPTime, values: true, bytes: tcpTimeBytes, bursts: tcpTimeBursts, run: measureTCPTime},
		{kind: result.Bond, bytes: bondBytes, run: measureBond},
		{kind: result.OneTCP, bytes: oneTCPBytes, run: measureOneTCP},
		{kind: result.TCPStreams, values: true, bytes: tcpStreamsBytes, bursts: tcpStreamsBursts,
			run: measureTCPStreams},
	}
}

// measurementOf returns the row of a kind. An unknown kind has an empty one.
func measurementOf(kind result.Kind) (none measurement) {
	for _, m := range measurements() {
		if m.kind == kind {
			return m
		}
	}
	return none
}

// Limits of a list of extras.
const (
	maxExtras = 32
	maxValues = 64
	maxValue  = 1 << 30
)

// CheckExtras returns an error if no round can measure the list.
func CheckExtras(list []result.Extra) error {
	if len(list) > maxExtras {
		return fmt.Errorf("%d measurements besides those of a round: the limit is %d", len(list), maxExtras)
	}
	for _, e := range list {
		unknown := func(memory string) bool { return !slices.Contains(result.Memories(), memory) }
		switch m := measurementOf(e.Kind); {
		case m.run == nil:
			return fmt.Errorf("unknown measurement %.40q", e.Kind)
		case len(e.Values) > maxValues, m.values && len(e.Values) == 0,
			slices.ContainsFunc(e.Values, func(n int) bool { return n < 1 || n > maxValue }):
			return fmt.Errorf("%s: 1 to %d values from 1 to %d, not %.80s", e.Kind, maxValues, maxValue,
				fmt.Sprint(e.Values))
		case len(e.Rails) > worker.MaxRails:
			return fmt.Errorf("%s: %d rails: the limit is %d", e.Kind, len(e.Rails), worker.MaxRails)
		case slices.ContainsFunc(e.Memories, unknown):
			return fmt.Errorf("%s: unknown memory in %.80q", e.Kind, e.Memories)
		}
		if err := protocol.CheckTexts(e.Rails...); err != nil {
			return fmt.Errorf("%s: %w", e.Kind, err)
		}
	}
	return nil
}

// extras runs the extras. Their failures do not change the outcome of the round.
func (r *Round) extras(ctx context.Context) {
	t := &r.Tally
	plans := t.planExtras(r.Plan, r.railsFor)
	for i, e := range r.Plan.ExtrasNow {
		t.Kind, t.Ours, t.upTo = e.Kind, t.Done, t.Done+max(len(plans[i]), 1)
		err := cmp.Or(failure.As(failure.StageExtra, timeUpError(ctx)), r.leftOut())
		if err == nil {
			err = failure.As(failure.StageExtra, measurementOf(e.Kind).run(ctx, r, e))
		}
		if err != nil {
			missed(&r.Res, e.Kind, plans[i], t.Done-t.Ours, err)
		}
		t.Done, t.Kind = t.upTo, ""
	}
}

// missed records why an extra made only the first of its bursts.
func missed(res *result.Result, kind result.Kind, planned []result.Measured, made int, why *failure.Failure) {
	left := planned[min(made, len(planned)):]
	if kind == result.GPU || len(left) == 0 {
		left = []result.Measured{{Kind: kind}}
	}
	for _, m := range left {
		m.Failure = why
		res.Extras = append(res.Extras, m)
	}
}

// timeUpError returns [timeUp] as an error interface: nil, not a nil pointer.
func timeUpError(ctx context.Context) error {
	if f := timeUp(ctx); f != nil {
		return f
	}
	return nil
}

// chosen returns the flows of the rails that an extra names, in rail order; without names, all that worked in the
// round. Without RDMA there are none.
func (r *Round) chosen(e result.Extra) ([]*Flow, error) {
	flows := r.Live()
	if len(flows) == 0 || r.Res.Transport != result.RDMA {
		return nil, failure.New(failure.StageExtra, failure.NoDevice, "no rail works by RDMA")
	}
	for _, name := range e.Rails {
		if !slices.ContainsFunc(flows, func(p *Flow) bool { return p.Local.Name == name }) {
			return nil, failure.New(failure.StageExtra, failure.NoDevice, "no rail %s of this node works by RDMA (see "+
				"railscope rails)", name)
		}
	}
	return named(flows, e.Rails), nil
}

// railsFor returns the names of the rails that an extra uses.
func (r *Round) railsFor(e result.Extra) (names []string) {
	flows, err := r.chosen(e)
	if e.Kind == result.Loopback {
		flows, err = activeHere(r.Flows), nil
	}
	for _, p := range flows {
		if err == nil {
			names = append(names, p.Local.Name)
		}
	}
	return names
}

// ExtraSession is a session of an extra: what it moves counts for the round, and its failures do not.
type ExtraSession struct {
	*Session
	round *Round
}

// OpenFlows opens a session of the round's lease for flows, connects them, and measures samples latencies of each. The
// session ends when the next one opens. memory is a kind of GPU memory; empty: host memory.
func (r *Round) OpenFlows(ctx context.Context, plan Plan, memory string, flows []*Flow,
	samples int) (*ExtraSession, error) {
	if !r.Remote.Flows && slices.ContainsFunc(flows, func(f *Flow) bool { return f.Op == result.Read || f.label > 0 }) {
		return nil, failure.New(failure.StageExtra, failure.PeerVersion, "the railscope of the peer opens one flow of "+
			"writes per rail: install this version there")
	}
	s := r.newSession(plan, flows, samples)
	s.memory = memory
	return s, s.take(ctx, s.connect, s.reach, s.latency)
}

// openRails opens a session with a flow of each operation over each of the rails that an extra uses.
func (r *Round) openRails(ctx context.Context, e result.Extra, plan Plan, memory string, samples int,
	ops ...result.Op) (*ExtraSession, error) {
	rails, err := r.chosen(e)
	if err != nil {
		return nil, err
	}
	var flows []*Flow
	for _, p := range rails {
		for _, op := range ops {
			flows = append(flows, p.newFlow(op, 0))
		}
	}
	return r.OpenFlows(ctx, plan, memory, flows, samples)
}

// newSession returns a session for flows, each of which holds its own failure.
func (r *Round) newSession(plan Plan, flows []*Flow, samples int) *ExtraSession {
	plan.Rails, plan.LatencySamples = len(flows), min(r.Plan.LatencySamples, samples)
	return &ExtraSession{r.session.another(plan, flows, &result.Result{Class: r.Res.Class}), r}
}

// take takes steps until no flow is left.
func (s *ExtraSession) take(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		err := step(ctx)
		if err == nil {
			err = s.stopFailed(ctx)
		}
		s.addBytes()
		if err != nil {
			return err
		}
		if len(live(s.Flows)) == 0 {
			break
		}
	}
	return nil
}

// addBytes adds what the session has moved to the bytes of the round.
func (s *ExtraSession) addBytes() {
	s.round.Res.Bytes += s.Res.Bytes
	s.Res.Bytes = 0
}

// measure runs one burst over those of the flows that work, and adds it to the round's results. m has its kind and
// size.
func (s *ExtraSession) measure(ctx context.Context, m result.Measured, flows []*Flow) error {
	flows = slices.DeleteFunc(slices.Clone(flows), func(f *Flow) bool { return f.Result.Failure != nil })
	if len(flows) == 0 {
		return nil
	}
	res, held := &s.round.Res, &s.round.Reserved
	loads := s.Plan.Loads(flows)
	if !held.Affords(res.Bytes, loads) {
		return failure.New(failure.StageExtra, failure.Budget, "all bytes that were granted are used up")
	}
	args, planned := s.Plan.BurstArgs(loads, timeLeft(ctx)), loadBytes(loads)
	if s.Plan.Interactive && held.Spare < worker.MaxRepeats*planned {
		args.Once = true // the remaining bytes are for other bursts
	}
	done, err := s.burst(ctx, failure.StageExtra, flows, args)
	held.Spare += planned - s.Res.Bytes
	s.addBytes()
	if err == nil {
		err = s.stopFailed(ctx)
	}
	if err != nil {
		return err
	}
	m.QueuePairs, m.Memory = s.Plan.QueuePairs, s.memory
	for i, f := range flows {
		f.Result.Solo = Carried(f, loads, done, i)
		carried := f.measured()
		if carried.Goodput == nil && carried.Failure == nil { // failure of this burst only
			carried.Failure = Disturbed(args, done)
		}
		m.Flows = append(m.Flows, carried)
	}
	res.Extras = append(res.Extras, m)
	return nil
}

// addFailed adds a result for each of the flows that failed.
func (s *ExtraSession) addFailed(kind result.Kind, flows []*Flow) {
	for _, f := range flows {
		if f.Result.Failure != nil {
			s.round.Res.Extras = append(s.round.Res.Extras, result.Measured{Kind: kind, QueuePairs: s.Plan.QueuePairs,
				Memory: s.memory, Flows: []result.MeasuredFlow{f.measured()}})
		}
	}
}

// measured returns what a flow carried in the last burst.
func (p *Flow) measured() result.MeasuredFlow {
	m := result.MeasuredFlow{Rail: p.Local.Name, Op: result.Write, Path: p.label, Latency: p.Result.Latency,
		Failure: p.Result.Failure}
	if p.Op == result.Read {
		m.Op = result.Read
	}
	if p.Result.Solo != nil && p.Result.Failure == nil {
		m.Goodput, m.Counted = new(p.Result.Solo.BytesPerSecond()), p.Result.Solo.Counted
	}
	if p.Local.LinkLayer == "Ethernet" && p.Theirs.IsValid() {
		m.UDPPort = verbs.SourcePort(p.end.GID, p.Theirs, p.label)
	}
	return m
}
