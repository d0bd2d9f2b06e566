package probe

import (
	"context"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// answerEnd ends the name of that end of a loopback flow that answers.
const answerEnd = " answers"

// loop is a flow from one rail of this node to a rail of this node.
type loop struct {
	*path
	to *path
}

// measureLoopback measures each rail to itself, and by hand to each other rail. The peer takes no part: what is low
// here as well is not the fault of the wire.
func (r *round) measureLoopback(ctx context.Context, _ Extra) error {
	var loops []loop
	var rails []*path
	for _, p := range r.paths {
		if p.local.unusable(p.gid) == nil {
			rails = append(rails, p)
		}
	}
	for _, from := range rails {
		for _, to := range rails {
			if from == to || r.byHand {
				f := from.over(Write, 0)
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
	}
	return nil
}

// measureLoop opens a session with both ends of one loop, and makes a burst.
func (r *round) measureLoop(ctx context.Context, l loop) error {
	sub := *r
	sub.paths, sub.res = []*path{l.path}, Result{Class: r.res.Class, Transport: RDMA}
	sub.plan.rails, sub.plan.LatencySamples = 1, min(r.plan.LatencySamples, extraSamples)
	before := r.node.traffic([]localRail{l.local})
	start := r.res.Bytes
	err := sub.connectHome(ctx, l)
	for _, step := range []func(context.Context) error{sub.reach, sub.latency} {
		if err == nil && l.result.Failure == nil {
			err = step(ctx)
		}
	}
	r.res.Bytes, sub.res.Bytes = r.res.Bytes+sub.res.Bytes, 0
	if f := l.result.Failure; f != nil && l.to.local.Name != l.local.Name {
		l.result.Failure = failure.New(f.Stage, failure.NoRoute, "rail %s does not reach rail %s of this node: %s",
			l.local.Name, l.to.local.Name, f.Detail)
	}
	at := len(r.res.Extras)
	if err == nil && l.result.Failure == nil {
		err = r.carry(ctx, Loopback, &sub, sub.paths)
	}
	if l.result.Failure != nil {
		r.res.Extras = append(r.res.Extras[:at], failed(Loopback, r.plan.QueuePairs, sub.paths)...)
	}
	for i := range r.res.Extras[at:] {
		r.res.Extras[at+i].Flows[0].Other = l.to.local.Name
	}
	r.atHome += r.res.Bytes - start
	r.noteHome(l.local, before, r.res.Bytes-start)
	return err
}

// connectHome opens both ends of a loop in one session, and connects them to each other.
func (r *round) connectHome(ctx context.Context, l loop) error {
	r.progress(Progress{Stage: failure.StageConnect, Rail: l.name()})
	asks, answers := rdmaRail(l.local, l.gid), rdmaRail(l.to.local, l.to.gid)
	asks.Name, asks.Rail = l.name(), l.local.Name
	answers.Name, answers.Rail, answers.Answers = l.name()+answerEnd, l.to.local.Name, true
	r.seed, r.buffer = newSeed(), r.plan.memory(r.loads(r.paths), r.plan.QueuePairs)
	opened, err := r.session.begin(ctx, worker.OpenArgs{Transport: worker.RDMA, Buffer: r.buffer, Seed: r.seed,
		Depth: max(r.plan.Depth, r.plan.QueuePairs), QueuePairs: r.plan.QueuePairs, PKey: r.plan.PKey,
		Key: r.lease.grant.Key, Rails: []worker.RailArg{asks, answers}})
	if err != nil {
		return err
	}
	if len(opened.Ends) != 2 {
		return failure.New(failure.StageOpen, failure.Other, "the worker opened %d ends of 2", len(opened.Ends))
	}
	for _, end := range opened.Ends {
		if end.Failure != nil {
			r.failPath(l.path, failure.StageOpen, end.Failure)
			return nil
		}
	}
	l.end, l.theirs = opened.Ends[0], opened.Ends[1].GID.WithZone("")
	l.result.PathMTU = pathMTU(opened.Ends[0], opened.Ends[1])
	args := worker.ConnectArgs{RetryCount: retryCount, TrafficClass: r.res.Class.TrafficClass,
		ServiceLevel: r.res.Class.ServiceLevel}
	for i, arg := range []worker.RailArg{asks, answers} {
		args.Rails = append(args.Rails, worker.ConnectRail{Name: arg.Name, Remote: opened.Ends[1-i],
			PathMTU: l.result.PathMTU, InFlight: r.plan.ackTime(l.path)})
	}
	failures, err := r.session.current.Connect(ctx, args)
	if len(failures) > 0 {
		r.failPath(l.path, failure.StageConnect, &failures[0])
	}
	return err
}

// noteHome notes as this node's own what the port has counted of a loop: some adapters count what does not leave them.
func (r *round) noteHome(local localRail, before map[string]rail.Traffic, moved int64) {
	d, ok := trafficBetween(before, r.node.traffic([]localRail{local}), local.Name)
	if !ok {
		return
	}
	r.node.own.add(local.Rail, rail.Transmit, min(moved, payload(int64(d.out))), 0)
	r.node.own.add(local.Rail, rail.Receive, min(moved, payload(int64(d.in))), 0)
}
