// Package options has the settings of the probe: data only, without the engine.
package options

import (
	"time"

	"github.com/railscope/railscope/probe/result"
)

// TLS reports whether certificates are configured.
func (s Security) TLS() bool { return s.CertFile != "" || s.ClientCAFile != "" }

// Auto is the value of an option that the round determines itself.
const Auto = -1

// Results of a lookup: values of a label of probe_dns_lookups_total.
const (
	LookupOK       = "ok"
	LookupNotFound = "not_found"
	LookupTimeout  = "timeout"
	LookupFailed   = "failed"
)

// LookupResults returns all results of a lookup.
func LookupResults() []string { return []string{LookupOK, LookupNotFound, LookupTimeout, LookupFailed} }

// Options says which peers to probe, and how. Start from [DefaultOptions].
type Options struct {
	Listen   string   // host:port on which peers are answered; empty: not answered
	Name     string   // name of this node; empty: the host name
	Peers    []string // host:port of each peer
	DNS      []string // host:port: every address of the host is a node; looked up periodically
	Files    []string // absolute patterns of file_sd files that list nodes
	Fanout   int      // number of nodes of DNS and Files to ask; different ones every day
	Security Security

	Interval       time.Duration  // time between two rounds with a peer
	Timeout        time.Duration  // timeout of a round
	LatencySamples int            // 8 B writes per rail and round
	Burst          time.Duration  // measured time of a burst, with all rails at full depth
	Depth          int            // writes in flight per rail
	QueuePairs     int            // queue pairs per rail, or Auto: one, and two per member of a bond
	SoloEvery      int            // rounds between solo bursts, and between TCP baselines
	Budget         Budget         // budget of rounds that this node asks, and a second one for those that it answers
	WhenOthers                    // what is done about the traffic of others
	MinOfExpected  float64        // a round below this part of the expected goodput is [result.Degraded]; 0: not judged
	TrafficClass   int            // DSCP<<2 and ECN of RDMA packets, or Auto: that of the jobs
	ServiceLevel   int            // 0 to 15, or Auto
	PKey           uint16         // partition on InfiniBand; 0: the first of each port
	Memory         string         // memory of the transfer: host
	Allowed                       // what the probe may do beside rounds
	Extras         []result.Extra // interactive rounds make all, other rounds with solo bursts one, in turn
}

// Allowed says what the probe may do beside rounds.
type Allowed struct {
	AllowRing bool // the node takes part in rings over its peers: see probe.Ring
	AllowGate bool // the node tries its rails with its peers when a gate asks: see probe.GateNode
	Events    bool // the devices of the rails stay open, for their asynchronous events
}

// WhenOthers says what a round does about the traffic of others.
type WhenOthers struct {
	BusyAbove float64       // fraction of its capacity that others use of a busy rail at least
	WhenBusy  string        // what is done about busy rails: WhenBusyGap, WhenBusySkip or WhenBusyBurst
	GapWait   time.Duration // how long a round waits for a gap; 0: a third of the interval
	GapBurst  time.Duration // measured time of a short burst over busy rails
}

// What a round does about rails that carry more traffic of others than BusyAbove. Their latency is always measured.
const (
	WhenBusyGap   = "gap"   // it waits for a gap, and makes a short burst in it
	WhenBusySkip  = "skip"  // no burst
	WhenBusyBurst = "burst" // a short burst at once
)

// Security says how peers authenticate. To answer, one of TokenFile, ClientCAFile and Insecure is required.
type Security struct {
	TokenFile    string // file with the secret that all peers share, or two, of which the first is used for asking
	CertFile     string // certificate, with KeyFile: TLS
	KeyFile      string
	ClientCAFile string // CA of all peers' certificates, in both directions

	// ClientAllowedNames are DNS names, also *.DOMAIN, and URIs. An asker's certificate must contain one of them;
	// empty: any certificate that the authority has signed.
	ClientAllowedNames []string

	Insecure bool   // answer anyone
	Name     string // name that the certificate of an asked peer must contain; empty: its host
}

// DefaultPort is the default port of the control channel.
const DefaultPort = "10092"

// MaxTimeout is the longest time that a round, and its lease, may take.
const MaxTimeout = 10 * time.Minute

// ScheduledExtras returns the extra measurements that scheduled rounds can make.
func ScheduledExtras() []result.Extra {
	return []result.Extra{{Kind: result.Loopback}, {Kind: result.Paths, Values: []int{16}}, {Kind: result.Contention},
		{Kind: result.GPU}}
}

// DefaultOptions returns the options of an empty configuration.
func DefaultOptions() Options {
	return Options{
		Fanout:         4,
		Interval:       time.Minute,
		Timeout:        30 * time.Second,
		LatencySamples: 200,
		Burst:          5 * time.Millisecond,
		Depth:          16,
		QueuePairs:     Auto,
		SoloEvery:      5,
		Budget:         Budget{Share: 0.005},
		WhenOthers:     WhenOthers{BusyAbove: 0.2, WhenBusy: WhenBusyGap, GapBurst: time.Millisecond},
		MinOfExpected:  0.7,
		TrafficClass:   Auto,
		ServiceLevel:   Auto,
		Memory:         "host",
		Allowed:        Allowed{Events: true},
	}
}

// Stats are the counts of the probe beside the results of rounds.
type Stats struct {
	Running        bool    // peers are asked or answered
	BudgetSeconds  float64 // rail time left now, in seconds, in the smaller of both budgets
	Leases         int     // leases granted to peers now: 0 or 1
	WorkerRestarts uint64  // restarts after the worker process crashed or was killed
	Names          []NameStats

	Up       bool          // peers are asked and answered as configured
	Interval time.Duration // time from one round with a peer to the next; 0: no peers
	Full     time.Duration // time from one full round with a peer to the next; 0: no peers
	// MinOfExpected is the option of that name; 0: no peers, or not judged.
	MinOfExpected float64
	Refused       []Refusal // refusals by the control channel since the start, in a fixed order
}

// Refusal counts the refusals of the control channel for one reason.
type Refusal struct {
	Reason string
	Count  uint64
}

// NameStats are the counts of a DNS name or a file pattern that lists nodes.
type NameStats struct {
	Name    string            // host:port, or file:PATTERN
	Peers   int               // peers that it lists now, without this node
	Lookups map[string]uint64 // lookups since the options were applied, by result: [LookupResults]
}
