package round

import (
	"context"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/memory"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// measureOps returns a function that measures all rails at once, with one flow per operation. alone: each of several
// rails is measured alone before.
func measureOps(alone bool, ops ...result.Op) func(context.Context, *Round, result.Extra) error {
	return func(ctx context.Context, r *Round, e result.Extra) error {
		s, err := r.openRails(ctx, e, r.Plan, "", ExtraSamples, ops...)
		if err != nil {
			return err
		}
		s.addFailed(e.Kind, s.Flows)
		m := result.Measured{Kind: e.Kind}
		for rail := range slices.Chunk(s.Flows, len(ops)) {
			if !alone || len(rail) == len(s.Flows) {
				break
			}
			if err := s.measure(ctx, m, rail); err != nil {
				return err
			}
			r.Tally.next()
		}
		return s.measure(ctx, m, s.Flows)
	}
}

func queuePairsBursts(_ Plan, e result.Extra, rails []string) (list []result.Measured) {
	for _, n := range e.Values {
		m := planned(rails, result.Write)
		m.QueuePairs = n
		list = append(list, m)
	}
	return list
}

// measureQueuePairs measures all rails at once with each number of queue pairs.
func measureQueuePairs(ctx context.Context, r *Round, e result.Extra) error {
	plan := r.Plan
	for _, n := range e.Values {
		plan.QueuePairs = min(n, worker.MaxQueuePairs)
		s, err := r.openRails(ctx, e, plan, "", 1, result.Write)
		if err != nil {
			return err
		}
		s.addFailed(e.Kind, s.Flows)
		if err := s.measure(ctx, result.Measured{Kind: e.Kind}, s.Flows); err != nil {
			return err
		}
		r.Tally.next()
	}
	return nil
}

func labelsBursts(_ Plan, e result.Extra, rails []string) (list []result.Measured) {
	for _, rail := range rails {
		for label := range min(e.Values[0], result.MaxPaths) {
			m := planned([]string{rail}, result.Write)
			m.Flows[0].Path = label
			list = append(list, m)
		}
	}
	return list
}

// measureLabels measures each rail with flows of different labels, one at a time, and counts their loss.
func measureLabels(ctx context.Context, r *Round, e result.Extra) error {
	rails, err := r.chosen(e)
	if err != nil {
		return err
	}
	plan := r.Plan
	plan.QueuePairs = 1
	for _, p := range rails {
		var flows []*Flow
		for label := range min(e.Values[0], result.MaxPaths) {
			flows = append(flows, p.newFlow(result.Write, label))
		}
		s, err := r.OpenFlows(ctx, plan, "", flows, pathSamples)
		if err != nil {
			return err
		}
		s.addFailed(result.Paths, flows)
		for _, f := range flows {
			if err := measureLabel(ctx, s, f); err != nil {
				return err
			}
			r.Tally.next()
		}
		lossy, _ := r.Res.LossyPaths(p.Local.Name)
		for _, one := range lossy { // a second attempt: a node that was delayed loses packets, too
			if err := measureLabel(ctx, s, flows[one.Path]); err != nil {
				return err
			}
			r.Res.KeepBetter(one.Rail, one.Path)
		}
	}
	return nil
}

// measureLabel runs a burst over one flow, between two readings of its rail's counters at both ends.
func measureLabel(ctx context.Context, s *ExtraSession, f *Flow) error {
	if f.Result.Failure != nil {
		return nil
	}
	alone := []*Flow{f}
	f.Result.Loss, f.Result.Bytes, f.sent = nil, 0, 0
	reading := s.node.SettledTraffic(ctx, railsOf(alone))
	before, err := s.peerEvents(ctx, f)
	at := len(s.round.Res.Extras)
	if err == nil {
		err = s.measure(ctx, result.Measured{Kind: result.Paths}, alone)
	}
	CountLoss(alone, reading, s.node.SettledTraffic(ctx, railsOf(alone)))
	if err != nil || len(s.round.Res.Extras) == at {
		return err
	}
	after, err := s.peerEvents(ctx, f)
	if l := f.Result.Loss; l != nil && before != nil && after != nil && *after >= *before {
		l.PeerEvents = new(*after - *before)
	}
	s.round.Res.Extras[at].Flows[0].Loss = f.Result.Loss
	return err
}

// peerEvents asks the peer how many packets arrived out of sequence, or twice, over the rail of a flow since the
// session began; nil: the peer does not count them.
func (s *ExtraSession) peerEvents(ctx context.Context, f *Flow) (*uint64, error) {
	v, err := s.client.Verify(ctx, worker.VerifyArgs{Seed: s.seed, Count: true})
	if n, counted := v.Events[f.Peer.Name]; err == nil && counted {
		return &n, nil
	}
	return nil, err
}

func contentionBursts(_ Plan, _ result.Extra, rails []string) (list []result.Measured) {
	for i, rail := range rails {
		list = append(list, planned([]string{rail}, result.Write))
		for _, other := range rails[:i] {
			list = append(list, planned([]string{other, rail}, result.Write))
		}
	}
	return list
}

// measureContention measures two rails at a time, after each alone.
func measureContention(ctx context.Context, r *Round, e result.Extra) error {
	s, err := r.openRails(ctx, e, r.Plan, "", ExtraSamples, result.Write)
	if err != nil {
		return err
	}
	for i, f := range s.Flows {
		if err := s.measure(ctx, result.Measured{Kind: result.Contention}, s.Flows[i:i+1]); err != nil {
			return err
		}
		r.Tally.next()
		for _, other := range s.Flows[:i] {
			if other.Result.Failure == nil && f.Result.Failure == nil {
				if err := measurePair(ctx, s, []*Flow{other, f}); err != nil {
					return err
				}
			}
			r.Tally.next()
		}
	}
	return nil
}

// measurePair runs a burst over two rails, and a second one if they seem to share something. The better one counts.
func measurePair(ctx context.Context, s *ExtraSession, pair []*Flow) error {
	for range 2 {
		if err := s.measure(ctx, result.Measured{Kind: result.Contention}, pair); err != nil {
			return err
		}
		of := func(p result.Pair) bool { return p.Rail == pair[0].Local.Name && p.Other == pair[1].Local.Name }
		all := result.Contended(s.round.Res.Extras)
		if i := slices.IndexFunc(all, of); i < 0 || all[i].Ratio >= result.SharedBelow {
			return nil
		}
	}
	return nil
}

// measureGPU measures RDMA WRITE from the GPU nearest to each rail to the peer's. Without kinds of memory in e, the
// vendor of the GPU nearest to a rail decides which are tried. The memory is freed afterwards.
func measureGPU(ctx context.Context, r *Round, e result.Extra) error {
	defer func() { _ = r.session.worker.End() }() // frees GPU memory now, not with the next session
	if e.Memories != nil {
		return measureMemories(ctx, r, e)
	}
	rails, err := r.chosen(e)
	if err != nil {
		return err
	}
	for _, amd := range []bool{false, true} {
		e.Rails, e.Memories = nil, worker.MemoriesOf(amd)
		for _, f := range rails {
			if f.Local.NearAMD() == amd {
				e.Rails = append(e.Rails, f.Local.Name)
			}
		}
		if e.Rails == nil {
			continue
		}
		if err := measureMemories(ctx, r, e); err != nil {
			return err
		}
	}
	return nil
}

// measureMemories measures each rail alone, then all at once, with the first kind of memory that works. If that is
// pinned host memory, the adapters do not reach the GPU, and an interactive round also measures copies.
func measureMemories(ctx context.Context, r *Round, e result.Extra) error {
	for _, kind := range e.Memories {
		s, err := r.openRails(ctx, e, r.Plan, kind, ExtraSamples, result.Write)
		if err != nil {
			return err
		}
		flows := s.Flows
		if f := noneOf(flows); f != nil { // another kind may work
			r.Res.Extras = append(r.Res.Extras, result.Measured{Kind: result.GPU, Memory: kind, Failure: f})
			continue
		}
		m := result.Measured{Kind: result.GPU}
		for i := range flows {
			s.addFailed(result.GPU, flows[i:i+1])
			if err := s.measure(ctx, m, flows[i:i+1]); err != nil {
				return err
			}
			r.Tally.next()
		}
		if len(flows) > 1 {
			if err := s.measure(ctx, m, flows); err != nil {
				return err
			}
		}
		if !r.Plan.Interactive || kind != string(memory.CUDAHost) {
			return nil
		}
	}
	return nil // the result of each kind has the reason
}

// noneOf returns the first failure if every flow failed, else nil.
func noneOf(flows []*Flow) *failure.Failure {
	for _, f := range flows {
		if f.Result.Failure == nil {
			return nil
		}
	}
	return flows[0].Result.Failure
}

// answerEnd is the suffix of the responding end's name in a loopback flow.
const answerEnd = " answers"

// loopbacksPerRail returns how many flows leave each rail: in an interactive round, one to each rail.
func loopbacksPerRail(p Plan, rails int) int {
	if p.Runs > 1 {
		return rails
	}
	return 1
}

func loopbackBursts(p Plan, _ result.Extra, rails []string) (list []result.Measured) {
	for _, from := range rails {
		for _, to := range rails {
			if from == to || p.Runs > 1 {
				m := planned([]string{from}, result.Write)
				m.Flows[0].Other = to
				list = append(list, m)
			}
		}
	}
	return list
}

// activeHere returns the flows whose rail works at this node, whatever the peer's state.
func activeHere(flows []*Flow) []*Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(p *Flow) bool { return p.Local.Unusable(p.GID) != nil })
}

