package probe

import (
	"context"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/verbs"
	"github.com/railscope/railscope/probe/internal/worker"
)

// Kind is a kind of measurement that follows the bursts of a round.
type Kind string

// The kinds.
const (
	Reads      Kind = "read"        // RDMA READ: each rail alone, then all at once
	Both       Kind = "both"        // WRITE and READ at once, likewise
	QueuePairs Kind = "queue_pairs" // all rails at once, with other numbers of queue pairs
	Loopback   Kind = "loopback"    // each rail to itself; in a round by hand also to each other rail of this node
	Paths      Kind = "paths"       // each rail by several flow labels, one after the other
	Contention Kind = "contention"  // two rails at a time, beside each alone
	GPU        Kind = "gpu"         // from the memory of GPUs to that of the peer's: each rail alone, then all at once
	Subset     Kind = "rails"       // some rails at once
	Messages   Kind = "messages"    // the time of messages longer than 8 B, written and read, of each rail
	Sizes      Kind = "sizes"       // transfers of several sizes, in equal parts over rails: goodput, and the time of each
	Pages      Kind = "pages"       // reads of pages of a KV cache: one rail, all at once, and over TCP
	TCPTime    Kind = "tcp_time"    // the time of messages over TCP, of each rail
	Bond       Kind = "bond"        // TCP over a bond of this node
)

// Kinds are all kinds, in the order in which a round measures them.
func Kinds() []Kind {
	return []Kind{Reads, Both, QueuePairs, Loopback, Paths, Contention, GPU, Subset, Messages, Sizes, Pages, TCPTime, Bond}
}

// Extra is one of them, as a round is to make it.
type Extra struct {
	Kind Kind
	// Counts are the numbers of queue pairs per rail, the one number of paths, or sizes in bytes: of messages, transfers
	// or pages. Of other kinds it is empty.
	Counts []int
	// Rails are the names of those that Subset, Messages and Sizes use; nil: all that work.
	Rails []string
	// Read says that Sizes reads.
	Read bool
	// Memories are the kinds of memory to try on GPUs, of [Memories]; nil: all. Of other kinds it is empty.
	Memories []string
}

// Memories are the kinds of memory on GPUs, or known to them, in the order in which they are tried.
func Memories() []string { return worker.Memories() }

// MaxPaths is how many flow labels of a rail are measured at most.
const MaxPaths = 64

// How many writes of 8 B each flow makes: enough for a p99, and on a path that may lose packets fewer.
const (
	extraSamples = 100
	pathSamples  = 20
)

// Measured is one burst of an extra.
type Measured struct {
	Kind       Kind
	QueuePairs int    // of each flow
	Memory     string // that the bytes came from and went to, of [Memories]; empty: of the hosts
	Size       int64  // bytes, of [Extra.Counts] of messages, transfers and pages; else 0
	Flows      []MeasuredFlow
	Transfer   *Latency   // of one transfer of Size over all flows at once; nil: not measured
	TCP        *TCPResult // in place of flows; nil: by RDMA
	Failure    *Failure   // why there are no flows
}

// Goodput is what all flows of one operation carried together, in bytes per second; false if one is not known.
func (m Measured) Goodput(op Op) (sum float64, known bool) {
	for _, f := range m.Flows {
		if f.Op != op {
			continue
		}
		if f.Goodput == nil {
			return 0, false
		}
		sum, known = sum+*f.Goodput, true
	}
	return sum, known
}

// Op is how the bytes of a flow move; the asker posts both.
type Op = worker.Op

// The operations.
const (
	Write = worker.Write
	Read  = worker.Read
)

// MeasuredFlow is what one flow carried in a burst of an extra.
type MeasuredFlow struct {
	Rail    string
	Other   string // of loopback, the rail of this node that its bytes arrive at
	Op      Op
	Path    int      // number of its flow label, from 0
	UDPPort uint16   // source port of its packets on RoCE v2; 0: it has none
	Goodput *float64 // bytes per second; nil: not measured
	Latency *Latency // of 8 B, or of messages of Size; nil: not measured
	Counted *int64   // as of a [Flow]
	Loss    *Loss    // of this flow alone; nil: not counted
	Failure *Failure
}

