package probe

import (
	"slices"
	"time"

	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// Outcome is the result of a round: exactly one of these.
type Outcome string

// The outcomes of a round.
const (
	OK       Outcome = "ok"       // by RDMA, and verified
	Degraded Outcome = "degraded" // likewise, but a rail is dead or slow: [Result.Degraded]
	Fallback Outcome = "fallback" // the peer is reachable, but not by RDMA
	Failed   Outcome = "failed"   // not reachable, or the data is corrupt
	Skipped  Outcome = "skipped"  // not a failure; not the right moment
)

// Outcomes are all outcomes.
func Outcomes() []Outcome { return []Outcome{OK, Degraded, Fallback, Failed, Skipped} }

// Transport is how the bytes were sent.
type Transport string

// The transports.
const (
	RDMA        Transport = "rdma"
	TCP         Transport = "tcp"
	NoTransport Transport = "none"
)

// Transports are all transports.
func Transports() []Transport { return []Transport{RDMA, TCP, NoTransport} }

// Failures have the same form everywhere.
type (
	// Failure is one thing that went wrong: stage, reason, rail, detail.
	Failure = failure.Failure
	// Stage is where in a round.
	Stage = failure.Stage
	// Reason is why.
	Reason = failure.Reason
)

// Result is the result of one round. Figures that were not measured are nil, never 0. It is not changed afterwards.
type Result struct {
	Peer     string // as configured; behind a DNS name, the name that it reports, or its address until it does
	Node     string // this node's name
	PeerNode string // the name that it reports; empty: none
	Start    time.Time
	Duration time.Duration

	Outcome   Outcome
	Transport Transport
	Reason    Reason // of the fallback, failure or skip; empty for a round by RDMA
	// RetryAfter is the least time after which a skipped round may succeed; 0: not within the interval.
	RetryAfter time.Duration
	Detail     string    // the same for people
	Failures   []Failure // all, in order; of a round by RDMA, those of single rails
	Verified   bool      // the target found the data intact after every burst

	Class Class        // of RDMA packets; without a source: no rail
	Rails []RailResult // in order of this node's rails, also failed ones

	Missing []MissingRail // that an end lacks

	Stealing *float64 // sum of the rails' goodput in the striped burst, bytes per second: each takes what it can
	Static   *float64 // the slowest rail's goodput × the rails: what equal parts would reach

	Imbalance  *float64 // of the striped burst: 1 − the smallest share ([rail.Imbalance])
	Scaling    *float64 // Stealing ÷ sum of the solos of this round
	FinishSkew *float64 // 1 − slowest rail's goodput ÷ fastest's, in the striped burst
	Speedup    *float64 // Stealing ÷ best TCP baseline of this round

	Runs          []float64 // goodput of all striped bursts, bytes per second, as Stealing, which is the best one's
	Bottleneck    bool      // several bursts agree that the rails share one, and nothing else explains their scaling
	EvenAlone     bool      // the rails are even in solo bursts: a bottleneck that they share makes them uneven
	SlowerThanTCP bool      // every striped burst of the last rounds was slower than every TCP baseline
	tcpRuns       []float64 // the best of each pass over the streams

	TCP        []TCPResult // TCP figures: the baselines of a round by RDMA, or the fallback's own
	Bytes      int64       // payload moved by all bursts
	Versions   []Mismatch  // of components at both ends, the same or not; of firmware those of the rails
	QueuePairs int         // of each rail
	Mismatches []Mismatch  // components whose version is incompatible with the peer's
	Shared     []Shared    // what the rails share, if Scaling is low

	MinOfExpected float64 // part of Expected below which a rail is slow; 0: not judged

	places []Shared   // what rails share, whether that limits them or not
	Extras []Measured // in order of [Kinds], the bursts of each in the order in which they were made
}

// Corrupted reports whether the received data was not the data sent.
func (r Result) Corrupted() bool {
	return r.Reason == failure.DataMismatch || slices.ContainsFunc(r.Failures, func(f Failure) bool {
		return f.Reason == failure.DataMismatch
	})
}

// OfRailscope reports whether the round is not by RDMA because railscope lacks something at one end, or its worker
// process ended there. Jobs may work.
func (r Result) OfRailscope() bool {
	switch r.Reason {
	case failure.NoCgo, failure.NoLibrary, failure.NoProvider, failure.DevPerm, failure.Memlock, failure.WorkerCrashed,
		failure.WorkerTimeout, failure.WorkerBackoff, failure.PeerWorker:
		return true
	}
	return false
}

// RailResult is the result of one rail.
type RailResult struct {
	Rail, Device string // this node's; Device is empty if only TCP addresses are known
	Port         int
	Netdev       string
	PCIAddress   string
	PeerRail     string // empty: not paired
	PeerDevice   string
	GIDIndex     int
	GID          string
	GIDReason    string // why this one
	PathMTU      int    // bytes, the smaller of both ends'; 0 unknown

	Latency  *Latency
	Bytes    int64 // payload that completed, in all bursts by RDMA
	Solo     *Flow
	Stealing *Flow          // of the striped burst
	Capacity *float64       // bytes per second that the rail could carry, the lower of both ends'; nil: unknown
	Expected *float64       // bytes per second to the peer's rail; nil: none, as of a software device
	Past     *baseline.Past // of its solo goodput to the peer; nil: nothing is remembered
	Share    *float64       // goodput of the striped burst ÷ Capacity, relative to the best of its group; nil: not judged

	CounterBytes    *int64   // difference of the port counter over the striped burst, headers included
	Retransmits     *uint64  // events after which the rail retransmits, as its counters show them, over the striped burst
	CounterMismatch *float64 // |CounterBytes ÷ (payload with headers) − 1|
	Others          *float64 // bytes per second of others on its port during the striped burst, if any were seen

	Loss   *Loss   // of this round; nil: the counters do not show it
	Lossy  bool    // it loses packets, as this round and the last ones show
	Uneven *Uneven // its latency is longer than that of its siblings, or than before; nil: it is not, or not known

	LossEvents, LossPackets int64 // of these rounds, if it is lossy

	kind railKind

	Failure *Failure // the first; nil: none
}

// Flow is what one rail carried in one burst.
type Flow struct {
	Bytes  int64         // payload, from one completion to another with all rails at full depth
	Active time.Duration // between these two, CLOCK_MONOTONIC
	Moved  int64         // payload of the whole burst, repeats included
	Slow   bool          // fewer than 64 writes in 3 s, or before the other rails had their share

	Counted *int64 // bytes that the port counted meanwhile, headers and other traffic included; nil: not known
}

// BytesPerSecond is the flow's goodput while it was active.
func (f Flow) BytesPerSecond() float64 {
	if f.Active <= 0 {
		return 0
	}
	return float64(f.Bytes) / f.Active.Seconds()
}

// Latency is the full round trips of 8 B writes, one outstanding: post to completion, CLOCK_MONOTONIC.
type Latency struct {
	Samples []time.Duration // ascending

	// Of other such writes, after the others in rounds by hand: Adapter until the adapter stamped the completion (adapter,
	// wire and peer), Host from then until it was polled. Ascending; nil: the adapter has no clock that can be read.
	Adapter, Host []time.Duration
}

// add adds the samples of a pass, with the part of each that was the adapter's, if that is known; l may be nil.
func (l *Latency) add(samples, adapter []time.Duration) *Latency {
	if len(samples) == 0 {
		return l
	}
	if l == nil {
		l = &Latency{}
	}
	l.Samples, l.Adapter = append(l.Samples, samples...), append(l.Adapter, adapter...)
	for i, d := range adapter {
		l.Host = append(l.Host, samples[i]-d)
	}
	for _, list := range [][]time.Duration{l.Samples, l.Adapter, l.Host} {
		slices.Sort(list)
	}
	return l
}

// Quantile returns the sample below which the part q of all lies (nearest rank), 0 ≤ q ≤ 1.
func (l Latency) Quantile(q float64) time.Duration { return Quantile(l.Samples, q) }

// Quantile is [Latency.Quantile] of any times, ascending; 0: there are none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q*float64(len(sorted))+0.9999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// TCPResult is one burst over TCP.
type TCPResult struct {
	Streams        int // per rail
	BytesPerSecond float64
	Retransmits    uint64        // segments, of all streams (TCP_INFO tcpi_total_retrans)
	PathMTU        int           // bytes, the smallest of all streams
	RTT            time.Duration // smoothed, the largest of all streams, after the burst
	Rails          []TCPRail
}

// TCPRail is what one rail, or the bond of an [Bond] extra's members, carried of it.
type TCPRail struct {
	Rail           string
	BytesPerSecond float64
	Counted        *int64 // as of a [Flow]
}

// Mismatch is a component whose versions at both ends differ.
type Mismatch struct {
	Component string `json:"component"` // one of Components
	Here      string `json:"here"`
	There     string `json:"there"`
}

// Components are those whose versions are compared.
func Components() []string { return []string{"railscope", "kernel", "rdma-core", "firmware"} }

// Progress is how far a stage of a round has come.
type Progress struct {
	Stage Stage
	Rail  string // empty: all of them
	Done  int64  // bytes; of the latency stage, writes
	Total int64  // 0: not known
}

// Shared is something that several rails share.
type Shared struct {
	Rails []string `json:"rails"`
	What  string   `json:"what"` // "PCIe link 0000:01:00", for people
}

// Shortfall is goodput below what was expected.
type Shortfall struct {
	Rail              string // empty: all rails together
	Goodput, Expected float64
}

// Degraded reports whether a round by RDMA found a rail dead, missing or slow: one failed, loses packets (on some
// path), or has an uneven latency, an end lacks one that it had, goodput is below what was expected or what it was on
// other days, or
// the rails are imbalanced.
func (r Result) Degraded() bool {
	for i := range r.Rails {
		one := &r.Rails[i]
		lossy, _ := r.LossyPaths(one.Rail)
		if one.Failure != nil || one.Lossy || one.Uneven != nil || one.Slowed() || len(lossy) > 0 {
			return true
		}
	}
	return r.LacksRail() || r.Imbalanced() || len(r.Shortfalls()) > 0
}

// SlowedBelow is the part of its best daily median below which a rail has become slow.
const SlowedBelow = 0.7

// Slowed reports whether the rail carried less than on its best day of the last week: alone twice in a row, and in the
// striped burst. More than is expected of it now is not asked for. The solo goodput of a software device, of which
// nothing is expected, varies too much.
func (r *RailResult) Slowed() bool {
	p := r.Past
	if p == nil || r.Failure != nil || r.Expected == nil || p.Latest <= 0 {
		return false
	}
	now := p.Latest
	if r.Stealing != nil {
		now = max(now, r.carried())
	}
	return now < SlowedBelow*min(p.Best, *r.Expected)
}

// Imbalanced reports whether some rail carried too little beside the best one, unless they are even alone.
func (r Result) Imbalanced() bool {
	return r.MinOfExpected > 0 && r.Imbalance != nil && *r.Imbalance > rail.ImbalancedAbove && !r.EvenAlone
}

// Shortfalls are where goodput was below MinOfExpected of what was expected: of all rails together first, then of each
// rail. A rail is judged by the better of its solo and its part of the striped burst: what it can do is judged, and
// what it lost to its siblings shows in the sum. In a round without solos, rails that share a bottleneck and are even
// alone are not judged one by one. What others took is not its fault.
func (r Result) Shortfalls() []Shortfall {
	if r.Transport != RDMA || r.MinOfExpected <= 0 {
		return nil
	}
	var list []Shortfall
	var sum float64
	all := r.Stealing != nil // and every rail that carried has an expectation
	for i := range r.Rails {
		one := &r.Rails[i]
		if one.Expected == nil {
			all = all && one.Stealing == nil
			continue
		}
		sum += *one.Expected
		shared := r.EvenAlone && one.Solo == nil
		if s, ok := one.goodput(); ok && !shared && s < r.MinOfExpected**one.Expected {
			list = append(list, Shortfall{one.Rail, s, *one.Expected})
		}
	}
	known := len(r.Rails) == 1 && len(list) == 1
	if all && !known && *r.Stealing+r.others() < r.MinOfExpected*sum {
		list = append([]Shortfall{{"", *r.Stealing, sum}}, list...)
	}
	return list
}

// others is what others took of all rails during the striped burst, in bytes per second, of each rail no more than it
// lacks to what is expected of it: traffic on one rail does not excuse another.
func (r Result) others() (sum float64) {
	for i := range r.Rails {
		if one := &r.Rails[i]; one.Stealing != nil {
			own, all := one.Stealing.BytesPerSecond(), one.carried()
			if one.Expected != nil {
				all = min(all, *one.Expected)
			}
			sum += max(all-own, 0)
		}
	}
	return sum
}

// goodput is the best that the rail reached by RDMA, with what others took meanwhile; not known if it failed.
func (r *RailResult) goodput() (best float64, known bool) {
	if r.Failure != nil {
		return 0, false
	}
	if r.Solo != nil {
		best, known = r.Solo.BytesPerSecond(), true
	}
	if r.Stealing != nil {
		best, known = max(best, r.carried()), true
	}
	return best, known
}

// carried is what the rail carried in the striped burst, in bytes per second, others' included. Others is the mean of
// a longer time than the burst: together they are no more than the rail can carry.
func (r *RailResult) carried() float64 {
	rate := r.Stealing.BytesPerSecond()
	if r.Others == nil {
		return rate
	}
	all := rate + *r.Others
	if r.Capacity != nil {
		all = min(all, *r.Capacity)
	}
	return max(rate, all)
}
