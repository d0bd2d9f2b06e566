// Package fingerprint finds out what happened to the queue pairs of a rail from its error counters.
//
// A fault makes several counters rise together. Which ones was measured by unionxic/rdma-fault-characterization
// (docs/theory/05_counter_observability.md: ConnectX-6, firmware 20.40.1000, against ConnectX-5, firmware 16.35.8002;
// retry count 7, timeout 14, one queue pair). docs/counters.md has the table. Counters of other drivers with the same
// meaning are matched in the same way. All of them are the requester's: the end that counts is not the end that is
// broken.
package fingerprint

import "fmt"

// Counter is the index of a counter in [Counts].
type Counter int

// The counters of a requester, each the sum of the files that a driver has of it.
const (
	Failed   Counter = iota // requests that ended in an error
	Flushed                 // requests that were flushed, because their queue pair was in error
	Local                   // requests refused by this end's adapter (bnxt_re)
	Invalid                 // requests that the peer rejected as invalid
	Access                  // requests to which the peer denied access
	NotReady                // queue pairs that failed because the peer never became ready
	Timeouts                // acknowledgements that did not arrive in time
	Silent                  // queue pairs that failed because the peer did not answer
	Adaptive                // adaptive retransmissions
	Counters                // number of counters
)

// names returns the files below hw_counters of mlx5 (mlx5_ib_counters in drivers/infiniband/hw/mlx5/counters.c),
// bnxt_re (bnxt_re/hw_counters.c), rxe (sw/rxe/rxe_hw_counters.c), ionic (ionic/ionic_hw_stats.c) and erdma
// (erdma/erdma_verbs.c).
func names() [Counters][]string {
	return [Counters][]string{
		Failed:   {"req_cqe_error", "req_rx_cqe_err"},
		Flushed:  {"req_cqe_flush_error", "req_rx_cqe_flush"},
		Local:    {"local_protection_err", "local_qp_op_err"},
		Invalid:  {"req_remote_invalid_request", "remote_invalid_req_err", "req_rx_rmt_req_err"},
		Access:   {"req_remote_access_errors", "remote_access_err", "req_rx_rmt_acc_err"},
		NotReady: {"req_rnr_retries_exceeded", "retry_rnr_exceeded_err"},
		Timeouts: {"local_ack_timeout_err", "to_retransmits", "tx_rdma_ack_timeout", "requester_timeout"},
		Silent: {"req_transport_retries_exceeded", "max_retry_exceeded", "retry_exceeded_err",
			"req_tx_retry_excd_err"},
		Adaptive: {"roce_adp_retrans"},
	}
}

// Counts holds the values of the counters at one moment, or how much they rose. A counter that the driver does not
// have is 0.
type Counts [Counters]uint64

// Kind is what happened to queue pairs.
type Kind int

// Kinds, in the order in which they are reported.
const (
	// SilentPeer: the peer's process ended, its queue pair failed, or the path is dead. The counters are the same.
	SilentPeer Kind = iota
	// NoReceive: the peer posted no receive buffers, until the retries were used up.
	NoReceive
	// Refused: the peer denied access: a wrong rkey, or an address out of range.
	Refused
	// Rejected: the peer rejected a request as invalid.
	Rejected
	// AtThisEnd: a local key or length, a memory region without the right, or a queue pair that was flushed, as at the
	// end of a job. The counters are the same.
	AtThisEnd
	// Repeated: acknowledgements were late, and no queue pair failed.
	Repeated
	// Unclear: other requests ended in an error, beside those of the other causes: flushed ones of the same queue
	// pairs, or [AtThisEnd].
	Unclear
)

// Cause is something that happened, and how often.
type Cause struct {
	Kind Kind
	// N is the number of queue pairs, for Refused, Rejected, AtThisEnd and Unclear of requests, and for Repeated of
	// timeouts.
	N uint64
	// Timeouts and Adaptive are those of SilentPeer.
	Timeouts, Adaptive uint64
}

// What one queue pair counts at most before it gives up on a silent peer: timeouts with the largest retry count, 7, and
// adaptive retransmissions.
const (
	mostTimeouts = 7
	mostAdaptive = 11
)

// Causes returns what explains how much the counters rose.
func Causes(rose Counts) (list []Cause) {
	add := func(kind Kind, n uint64) {
		if n > 0 {
			list = append(list, Cause{Kind: kind, N: n})
		}
	}
	if n := rose[Silent]; n > 0 {
		list = append(list, Cause{SilentPeer, n, rose[Timeouts], rose[Adaptive]})
	}
	add(NoReceive, rose[NotReady])
	add(Refused, rose[Access])
	add(Rejected, rose[Invalid])
	explained := rose[Silent] + rose[NotReady] + rose[Access] + rose[Invalid]
	add(AtThisEnd, rose[Local])
	if rest := rose[Failed]; rest > explained {
		rest -= explained
		switch {
		case explained == 0 && rose[Flushed] < rest:
			add(AtThisEnd, rest)
		case explained > 0:
			add(Unclear, rest)
		}
	}
	if rose[Silent] == 0 {
		add(Repeated, rose[Timeouts])
	}
	return list
}

// Add adds causes of another time to a list.
func Add(list, more []Cause) []Cause {
	for _, c := range more {
		known := false
		for i := range list {
			if of := &list[i]; of.Kind == c.Kind {
				of.N, of.Timeouts, of.Adaptive = of.N+c.N, of.Timeouts+c.Timeouts, of.Adaptive+c.Adaptive
				known = true
			}
		}
		if !known {
			list = append(list, c)
		}
	}
	return list
}

// String describes a cause for a person.
func (c Cause) String() string {
	switch c.Kind {
	case SilentPeer:
		text := plural(c.N, "queue pair") + " gave up on a silent peer"
		if c.Timeouts > 0 { // some drivers do not count them
			text += ", after " + plural(c.Timeouts, "timeout")
		}
		if c.Adaptive > 0 {
			text += fmt.Sprintf(" and %s", plural(c.Adaptive, "adaptive retransmission"))
		}
		if c.Timeouts > mostTimeouts*c.N || c.Adaptive > mostAdaptive*c.N {
			text += " (more than they need: packets of others were lost as well)"
		}
		return text
	case NoReceive:
		return plural(c.N, "queue pair") + " gave up on a peer that posted no receive buffers"
	case Refused:
		return plural(c.N, "request") + " to which the peer denied access"
	case Rejected:
		return plural(c.N, "request") + " that the peer rejected as invalid"
	case AtThisEnd:
		return plural(c.N, "request") + " failed at this end"
	case Repeated:
		return plural(c.N, "timeout") + " after which no queue pair failed"
	}
	return plural(c.N, "other request") + " ended in an error: flushed ones of the same queue pairs, or a fault at " +
		"this end; the counters do not show which"
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
