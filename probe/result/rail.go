package result

import (
	"cmp"

	"github.com/railscope/railscope/internal/baseline"
)

// RailResult is the result of one rail.
type RailResult struct {
	Rail, Device string // names on this node; Device is empty if only TCP addresses are known
	Port         int
	Netdev       string
	PCIAddress   string
	Soldered     bool   // built into the processor: see [rail.Rail.Soldered]
	PeerRail     string // paired rail of the peer; empty: no partner
	Unpaired     bool   // the peer has fewer rails, or this one leads to a third node: not a fault, and not judged
	PeerDevice   string
	GIDIndex     int
	GID          string
	GIDReason    string // reason for this GID
	PathMTU      int    // bytes, the smaller of both ends; 0: unknown

	Latency *Latency
	Bytes   int64 // payload bytes completed in all bursts by RDMA
	Solo    *Flow

	Load

	SoloFailure *Failure // why Solo is nil although its burst was made; nil: it was not made, or the rail failed

	Striped  *Flow          // flow in the striped burst
	Capacity *float64       // bytes per second that the rail could carry, the lower of both ends; nil: unknown
	Expected *float64       // expected bytes per second to the peer's rail; nil: none, as for a software device
	Past     *baseline.Past // earlier solo goodput to the peer; nil: nothing is remembered
	Share    *float64       // striped goodput ÷ Capacity, relative to the best rail of its group; nil: not judged

	CounterBytes    *int64   // difference of the port counter over the striped burst, headers included
	Retransmits     *uint64  // retransmission events in the rail's counters during the striped burst
	CounterMismatch *float64 // |CounterBytes ÷ (payload with headers) − 1|
	Others          *float64 // bytes per second of others on the rail's port during the striped burst; nil: none seen
	SeenOthers      *float64 // Others of the last striped burst that saw others, which may be an earlier one

	Loss  *Loss // loss in this round; nil: the counters do not show it
	Lossy bool  // this round and recent ones show that the rail loses packets
	LossSeen
	Uneven *Uneven // latency above that of its siblings, or of earlier rounds; nil: even, or unknown

	Kind RailKind

	Failure *Failure // first failure; nil: none
}

// Load is what the traffic of others did to the measurement of a rail.
type Load struct {
	Busy bool     // others used the rail shortly before the latencies were measured
	Left *Failure // why no burst was made over the rail, although RDMA reached the peer over it; nil: one was made
}

// LossSeen counts the loss events and packets of the rounds that show a lossy rail.
type LossSeen struct{ LossEvents, LossPackets int64 }

// Reordered reports whether packets of a rail overtook each other in this round, rather than were lost.
func (r *RailResult) Reordered() bool {
	if r.Loss == nil || r.Loss.PeerEvents == nil {
		return false
	}
	inFlight := 0.0
	if l := r.Latency; l != nil && len(l.Samples) > 0 && r.Capacity != nil && r.PathMTU > 0 {
		inFlight = *r.Capacity * l.Samples[0].Seconds() / float64(r.PathMTU)
	}
	return Reordered(float64(*r.Loss.PeerEvents), float64(r.Loss.Retransmits), inFlight)
}

// apart reports whether the rail works, and had no part in the striped burst of a round that made one.
func (r *RailResult) apart() bool { return r.Failure == nil && r.Striped == nil }

// BesideOthers reports whether the burst over the rail was made beside the traffic of others, by when_busy: burst. It
// says nothing of what the rail can carry.
func (r *RailResult) BesideOthers(of *Result) bool { return r.Busy && !of.InGap && r.Striped != nil }

// Measured reports whether a burst over the rail has a figure.
func (r *RailResult) Measured() bool { return r.Striped != nil || r.Solo != nil }

// OthersSeen returns what others took of the rail's port during any striped burst of the round, in bytes per
// second; nil: nothing. It may explain what the round found about the rail.
func (r *RailResult) OthersSeen() *float64 { return cmp.Or(r.Others, r.SeenOthers) }

// Slowed reports whether the rail carried less than on its best day of the last week, alone twice in a row and in
// the striped burst, and less than is expected of it now. Solo goodput of a software device, which has no
// expectation, varies too much to be judged.
func (r *RailResult) Slowed() bool {
	p := r.Past
	if p == nil || r.Failure != nil || r.Expected == nil || p.Latest <= 0 {
		return false
	}
	now := p.Latest
	if r.Striped != nil {
		now = max(now, r.Carried())
	}
	return now < SlowedBelow*min(p.Best, *r.Expected)
}

// Goodput returns the best goodput of the rail by RDMA, including what others took meanwhile. known is false if the
// rail failed or was not measured.
func (r *RailResult) Goodput() (best float64, known bool) {
	if r.Failure != nil {
		return 0, false
	}
	if r.Solo != nil {
		best, known = r.Solo.BytesPerSecond(), true
	}
	if r.Striped != nil {
		best, known = max(best, r.Carried()), true
	}
	return best, known
}

// Carried returns what the rail carried in the striped burst, in bytes per second, others' traffic included. Others
// is a mean over a longer time than the burst, so the sum is limited to the rail's capacity.
func (r *RailResult) Carried() float64 {
	rate := r.Striped.BytesPerSecond()
	if r.Others == nil {
		return rate
	}
	all := rate + *r.Others
	if r.Capacity != nil {
		all = min(all, *r.Capacity)
	}
	return max(rate, all)
}
