package probe

import (
	"context"
	"time"

	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/internal/worker"
)

// plan is what one round does: its steps in order, their sizes and times, and what it reserves. round.go starts and
// ends a round:
//
//	hello → lease → rdmaSteps → two TCP baselines* → extras → release       * only in full rounds
//	                    └ no rail is left: one burst over TCP instead
type plan struct {
	Options
	full     bool    // with solo bursts and TCP baselines
	runs     int     // striped bursts, and baselines if RDMA is slower, for the spread of a single round; 0: one
	rails    int     // of this node
	rate     float64 // of the rails of the slower end together, in bytes per second
	software bool    // a device of either end is not an adapter
	extras   []Extra // that follow

	ring *ringPart // of which the round is this node's part; nil: of none

	message int64 // bytes of each write; 0: as the rate of the rail suggests
	least   int64 // bytes of memory of each rail at the target; 0: as the writes in flight need
}

// solo reports whether each rail is measured alone. A ring compares nodes.
func (p plan) solo() bool { return p.full && p.ring == nil }

// together reports whether other nodes send at the same time, so that a burst cannot be repeated.
func (p plan) together() bool { return p.ring != nil && !p.full }

// rdmaSteps are the steps of a transfer by RDMA, in order. Each of the last three is bursts, and the target verifies
// each of them.
func (r *round) rdmaSteps() []func(context.Context) error {
	return []func(context.Context) error{r.connect, r.reach, r.fullPacket, r.beginLoss, r.latency,
		r.ringStep, r.solos, r.striped, r.again}
}

// Times of a round's steps.
const (
	slotTime    = 2 * time.Second        // to wait while this node answers a peer
	overdueTime = 10 * time.Second       // the same of an overdue round, and to wait for the peer's slot
	askEvery    = 300 * time.Millisecond // how often it asks for that
	busyWindow  = 100 * time.Millisecond // in which the rails are watched for traffic of others
	reachTime   = 12 * time.Second       // for a first write: all retries, with the longest timeout
	latencyTime = 2 * time.Second        // for all samples of one rail
	maxBurst    = 3 * time.Second        // in which a burst by RDMA starts writes: enough to measure a slow link
	minBurst    = 200 * time.Millisecond // the same, however little time is left
	drainTime   = 12 * time.Second       // for writes in flight at the end of a burst, all retries included
	releaseTime = time.Second            // kept of the round's time to end it in order

	tcpWarmup = 20 * time.Millisecond       // in which TCP leaves slow start
	tcpWindow = 40 * time.Millisecond       // that is measured then
	maxTCP    = 200 * time.Millisecond      // in which a burst over TCP starts writes: enough for a slow lane
	tcpMost   = 2 * (tcpWarmup + tcpWindow) // at the lane's rate, a burst over TCP moves no more than in this time

	// minSlack is what writes in flight must last beyond a round trip: no thread polls at shorter gaps all the time.
	minSlack = 50 * time.Microsecond

	// minInFlight is what a burst keeps in flight on a slow path, however slow (RS_QUEUE in burst.c).
	minInFlight = 250 * time.Millisecond
)

// Sizes of a round's steps.
const (
	burstWrites = 64 // that a burst measures at least, per rail
	smallWrite  = 8  // bytes: of the first write, and of latencies
	fullPackets = 4  // of the mtu step, per queue pair
	minChunk    = transfer.Page
	maxTCPChunk = 64 << 10
	tcpWrites   = 8 // that a burst over TCP measures at least, per rail

	unknownRate = 1.25e9 // bytes per second, of a rail without a known capacity

	// retryCount is that of a queue pair: six retries, and the write has failed. Soft-RoCE takes 7, the maximum, for
	// no limit (rxe_comp.c).
	retryCount = 6

	// leasesPerHour is how many leases of the largest size an hour's budget allows.
	leasesPerHour = 8
)

// baselineStreams are the connections per rail of the TCP baselines.
var baselineStreams = []int{1, 4}

// load is what a burst by RDMA keeps in flight on a path. A measured window holds 64 writes; a fast path has more.
func (p plan) load(path *path) worker.Load {
	rate := path.rate()
	chunk := p.message
	if chunk == 0 {
		chunk = p.chunk(rate*p.Burst.Seconds()/burstWrites, transfer.MaxChunk)
	}
	return worker.Load{Rail: path.name(), Chunk: chunk, Cap: max(2*burstWrites*chunk, int64(4*rate*p.Burst.Seconds())),
		Depth: p.Depth, RTT: path.rtt()}
}

