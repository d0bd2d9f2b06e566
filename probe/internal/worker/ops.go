// Package worker is the process that uses libibverbs and moves bytes, and the exporter's end of it. A provider is a
// foreign library in the caller's address space that may crash or never return, so a child process of the same binary
// loads it. Both ends exchange lines of JSON over a socket pair. The worker serves one session at a time: a buffer, the
// rails on which it is registered, and the queue pairs or connections to one peer.
package worker

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/memory"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// Operations, in the order of a session.
const (
	opInfo      = "info"
	opOpen      = "open"
	opConnect   = "connect"
	opLatency   = "latency"
	opTransfers = "transfers"
	opBurst     = "burst"
	opVerify    = "verify"
	opTCPInfo   = "tcp_info"
	opIntake    = "intake"
	opClose     = "close"
	opWatch     = "watch"  // never ends: see [Worker.Watch]
	opCancel    = "cancel" // ends the current request early; has no answer
)

// Types that the transports share.
//
//nolint:revive // one comment for all
type (
	End       = transfer.End
	BurstArgs = transfer.BurstArgs
	BurstDone = transfer.BurstDone
	BurstRail = transfer.BurstRail
	Load      = transfer.Load
	Op        = transfer.Op
	Share     = transfer.Share
	TCPInfo   = transfer.TCPInfo
)

// Operations of a rail.
const (
	Write = transfer.Write
	Read  = transfer.Read
)

// Info describes libibverbs on this node.
type Info struct {
	RDMACore string `json:"rdma_core"` // version, from the library's name; empty if unknown or without libibverbs
}

// Memories returns the kinds of memory on, or registered with, GPUs, in order of preference: first the one that jobs
// use. Those of AMD's GPUs are last.
func Memories() []string { return slices.Concat(MemoriesOf(false), MemoriesOf(true)) }

// MemoriesOf returns the kinds of [Memories] for the GPUs of AMD, or for all others.
func MemoriesOf(amd bool) []string {
	if amd {
		return []string{string(memory.ROCmDMABuf), string(memory.ROCmHost)}
	}
	return []string{string(memory.CUDADMABuf), string(memory.CUDAPeermem), string(memory.CUDAHost),
		string(memory.CUDAStaged)}
}

// Transports of a session.
const (
	RDMA = "rdma"
	TCP  = "tcp"
)

// OpenArgs are the arguments to open a session, which closes any open one first.
type OpenArgs struct {
	Transport  string    `json:"transport"`
	Target     bool      `json:"target"` // the peer posts, this end only answers
	Rails      []RailArg `json:"rails"`
	Buffer     int64     `json:"buffer"` // bytes of memory per rail at the receiving end
	Seed       uint64    `json:"seed"`   // seed of the source at the sending end
	Depth      int       `json:"depth"`
	QueuePairs int       `json:"queue_pairs"`      // queue pairs, or TCP connections, per rail
	Memory     string    `json:"memory,omitempty"` // kind of memory; empty for this host's
	PKey       uint16    `json:"pkey,omitempty"`   // partition key of queue pairs on InfiniBand; 0 for the port's first
	Key        []byte    `json:"key,omitempty"`    // 32-byte secret of both ends, for TCP
	Grant      int64     `json:"grant"`            // bytes that a TCP target accepts; RDMA cannot refuse bytes
}

// RailArg is this node's end of a rail, or of one of several flows over a rail.
type RailArg struct {
	Name     string     `json:"name"`           // unique in the session: [FlowName]
	Rail     string     `json:"rail,omitempty"` // rail of the flow; empty if it has the flow's name
	Op       Op         `json:"op,omitempty"`
	Flow     int        `json:"flow,omitempty"`    // index of its first flow label
	Answers  bool       `json:"answers,omitempty"` // a target in the session of an asker: for a rail to this node
	Stamps   bool       `json:"stamps,omitempty"`  // the adapter stamps completions; only for latencies
	Device   string     `json:"device,omitempty"`
	Port     int        `json:"port,omitempty"`
	GIDIndex int        `json:"gid_index"`
	GID      netip.Addr `json:"gid"`              // expected at GIDIndex; zero accepts any
	NUMANode int        `json:"numa_node"`        // NUMA node of the device; -1 if unknown
	GPU      string     `json:"gpu,omitempty"`    // PCI address of the nearest GPU
	Local    netip.Addr `json:"local"`            // TCP: source address
	Netdev   string     `json:"netdev,omitempty"` // TCP: interface
}

// Opened describes this node's ends of the session.
type Opened struct {
	Ends    []End  `json:"ends"`     // ends in the order of OpenArgs.Rails
	TCPPort uint16 `json:"tcp_port"` // port of a TCP target
}

// ConnectArgs are the arguments to connect rails of the session to the peer's ends. Other rails stay unconnected.
type ConnectArgs struct {
	Rails        []ConnectRail `json:"rails"`
	RetryCount   uint8         `json:"retry_count"`
	TrafficClass uint8         `json:"traffic_class"`
	ServiceLevel uint8         `json:"service_level"`
}

// ConnectRail is one rail to connect.
type ConnectRail struct {
	Name     string         `json:"name"`
	Remote   End            `json:"remote"`
	PathMTU  int            `json:"path_mtu"`  // bytes
	InFlight time.Duration  `json:"in_flight"` // time for an acknowledgement on a healthy path
	TCP      netip.AddrPort `json:"tcp"`       // address of a TCP target
}

