package round

import (
	"context"
	"fmt"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/verbs"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// Limits of a list of extras.
const (
	maxExtras = 32
	maxCounts = 64
	maxCount  = 1 << 30
)

// CheckExtras returns an error if no round can measure the list.
func CheckExtras(list []result.Extra) error {
	if len(list) > maxExtras {
		return fmt.Errorf("%d measurements besides those of a round: the limit is %d", len(list), maxExtras)
	}
	for _, e := range list {
		needs := slices.Contains([]result.Kind{result.QueuePairs, result.Paths, result.Messages, result.Sizes, result.Pages,
			result.TCPTime}, e.Kind)
		unknown := func(memory string) bool { return !slices.Contains(result.Memories(), memory) }
		switch {
		case !slices.Contains(result.Kinds(), e.Kind):
			return fmt.Errorf("unknown measurement %.40q", e.Kind)
		case len(e.Counts) > maxCounts, needs && len(e.Counts) == 0,
			slices.ContainsFunc(e.Counts, func(n int) bool { return n < 1 || n > maxCount }):
			return fmt.Errorf("%s: 1 to %d counts from 1 to %d, not %.80s", e.Kind, maxCounts, maxCount, fmt.Sprint(e.Counts))
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

// Number of 8 B writes per flow: enough for a p99, and fewer on a path that may lose packets.
const (
	ExtraSamples = 100
	pathSamples  = 20
)

// ExtraBytes returns the most bytes that the extras move: over paths by RDMA, over tcp by TCP, and over bonds.
func (p Plan) ExtraBytes(paths, tcp []*Path, bonds []BondLane) (sum int64) {
	usable := carrying(paths)
	n := int64(len(usable))
	all := p.Most(usable) + n*8*ExtraSamples // bytes of one burst over all rails
	if p.Runs > 1 {                          // interactive round: see splitLatency
		sum += 8 * 2 * ExtraSamples * n
	}
	for _, e := range p.ExtrasNow {
		switch counts := int64(len(e.Counts)); e.Kind {
		case result.Reads:
			sum += 2 * all
		case result.GPU: // interactive rounds may use two kinds of memory
			sum += 2 * all * int64(max(p.Runs, 1))
		case result.Both:
			sum += 4 * all
		case result.QueuePairs:
			sum += counts * all
		case result.Loopback: // interactive rounds also measure from rail to rail
			sum += all
			if p.Runs > 1 {
				sum += (n - 1) * all
			}
		case result.Paths:
			sum += int64(e.Counts[0]) * all
		case result.Contention:
			sum += n * all
		case result.Subset:
			sum += all
		case result.Messages:
			sum += 2 * n * sumOf(e.Counts) * (ExtraSamples + warmups)
		case result.Sizes:
			chosen := named(usable, e.Rails)
			bursts, _ := p.messageBursts(e, chosen)
			sum += n*8*ExtraSamples + bursts + SizesBytes(e.Counts, chosen)
		case result.Pages:
			bursts, _ := p.messageBursts(e, usable)
			sum += n*8*ExtraSamples + 2*bursts + counts*p.tcpBytes(tcp, pageStreams)
		case result.TCPTime:
			sum += sumOf(e.Counts) * (ExtraSamples + warmups) * int64(len(tcp))
		case result.Bond:
			for _, b := range bonds {
				for _, streams := range BaselineStreams {
					sum += p.tcpBytes([]*Path{b.path()}, streams)
				}
			}
		case result.OneTCP:
			var most int64
			for i := range tcp {
				most = max(most, p.tcpBytes(tcp[i:i+1], 1))
			}
			sum += most * int64(min(len(tcp)-1, 1)) // a single rail has nothing to measure
		}
	}
	return sum + p.Repeats(usable)
}

// carrying returns the paths that can carry data.
func carrying(paths []*Path) []*Path {
	return slices.DeleteFunc(slices.Clone(paths), func(one *Path) bool {
		return one.Peer == nil || !one.Peer.Active || !one.Local.Status.Limits.Active
	})
}

// named returns the paths of rails with these names; nil: all.
func named(paths []*Path, names []string) []*Path {
	return slices.DeleteFunc(slices.Clone(paths), func(p *Path) bool {
		return names != nil && !slices.Contains(names, p.Local.Name)
	})
}

// timeUpError returns [timeUp] as an error interface: nil, not a nil pointer.
func timeUpError(ctx context.Context) error {
	if f := timeUp(ctx); f != nil {
		return f
	}
	return nil
}

// over returns a new flow over the rail of the path.
func (p *Path) over(op result.Op, n int) *Path {
	f := &Path{Op: op, flow: n, Local: p.Local, Peer: p.Peer, GID: p.GID, Own: p.Own}
	f.Result = &result.RailResult{Rail: f.Local.Name, Capacity: p.Result.Capacity, PathMTU: p.Result.PathMTU}
	return f
}

// usable returns the paths that worked in the round. Without RDMA there are none.
func (r *Round) usable() ([]*Path, error) {
	if paths := r.LivePaths(); len(paths) > 0 && r.Res.Transport == result.RDMA {
		return paths, nil
	}
	return nil, failure.New(failure.StageExtra, failure.NoDevice, "no rail works by RDMA")
}

// With opens a new session of the round's lease for flows, connects them, and measures samples latencies of each.
// It returns a round whose paths are the flows. The session ends with the next call.
func (r *Round) With(ctx context.Context, flows []*Path, queuePairs, samples int) (*Round, error) {
	if !r.Remote.Flows && slices.ContainsFunc(flows, func(f *Path) bool { return f.Op == result.Read || f.flow > 0 }) {
		return nil, failure.New(failure.StageExtra, failure.PeerVersion, "the railscope of the peer opens one flow of "+
			"writes per rail: install this version there")
	}
	return r.step(ctx, flows, queuePairs, samples, (*Round).connect, (*Round).reach, (*Round).latency)
}

// step works like with, and takes the steps of the round as arguments.
func (r *Round) step(ctx context.Context, flows []*Path, queuePairs, samples int,
	steps ...func(*Round, context.Context) error) (*Round, error) {
	sub := *r
	sub.Paths, sub.Res = flows, result.Result{Class: r.Res.Class, Transport: result.RDMA}
	sub.Plan.QueuePairs, sub.Plan.Rails = queuePairs, len(flows)
	sub.Plan.LatencySamples = min(r.Plan.LatencySamples, samples)
	for _, step := range steps {
		err := step(&sub, ctx)
		if err == nil {
			err = sub.stopFailed(ctx)
		}
		if err != nil {
			r.Res.Bytes += sub.Res.Bytes
			return nil, err
		}
		if len(sub.LivePaths()) == 0 {
			break // each flow holds its failure
		}
	}
	r.Res.Bytes, sub.Res.Bytes = r.Res.Bytes+sub.Res.Bytes, 0
	return &sub, nil
}

// carry runs one burst over the working flows of a session, and adds it to the round's results.
func (r *Round) carry(ctx context.Context, kind result.Kind, sub *Round, flows []*Path) error {
	flows = slices.DeleteFunc(slices.Clone(flows), func(f *Path) bool { return f.Result.Failure != nil })
	if len(flows) == 0 {
		return nil
	}
	loads := sub.Loads(flows)
	if !r.Affords(loads) {
		return failure.New(failure.StageExtra, failure.Budget, "all bytes that were granted are used up")
	}
	args, planned := sub.Plan.BurstArgs(loads, r.timeLeft(ctx)), int64(0)
	for _, l := range loads {
		planned += mostOf(l)
	}
	args.Once = args.Once || r.ByHand && r.Spare < worker.MaxRepeats*planned // the remaining bytes are for other bursts
	done, err := sub.burst(ctx, failure.StageExtra, flows, args)
	r.Spare += planned - sub.Res.Bytes
	r.Res.Bytes, sub.Res.Bytes = r.Res.Bytes+sub.Res.Bytes, 0
	if err == nil {
		err = sub.stopFailed(ctx)
	}
	if err != nil {
		return err
	}
	m := result.Measured{Kind: kind, QueuePairs: sub.Plan.QueuePairs, Memory: sub.memory, Size: sub.size}
	for i, f := range flows {
		f.Result.Solo = Flow(f, loads, done, i)
		one := f.measured()
		if one.Goodput == nil && one.Failure == nil { // failure of this burst only
			one.Failure = Disturbed(args, done)
		}
		m.Flows = append(m.Flows, one)
	}
	r.Res.Extras = append(r.Res.Extras, m)
	return nil
}

// Affords reports whether a burst fits into what the round has reserved.
func (r *Round) Affords(loads []worker.Load) bool {
	sum := r.Res.Bytes
	for _, l := range loads {
		sum += mostOf(l)
	}
	return sum <= r.Most
}

// measured returns what a flow carried in the last burst.
func (p *Path) measured() result.MeasuredFlow {
	m := result.MeasuredFlow{Rail: p.Local.Name, Op: result.Write, Path: p.flow, Latency: p.Result.Latency,
		Failure: p.Result.Failure}
	if p.Op == result.Read {
		m.Op = result.Read
	}
	if p.Result.Solo != nil && p.Result.Failure == nil {
		m.Goodput, m.Counted = new(p.Result.Solo.BytesPerSecond()), p.Result.Solo.Counted
	}
	if p.Local.LinkLayer == "Ethernet" && p.Theirs.IsValid() {
		m.UDPPort = verbs.SourcePort(p.end.GID, p.Theirs, p.flow)
	}
	return m
}

// failed returns a result for each flow that failed.
func failed(kind result.Kind, queuePairs int, flows []*Path) (list []result.Measured) {
	for _, f := range flows {
		if f.Result.Failure != nil {
			list = append(list, result.Measured{Kind: kind, QueuePairs: queuePairs, Flows: []result.MeasuredFlow{f.measured()}})
		}
	}
	return list
}
