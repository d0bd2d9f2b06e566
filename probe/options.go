package probe

import "time"

// Options are the peers to probe and how. Start from [DefaultOptions].
type Options struct {
	Listen   string   // host:port on which peers are answered; empty: none are
	Name     string   // of this node; empty: the host name
	Peers    []string // host:port
	DNS      []string // host:port: every address of the host is a node, looked up periodically
	Files    []string // absolute patterns of file_sd files, which list nodes
	Fanout   int      // how many of the nodes of DNS and Files are asked, others each day
	Security Security

	Interval       time.Duration // between two rounds with a peer
	Timeout        time.Duration // of a round
	LatencySamples int           // 8 B writes per rail and round
	Burst          time.Duration // measured by a burst, with all rails at full depth
	Depth          int           // writes in flight per rail
	QueuePairs     int           // per rail, or Auto: one, and on a bond two per member
	SoloEvery      int           // rounds between solo bursts, and between TCP baselines
	Budget         Budget        // of rounds that this node asks, and again of those that it answers
	BusyAbove      float64       // no round while others use more than this part of a rail's capacity
	MinOfExpected  float64       // a round with less of the expected goodput is [Degraded]; 0: not judged
	TrafficClass   int           // of RDMA packets, DSCP<<2 and ECN, or Auto: that of the jobs
	ServiceLevel   int           // 0 to 15, or Auto
	PKey           uint16        // partition on InfiniBand; 0: the first of each port
	Memory         string        // of the transfer: host
	AllowRing      bool          // takes part in rings over its peers: see [Ring]
	Extras         []Extra       // of rounds by hand all, else one in each round with solo bursts, in turn
}

// Security is how peers authenticate. To answer, one of TokenFile, ClientCAFile and Insecure is required.
type Security struct {
	TokenFile    string // contains the secret that all peers share, or two, of which the first is for asking
	CertFile     string // with KeyFile: TLS
	KeyFile      string
	ClientCAFile string // signs the certificates of all peers, in both directions

	// ClientAllowedNames are DNS names, also *.DOMAIN, and URIs, one of which an asker's certificate must contain;
	// empty: any certificate that the authority has signed.
	ClientAllowedNames []string

	Insecure bool   // answer anyone
	Name     string // that the certificate of an asked peer must contain; empty: its host
}

// DefaultPort is the default port of the control channel.
const DefaultPort = "10092"

// MaxTimeout is the longest that a round, and the lease for it, may take.
const MaxTimeout = 10 * time.Minute

// DefaultOptions are those of an empty configuration.
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
		BusyAbove:      0.2,
		MinOfExpected:  0.7,
		TrafficClass:   Auto,
		ServiceLevel:   Auto,
		Memory:         "host",
	}
}

// Stats are what the probe counts beside the results of rounds.
type Stats struct {
	Running        bool    // peers are asked or answered
	BudgetSeconds  float64 // of each rail's time left now, of asking or answering, whichever has less
	Leases         int     // granted to peers now: 0 or 1
	WorkerRestarts uint64  // after the worker process crashed or was killed
	Names          []NameStats

	Up       bool          // peers are asked and answered as configured
	Interval time.Duration // from one round with a peer to the next; 0: nobody is asked
	Refused  []Refusal     // by the control channel since the start, in a fixed order
}

// Refusal is how often the control channel refused for a reason.
type Refusal struct {
	Reason string
	Count  uint64
}

// NameStats are the counts of a DNS name or of files that list nodes.
type NameStats struct {
	Name    string            // host:port, or file:PATTERN
	Peers   int               // that it lists now, without this node
	Lookups map[string]uint64 // since the options were applied, by result: [LookupResults]
}