// FlowName returns the name of a flow in a session. The flow that writes with the first flow labels has the rail's
// name.
func FlowName(rail string, op Op, flow int) string {
	if op == Read {
		rail += " " + string(Read)
	}
	if flow > 0 {
		rail += " " + strconv.Itoa(flow)
	}
	return rail
}

// LatencyArgs are the arguments to measure latency over one rail.
type LatencyArgs struct {
	Rail  string        `json:"rail"`
	Size  int64         `json:"size"` // bytes of a write
	N     int           `json:"n"`
	Limit time.Duration `json:"limit"`
	// Over is the time over which writes begin at random times, uniformly; 0: each begins after the previous one.
	Over time.Duration `json:"over,omitempty"`
	// Software keeps samples during which the thread did not run: a software device works on the same processors.
	Software bool `json:"software,omitempty"`
}

// arrivals returns the times at which the writes begin, ascending.
func (a LatencyArgs) arrivals() []time.Duration {
	at := make([]time.Duration, a.N)
	for i := range at {
		at[i] = rand.N(a.Over)
	}
	slices.Sort(at)
	return at
}

// TransfersArgs are the arguments to measure sequential transfers, each over several rails at once.
type TransfersArgs struct {
	Shares   []Share       `json:"shares"`
	N        int           `json:"n"`
	Limit    time.Duration `json:"limit"`    // time after which no transfer begins
	Deadline time.Duration `json:"deadline"` // time limit of one transfer
}

// Latencies are the results, in the order of the writes or transfers.
type Latencies struct {
	Samples []time.Duration `json:"samples"` // time from the first post to the last completion
	// Adapter has the time of each write until the adapter's stamp, for a rail with stamps.
	Adapter []time.Duration `json:"adapter,omitempty"`
}

// VerifyArgs are the arguments for the receiving end to compare its memory with the writes of a burst.
type VerifyArgs struct {
	Seed  uint64       `json:"seed"`           // seed of the source
	Pass  int          `json:"pass"`           // pass of the burst
	Rails []VerifyRail `json:"rails"`          // rails that completed the burst
	Stop  []string     `json:"stop"`           // rails that failed: no more bytes may arrive on them
	Read  []VerifyRail `json:"read,omitempty"` // rails that the asker read from: counted, not compared

	Count bool `json:"count,omitempty"` // whether Verified.Events is wanted
}

// VerifyRail is a burst's writes over one rail.
type VerifyRail struct {
	Rail   string  `json:"rail"`
	Chunk  int64   `json:"chunk"`
	Writes []int64 `json:"writes"` // number of writes by queue pair or connection
}

// Verified is the result of a comparison.
type Verified struct {
	Rail     string `json:"rail,omitempty"` // first rail with a wrong byte
	Mismatch int64  `json:"mismatch"`       // offset of the wrong byte in the rail's memory; -1 if there is none
	Bytes    int64  `json:"bytes"`          // bytes compared

	Failures []failure.Failure `json:"failures,omitempty"` // rails on which the end of the burst did not arrive

	// Events counts the packets that arrived out of sequence or twice since the session began, by rail. The target adds
	// it, not its worker; nil from a target of an earlier version.
	Events map[string]uint64 `json:"events,omitempty"`
	// Met lists the rails of the target that carried traffic of others around a burst in a gap. The target adds it.
	Met []string `json:"met,omitempty"`
}

// Intake describes what a target received over TCP.
type Intake struct {
	Bytes    int64 `json:"bytes"`    // payload written into the buffer: at most the grant
	Exceeded bool  `json:"exceeded"` // an asker sent more, which closed the target
}

// Bounds of a session.
const (
	MaxRails      = 64 // flows per session
	MaxFlow       = 255
	MaxQueuePairs = rail.MaxQueuePairs
	MaxDepth      = 1024      // writes in flight per rail
	MaxMemory     = 512 << 20 // bytes of a target's memory, over all rails
	maxSamples    = 100_000
	MaxRepeats    = 3  // attempts of a burst that was disturbed
	maxPasses     = 67 // passes over a ring in one burst: no two bursts write the same bytes to a place
	maxPass       = 1 << 30
	maxWrites     = 1 << 40
	arriveTime    = 4 * time.Second // limit for the ends of a burst to arrive after its writes completed
)

// maxMessage bounds one message, in bytes; the longest is a list of latencies.
const maxMessage = 4 << 20

// request is a message of the exporter. Like all messages it is one line of JSON.
type request struct {
	ID   uint64          `json:"id"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// response is a message of the worker: any number of progress messages for a request, then the answer.
type response struct {
	ID       uint64           `json:"id"`
	Progress []int64          `json:"progress,omitempty"` // bytes completed so far, by rail, in the request's order
	At       int64            `json:"at,omitempty"`       // CLOCK_MONOTONIC in ns, read just before Progress
	Event    *DeviceEvent     `json:"event,omitempty"`    // in place of Progress
	Done     bool             `json:"done,omitempty"`
	Result   json.RawMessage  `json:"result,omitempty"`
	Failure  *failure.Failure `json:"failure,omitempty"`
}

// writeMessage writes a message with one call of Write.
func writeMessage(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// newMessages returns a scanner of the messages on a connection.
func newMessages(r io.Reader) *bufio.Scanner {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxMessage)
	return in
}

// readMessage reads the next message. It returns io.EOF at the end of the connection.
func readMessage(in *bufio.Scanner, v any) error {
	if !in.Scan() {
		return cmp.Or(in.Err(), io.EOF)
	}
	return json.Unmarshal(in.Bytes(), v)
}
