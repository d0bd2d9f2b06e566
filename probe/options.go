package probe

import "time"

// Options say whom to probe and how. Start from [DefaultOptions].
type Options struct {
	Listen   string   // host:port to answer peers on; empty: do not answer
	Name     string   // what this node calls itself; empty: the host's name
	Peers    []string // host:port
	DNS      []string // host:port: every address of the host is a peer, looked up again and again
	Security Security

	Interval       time.Duration // a round to every peer
	Timeout        time.Duration // of a round
	LatencySamples int           // 8 B writes per rail and round
	Transfer       int64         // striped bytes of a round: half with equal parts, half by stealing
	Chunk          int64         // bytes of one write of a burst
	Depth          int           // chunks in flight per rail
	QueuePairs     int           // per rail
	SoloEvery      int           // rounds between solo bursts, and between TCP baselines
	Budget         int64         // bytes per hour that this node asks for, and as many that it answers
	BusyAbove      float64       // of a rail's capacity: more traffic of others than this, and there is no round
	// of the port of every rail, bytes per second; 0: what each port has, and nothing of a software device
	ExpectedRate float64
	// of what is expected: less goodput makes the round [Degraded]; 0: no rail is judged slow
	MinOfExpected float64
	TrafficClass  uint8  // of RDMA packets: DSCP<<2
	Memory        string // where the bytes lie: host
}

// Security is how peers prove who they are. One of TokenFile, ClientCAFile and Insecure is needed to answer.
type Security struct {
	TokenFile    string // holds the secret that all peers share, or two of them, the one to ask with first
	CertFile     string // with KeyFile: TLS; read again when they change
	KeyFile      string
	ClientCAFile string // signs the certificates of all peers, in both directions

	// ClientAllowedNames are DNS names, also *.DOMAIN, and URIs, one of which the
	// certificate of an asker must carry; empty: any that the authority has signed.
	ClientAllowedNames []string

	Insecure bool   // answer anyone
	Name     string // whom the certificate of a peer that is asked must name; empty: the host that was asked
}

// DefaultPort is the port of the control channel where none is given.
const DefaultPort = "10092"

// MaxTimeout is the longest that a round may take, and so a lease of its target.
const MaxTimeout = 10 * time.Minute

// DefaultOptions are what holds where the configuration says nothing.
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

// Stats is what the probe counts beside the results of rounds.
type Stats struct {
	Running        bool    // peers are asked or answered
	BudgetBytes    float64 // left at this moment, of asking or answering, whichever has less
	Leases         int     // granted to others at this moment: 0 or 1
	WorkerRestarts uint64  // after the worker process crashed or was killed
	Names          []NameStats

	Up       bool          // peers are asked and answered as the options say
	Interval time.Duration // from one round with a peer to the next; 0: nobody is asked
	Refused  []Refusal     // by the control channel, since the start, in a fixed order
}

// Refusal is how often the control channel refused for a reason.
type Refusal struct {
	Reason string
	Count  uint64
}

// NameStats is what is counted of a DNS name that stands for many peers.
type NameStats struct {
	Name    string            // host:port, as configured
	Peers   int               // that it stands for at this moment, without this node
	Lookups map[string]uint64 // since the options are in force, by what they came to: [LookupResults]
}