// measureLoopbacks measures each rail to itself and, in an interactive round, to each other rail. The peer takes no
// part: a rate that is low here as well is not caused by the network.
func measureLoopbacks(ctx context.Context, r *Round, _ result.Extra) error {
	rails := activeHere(r.Flows)
	if len(rails) == 0 {
		return failure.New(failure.StageExtra, failure.NoDevice, "this node has no rail that is active")
	}
	for _, from := range rails {
		for _, to := range rails {
			if from != to && !r.Plan.Interactive {
				continue
			}
			if err := timeUpError(ctx); err != nil {
				return err
			}
			if err := measureLoopback(ctx, r, from.newLoopback(to)); err != nil {
				return err
			}
			r.Tally.next()
		}
	}
	return nil
}

// measureLoopback opens a session with both ends of one flow, and runs a burst.
func measureLoopback(ctx context.Context, r *Round, f *Flow) error {
	flows := []*Flow{f}
	s := r.newSession(r.Plan, flows, ExtraSamples)
	before := r.Node.Traffic(railsOf(flows))
	start := r.Res.Bytes
	err := s.take(ctx, s.connectLoopback, s.reach, s.latency)
	if l := f.Result.Failure; l != nil && f.to.Local.Name != f.Local.Name {
		f.Result.Failure = failure.New(l.Stage, failure.NoRoute, "rail %s does not reach rail %s of this node: %s",
			f.Local.Name, f.to.Local.Name, l.Detail)
	}
	at := len(r.Res.Extras)
	if err == nil && f.Result.Failure == nil {
		err = s.measure(ctx, result.Measured{Kind: result.Loopback}, flows)
	}
	if f.Result.Failure != nil {
		r.Res.Extras = r.Res.Extras[:at]
		s.addFailed(result.Loopback, flows)
	}
	for i := range r.Res.Extras[at:] {
		r.Res.Extras[at+i].Flows[0].Other = f.to.Local.Name
	}
	moved := r.Res.Bytes - start
	r.loopback += moved
	noteLoopback(r.Node, f.Local, before, moved)
	return err
}