// tcpLoad is the same over TCP. Writes are small enough for a slow path, where few complete in time.
func (p plan) tcpLoad(path *path, streams, lanes int) worker.Load {
	rate := path.rate()
	chunk := p.message
	if chunk == 0 {
		chunk = p.chunk(rate*maxTCP.Seconds()/1024, maxTCPChunk)
	}
	most := min(rate, p.rate/float64(lanes)) // together no more than the slower end carries in that time
	return worker.Load{Rail: path.name(), Chunk: chunk, Cap: max(int64(most*tcpMost.Seconds()), chunk),
		Depth: max(p.Depth, 2*streams)}
}

// chunk returns a size of writes in whole pages, so that the target's memory for all rails stays within its bound.
func (p plan) chunk(bytes float64, most int64) int64 {
	share := int64(worker.MaxMemory) / int64(max(p.rails, 1)) / p.slots(p.QueuePairs)
	return max(min(int64(bytes), most, share)/transfer.Page*transfer.Page, minChunk)
}

// slots is how many writes the memory of a rail at the target has room for: twice those that each queue pair or
// connection has in flight. Writes go to the one with the fewest, so they differ by one.
func (p plan) slots(streams int) int64 {
	streams = max(streams, 1)
	return 2 * int64((p.Depth+streams-1)/streams+1) * int64(streams)
}

// memory is what each rail needs at the target, in bytes.
func (p plan) memory(loads []worker.Load, streams int) (bytes int64) {
	bytes = max(p.least, minChunk)
	for _, l := range loads {
		bytes = max(bytes, l.Chunk*p.slots(streams))
	}
	return bytes
}

// ackTime is how long an acknowledgement may take: until all writes in flight have left, on a path with 1/64 of its
// rate. RC would retransmit what only waits in a deep queue on a slow link.
func (p plan) ackTime(path *path) time.Duration {
	bytes := float64(p.Depth) * float64(p.load(path).Chunk)
	return max(time.Duration(bytes/(path.rate()/64)*float64(time.Second)), minInFlight)
}

// small is a burst of count writes of one size over each queue pair.
func (p plan) small(paths []*path, size, count int, deadline time.Duration) worker.BurstArgs {
	args := worker.BurstArgs{Slow: reachTime, Deadline: min(reachTime, deadline), Software: p.software}
	for _, path := range paths {
		depth := max(p.QueuePairs, min(count*p.QueuePairs, p.Depth))
		args.Loads = append(args.Loads, worker.Load{Rail: path.name(), Chunk: int64(size), Cap: int64(size * depth),
			Depth: depth})
	}
	return args
}

// burst is a burst by RDMA. left is the time that the round has.
func (p plan) burst(loads []worker.Load, left time.Duration) worker.BurstArgs {
	slow := max(min(maxBurst, left/2), minBurst)
	return worker.BurstArgs{Loads: loads, Window: p.Burst, Writes: burstWrites, Slow: slow, Software: p.software,
		Deadline: min(slow+drainTime, left), Once: p.together()}
}

// tcpBurst is the same over TCP.
func (p plan) tcpBurst(loads []worker.Load, left time.Duration) worker.BurstArgs {
	return worker.BurstArgs{Loads: loads, Warmup: tcpWarmup, Window: tcpWindow, Writes: tcpWrites, Slow: maxTCP,
		Deadline: min(maxTCP+drainTime, left)}
}

// bytes is the most that a round writes over paths by RDMA, and over paths by TCP: all bursts repeated as often as they
// may be, each until its cap and then what is in flight.
func (p plan) bytes(paths, tcp []*path) (sum int64) {
	most := func(l worker.Load) int64 { return l.Cap + int64(l.Depth+1)*l.Chunk }
	bursts, overTCP := int64(1+worker.MaxRepeats), baselineStreams[:1]
	switch {
	case p.together():
		bursts, overTCP = 1, nil
	case p.solo():
		bursts *= 2
	}
	if p.full {
		overTCP = baselineStreams
	}
	for _, path := range paths {
		if path.peer == nil || !path.peer.Active || !path.local.status.Limits.Active {
			continue // it carries nothing
		}
		small := fullPackets*4096*int64(p.QueuePairs) + 8*int64(p.LatencySamples) + 4096 // first writes, latencies
		sum += bursts*most(p.load(path)) + small
	}
	for _, streams := range overTCP {
		sum += p.tcpBytes(tcp, streams)
	}
	return sum
}

// tcpBytes is the most that a burst over TCP writes, over paths with so many connections each.
func (p plan) tcpBytes(paths []*path, streams int) (sum int64) {
	for _, path := range paths {
		l := p.tcpLoad(path, streams, len(paths))
		sum += l.Cap + int64(l.Depth+1)*l.Chunk + int64(streams)*maxTCPChunk
	}
	return sum
}
