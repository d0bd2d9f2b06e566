package round

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// burst runs a burst over flows, guarded at both ends, and has the target verify the data. Failures of flows are
// recorded; an error is returned only if the round cannot continue.
func (s *Session) burst(ctx context.Context, stage failure.Stage, flows []*Flow,
	args worker.BurstArgs) (done worker.BurstDone, err error) {
	done, _, err = s.burstOverPorts(ctx, stage, flows, args, nil)
	return done, err
}

// burstOverPorts works like burst, and returns the reading of the rails' counters right after the burst: traffic during
// the verification is not part of it.
func (s *Session) burstOverPorts(ctx context.Context, stage failure.Stage, flows []*Flow, args worker.BurstArgs,
	rails []node.LocalRail) (done worker.BurstDone, after map[string]rail.Traffic, err error) {
	used := railsOf(flows)
	s.events = nil
	var before map[string]rail.Traffic
	progress := s.burstProgress(stage, flows, args)
	sent := node.NewBurstProgress(args.Loads, loadRails(flows))
	guarded, stop := s.guard(ctx, used, sent)
	if len(used) == 1 {
		progress.Rail = used[0].Name
	}
	s.progress(progress)
	if s.Plan.Interactive {
		before = s.node.SettledTraffic(ctx, used)
	}
	done, err = s.worker.Current.Burst(guarded, stage, args, s.reporter(progress, sent))
	f := stop()
	if f == nil && err == nil {
		s.progress(progress.AtEnd(done))
	}
	s.noteOwn(flows, done, sent)
	moved := max(movedBytes(done), sent.Sum())
	s.node.Recent.Add(moved)
	if rails != nil {
		after = s.node.SettledTraffic(ctx, rails)
	}
	if s.Plan.Interactive {
		countPorts(flows, before, s.node.SettledTraffic(ctx, used))
	}
	if f == nil {
		f = timeUp(ctx) // a worker that was stopped early reports no error
	}
	switch {
	case f != nil:
		s.Res.Bytes += moved
		return done, after, f
	case err != nil:
		s.Res.Bytes += moved
		return done, after, err
	case len(done.Rails) != len(flows):
		return done, after, failure.New(stage, failure.Other, "the worker reported %d rails of %d", len(done.Rails),
			len(flows))
	}
	s.addBurst(done, flows, stage)
	return done, after, s.verify(ctx, stage, flows, args.Loads, done)
}

// railsOf returns the rails of flows, each once.
func railsOf(flows []*Flow) (rails []node.LocalRail) {
	for _, p := range flows {
		if !slices.ContainsFunc(rails, func(r node.LocalRail) bool { return r.Name == p.Local.Name }) {
			rails = append(rails, p.Local)
		}
	}
	return rails
}

// burstProgress returns the progress of a burst that has not begun, and forgets the counters of the burst before.
func (s *Session) burstProgress(stage failure.Stage, flows []*Flow, args worker.BurstArgs) result.Progress {
	progress := result.Progress{Stage: stage}
	for i, p := range flows {
		p.counted = nil
		progress.Total += max(int64(args.Writes)*args.Loads[i].Chunk, int64(p.rate()*args.Window.Seconds()))
	}
	return progress
}

// guard returns a context that ends when others use the rails during a burst. stop ends the guard, and returns why the
// context had ended, or nil.
func (s *Session) guard(ctx context.Context, rails []node.LocalRail, sent *node.BurstProgress) (guarded context.Context,
	stop func() *failure.Failure) {
	guarded, cancel := context.WithCancelCause(ctx)
	g := node.Guard{Node: s.node, Rails: rails, Above: s.Plan.BusyAbove, Burst: sent}
	var guarding sync.WaitGroup
	guarding.Go(func() {
		if f := g.Watch(guarded); f != nil {
			cancel(f)
		}
	})
	return guarded, func() *failure.Failure {
		f := cause(guarded)
		cancel(nil)
		guarding.Wait()
		return f
	}
}

// reporter returns a function that reports the progress of a burst, with its present rate.
func (s *Session) reporter(progress result.Progress, sent *node.BurstProgress) func(time.Time, []int64) {
	var last time.Time // time of the last report, and the bytes carried by then
	var sum int64
	return func(at time.Time, bytes []int64) {
		p, now := progress, sent.Set(at, bytes)
		p.Done = min(now, p.Total)
		if !last.IsZero() && at.After(last) && now > sum {
			p.Rate = float64(now-sum) / at.Sub(last).Seconds()
		}
		last, sum = at, now
		s.progress(p)
	}
}

// loadRails returns what the loads of flows move, and over which rails.
func loadRails(flows []*Flow) (list []node.LoadRail) {
	for _, p := range flows {
		list = append(list, node.LoadRail{Name: p.Local.Name, Direction: p.direction(), Home: p.to != nil})
	}
	return list
}

