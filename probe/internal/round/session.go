package round

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// ends are this node and the peer, as long as a round holds the peer's lease. All sessions of the round use them.
type ends struct {
	node     *node.Node
	client   *control.Client
	lease    *control.HeldLease
	worker   *node.WorkerSession
	progress func(result.Progress)
}

// Session is what is open at both ends: flows, their memory, and the bursts over them. A round opens several sessions,
// one after the other: opening one closes the one before.
type Session struct {
	ends
	Plan   Plan
	Flows  []*Flow
	Res    *result.Result    // receives bytes and failures: the result of the round, or an extra's own
	seed   uint64            // seed of the source's pattern
	buffer int64             // bytes of each flow's memory at the target
	memory string            // kind of GPU memory; empty: host memory
	met    []string          // rails of the peer that carried traffic of others around the last burst in a gap
	events map[string]uint64 // packets that reached the peer out of sequence or twice, by its rail; nil: not counted
}

// newSession returns a session of a round over flows, with a lease and a worker.
func newSession(r *Round, lease *control.HeldLease, w *worker.Worker, flows []*Flow) *Session {
	return &Session{ends: ends{node: r.Node, client: r.Client, lease: lease,
		worker: &node.WorkerSession{Node: r.Node, Worker: w}, progress: r.Progress}, Plan: r.Plan, Flows: flows,
		Res: &r.Res}
}

// another returns a session over the same ends.
func (s *Session) another(plan Plan, flows []*Flow, res *result.Result) *Session {
	return &Session{ends: s.ends, Plan: plan, Flows: flows, Res: res}
}

// flow returns the flow with that name, or nil.
func flow(flows []*Flow, name string) *Flow {
	if i := slices.IndexFunc(flows, func(p *Flow) bool { return p.name() == name }); i >= 0 {
		return flows[i]
	}
	return nil
}

// addFailure adds a failure to a result, once.
func addFailure(res *result.Result, err error) {
	f := failure.As(failure.StageOpen, err)
	if f != nil && !slices.Contains(res.Failures, *f) {
		res.Failures = append(res.Failures, *f)
	}
}

// fail records the failure of a flow. Only the first counts: later ones are its consequences.
func (s *Session) fail(p *Flow, stage failure.Stage, f *failure.Failure) {
	if p.Result.Failure != nil {
		return
	}
	own := *f
	own.Rail, own.Stage = p.name(), stage
	p.Result.Failure = &own
	addFailure(s.Res, &own)
}

// connect connects the queue pairs of each flow. It opens this node's ends, then the peer's, and connects them.
func (s *Session) connect(ctx context.Context) error {
	s.progress(result.Progress{Stage: failure.StageConnect})
	for _, p := range live(s.Flows) {
		if p.Peer == nil {
			s.fail(p, failure.StageOpen, failure.New("", failure.NoPeerRail,
				"the peer has no rail with this name or in this subnet (run railscope rails on both nodes)"))
		} else if f := p.Local.Unusable(p.GID); f != nil {
			s.fail(p, failure.StageOpen, f)
		} else if !p.Peer.Active {
			s.fail(p, failure.StageOpen, failure.New("", failure.PortDown, "%s port %d is %q",
				p.Peer.Device, p.Peer.Port, p.Peer.State).OnPeer())
		}
	}
	if len(live(s.Flows)) == 0 {
		return nil
	}
	if err := s.openLocal(ctx); err != nil || len(live(s.Flows)) == 0 {
		return err
	}
	flows := live(s.Flows)
	remote, err := s.openPeer(ctx, flows)
	if err != nil {
		return err
	}
	args := s.connectArgs()
	for i, p := range flows {
		p.Theirs = remote[i].GID.WithZone("")
		if f := remote[i].Failure; f != nil {
			s.fail(p, f.Stage, f.OnPeer())
			continue
		}
		p.connected, p.Result.PathMTU = true, node.PathMTU(p.end, remote[i])
		args.Rails = append(args.Rails, worker.ConnectRail{Name: p.name(), Remote: remote[i], PathMTU: p.Result.PathMTU,
			InFlight: s.Plan.ackTime(p)})
	}
	if len(args.Rails) == 0 {
		return nil
	}
	failures, err := s.worker.Current.Connect(ctx, args)
	for _, f := range failures {
		if p := flow(s.Flows, f.Rail); p != nil {
			s.fail(p, failure.StageConnect, &f)
		}
	}
	return err
}

// connectArgs returns what all queue pairs of the session have in common.
func (s *Session) connectArgs() worker.ConnectArgs {
	return worker.ConnectArgs{RetryCount: RetryCount, TrafficClass: s.Res.Class.TrafficClass,
		ServiceLevel: s.Res.Class.ServiceLevel}
}

