package round

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// PeerRate is node.RailRate for a peer.
func PeerRate(rails []protocol.HelloRail) (sum float64) {
	for _, r := range rails {
		sum += node.RateOf(r.Capacity, r.Software)
	}
	return cmp.Or(sum, node.NominalRate)
}

// Plan is what one round does: the sizes and times of its steps, and what it reserves. The order of the steps:
//
//	hello → lease → rdma → two TCP baselines* → extras → release       * only in full rounds
//	                └ no rail is left: one burst over TCP instead
//
// Rails that others use, at either end, are left out of the bursts and of all that follows; where all are, or there is
// no budget, a lease for [protocol.Reach] is enough. Then, without the slot, the round waits for gaps in their traffic:
//
//	lease for a gap → connect → (both ends quiet → slot → burst)… → release
type Plan struct {
	options.Options
	Full        bool // full round: with solo bursts and TCP baselines
	Interactive bool // somebody waits: the round waits like an overdue one, and retries after a cooldown
	// Striped bursts, and baselines if RDMA is slower, to show the spread of a single round; 0: one.
	Runs      int
	Rails     int            // rails of this node
	Rate      float64        // bytes per second of all rails of the slower end
	onlyReach bool           // without bursts: see forReach
	inGap     bool           // short bursts in gaps of the traffic of others
	software  bool           // a device of either end is not an adapter
	ExtrasNow []result.Extra // extras that follow

	Ring        *RingMember // this node's part of a ring; nil: not a ring
	Visit       Visit
	Reservation string // ID by which the peer knows the ring or gate; empty: the round belongs to neither

	message int64 // bytes of each write; 0: derived from the rate of the rail
	// Least memory in bytes of each rail at the target; 0: enough for the writes in flight.
	minMemory int64
}

// RingMember is this node as a member of a ring: a round with its successor that waits before its bursts.
type RingMember struct {
	ID    string
	Ready chan struct{} // closed when the round waits
	Begin chan struct{} // closed by the request to start
	Done  chan struct{} // closed when the round has ended
	Gone  chan struct{} // closed when the node can be part of another ring
	Stop  context.CancelFunc
	Res   result.Result // result, valid after done
}

// Visit is what a round does for a gate.
type Visit int

// Visits of a gate. Neither measures TCP: the gate compares rails.
const (
	NoVisit    Visit = iota // the round is not part of a gate
	ReachVisit              // it makes no burst
	BurstVisit              // it measures each rail alone
)

// wait is the step of the round that waits for the start.
func (p *RingMember) wait(ctx context.Context) error {
	close(p.Ready)
	select {
	case <-p.Begin:
		return nil
	case <-ctx.Done():
		return failure.New(failure.StageStriped, failure.Timeout, "nobody started the ring")
	}
}

// solo reports whether each rail is measured alone. A ring compares nodes, not rails.
func (p Plan) solo() bool { return p.Full && p.Ring == nil }

// together reports whether other nodes send at the same time, so that a burst cannot be repeated.
func (p Plan) together() bool { return p.Ring != nil && !p.Full }

// SlotTime is how long a round waits for the slot while this node answers a peer.
const SlotTime = 2 * time.Second

// OverdueTime is how long an overdue round waits for the slot, and then for the peer's slot.
const OverdueTime = 10 * time.Second

// AskEvery is the interval at which an overdue round asks for the peer's slot.
const AskEvery = 300 * time.Millisecond

const reachTime = 12 * time.Second // limit of a first write: all retries, with the longest timeout

const latencyTime = 2 * time.Second // limit of all samples of one rail

const latencyPasses = 2

// Writes at random times, which show what traffic meets: writes one after another miss most of a pause. randomTime is
// the time of all rails together; that of one rail is long enough for several pauses of 1 ms in 10.
const (
	randomPart = 4 // one for each of this many writes one after another
	railRandom = 50 * time.Millisecond
	randomTime = 200 * time.Millisecond
)

// randomSamples returns the number of writes at random times over each rail.
func (p Plan) randomSamples() int { return p.LatencySamples / randomPart }

const maxBurst = 3 * time.Second // time in which a burst by RDMA starts writes: enough to measure a slow link

const minBurst = 200 * time.Millisecond // least time in which a burst starts writes, however little time is left

// Limits of a round that only reaches the peer, so that it stays within those of its lease.
const (
	reachQueuePairs = 4
	reachSamples    = 200      // each takes about 80 bytes on the wire
	reachPackets    = 16 << 10 // bytes of the MTU step, or one packet for each queue pair
	// reachInFlight is how long a write may take: on a path that is dead, all retries end within the lease.
	reachInFlight = 64 * time.Millisecond
)

const gapSlow = 5 // a burst in a gap starts writes for at most this multiple of its time, on a slow rail

const drainTime = 12 * time.Second // limit of writes in flight at the end of a burst, all retries included

const releaseTime = time.Second // part of the round's time that is reserved for an orderly end