// noteOwn records the bytes that a burst moved over each rail. Those of a loopback are recorded by noteLoopback.
func (s *Session) noteOwn(flows []*Flow, done worker.BurstDone, sent *node.BurstProgress) {
	for i, p := range flows {
		bytes := sent.Completed(i)
		if i < len(done.Rails) {
			bytes = max(bytes, done.Rails[i].Bytes)
		}
		if p.to == nil {
			s.node.Own.Add(p.Local.Rail, p.direction(), bytes, p.Result.PathMTU, p.route != nil)
		}
	}
}

func movedBytes(done worker.BurstDone) (sum int64) {
	for _, b := range done.Rails {
		sum += b.Bytes
	}
	return sum
}

func (s *Session) addBurst(done worker.BurstDone, flows []*Flow, stage failure.Stage) {
	s.Res.Bytes += movedBytes(done)
	for i, b := range done.Rails[:min(len(done.Rails), len(flows))] {
		flows[i].Result.Bytes += b.Bytes
		if b.Failure != nil {
			s.fail(flows[i], stage, b.Failure)
		}
	}
}

// ExpectedWrites lists what a burst wrote, which the receiving end must find.
type ExpectedWrites struct {
	args  worker.VerifyArgs
	flows []*Flow // same order as args.Rails
	bytes []int64 // bytes to compare, per flow
}

// Add adds what a flow wrote into memory of the verifying end.
func (c *ExpectedWrites) Add(p *Flow, name string, chunk int64, writes []int64, memory int64) {
	c.args.Rails = append(c.args.Rails, worker.VerifyRail{Rail: name, Chunk: chunk, Writes: writes})
	var bytes int64
	for _, n := range writes {
		bytes += min(n, memory/int64(len(writes))/chunk) * chunk
	}
	c.flows, c.bytes = append(c.flows, p), append(c.bytes, bytes)
}

// verify asks each receiving end to compare its memory with the pattern, for the flows that completed the burst, and
// has the target stop the other flows.
func (s *Session) verify(ctx context.Context, stage failure.Stage, flows []*Flow, loads []worker.Load,
	done worker.BurstDone) error {
	there := ExpectedWrites{args: worker.VerifyArgs{Seed: s.seed, Pass: done.Pass, Stop: s.newlyFailed(),
		Count: stage == failure.StageStriped}}
	here := ExpectedWrites{args: worker.VerifyArgs{Seed: s.seed, Pass: done.Pass}}
	for i, b := range done.Rails {
		switch p := flows[i]; {
		case b.Failure != nil:
		case p.to != nil:
			here.Add(p, p.name()+answerEnd, loads[i].Chunk, b.Writes, s.buffer)
		case p.Op == worker.Read:
			here.Add(p, p.name(), loads[i].Chunk, b.Writes, s.buffer)
			there.args.Read = append(there.args.Read, worker.VerifyRail{Rail: p.peerName(), Chunk: loads[i].Chunk,
				Writes: b.Writes})
		default:
			there.Add(p, p.peerName(), loads[i].Chunk, b.Writes, s.buffer)
		}
	}
	if len(here.flows) > 0 {
		v, err := s.worker.Current.Verify(ctx, here.args)
		if err := s.CheckVerified(stage, &here, v, err, "this node"); err != nil {
			return err
		}
	}
	if len(there.flows)+len(there.args.Read)+len(there.args.Stop) == 0 {
		return nil
	}
	v, err := s.client.Verify(ctx, there.args)
	s.events, s.met = v.Events, v.Met
	for i := range v.Failures {
		protocol.Sanitize(&v.Failures[i], failure.StageVerify)
		v.Failures[i] = *v.Failures[i].OnPeer()
	}
	return s.CheckVerified(stage, &there, v, err, "the target")
}

// CheckVerified records the failures of flows that verification found, and returns an error if the round cannot
// continue.
func (s *Session) CheckVerified(stage failure.Stage, c *ExpectedWrites, v worker.Verified, err error,
	who string) error {
	var want int64
	for i, written := range c.args.Rails {
		k := slices.IndexFunc(v.Failures, func(f failure.Failure) bool { return f.Rail == written.Rail })
		if k < 0 {
			want += c.bytes[i]
			continue
		}
		s.fail(c.flows[i], failure.StageVerify, &v.Failures[k])
	}
	switch {
	case err != nil:
		return err
	case v.Mismatch >= 0:
		return failure.New(failure.StageVerify, failure.DataMismatch,
			"after the %s burst %s found wrong bytes, the first at offset %d of the memory of rail %.40q", stage, who,
			v.Mismatch, v.Rail)
	case v.Bytes != want:
		return failure.New(failure.StageVerify, failure.Protocol, "%s verified %d bytes of %d", who, v.Bytes, want)
	}
	return nil
}

// Carried returns what flow i of an RDMA burst carried, or nil if that could not be measured.
func Carried(p *Flow, loads []worker.Load, done worker.BurstDone, i int) *result.Flow {
	b := done.Rails[i]
	if b.Failure != nil || b.Disturbed || b.Ramping || b.Rate() == 0 {
		return nil
	}
	return &result.Flow{Bytes: b.Measured, Active: b.Last - b.First, Moved: b.Bytes,
		Slow: b.Measured < BurstWrites*loads[i].Chunk, Counted: p.counted}
}

