package probe

import (
	"context"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/pattern"
	"github.com/railscope/railscope/probe/internal/worker"
)

// plan is what one round does: its steps in order, their sizes and times, and the bytes that it reserves. It follows
// from the options and the number of rails, because the lease is requested before anything is opened. round.go starts
// and ends a round:
//
//	hello → lease → rdmaSteps → two TCP baselines* → release       * only in full rounds
//	                    └ no rail is left: one burst over TCP instead
type plan struct {
	Options
	full  bool // with solo bursts and TCP baselines
	rails int  // of this node
}

// rdmaSteps are the steps of a transfer by RDMA, in order. Each of the last three is one or more bursts, and the target
// verifies each burst.
func (r *round) rdmaSteps() []func(context.Context) error {
	return []func(context.Context) error{r.connect, r.reach, r.fullPacket, r.latency, r.solos, r.static, r.stealing}
}

// Times of a round's steps.
const (
	slotTime    = 2 * time.Second        // to wait while this node answers a peer
	busyWindow  = 100 * time.Millisecond // in which the rails are watched for traffic of others
	reachTime   = 12 * time.Second       // for a first write: all retries, with the longest timeout
	latencyTime = 2 * time.Second        // for all samples of one rail
	maxBurst    = 3 * time.Second        // in which a burst starts chunks: enough to measure a slow link
	minBurst    = 200 * time.Millisecond // the same, however little time is left
	drainTime   = 12 * time.Second       // for chunks in flight at the end of a burst, all retries included
	releaseTime = time.Second            // kept of the round's time to end it in order

	// minInFlight is what a burst keeps in flight on a slow path, however slow (claim.c): two chunks may take longer,
	// but are acknowledged in parts.
	minInFlight = 250 * time.Millisecond
)

// Sizes of a round's steps.
const (
	fullPackets = 4        // of the mtu step, per rail
	scratch     = 64 << 20 // bytes of memory that a transfer is spread over at most, at each end
	maxRanges   = 4096     // that the target is asked to verify

	// retryCount is that of a queue pair: six retries, and the write has failed. Soft-RoCE takes 7, the maximum, for
	// no limit (rxe_comp.c).
	retryCount = 6

	// leasesPerHour is how many leases of the largest size an hour's budget allows.
	leasesPerHour = 8
)

// baselineStreams are the connections per rail of the TCP baselines.
var baselineStreams = []int{1, 4}

// bytes is the most that a round writes: both striped bursts, and in a full round the solos, as much as one of them,
// and two baselines of half as much; or one fallback burst after as much by RDMA as preceded it.
func (p plan) bytes() int64 {
	perRail := fullPackets*4096 + 8*int64(p.LatencySamples) + 4096 // first writes, latencies, rounding
	small := int64(p.rails+1) * perRail
	if p.full {
		return 2*p.Transfer + small
	}
	return p.Transfer + p.Transfer/2 + small
}

// defaultPlan is a full round with default options over as many rails as there may be.
func defaultPlan() plan { return plan{DefaultOptions(), true, worker.MaxRails} }

func (p plan) bursts() int {
	if p.full {
		return 2 + p.rails + len(baselineStreams)
	}
	return 2
}

// burstBytes is the size of one burst: half of the transfer for each striped burst, the same for all solos together,
// and a quarter for each baseline. paths is how many rails there are to measure.
func (p plan) burstBytes(stage failure.Stage, paths int) int64 {
	switch stage {
	case failure.StageSolo:
		return p.part(2 * int64(paths))
	case failure.StageBaseline:
		return p.part(4)
	}
	return p.part(2)
}

// part is 1/of the transfer, in words of the pattern.
func (p plan) part(of int64) int64 { return max(p.Transfer/of/pattern.Word, 1) * pattern.Word }

// burstTimes returns how long one burst starts chunks, and when it is stopped, with time left of the round and so many
// bursts to come.
func (p plan) burstTimes(left time.Duration, bursts int) (limit, deadline time.Duration) {
	limit = min(maxBurst, left*6/10/time.Duration(max(bursts, 1)))
	return max(limit, minBurst), min(limit+drainTime, left)
}

// buffer is the size of the memory at each end, a multiple of the chunk.
func (p plan) buffer() int64 { return max(min(p.part(2), scratch)/p.Chunk, 1) * p.Chunk }

// inFlight is the most bytes that one rail has in flight.
func (p plan) inFlight() int64 { return int64(p.Depth) * p.Chunk }

// ackTime is how long an acknowledgement may take: until all chunks in flight have left, on a path with 1/64 of its
// capacity in bytes per second. RC would retransmit what only waits in a deep queue on a slow link.
func (p plan) ackTime(capacity *float64) time.Duration {
	if capacity == nil {
		return time.Second
	}
	return max(time.Duration(float64(p.inFlight())/(*capacity/64)*float64(time.Second)), minInFlight)
}