// TCPWarmup is the time in which TCP leaves slow start.
const TCPWarmup = 20 * time.Millisecond

// TCPWindow is the measured time after the warm-up.
const TCPWindow = 40 * time.Millisecond

const maxTCP = 200 * time.Millisecond // time in which a burst over TCP starts writes: enough for a slow lane

const tcpCapTime = 2 * (TCPWarmup + TCPWindow) // limit of the bytes of a burst over TCP, as time at the lane's rate

// minSlack is how long the writes in flight must last beyond a round trip: no thread polls at shorter intervals
// all the time.
const minSlack = 50 * time.Microsecond

// minInFlight is the least time that the writes in flight last, even on the slowest path (RS_QUEUE in burst.c).
const minInFlight = 250 * time.Millisecond

// BurstWrites is the least number of writes that a burst measures per rail, with one or two queue pairs.
const BurstWrites = 64

const smallWrite = 8 // bytes of the first write, and of latency samples

const fullPackets = 4 // packets of the MTU step, per queue pair

const minChunk = transfer.Page

const maxTCPChunk = 64 << 10

const tcpWrites = 8 // least writes that a burst over TCP measures per rail

const unknownRate = 1.25e9 // bytes per second assumed for a rail of unknown capacity

// RetryCount is the retry count of a queue pair: a write fails after six retries. Soft-RoCE takes 7, the
// maximum, as no limit (rxe_comp.c).
const RetryCount = 6

// BaselineStreams are the numbers of connections per rail of the TCP baselines.
var BaselineStreams = []int{1, 4}

// Load returns what an RDMA burst keeps in flight of a flow. A measured window holds 64 writes, or more on a fast
// path.
func (p Plan) Load(f *Flow) worker.Load {
	rate := f.rate()
	chunk := p.message
	if chunk == 0 {
		chunk = p.Chunk(rate*p.Burst.Seconds()/float64(p.writes()), transfer.MaxChunk)
	}
	return worker.Load{Rail: f.name(), Chunk: chunk,
		Cap: max(2*int64(p.writes())*chunk, int64(4*rate*p.Burst.Seconds())), Depth: p.depth(), RTT: f.rtt()}
}

// Loads returns what bursts over these flows keep in flight.
func (p Plan) Loads(flows []*Flow) (list []worker.Load) {
	for _, f := range flows {
		list = append(list, p.Load(f))
	}
	return list
}

// smaller returns the divisor of the write size where many queue pairs share a rail. Each queue pair is always
// within a write, and only completions show when that was carried.
func (p Plan) smaller() int {
	if p.message != 0 {
		return 1
	}
	return max(p.QueuePairs/2, 1)
}

// writes returns the least number of writes that an RDMA burst measures per rail.
func (p Plan) writes() int { return BurstWrites * p.smaller() }

// depth returns the number of RDMA writes in flight per rail.
func (p Plan) depth() int { return min(p.Depth*p.smaller(), worker.MaxDepth) }

// tcpLoad returns what a TCP burst keeps in flight. Writes are small enough for a slow path, on which few complete
// in time.
func (p Plan) tcpLoad(f *Flow, streams, lanes int) worker.Load {
	rate := f.rate()
	chunk := p.message
	if chunk == 0 {
		chunk = p.Chunk(rate*maxTCP.Seconds()/1024, maxTCPChunk)
	}
	most := min(rate, p.Rate/float64(lanes)) // all lanes together: at most what the slower end carries in that time
	return worker.Load{Rail: f.name(), Chunk: chunk, Cap: max(int64(most*tcpCapTime.Seconds()), chunk),
		Depth: max(p.Depth, 2*streams)}
}

// Chunk rounds a write size to whole pages, so that the target's memory for all rails stays within its limit.
func (p Plan) Chunk(bytes float64, most int64) int64 {
	share := int64(worker.MaxMemory) / int64(max(p.Rails, 1)) / p.slots(p.QueuePairs)
	return max(min(int64(bytes), most, share)/transfer.Page*transfer.Page, minChunk)
}

// slots returns how many writes the target's memory of a rail has room for: twice the writes in flight of each
// queue pair or connection. Writes go to the one with the fewest in flight, so these differ by at most one.
func (p Plan) slots(streams int) int64 {
	streams = max(streams, 1)
	return 2 * int64((p.depth()+streams-1)/streams+1) * int64(streams)
}

// memory returns the bytes that each rail needs at the target.
func (p Plan) memory(loads []worker.Load, streams int) (bytes int64) {
	if p.onlyReach {
		return int64(p.QueuePairs) * protocol.ReachMemory
	}
	bytes = max(p.minMemory, minChunk)
	for _, l := range loads {
		bytes = max(bytes, l.Chunk*p.slots(streams))
	}
	return bytes
}