// countPorts records what the port of each flow counted during a burst. RDMA device counters do not include TCP;
// counters of a physical port and of a software device do.
func countPorts(flows []*Flow, before, after map[string]rail.Traffic) {
	for _, p := range flows {
		name := p.Local.Name
		d, ok := node.TrafficBetween(before, after, name)
		if after[name].Physical {
			d, ok = node.PortTraffic(before, after, name)
		} else if p.route != nil && !p.Local.IsSoftware() {
			continue
		}
		if bytes := d.Out; ok {
			if p.direction() == rail.Receive {
				bytes = d.In
			}
			p.counted = new(int64(bytes))
		}
	}
}

// compareCounters compares what the port counted with what was written.
func (p *Flow) compareCounters(before, after map[string]rail.Traffic) {
	d, ok := node.TrafficBetween(before, after, p.Local.Name)
	if !ok || p.Result.Striped == nil {
		return
	}
	p.Result.CounterBytes = new(int64(d.Out))
	if b, a := before[p.Local.Name], after[p.Local.Name]; a.CountsRetransmits && a.Retransmits >= b.Retransmits {
		p.Result.Retransmits = new(a.Retransmits - b.Retransmits)
	}
	if p.Result.PathMTU > 0 && p.Local.LinkLayer == "Ethernet" && p.Result.Striped.Moved > 0 {
		wire := node.WireBytes(p.Result.Striped.Moved, p.Result.PathMTU, p.GID.GID.IPv4())
		p.Result.CounterMismatch = new(max(d.Out/wire-1, 1-d.Out/wire))
	}
}

// IbHeader is what port_xmit_data counts of an InfiniBand packet in addition to its payload: LRH 8, BTH 12, ICRC 4
// (IBTA 1.5, 16.1.3.5). The GRH of a routed path, 40, stays below othersAbove.
const IbHeader = 24

// othersAbove is the excess over the probe's own bytes, as a fraction, from which a port must have carried traffic
// of others: a smaller excess may be headers of another MTU.
const othersAbove = 0.05

// NoteOthers records what others sent over each port of rails during the striped burst: the counted bytes beyond the
// burst's. It is unknown where packets were lost or the counters are late.
func NoteOthers(flows []*Flow, rails []node.LocalRail, before, after map[string]rail.Traffic) {
	for _, p := range flows {
		p.Result.Others = nil // value of an earlier burst
	}
	for port, d := range node.Deltas(rails, before, after) {
		var on []*Flow
		own := 0.0
		for _, p := range bursting(flows) {
			if p.Local.SharedPortKey() != port.SharedPortKey() {
				continue
			}
			on = append(on, p)
			switch mtu := p.Result.PathMTU; {
			case mtu <= 0 || !after[p.Local.Name].CountsRetransmits:
				own = math.Inf(1)
			case p.Local.LinkLayer == "Ethernet":
				own += node.WireBytes(p.Result.Striped.Moved, mtu, p.GID.GID.IPv4())
			default:
				own += float64(p.Result.Striped.Moved) * (1 + IbHeader/float64(mtu))
			}
		}
		if rest := d.Out - own; own > 0 && rest > othersAbove*own && !d.Resent && d.Period <= node.SettleTime &&
			d.Seconds > 0 {
			for _, p := range on {
				p.Result.Others = new(rest / d.Seconds / float64(len(on)))
				p.Result.SeenOthers = p.Result.Others
			}
		}
	}
}

const packetPayload = 1024 // bytes, if the path MTU is unknown

// CountLoss adds to the loss of each flow what its rail's counters show between two readings: one burst, or several.
func CountLoss(flows []*Flow, before, after map[string]rail.Traffic) {
	for _, p := range flows {
		b, okB := before[p.Local.Name]
		a, okA := after[p.Local.Name]
		if !okA || !okB || !a.CountsRetransmits || a.Retransmits < b.Retransmits || !p.live() ||
			p.Result.Left != nil {
			continue
		}
		if p.Result.Loss == nil {
			p.Result.Loss = &result.Loss{}
		}
		l, n := p.Result.Loss, a.Retransmits-b.Retransmits
		l.Retransmits += n
		if n > 0 {
			l.Bursts++
		}
		mtu := int64(p.Result.PathMTU)
		if mtu == 0 {
			mtu = packetPayload
		}
		p.sent += a.Transmit - min(b.Transmit, a.Transmit)
		l.Packets = max(p.Result.Bytes, int64(p.sent)) / mtu
	}
}

// notePeerEvents records what the peer counted in this round, by its rail.
func notePeerEvents(flows []*Flow, events map[string]uint64) {
	for _, p := range flows {
		if n, ok := events[p.peerName()]; ok && p.Result.Loss != nil {
			p.Result.Loss.PeerEvents = &n
		}
	}
}
