package probe

import "time"

// Options are the peers to probe and how. Start from [DefaultOptions].
type Options struct {
	Listen   string   // host:port on which peers are answered; empty: none are
	Name     string   // of this node; empty: the host name
	Peers    []string // host:port
	DNS      []string // host:port: every address of the host is a peer, looked up periodically
	Security Security

	Interval       time.Duration // between two rounds with a peer
	Timeout        time.Duration // of a round
	LatencySamples int           // 8 B writes per rail and round
	Transfer       int64         // bytes that a round stripes: half in equal parts, half by stealing
	Chunk          int64         // bytes of one write of a burst
	Depth          int           // chunks in flight per rail
	QueuePairs     int           // per rail
	SoloEvery      int           // rounds between solo bursts, and between TCP baselines
	Budget         int64         // bytes per hour of rounds that this node asks, and as many of those that it answers
	BusyAbove      float64       // no round while others use more than this part of a rail's capacity
	ExpectedRate   float64       // of every port, bytes per second; 0: its own, and none of a software device
	MinOfExpected  float64       // a round with less of the expected goodput is [Degraded]; 0: not judged
	TrafficClass   uint8         // of RDMA packets: DSCP<<2
	Memory         string        // of the transfer: host
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
		Interval:       time.Minute,
		Timeout:        30 * time.Second,
		LatencySamples: 200,
		Transfer:       64 << 20,
		Chunk:          1 << 20,
		Depth:          8,
		QueuePairs:     1,
		SoloEvery:      5,
		Budget:         8 << 30,
		BusyAbove:      0.2,
		MinOfExpected:  0.7,
		Memory:         "host",
	}
}

// Stats are what the probe counts beside the results of rounds.
type Stats struct {
	Running        bool    // peers are asked or answered
	BudgetBytes    float64 // left now, of asking or answering, whichever has less
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

// NameStats are the counts of a DNS name with many peers.
type NameStats struct {
	Name    string            // host:port, as configured
	Peers   int               // behind it now, without this node
	Lookups map[string]uint64 // since the options were applied, by result: [LookupResults]
}