// ackTime returns how long an acknowledgement may take: until all writes in flight have left at 1/64 of the path's
// rate. A shorter timeout would retransmit writes that only wait in a deep queue on a slow link.
func (p Plan) ackTime(f *Flow) time.Duration {
	if p.onlyReach {
		return reachInFlight
	}
	bytes := float64(p.depth()) * float64(p.Load(f).Chunk)
	return max(time.Duration(bytes/(f.rate()/64)*float64(time.Second)), minInFlight)
}

// small returns the arguments of a burst of count writes of one size over each queue pair.
func (p Plan) small(flows []*Flow, size, count int, deadline time.Duration) worker.BurstArgs {
	args := worker.BurstArgs{Slow: reachTime, Deadline: min(reachTime, deadline), Software: p.software}
	for _, f := range flows {
		depth := max(p.QueuePairs, min(count*p.QueuePairs, p.depth()))
		args.Loads = append(args.Loads, worker.Load{Rail: f.name(), Chunk: int64(size), Cap: int64(size * depth),
			Depth: depth})
	}
	return args
}

// BurstArgs returns the arguments of an RDMA burst. left is the rest of the round's time.
func (p Plan) BurstArgs(loads []worker.Load, left time.Duration) worker.BurstArgs {
	slow := max(min(maxBurst, left/2), minBurst)
	if p.inGap {
		slow = gapSlow * p.Burst
	}
	return worker.BurstArgs{Loads: loads, Window: p.Burst, Writes: p.writes(), Slow: slow, Software: p.software,
		Deadline: min(slow+drainTime, left), Once: p.together() || p.inGap}
}

// tcpBurst returns the arguments of a TCP burst.
func (p Plan) tcpBurst(loads []worker.Load, left time.Duration) worker.BurstArgs {
	return worker.BurstArgs{Loads: loads, Warmup: TCPWarmup, Window: TCPWindow, Writes: tcpWrites, Slow: maxTCP,
		Deadline: min(maxTCP+drainTime, left)}
}

// Bytes returns the most bytes that a round writes over paths by RDMA and over tcp by TCP: every burst repeated to
// its limit, each up to its cap plus the writes in flight.
func (p Plan) Bytes(flows, tcp []*Flow) (sum int64) {
	bursts, overTCP := int64(1+worker.MaxRepeats), BaselineStreams[:1]
	switch {
	case p.together():
		bursts, overTCP = 1, nil
	case p.solo():
		bursts *= 2
	}
	switch {
	case p.Visit != NoVisit:
		overTCP = nil
	case p.Full:
		overTCP = BaselineStreams
	}
	for _, f := range flows {
		if f.Peer == nil || !f.Peer.Active || !f.Local.Status.Limits.Active {
			continue // no traffic
		}
		// First writes and latency samples.
		small := fullPackets*4096*int64(p.QueuePairs) + 8*int64(p.LatencySamples+p.randomSamples()) + 4096
		sum += bursts*loadBytes(p.Loads([]*Flow{f})) + small
	}
	for _, streams := range overTCP {
		sum += p.tcpBytes(tcp, streams)
	}
	return sum
}

// tcpBytes returns the most bytes that a burst over TCP writes over paths with streams connections each.
func (p Plan) tcpBytes(flows []*Flow, streams int) (sum int64) {
	for _, f := range flows {
		l := p.tcpLoad(f, streams, len(flows))
		sum += loadBytes([]worker.Load{l}) + int64(streams)*maxTCPChunk
	}
	return sum
}

// BurstBytes returns the most bytes that one RDMA burst over flows moves.
func (p Plan) BurstBytes(flows []*Flow) int64 { return loadBytes(p.Loads(flows)) }

// loadBytes returns the most bytes that a burst moves: the cap of each load, and the writes in flight.
func loadBytes(loads []worker.Load) (sum int64) {
	for _, l := range loads {
		sum += l.Cap + int64(l.Depth+1)*l.Chunk
	}
	return sum
}

// forReach returns the plan of a round that makes no burst.
func (p Plan) forReach() Plan {
	p.onlyReach, p.Full = true, false
	p.QueuePairs, p.LatencySamples = min(p.QueuePairs, reachQueuePairs), min(p.LatencySamples, reachSamples)
	return p
}

// packets returns how many packets of an MTU the MTU step writes over each queue pair.
func (p Plan) packets(mtu int) int {
	if !p.onlyReach {
		return fullPackets
	}
	return min(max(reachPackets/(max(mtu, 1)*p.QueuePairs), 1), fullPackets)
}

// besideOthers returns the plan of a round that makes bursts over rails that others use: short ones, which end only by
// themselves.
func (p Plan) besideOthers() Plan {
	p.Burst, p.BusyAbove, p.Full, p.ExtrasNow = p.GapBurst, math.MaxFloat64, false, nil
	return p
}

// gapPlan returns the plan of bursts in gaps.
func (p Plan) gapPlan() Plan {
	p.onlyReach, p.inGap, p.Full, p.ExtrasNow, p.Runs = false, true, false, nil, 0
	p.Burst = p.GapBurst
	return p
}