// extraBytes is the most that the extras move over paths by RDMA, over paths by TCP, and over bonds.
func (p plan) extraBytes(paths, tcp []*path, bonds []bondLane) (sum int64) {
	usable := slices.DeleteFunc(slices.Clone(paths), func(one *path) bool {
		return one.peer == nil || !one.peer.Active || !one.local.status.Limits.Active
	})
	n := int64(len(usable))
	var all int64 // of one burst over all rails
	for _, one := range usable {
		l := p.load(one)
		all += l.Cap + int64(l.Depth+1)*l.Chunk + 8*extraSamples
	}
	if p.runs > 1 { // by hand: see splitLatency
		sum += 8 * 2 * extraSamples * n
	}
	for _, e := range p.extras {
		switch counts := int64(len(e.Counts)); e.Kind {
		case Reads, GPU:
			sum += 2 * all
		case Both:
			sum += 4 * all
		case QueuePairs:
			sum += counts * all
		case Loopback: // by hand also from rail to rail
			if sum += all; p.runs > 1 {
				sum += (n - 1) * all
			}
		case Paths:
			sum += int64(e.Counts[0]) * all
		case Contention:
			sum += n * all
		case Subset:
			sum += all
		case Messages:
			sum += 2 * n * sumOf(e.Counts) * (extraSamples + warmups)
		case Sizes:
			sum += counts*all + sizesBytes(e.Counts, usable)
		case Pages:
			sum += 2*counts*all + counts*p.tcpBytes(tcp, pageStreams)
		case TCPTime:
			sum += sumOf(e.Counts) * (extraSamples + warmups) * int64(len(tcp))
		case Bond:
			for _, b := range bonds {
				for _, streams := range baselineStreams {
					sum += p.tcpBytes([]*path{b.path()}, streams)
				}
			}
		}
	}
	return sum
}

// extras makes the extras. None of their failures changes the outcome of the round.
func (r *round) extras(ctx context.Context) {
	for _, e := range r.plan.extras {
		measure := map[Kind]func(context.Context, Extra) error{Reads: r.measureReads, Both: r.measureBoth,
			QueuePairs: r.measureQueuePairs, Loopback: r.measureLoopback, Paths: r.measurePaths,
			Contention: r.measureContention, GPU: r.measureGPU, Subset: r.measureSubset, Messages: r.measureMessages,
			Sizes: r.measureSizes, Pages: r.measurePages, TCPTime: r.measureTCPTime, Bond: r.measureBond}[e.Kind]
		err := failure.As(failure.StageExtra, timeUpError(ctx))
		if err == nil {
			err = failure.As(failure.StageExtra, measure(ctx, e))
		}
		if err != nil {
			r.res.Extras = append(r.res.Extras, Measured{Kind: e.Kind, Failure: err})
		}
	}
}

// timeUpError is [timeUp] as an error.
func timeUpError(ctx context.Context) error {
	if f := timeUp(ctx); f != nil {
		return f
	}
	return nil
}

// over returns a flow over the rail of a path.
func (p *path) over(op Op, n int) *path {
	f := &path{op: op, flow: n, local: p.local, peer: p.peer, gid: p.gid, own: p.own}
	f.result = &RailResult{Rail: f.local.Name, Capacity: p.result.Capacity, PathMTU: p.result.PathMTU}
	return f
}

// usable are the paths that worked in the round; without RDMA, none.
func (r *round) usable() ([]*path, error) {
	if paths := r.livePaths(); len(paths) > 0 && r.res.Transport == RDMA {
		return paths, nil
	}
	return nil, failure.New(failure.StageExtra, failure.NoDevice, "no rail works by RDMA")
}

