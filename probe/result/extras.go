package result

import (
	"time"

	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/internal/worker"
)

// Kind is a kind of measurement that follows the bursts of a round.
type Kind string

// The kinds.
const (
	Reads         Kind = "read"          // RDMA READ: each rail alone, then all at once
	Bidirectional Kind = "bidirectional" // WRITE and READ at once: each rail alone, then all at once
	QueuePairs    Kind = "queue_pairs"   // all rails at once, with other numbers of queue pairs
	Loopback      Kind = "loopback"      // each rail to itself; in an interactive round also to this node's other rails
	Paths         Kind = "paths"         // each rail with several flow labels, one after the other
	Contention    Kind = "contention"    // two rails at a time, and each alone
	GPU           Kind = "gpu"           // GPU memory to that of the peer: each rail alone, then all at once
	Rails         Kind = "rails"         // a subset of the rails at once
	Messages      Kind = "messages"      // latency of messages longer than 8 B, written and read, per rail
	Sweep         Kind = "sweep"         // transfers of several sizes, in equal parts over rails: goodput, time of each
	KVCache       Kind = "kv_cache"      // reads of KV cache pages: one rail, all at once, and over TCP
	TCPTime       Kind = "tcp_time"      // latency of messages over TCP, per rail
	Bond          Kind = "bond"          // TCP over a bond of this node
	OneTCP        Kind = "tcp_rail"      // one connection over the first rail alone, if there are several
	TCPStreams    Kind = "tcp_streams"   // TCP over all rails, with other numbers of connections per rail
)

// Kinds returns all kinds, in the order in which a round measures them.
func Kinds() []Kind {
	return []Kind{Reads, Bidirectional, QueuePairs, Loopback, Paths, Contention, GPU, Rails, Messages, Sweep, KVCache,
		TCPTime, Bond, OneTCP, TCPStreams}
}

// Extra is one extra measurement to make in a round.
type Extra struct {
	Kind Kind
	// Values are the numbers of queue pairs or connections per rail, the one number of paths, or sizes in bytes of
	// messages, transfers or pages. It is empty for other kinds.
	Values []int
	// Rails are the names of the rails that the kinds Rails, Messages and Sweep use; nil: all working rails.
	Rails []string
	// Read makes Sweep read instead of write.
	Read bool
	// Memories are the kinds of GPU memory to try, from [Memories]; nil: all. It is empty for other kinds.
	Memories []string
}

// Memories returns the kinds of memory on GPUs, or registered with them, in the order in which they are tried.
func Memories() []string { return worker.Memories() }

// MaxPaths is the largest number of flow labels measured per rail.
const MaxPaths = 64

// Measured is one burst of an extra.
type Measured struct {
	Kind       Kind
	QueuePairs int    // queue pairs per flow
	Memory     string // source and target memory, from [Memories]; empty: plain host memory
	Size       int64  // bytes of each message, transfer or page, from [Extra.Values]; else 0
	Flows      []MeasuredFlow
	Transfer   *Latency   // time of one transfer of Size over all flows at once; nil: not measured
	TCP        *TCPResult // TCP result, instead of Flows; nil: RDMA
	Failure    *Failure   // why it was not made; Flows then have only rails and operations
	Made       time.Time  // start of the round that made it; zero: the round of the result
}

// Goodput returns the sum of all flows of one operation, in bytes per second. known is false if one of them was not
// measured.
func (m Measured) Goodput(op Op) (sum float64, known bool) {
	for _, f := range m.Flows {
		if f.Op != op {
			continue
		}
		if f.Goodput == nil {
			return 0, false
		}
		sum, known = sum+*f.Goodput, true
	}
	return sum, known
}

// Op is the RDMA operation of a flow. The asker posts both operations.
type Op = worker.Op

// The operations.
const (
	Write = worker.Write
	Read  = worker.Read
)

// MeasuredFlow is what one flow carried in a burst of an extra.
type MeasuredFlow struct {
	Rail    string
	Other   string // receiving rail of this node, for loopback
	Op      Op
	Path    int      // index of its flow label, from 0
	UDPPort uint16   // source port of its RoCE v2 packets; 0: none
	Goodput *float64 // bytes per second; nil: not measured
	Latency *Latency // latency of 8 B, or of messages of Size; nil: not measured
	Counted *int64   // bytes counted by the port, as in [Flow]
	Loss    *Loss    // loss of this flow alone; nil: not counted
	Failure *Failure
}

// MinSize and MaxSize bound the sizes of a sweep, in bytes.
const (
	MinSize = transfer.Page
	MaxSize = 1 << 30
)
