// Package result has what a round and its measurements came to: data only, without the engine.
package result

import (
	"cmp"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/trafficclass"
	"github.com/railscope/railscope/probe/internal/failure"
)

// Class is the traffic class and service level of a round's RDMA packets.
type Class = trafficclass.Choice

// Shares returns what two rails share, as far as this node knows: the narrowest part, or empty.
func (r *Result) Shares(a, b string) string {
	for _, s := range r.Places {
		if slices.Contains(s.Rails, a) && slices.Contains(s.Rails, b) {
			return s.What
		}
	}
	return ""
}

// Unpaired returns the names of the rails that have no partner although nothing is wrong.
func (r Result) Unpaired() (names []string) {
	for i := range r.Rails {
		if r.Rails[i].Unpaired {
			names = append(names, r.Rails[i].Rail)
		}
	}
	return names
}

// LacksPartner reports whether the partner of this node's rail is missing.
func (r Result) LacksPartner(name string) bool {
	return slices.ContainsFunc(r.Missing, func(m MissingRail) bool { return m.Peer && m.Rail == name })
}

// Outcome is the result of a round: exactly one of these.
type Outcome string

// Outcomes of a round.
const (
	OK       Outcome = "ok"       // RDMA worked, and the data was verified
	Degraded Outcome = "degraded" // RDMA worked, but a rail is dead or slow: [Result.Degraded]
	Reached  Outcome = "reached"  // RDMA worked, and no burst was made: [Result.BurstSkipped]; neither good nor bad
	Fallback Outcome = "fallback" // the peer is reachable, but not by RDMA
	Failed   Outcome = "failed"   // the peer is not reachable, or the data is corrupt
	Skipped  Outcome = "skipped"  // the time was not right, and nothing was done: not a failure
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome { return []Outcome{OK, Degraded, Reached, Fallback, Failed, Skipped} }

// Quiet reports whether a round of this outcome says nothing of what the rails carry, for no fault of theirs.
func (o Outcome) Quiet() bool { return o == Skipped || o == Reached }

// Transport is how the bytes were sent.
type Transport string

// Transports of a round.
const (
	RDMA        Transport = "rdma"
	TCP         Transport = "tcp"
	NoTransport Transport = "none"
	Simulated   Transport = "simulated" // RDMA in the demo; only in JSON and metrics
)

// Transports returns all transports.
func Transports() []Transport { return []Transport{RDMA, TCP, NoTransport} }

// Failures have the same form in all packages.
type (
	// Failure is one fault: stage, reason, rail, detail.
	Failure = failure.Failure
	// Stage is the step of a round in which a fault appears.
	Stage = failure.Stage
	// Reason is the cause of a fault.
	Reason = failure.Reason
)

// Reasons returns all reasons.
func Reasons() []Reason { return failure.Reasons() }

// Result is the result of one round. Figures that were not measured are nil, never 0. It is immutable after the
// round.
type Result struct {
	Peer     string // configured address; behind a DNS name, the name that the peer reports, or its address until then
	Node     string // this node's name
	PeerNode string // name that the peer reports; empty: none
	Start    time.Time
	Duration time.Duration

	Outcome   Outcome
	Transport Transport
	Reason    Reason // reason of the fallback, failure or skip; empty for a round by RDMA
	// RetryAfter is the least time after which a skipped round may succeed; 0: not within the interval.
	RetryAfter time.Duration
	Detail     string    // Reason as a sentence for people
	Failures   []Failure // all failures, in order; in a round by RDMA, those of single rails

	BesideOthers

	StripedFailure *Failure    // why Striped is nil although its burst was made
	TCPFailed      []TCPResult // baselines without a figure

	Verified bool // the target found the data intact after every burst

	Class Class        // class of RDMA packets; without a source: no rail
	Rails []RailResult // results in order of this node's rails, including failed ones

	Missing   []MissingRail // rails that an end lacks
	PeerRails int           // number of the peer's rails

	Striped *float64 // sum of the rails' goodput in the striped burst, bytes per second: each rail takes what it can
	Static  *float64 // goodput of the slowest rail × number of rails: the goodput of equal parts

	Imbalance  *float64 // 1 − the smallest share in the striped burst ([rail.Imbalance])
	Scaling    *float64 // Striped ÷ sum of the solo goodputs of this round
	FinishSkew *float64 // 1 − goodput of the slowest rail ÷ fastest rail, in the striped burst
	Speedup    *float64 // Striped ÷ best TCP baseline of this round

	Runs []float64 // goodput of all striped bursts, bytes per second; Striped is the best of them
	Agreed
	TCPRuns []float64 // best TCP goodput of each pass over the numbers of streams

	TCP        []TCPResult   // TCP figures: the baselines of a round by RDMA, or the fallback's own
	Bytes      int64         // payload bytes of all bursts
	Versions   []Mismatch    // all compared components, equal or not; firmware: of the rails
	QueuePairs int           // queue pairs per rail
	Burst      time.Duration // measured time of bursts
	Depth      int           // writes in flight per rail
	Mismatches []Mismatch    // components with incompatible versions at both ends
	Shared     []Shared      // hardware that the rails share, if Scaling is low

	MinOfExpected float64 // fraction of Expected below which a rail is slow; 0: not judged

	Places []Shared   // hardware that rails share, whether it limits them or not
	Extras []Measured // extras in order of [Kinds], and within a kind in order of measurement
}

// Agreed is what several bursts agree on.
type Agreed struct {
	Bottleneck    bool     // several bursts agree that the rails share a bottleneck, which nothing else explains
	EvenAlone     bool     // the rails are even in solo bursts, so a shared bottleneck makes them uneven
	SlowerThanTCP bool     // every striped burst of the last rounds was slower than every TCP baseline
	TogetherSeen  *float64 // Striped ÷ sum of the solo goodputs of this round or of the last full one; nil: unknown
}

// BesideOthers is what the traffic of others did to a round.
type BesideOthers struct {
	BurstSkipped *Failure      // why no burst was made over some of the rails that RDMA reached, or all; nil: over all
	InGap        bool          // Striped is of a short burst in a gap of the traffic of others
	Waited       time.Duration // part of Duration in which it waited for a gap
}

// Corrupted reports whether the received data was not the data sent.
func (r Result) Corrupted() bool {
	return r.Reason == failure.DataMismatch || slices.ContainsFunc(r.Failures, func(f Failure) bool {
		return f.Reason == failure.DataMismatch
	})
}

// OfRailscope reports whether RDMA was not used because railscope lacks something at one end, or its worker ended
// there. Jobs may work.
func (r Result) OfRailscope() bool {
	switch r.Reason {
	case failure.NoCgo, failure.NoLibrary, failure.NoProvider, failure.DevPerm, failure.Memlock, failure.WorkerCrashed,
		failure.WorkerTimeout, failure.WorkerBackoff, failure.PeerWorker:
		return true
	}
	return false
}

// Mismatch is a component whose versions at both ends differ.
type Mismatch struct {
	Component string `json:"component"` // one of Components
	Here      string `json:"here"`
	There     string `json:"there"`
}

// Components returns the components whose versions are compared.
func Components() []string { return []string{"railscope", "kernel", "rdma-core", "firmware"} }

// Shared is hardware that several rails share.
type Shared struct {
	Rails []string `json:"rails"`
	What  string   `json:"what"` // description for people, such as "PCIe link 0000:01:00"
}

// Shortfall is goodput below what was expected.
type Shortfall struct {
	Rail              string // rail below expectation; empty: all rails together
	Goodput, Expected float64
}

// Degraded reports whether a round by RDMA found a rail dead, missing, lossy, uneven in latency or slow: below what
// was expected or what it was on other days. Imbalance and a shared bottleneck that costs too much also count.
func (r Result) Degraded() bool {
	for i := range r.Rails {
		one := &r.Rails[i]
		lossy, _ := r.LossyPaths(one.Rail)
		if one.Failure != nil || one.Lossy || one.Uneven != nil || one.Slowed() || len(lossy) > 0 {
			return true
		}
	}
	return r.LacksRail() || r.Imbalanced() || r.Throttled() || len(r.Shortfalls()) > 0
}

// Imbalanced reports whether a rail carried too little compared with the best one, unless the rails are even alone,
// or others used each slow rail.
func (r Result) Imbalanced() bool {
	if r.MinOfExpected <= 0 || r.Imbalance == nil || *r.Imbalance <= rail.ImbalancedAbove || r.EvenAlone {
		return false
	}
	low := slices.DeleteFunc(slices.Clone(r.Rails), func(one RailResult) bool {
		return one.Share == nil || *one.Share >= 1-rail.ImbalancedAbove
	})
	return len(low) == 0 || slices.ContainsFunc(low, func(one RailResult) bool { return one.OthersSeen() == nil })
}

// Measured reports whether a burst of the round has a figure. A round without one says that the peer was reached, and
// nothing of what the rails carry.
func (r Result) Measured() bool {
	return r.Striped != nil || slices.ContainsFunc(r.Rails, func(one RailResult) bool { return one.Measured() })
}

// Together returns what all rails carried at once relative to the sum of each alone, in this round or in the last
// full one; nil: unknown.
func (r Result) Together() *float64 { return cmp.Or(r.Scaling, r.TogetherSeen) }

// Throttled reports whether the rails share a bottleneck that costs much of what they carry alone. Where no more is
// expected of them, as for the halves of one port, nothing is lost.
func (r Result) Throttled() bool {
	together := r.Together()
	if r.MinOfExpected <= 0 || !r.Bottleneck || together == nil || *together >= BottleneckBelow {
		return false
	}
	var expected float64
	for i := range r.Rails {
		if one := &r.Rails[i]; one.Expected != nil && !one.apart() {
			expected += *one.Expected
		} else if one.Striped != nil {
			return true
		}
	}
	return expected == 0 || r.Striped == nil || *r.Striped < BottleneckBelow*expected
}

// Shortfalls returns where goodput was below MinOfExpected, all rails together first. A rail is judged by the
// better of its solo and striped goodput; its loss to siblings shows in the sum. Rails that share a bottleneck and
// are even alone are not judged singly without solo bursts. Traffic of others is not a rail's fault.
func (r Result) Shortfalls() []Shortfall {
	if r.Transport != RDMA || r.MinOfExpected <= 0 {
		return nil
	}
	var list []Shortfall
	var sum float64
	all := r.Striped != nil // holds if every rail that carried data has an expectation
	for i := range r.Rails {
		one := &r.Rails[i]
		if one.Expected == nil {
			all = all && one.Striped == nil
			continue
		}
		if one.BesideOthers(&r) {
			all = false
			continue
		}
		if !one.apart() {
			sum += *one.Expected
		}
		shared := r.EvenAlone && one.Solo == nil
		if s, ok := one.Goodput(); ok && !shared && s < r.MinOfExpected**one.Expected {
			list = append(list, Shortfall{one.Rail, s, *one.Expected})
		}
	}
	known := len(r.Rails)-len(r.Unpaired()) == 1 && len(list) == 1
	if all && !known && *r.Striped+r.others() < r.MinOfExpected*sum {
		list = append([]Shortfall{{"", *r.Striped, sum}}, list...)
	}
	return list
}

// others returns what others took of all rails during the striped burst, in bytes per second, for each rail at most
// what it lacks to its expectation: traffic on one rail does not excuse another.
func (r Result) others() (sum float64) {
	for i := range r.Rails {
		if one := &r.Rails[i]; one.Striped != nil {
			own, all := one.Striped.BytesPerSecond(), one.Carried()
			if one.Expected != nil {
				all = min(all, *one.Expected)
			}
			sum += max(all-own, 0)
		}
	}
	return sum
}
