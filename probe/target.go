package probe

import (
	"context"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// open begins the target's session: scratch memory, and its ends of the rails. The session that the lease had before is
// ended first, whatever comes of this one.
func (r *Responder) open(ctx context.Context, l *lease, req *openRequest) (reply any, err error) {
	err = l.do(ctx, func(ctx context.Context) error {
		l.endSessionLocked()
		opened, err := r.openSession(ctx, l, req)
		reply = opened
		return err
	})
	return reply, err
}

// openSession opens it. Call with the lease's mu held.
func (r *Responder) openSession(ctx context.Context, l *lease, req *openRequest) (openReply, error) {
	args := worker.OpenArgs{Transport: req.Transport, Target: true, Buffer: req.Buffer, Depth: req.Depth,
		QueuePairs: req.QueuePairs, Key: l.key[:]}
	if req.Transport == worker.TCP {
		if args.Grant = l.bytes - l.session.received; args.Grant <= 0 {
			return openReply{}, onPeer(failure.New(failure.StageOpen, failure.Budget,
				"all %d bytes that were granted have come in over TCP", l.bytes))
		}
	}
	reply := openReply{Ends: make([]worker.End, len(req.Rails))}
	rails, _ := r.node.rails()
	at := map[string]int{} // rail → place in the request
	byName := map[string]localRail{}
	for _, own := range rails {
		byName[own.Name] = own
	}
	for i, want := range req.Rails {
		own, there := byName[want.Rail]
		arg := worker.RailArg{Name: want.Rail}
		if req.Transport == worker.RDMA {
			if !there {
				reply.Ends[i].Failure = railFailure(want.Rail, failure.NoDevice, "the peer has no rail %s any more",
					want.Rail)
				continue
			}
			choice := r.node.gid(own, want.Prefixes)
			if f := own.unusable(choice); f != nil {
				reply.Ends[i].Failure = f
				continue
			}
			arg = rdmaRail(own, choice)
		}
		at[want.Rail] = i
		args.Rails = append(args.Rails, arg)
	}
	if len(args.Rails) == 0 {
		return reply, nil
	}
	if req.Transport == worker.RDMA {
		l.rdma.begin(r.node, rails)
	}
	opened, err := l.session.begin(ctx, args)
	if err != nil {
		return reply, onPeer(err)
	}
	reply.TCPPort = opened.TCPPort
	connect := worker.ConnectArgs{RetryCount: retryCount, TrafficClass: req.TrafficClass}
	for _, end := range opened.Ends {
		i := at[end.Name]
		reply.Ends[i] = end
		if end.Failure != nil {
			end.Failure.Stage = failure.StageOpen
		}
		if remote := req.Rails[i].Remote; end.Failure == nil && req.Transport == worker.RDMA {
			connect.Rails = append(connect.Rails, worker.ConnectRail{Name: end.Name, Remote: remote,
				PathMTU: pathMTU(end, remote), InFlight: time.Second})
		}
	}
	if len(connect.Rails) == 0 {
		return reply, nil
	}
	connected, err := l.session.current.Connect(ctx, connect)
	for _, f := range connected.Failures {
		if i, ok := at[f.Rail]; ok {
			f.Stage = failure.StageConnect
			reply.Ends[i].Failure = &f
		}
	}
	if err != nil {
		return reply, onPeer(err)
	}
	return reply, nil
}

func railFailure(name string, reason failure.Reason, format string, args ...any) *failure.Failure {
	f := failure.New(failure.StageOpen, reason, format, args...)
	f.Rail = name
	return f
}

// rdmaRail is a rail with its GID as the worker wants to hear of it.
func rdmaRail(own localRail, choice rail.Choice) worker.RailArg {
	return worker.RailArg{Name: own.Name, Device: own.Device, Port: own.Port, GIDIndex: choice.GID.Index,
		GID: choice.GID.Addr, Netdev: own.Netdev}
}

// pathMTU is the least of both ends, in bytes.
func pathMTU(a, b worker.End) int {
	if b.ActiveMTU == 0 {
		return a.ActiveMTU
	}
	return min(a.ActiveMTU, b.ActiveMTU)
}

func (r *Responder) verify(ctx context.Context, l *lease, args *worker.VerifyArgs) (v any, err error) {
	err = l.do(ctx, func(ctx context.Context) error {
		if l.session.current == nil {
			return failure.New(failure.StageVerify, failure.Protocol,
				"nothing was opened, so nothing can have been written")
		}
		verified, err := l.session.current.Verify(ctx, *args)
		if err != nil {
			return onPeer(err)
		}
		v = verified
		return nil
	})
	return v, err
}
