package round

import (
	"context"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

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

// splitLatency measures, in an interactive round, which part of each rail's latency is the adapter's and which the
// host's. It uses its own queue pairs, so that the round's figure does not change. A rail whose adapter has no
// readable clock has no parts, and a failure here is not a finding.
func splitLatency(ctx context.Context, r *Round) {
	rails, err := r.chosen(result.Extra{})
	if !r.Plan.Interactive || err != nil || r.Plan.LatencySamples == 0 {
		return
	}
	flows := newFlows(rails, result.Write)
	for _, f := range flows {
		f.stamps = true
	}
	plan := r.Plan
	plan.QueuePairs = 1
	s := r.newSession(plan, flows, ExtraSamples)
	// A rail with timestamps makes no bursts, so no first writes precede the latencies.
	if err := s.take(ctx, s.connect, s.latency); err != nil {
		return
	}
	for i, f := range flows {
		if l := f.Result.Latency; l != nil && rails[i].Result.Latency != nil {
			rails[i].Result.Latency.Adapter, rails[i].Result.Latency.Host = l.Adapter, l.Host
		}
	}
}
