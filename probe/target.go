package probe

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// open opens the target's session: scratch memory, and its ends of the rails. The previous session of the lease is
// closed first, also if this one fails. Call with the lease's mu held.
func (r *Responder) open(ctx context.Context, l *lease, req *openRequest) (any, error) {
	l.endSessionLocked()
	args := worker.OpenArgs{Transport: req.Transport, Target: true, Buffer: req.Buffer, Depth: req.Depth,
		QueuePairs: req.QueuePairs, PKey: req.PKey, Seed: req.Seed, Memory: req.Memory, Key: l.key[:]}
	rails, _ := r.node.rails() // without those that cannot be read
	if req.Transport == worker.TCP {
		if args.Grant = l.guard.granted - l.session.received; args.Grant <= 0 {
			return nil, onPeer(failure.New(failure.StageOpen, failure.Budget,
				"all %s that were granted have arrived over TCP", mib(l.guard.granted)))
		}
	}
	reply := openReply{Ends: make([]worker.End, len(req.Rails))}
	index := map[string]int{} // flow → its place in the request
	l.flows = map[string]string{}
	for i, want := range req.Rails {
		arg := worker.RailArg{Name: want.Rail, NUMANode: -1}
		if req.Transport == worker.RDMA {
			var f *failure.Failure
			if arg, f = r.railArg(rails, want); f != nil {
				reply.Ends[i].Failure = f
				continue
			}
		}
		arg.Name, arg.Rail, arg.Op, arg.Flow = want.name(), want.Rail, want.Op, want.Flow
		if req.Memory != "" && !r.lendsGPUs() {
			reply.Ends[i].Failure = failure.New(failure.StageOpen, failure.NoGPU, "the peer lends no memory of its GPUs: "+
				"add gpu to probe.extras in its configuration")
			reply.Ends[i].Failure.Rail = want.Rail
			continue
		}
		index[arg.Name], l.flows[arg.Name] = i, want.Rail
		args.Rails = append(args.Rails, arg)
		if want.Op == worker.Read {
			l.guard.asked.Store(true)
		}
	}
	if len(args.Rails) == 0 {
		return reply, nil
	}
	if req.Transport == worker.RDMA {
		l.overRDMA.start, l.overRDMA.used = r.node.traffic(l.guard.rails), true
	}
	opened, err := l.session.begin(ctx, args)
	if err != nil {
		return nil, onPeer(err)
	}
	reply.TCPPort = opened.TCPPort
	connect := worker.ConnectArgs{RetryCount: retryCount, TrafficClass: req.TrafficClass,
		ServiceLevel: req.ServiceLevel}
	for _, end := range opened.Ends {
		i := index[end.Name]
		reply.Ends[i] = end
		if end.Failure != nil {
			end.Failure.Stage = failure.StageOpen
		} else if remote := req.Rails[i].Remote; req.Transport == worker.RDMA {
			connect.Rails = append(connect.Rails, worker.ConnectRail{Name: end.Name, Remote: remote,
				PathMTU: pathMTU(end, remote), InFlight: time.Second})
		}
	}
	if len(connect.Rails) == 0 {
		return reply, nil
	}
	failures, err := l.session.current.Connect(ctx, connect)
	if err != nil {
		return nil, onPeer(err)
	}
	for _, f := range failures {
		if i, ok := index[f.Rail]; ok {
			f.Stage = failure.StageConnect
			reply.Ends[i].Failure = &f
		}
	}
	return reply, nil
}

// lendsGPUs reports whether peers may write to memory of this node's GPUs: where it measures them itself.
func (r *Responder) lendsGPUs() bool {
	return slices.ContainsFunc(r.opts.Extras, func(e Extra) bool { return e.Kind == GPU })
}

// railArg is a rail that the asker wants to use, or why it cannot.
func (r *Responder) railArg(rails []localRail, want openRail) (worker.RailArg, *failure.Failure) {
	i := slices.IndexFunc(rails, func(own localRail) bool { return own.Name == want.Rail })
	if i < 0 {
		f := failure.New(failure.StageOpen, failure.NoDevice, "the peer no longer has rail %s", want.Rail)
		f.Rail = want.Rail
		return worker.RailArg{}, f
	}
	choice := r.node.gid(rails[i], want.Prefixes)
	return rdmaRail(rails[i], choice), rails[i].unusable(choice)
}

func rdmaRail(own localRail, choice rail.Choice) worker.RailArg {
	return worker.RailArg{Name: own.Name, Device: own.Device, Port: own.Port, GIDIndex: choice.GID.Index,
		GID: choice.GID.Addr, NUMANode: own.NUMANode, GPU: own.GPU, Netdev: own.Netdev}
}

// pathMTU is the smaller of both ends', in bytes.
func pathMTU(a, b worker.End) int {
	if b.ActiveMTU == 0 {
		return a.ActiveMTU
	}
	return min(a.ActiveMTU, b.ActiveMTU)
}

// verify verifies what the holder has written. Call with the lease's mu held.
func (r *Responder) verify(ctx context.Context, l *lease, args *worker.VerifyArgs) (any, error) {
	if l.session.current == nil {
		return nil, failure.New(failure.StageVerify, failure.Protocol, "verify before open")
	}
	v, err := l.session.current.Verify(ctx, *args)
	if err != nil {
		return nil, onPeer(err)
	}
	now := r.node.traffic(l.guard.rails)
	l.noteOwn(args.Rails, rail.Receive, now)
	l.noteOwn(args.Read, rail.Transmit, now)
	if args.Count {
		v.Events = l.repeats()
	}
	return v, nil
}

// noteOwn notes what the holder says to have moved in one direction, and no more than was granted, or than the rail's
// counter moved by now over RDMA, where it is not late: the holder may repeat itself. Call with the lease's mu held.
func (l *lease) noteOwn(moved []worker.VerifyRail, direction int, now map[string]rail.Traffic) {
	for _, w := range moved {
		name := l.flows[w.Rail]
		i := slices.IndexFunc(l.guard.rails, func(own localRail) bool { return own.Name == name })
		if i < 0 {
			continue
		}
		most := l.guard.granted
		if d, ok := trafficBetween(l.overRDMA.start, now, name); ok && d.period <= 0 {
			counted := int64(d.in)
			if direction == rail.Transmit {
				counted = int64(d.out)
			}
			most = min(most, l.overRDMA.bytes[direction]+counted)
		}
		var writes int64
		for _, n := range w.Writes {
			writes += n // checkVerify bounds their sum
		}
		own := l.own[name]
		if own == nil {
			own = new([rail.Directions]int64)
		}
		bytes := min(writes*w.Chunk, most-own[direction])
		if bytes <= 0 {
			continue
		}
		if l.own == nil {
			l.own = map[string]*[rail.Directions]int64{}
		}
		l.own[name], own[direction] = own, own[direction]+bytes
		l.guard.node.own.add(l.guard.rails[i].Rail, direction, bytes, 0)
	}
}