// with opens another session of the round's lease with flows in place of its paths, connects them, and returns a round
// that has these and has measured so many latencies of each. It ends with the next one.
func (r *round) with(ctx context.Context, flows []*path, queuePairs, samples int) (*round, error) {
	if !r.remote.Flows && slices.ContainsFunc(flows, func(f *path) bool { return f.op == Read || f.flow > 0 }) {
		return nil, failure.New(failure.StageExtra, failure.PeerVersion, "the railscope of the peer opens one flow of "+
			"writes per rail: install this version there")
	}
	return r.step(ctx, flows, queuePairs, samples, (*round).connect, (*round).reach, (*round).latency)
}

// step is with, by these steps.
func (r *round) step(ctx context.Context, flows []*path, queuePairs, samples int,
	steps ...func(*round, context.Context) error) (*round, error) {
	sub := *r
	sub.paths, sub.res = flows, Result{Class: r.res.Class, Transport: RDMA}
	sub.plan.QueuePairs, sub.plan.rails = queuePairs, len(flows)
	sub.plan.LatencySamples = min(r.plan.LatencySamples, samples)
	for _, step := range steps {
		err := step(&sub, ctx)
		if err == nil {
			err = sub.stopFailed(ctx)
		}
		if err != nil {
			r.res.Bytes += sub.res.Bytes
			return nil, err
		}
		if len(sub.livePaths()) == 0 {
			break // each says why
		}
	}
	r.res.Bytes, sub.res.Bytes = r.res.Bytes+sub.res.Bytes, 0
	return &sub, nil
}

// carry makes one burst over those flows of a session that work, and adds it to the round's results.
func (r *round) carry(ctx context.Context, kind Kind, sub *round, flows []*path) error {
	flows = slices.DeleteFunc(slices.Clone(flows), func(f *path) bool { return f.result.Failure != nil })
	if len(flows) == 0 {
		return nil
	}
	loads := sub.loads(flows)
	if !r.affords(loads) {
		return failure.New(failure.StageExtra, failure.Budget, "all bytes that were granted are used up")
	}
	done, err := sub.burst(ctx, failure.StageExtra, flows, sub.plan.burst(loads, r.timeLeft(ctx)))
	r.res.Bytes, sub.res.Bytes = r.res.Bytes+sub.res.Bytes, 0
	if err == nil {
		err = sub.stopFailed(ctx)
	}
	if err != nil {
		return err
	}
	m := Measured{Kind: kind, QueuePairs: sub.plan.QueuePairs, Memory: sub.memory, Size: sub.size}
	for i, f := range flows {
		f.result.Solo = flow(f, loads, done, i)
		one := f.measured()
		if one.Goodput == nil && one.Failure == nil { // of this burst alone
			one.Failure = disturbed(loads, done)
		}
		m.Flows = append(m.Flows, one)
	}
	r.res.Extras = append(r.res.Extras, m)
	return nil
}

// affords reports whether a burst fits into what the round has reserved.
func (r *round) affords(loads []worker.Load) bool {
	sum := r.res.Bytes
	for _, l := range loads {
		sum += l.Cap + int64(l.Depth+1)*l.Chunk
	}
	return sum <= r.most
}

// measured is what a flow carried in the last burst.
func (p *path) measured() MeasuredFlow {
	m := MeasuredFlow{Rail: p.local.Name, Op: Write, Path: p.flow, Latency: p.result.Latency, Failure: p.result.Failure}
	if p.op == Read {
		m.Op = Read
	}
	if p.result.Solo != nil && p.result.Failure == nil {
		m.Goodput, m.Counted = new(p.result.Solo.BytesPerSecond()), p.result.Solo.Counted
	}
	if p.local.LinkLayer == "Ethernet" && p.theirs.IsValid() {
		m.UDPPort = verbs.SourcePort(p.end.GID, p.theirs, p.flow)
	}
	return m
}

// failed are flows that carried nothing, as results.
func failed(kind Kind, queuePairs int, flows []*path) (list []Measured) {
	for _, f := range flows {
		if f.result.Failure != nil {
			list = append(list, Measured{Kind: kind, QueuePairs: queuePairs, Flows: []MeasuredFlow{f.measured()}})
		}
	}
	return list
}