// connectLoopback opens both ends of the session's only flow, and connects them.
func (s *ExtraSession) connectLoopback(ctx context.Context) error {
	f := s.Flows[0]
	s.progress(result.Progress{Stage: failure.StageConnect, Rail: f.name()})
	asks, answers := node.RDMARail(f.Local, f.GID), node.RDMARail(f.to.Local, f.to.GID)
	asks.Name, asks.Rail = f.name(), f.Local.Name
	answers.Name, answers.Rail, answers.Answers = f.name()+answerEnd, f.to.Local.Name, true
	rails := []worker.RailArg{asks, answers}
	opened, err := s.open(ctx, s.Flows, rails)
	if err != nil {
		return err
	}
	if len(opened.Ends) != 2 {
		return failure.New(failure.StageOpen, failure.Other, "the worker opened %d ends of 2", len(opened.Ends))
	}
	for _, end := range opened.Ends {
		if end.Failure != nil {
			s.fail(f, failure.StageOpen, end.Failure)
			return nil
		}
	}
	f.end, f.Theirs = opened.Ends[0], opened.Ends[1].GID.WithZone("")
	f.Result.PathMTU = node.PathMTU(opened.Ends[0], opened.Ends[1])
	args := s.connectArgs()
	for i, arg := range rails {
		args.Rails = append(args.Rails, worker.ConnectRail{Name: arg.Name, Remote: opened.Ends[1-i],
			PathMTU: f.Result.PathMTU, InFlight: s.Plan.ackTime(f)})
	}
	failures, err := s.worker.Current.Connect(ctx, args)
	if len(failures) > 0 {
		s.fail(f, failure.StageConnect, &failures[0])
	}
	return err
}

// noteLoopback records loopback bytes as the probe's own traffic, as far as the port counted them: some adapters do.
func noteLoopback(n *node.Node, local node.LocalRail, before map[string]rail.Traffic, moved int64) {
	d, ok := node.TrafficBetween(before, n.Traffic([]node.LocalRail{local}), local.Name)
	if !ok {
		return
	}
	n.Own.Add(local.Rail, rail.Transmit, min(moved, node.Payload(int64(d.Out))), 0, false)
	n.Own.Add(local.Rail, rail.Receive, min(moved, node.Payload(int64(d.In))), 0, false)
}
