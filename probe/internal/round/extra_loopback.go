package round

import (
	"context"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// answerEnd is the suffix of the responding end's name in a loopback flow.
const answerEnd = " answers"

// loop is a flow between two rails of this node, or from a rail to itself.
type loop struct {
	*Path
	to *Path
}

// measureLoopback measures each rail to itself and, in an interactive round, to each other rail. The peer takes no
// part: a rate that is low here as well is not caused by the network.
func (r *Round) measureLoopback(ctx context.Context, _ result.Extra) error {
	var loops []loop
	var rails []*Path
	for _, p := range r.Paths {
		if p.Local.Unusable(p.GID) == nil {
			rails = append(rails, p)
		}
	}
	for _, from := range rails {
		for _, to := range rails {
			if from == to || r.ByHand {
				f := from.over(result.Write, 0)
				f.home = true
				loops = append(loops, loop{f, to})
			}
		}
	}
	if len(loops) == 0 {
		return failure.New(failure.StageExtra, failure.NoDevice, "this node has no rail that is active")
	}
	for _, one := range loops {
		if err := timeUpError(ctx); err != nil {
			return err
		}
		if err := r.measureLoop(ctx, one); err != nil {
			return err
		}
		r.Tally.next()
	}
	return nil
}

// measureLoop opens a session with both ends of one loop, and runs a burst.
func (r *Round) measureLoop(ctx context.Context, l loop) error {
	sub := *r
	sub.Paths, sub.Res = []*Path{l.Path}, result.Result{Class: r.Res.Class, Transport: result.RDMA}
	sub.Plan.Rails, sub.Plan.LatencySamples = 1, min(r.Plan.LatencySamples, ExtraSamples)
	before := r.Node.Traffic([]node.LocalRail{l.Local})
	start := r.Res.Bytes
	err := sub.connectHome(ctx, l)
	for _, step := range []func(context.Context) error{sub.reach, sub.latency} {
		if err == nil && l.Result.Failure == nil {
			err = step(ctx)
		}
	}
	r.Res.Bytes, sub.Res.Bytes = r.Res.Bytes+sub.Res.Bytes, 0
	if f := l.Result.Failure; f != nil && l.to.Local.Name != l.Local.Name {
		l.Result.Failure = failure.New(f.Stage, failure.NoRoute, "rail %s does not reach rail %s of this node: %s",
			l.Local.Name, l.to.Local.Name, f.Detail)
	}
	at := len(r.Res.Extras)
	if err == nil && l.Result.Failure == nil {
		err = r.carry(ctx, result.Loopback, &sub, sub.Paths)
	}
	if l.Result.Failure != nil {
		r.Res.Extras = append(r.Res.Extras[:at], failed(result.Loopback, r.Plan.QueuePairs, sub.Paths)...)
	}
	for i := range r.Res.Extras[at:] {
		r.Res.Extras[at+i].Flows[0].Other = l.to.Local.Name
	}
	r.atHome += r.Res.Bytes - start
	r.noteHome(l.Local, before, r.Res.Bytes-start)
	return err
}

// connectHome opens both ends of a loop in one session, and connects them.
func (r *Round) connectHome(ctx context.Context, l loop) error {
	r.Progress(result.Progress{Stage: failure.StageConnect, Rail: l.name()})
	asks, answers := node.RDMARail(l.Local, l.GID), node.RDMARail(l.to.Local, l.to.GID)
	asks.Name, asks.Rail = l.name(), l.Local.Name
	answers.Name, answers.Rail, answers.Answers = l.name()+answerEnd, l.to.Local.Name, true
	r.seed, r.buffer = newSeed(), r.Plan.memory(r.Loads(r.Paths), r.Plan.QueuePairs)
	opened, err := r.Session.Begin(ctx, worker.OpenArgs{Transport: worker.RDMA, Buffer: r.buffer, Seed: r.seed,
		Depth: max(r.Plan.depth(), r.Plan.QueuePairs), QueuePairs: r.Plan.QueuePairs, PKey: r.Plan.PKey,
		Key: r.lease.Grant.Key, Rails: []worker.RailArg{asks, answers}})
	if err != nil {
		return err
	}
	if len(opened.Ends) != 2 {
		return failure.New(failure.StageOpen, failure.Other, "the worker opened %d ends of 2", len(opened.Ends))
	}
	for _, end := range opened.Ends {
		if end.Failure != nil {
			r.failPath(l.Path, failure.StageOpen, end.Failure)
			return nil
		}
	}
	l.end, l.Theirs = opened.Ends[0], opened.Ends[1].GID.WithZone("")
	l.Result.PathMTU = node.PathMTU(opened.Ends[0], opened.Ends[1])
	args := worker.ConnectArgs{RetryCount: RetryCount, TrafficClass: r.Res.Class.TrafficClass,
		ServiceLevel: r.Res.Class.ServiceLevel}
	for i, arg := range []worker.RailArg{asks, answers} {
		args.Rails = append(args.Rails, worker.ConnectRail{Name: arg.Name, Remote: opened.Ends[1-i],
			PathMTU: l.Result.PathMTU, InFlight: r.Plan.ackTime(l.Path)})
	}
	failures, err := r.Session.Current.Connect(ctx, args)
	if len(failures) > 0 {
		r.failPath(l.Path, failure.StageConnect, &failures[0])
	}
	return err
}

// noteHome records loopback bytes as the probe's own traffic, as far as the port counted them: some adapters do.
func (r *Round) noteHome(local node.LocalRail, before map[string]rail.Traffic, moved int64) {
	d, ok := node.TrafficBetween(before, r.Node.Traffic([]node.LocalRail{local}), local.Name)
	if !ok {
		return
	}
	r.Node.Own.Add(local.Rail, rail.Transmit, min(moved, node.Payload(int64(d.Out))), 0, false)
	r.Node.Own.Add(local.Rail, rail.Receive, min(moved, node.Payload(int64(d.In))), 0, false)
}