// open opens this node's ends of a session over RDMA, with memory for bursts over flows.
func (s *Session) open(ctx context.Context, flows []*Flow, rails []worker.RailArg) (worker.Opened, error) {
	s.seed, s.buffer = newSeed(), s.Plan.memory(s.Plan.Loads(flows), s.Plan.QueuePairs)
	return s.worker.Begin(ctx, worker.OpenArgs{Transport: worker.RDMA, Buffer: s.buffer, Seed: s.seed,
		Depth: max(s.Plan.depth(), s.Plan.QueuePairs), QueuePairs: s.Plan.QueuePairs, PKey: s.Plan.PKey,
		Key: s.lease.Grant.Key, Memory: s.memory, Rails: rails})
}

func (s *Session) openLocal(ctx context.Context) error {
	flows := live(s.Flows)
	var rails []worker.RailArg
	for _, p := range flows {
		arg := node.RDMARail(p.Local, p.GID)
		arg.Name, arg.Rail, arg.Op, arg.Flow, arg.Stamps = p.name(), p.Local.Name, p.Op, p.label, p.stamps
		rails = append(rails, arg)
	}
	opened, err := s.open(ctx, flows, rails)
	if err != nil {
		return err
	}
	for i, p := range flows[:min(len(flows), len(opened.Ends))] {
		p.end = opened.Ends[i]
		if p.end.Failure != nil {
			s.fail(p, failure.StageOpen, p.end.Failure)
		}
	}
	return nil
}

// openPeer asks the peer to open its ends of the flows, and returns them in the same order.
func (s *Session) openPeer(ctx context.Context, flows []*Flow) ([]worker.End, error) {
	req := protocol.OpenRequest{Transport: worker.RDMA, Buffer: s.buffer, Depth: max(s.Plan.depth(), s.Plan.QueuePairs),
		QueuePairs: s.Plan.QueuePairs, TrafficClass: s.Res.Class.TrafficClass, ServiceLevel: s.Res.Class.ServiceLevel,
		PKey: s.Plan.PKey, Seed: s.seed, Memory: s.memory}
	for _, p := range flows {
		req.Rails = append(req.Rails, protocol.OpenRail{Rail: p.Peer.Name, Op: p.Op, Flow: p.label, Remote: p.end,
			Prefixes: p.Local.Prefixes})
	}
	reply, err := s.client.Open(ctx, req)
	return reply.Ends, err
}

// reach writes 8 B over every queue pair at once: a flow that fails here carries nothing.
func (s *Session) reach(ctx context.Context) error {
	return s.writeSmall(ctx, failure.StageReach, live(s.Flows), smallWrite, 1)
}

// fullPacket writes packets of the path MTU: a path with a smaller MTU between the ends drops them, although 8 B
// passed.
func (s *Session) fullPacket(ctx context.Context) error {
	byMTU := map[int][]*Flow{}
	for _, p := range live(s.Flows) {
		byMTU[p.Result.PathMTU] = append(byMTU[p.Result.PathMTU], p)
	}
	for mtu, flows := range byMTU {
		if err := s.writeSmall(ctx, failure.StageMTU, flows, mtu, s.Plan.packets(mtu)); err != nil {
			return err
		}
	}
	for _, p := range s.Flows {
		if f := p.Result.Failure; f != nil && f.Stage == failure.StageMTU && f.Reason == failure.RetryExceeded {
			old := *f
			f.Reason = failure.MTUBlackHole
			f.Detail = "8 B get through and a full-size packet does not: an MTU on the way is smaller than at both " +
				"ends. " + f.Detail
			if i := slices.Index(s.Res.Failures, old); i >= 0 {
				s.Res.Failures[i] = *f
			}
		}
	}
	return nil
}

// writeSmall writes count messages of one size over each queue pair, all at once.
func (s *Session) writeSmall(ctx context.Context, stage failure.Stage, flows []*Flow, size, count int) error {
	s.progress(result.Progress{Stage: stage})
	done, err := s.worker.Current.Burst(ctx, stage, s.Plan.small(flows, size, count, timeLeft(ctx)), nil)
	if err != nil {
		return err
	}
	s.addBurst(done, flows, stage)
	return nil
}

// newlyFailed returns the connected flows that failed since the last call, by their names in the peer's session.
// The peer has to stop them.
func (s *Session) newlyFailed() (names []string) {
	for _, p := range s.Flows {
		if p.connected && p.Result.Failure != nil {
			p.connected = false
			names = append(names, p.peerName())
		}
	}
	return names
}

