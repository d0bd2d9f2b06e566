package probe

import (
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Outcome is what a round came to: exactly one of these.
type Outcome string

// The outcomes of a round.
const (
	OK       Outcome = "ok"       // by RDMA, and what arrived is what was sent
	Degraded Outcome = "degraded" // the same, but a rail is dead or slow: [Result.Degraded]
	Fallback Outcome = "fallback" // the peer can be reached, but not by RDMA
	Failed   Outcome = "failed"   // neither way, or what arrived is not what was sent
	Skipped  Outcome = "skipped"  // nothing is wrong; it was not the time
)

// Outcomes are all of them.
func Outcomes() []Outcome { return []Outcome{OK, Degraded, Fallback, Failed, Skipped} }

// Transport is how the bytes went.
type Transport string

// The transports.
const (
	RDMA        Transport = "rdma"
	TCP         Transport = "tcp"
	NoTransport Transport = "none"
)

// Transports are all of them.
func Transports() []Transport { return []Transport{RDMA, TCP, NoTransport} }

// What goes wrong is said in the same words everywhere.
type (
	// Failure is one thing that went wrong: stage, reason, rail, detail.
	Failure = failure.Failure
	// Stage is where in a round.
	Stage = failure.Stage
	// Reason is why.
	Reason = failure.Reason
)

// Result is what one round came to. Figures that were not measured are nil,
// never 0. Values are not changed after they left the round.
type Result struct {
	// as configured; of one that a DNS name stands for, what it calls itself, or its address until it has said so
	Peer     string
	PeerNode string // as it calls itself; empty when it did not say
	Start    time.Time
	Duration time.Duration

	Outcome   Outcome
	Transport Transport
	Reason    Reason    // of the fallback, the failure, the skip; empty for a round by RDMA
	Detail    string    // the same for people
	Failures  []Failure // everything that went wrong, in order; of a round by RDMA, those of single rails
	Verified  bool      // the target found what was sent, after every burst

	Rails []RailResult // in order of this node's rails; also those that failed

	Stealing *float64 // goodput of the striped burst, bytes per second, whichever rail has room taking the next chunk
	Static   *float64 // the same with equal parts fixed before

	Imbalance  *float64 // of the stealing burst: 1 − the smallest share ([rail.Imbalance])
	Scaling    *float64 // Stealing ÷ sum of the solos of this round
	FinishSkew *float64 // of the static burst: 1 − slowest rail's rate ÷ fastest's
	Speedup    *float64 // Stealing ÷ best TCP baseline of this round

	TCP        []TCPResult // TCP figures: the baselines of a round by RDMA, or the fallback's own
	Bytes      int64       // payload moved in all, of all bursts
	Mismatches []Mismatch  // components whose version differs from the peer's in a way that matters
	Shared     []Shared    // what rails share that scale badly, when Scaling is low

	MinOfExpected float64 // the part of Expected below which goodput is too low; 0: no rail is judged slow
}

// Corrupted reports whether something arrived that was not what was sent.
func (r Result) Corrupted() bool {
	return r.Reason == failure.DataMismatch || slices.ContainsFunc(r.Failures, func(f Failure) bool {
		return f.Reason == failure.DataMismatch
	})
}

// RailResult is one rail's part.
type RailResult struct {
	Rail, Device string // this node's; Device is empty where only TCP addresses are known
	Port         int
	Netdev       string
	PCIAddress   string
	PeerRail     string // empty: not paired
	PeerDevice   string
	GIDIndex     int
	GID          string
	GIDReason    string // why this one
	PathMTU      int    // bytes, the least of both ends; 0 unknown

	Latency  *Latency
	Solo     *Flow
	Static   *Flow
	Stealing *Flow
	Capacity *float64 // bytes per second that the rail could carry, the least of both ends; nil unknown
	// bytes per second that it should carry to the peer's; nil: nothing is expected, as of a software device
	Expected *float64
	// goodput of the stealing burst ÷ Capacity, relative to the best rail of the group; nil: not judged
	Share *float64

	CounterBytes    *int64   // what the port counter moved by in the stealing burst, headers and all
	CounterMismatch *float64 // |CounterBytes ÷ (payload with headers) − 1|

	Failure *Failure // the first; nil: none
}

// Flow is what one rail carried in one burst.
type Flow struct {
	Bytes  int64         // payload that completed
	Active time.Duration // first post to last completion, CLOCK_MONOTONIC
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
	Samples []time.Duration // in order of size
}

// Quantile returns the sample below which the part q of all lies (nearest rank), 0 ≤ q ≤ 1.
func (l Latency) Quantile(q float64) time.Duration {
	if len(l.Samples) == 0 {
		return 0
	}
	i := int(q*float64(len(l.Samples))+0.9999999) - 1
	return l.Samples[min(max(i, 0), len(l.Samples)-1)]
}

// TCPResult is one burst over TCP.
type TCPResult struct {
	Streams        int // per rail
	BytesPerSecond float64
	Retransmits    uint64        // segments sent again, of all streams (TCP_INFO tcpi_total_retrans)
	PathMTU        int           // bytes, the least of all streams
	RTT            time.Duration // smoothed, the largest of all streams, after the burst
}

// Mismatch is a component of which both ends run different versions.
type Mismatch struct {
	Component   string // one of Components
	Here, There string
}

// Components are those that are compared.
func Components() []string { return []string{"railscope", "kernel", "rdma-core", "firmware"} }

// Shared is a thing that several rails hang on.
type Shared struct {
	Rails []string
	What  string // "PCIe link 0000:01:00", for people
}