// stopFailed has the target stop the flows that failed: data in flight must not arrive during a later burst.
func (s *Session) stopFailed(ctx context.Context) error {
	names := s.newlyFailed()
	if len(names) == 0 {
		return nil
	}
	_, err := s.client.Verify(ctx, worker.VerifyArgs{Seed: s.seed, Stop: names})
	return err
}

// newSeed returns a random seed for the pattern, different for every burst.
func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
}

// timeLeft returns how much of a round's time is left, without the time reserved for its release.
func timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return drainTime
	}
	return max(time.Until(end)-releaseTime, minBurst)
}

// name returns the path's name in this node's session.
func (p *Flow) name() string { return worker.FlowName(p.Local.Name, p.Op, p.label) }

// peerName returns the path's name in the peer's session.
func (p *Flow) peerName() string {
	if p.Peer != nil {
		return worker.FlowName(p.Peer.Name, p.Op, p.label)
	}
	return p.name()
}

// direction returns the direction of the payload on this node's rail: receive for reads, transmit for writes.
func (p *Flow) direction() int {
	if p.Op == worker.Read {
		return rail.Receive
	}
	return rail.Transmit
}

// rate returns the expected rate of the path, in bytes per second.
func (p *Flow) rate() float64 {
	if p.Result.Capacity != nil {
		return *p.Result.Capacity
	}
	return unknownRate
}

// rtt returns the shortest round trip of a small write over the path; 0: not measured.
func (p *Flow) rtt() time.Duration {
	if p.Result.Latency == nil {
		return 0
	}
	return p.Result.Latency.Samples[0]
}

// Expectation returns the expected rate of the path, the lower of both ends, or nil. The present capacity of the
// peer does not lower a rate that is configured here, because it may be the fault.
func (p *Flow) Expectation() *float64 {
	ours := p.Local.Expected
	switch theirs := p.Peer.Expected; {
	case ours == 0:
		return nil
	case theirs > 0:
		ours = min(ours, theirs)
	case p.Local.Source == expect.Configured:
	case p.Peer.Software:
		return nil
	case p.Peer.Capacity > 0:
		ours = min(ours, p.Peer.Capacity)
	}
	return &ours
}

// live reports whether the flow takes part in the transfer: it has a partner and has not failed.
func (p *Flow) live() bool { return p.Result.Failure == nil && !p.Result.Unpaired }

// live returns the flows that have not failed and have a partner.
func live(flows []*Flow) []*Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(p *Flow) bool { return !p.live() })
}

// software reports whether a device of either end is not an adapter.
func (p *Flow) software() bool { return p.Local.IsSoftware() || p.Peer != nil && p.Peer.Software }

// Flow is what a session moves over one of this node's rails. A round has one flow per rail, with the rail's partner
// at the peer. An extra opens more of them: see newFlow, newLoopback and [TCPRoute].
type Flow struct {
	Op     worker.Op // empty: it writes
	label  int       // index of its first flow label
	stamps bool      // the adapter stamps completions: for latencies only
	route  *TCPRoute // route of its TCP connections; nil: RDMA
	to     *Flow     // flow of the rail of this node that receives a loopback; nil: the peer receives

	Local  node.LocalRail
	Peer   *protocol.HelloRail // nil: none
	GID    rail.Choice
	end    worker.End // this node's end, once opened
	Theirs netip.Addr // GID of the peer's end, once opened

	slowerSolo float64 // lower of two solo rates, in bytes per second; 0: measured once
	counted    *int64  // bytes counted by the port during the last burst, in an interactive round; nil: unknown
	sent       uint64  // bytes that the rail sent while loss was counted
	connected  bool    // connected, and not stopped at the target
	Result     *result.RailResult
}

// newFlow returns a new flow over the rail of the flow. label is the index of its first flow label.
func (p *Flow) newFlow(op result.Op, label int) *Flow {
	f := &Flow{Op: op, label: label, Local: p.Local, Peer: p.Peer, GID: p.GID}
	f.Result = &result.RailResult{Rail: f.Local.Name, Capacity: p.Result.Capacity, PathMTU: p.Result.PathMTU}
	return f
}

// newFlows returns a new flow of op over each rail of the flows.
func newFlows(over []*Flow, op result.Op) (flows []*Flow) {
	for _, p := range over {
		flows = append(flows, p.newFlow(op, 0))
	}
	return flows
}

// newLoopback returns a new flow of writes from the rail of the flow to another rail of this node, or to itself.
func (p *Flow) newLoopback(to *Flow) *Flow {
	f := p.newFlow(result.Write, 0)
	f.to = to
	return f
}
