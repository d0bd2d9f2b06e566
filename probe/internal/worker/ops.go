// Package worker is the process that touches libibverbs and moves bytes, and the exporter's end of it. A provider is a
// foreign library that runs in the caller's address space, may crash and may never return; so a child process of the
// same binary loads it. Both ends exchange lines of JSON over a socket pair. The worker serves one session at a time: a
// buffer, the rails it is registered on, and the queue pairs or connections to one peer.
package worker

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/memory"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// The operations, in the order of a session.
const (
	opInfo    = "info"
	opOpen    = "open"
	opConnect = "connect"
	opLatency = "latency"
	opMove    = "transfers"
	opBurst   = "burst"
	opVerify  = "verify"
	opTCPInfo = "tcp_info"
	opIntake  = "intake"
	opClose   = "close"
	opCancel  = "cancel" // has no answer: the current request ends early
)

// Shared by the transports.
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

// The operations of a rail.
const (
	Write = transfer.Write
	Read  = transfer.Read
)

// Info describes libibverbs on this node.
type Info struct {
	RDMACore string `json:"rdma_core"` // version, from the library's name; empty: unknown, or no libibverbs
}

// Memories are the kinds of memory on GPUs, or known to them, in the order of preference: what a job uses comes first.
func Memories() []string {
	return []string{string(memory.CUDADMABuf), string(memory.CUDAPeermem), string(memory.CUDAHost),
		string(memory.CUDAStaged)}
}

// Transport of a session.
const (
	RDMA = "rdma"
	TCP  = "tcp"
)

// OpenArgs open a session. One that is open is closed first.
type OpenArgs struct {
	Transport  string    `json:"transport"`
	Target     bool      `json:"target"` // the peer posts, and this end only answers
	Rails      []RailArg `json:"rails"`
	Buffer     int64     `json:"buffer"` // bytes of memory of each rail where bytes arrive
	Seed       uint64    `json:"seed"`   // of the source, where bytes come from
	Depth      int       `json:"depth"`
	QueuePairs int       `json:"queue_pairs"`      // queue pairs, or TCP connections, per rail
	Memory     string    `json:"memory,omitempty"` // kind of memory; empty: that of this host
	PKey       uint16    `json:"pkey,omitempty"`   // of queue pairs on InfiniBand; 0: the port's first
	Key        []byte    `json:"key,omitempty"`    // 32 bytes that both ends know, for TCP
	Grant      int64     `json:"grant"`            // bytes that a TCP target accepts; RDMA cannot refuse bytes
}

// RailArg is this node's end of a rail, or of one of several flows over a rail.
type RailArg struct {
	Name     string     `json:"name"`           // unique in the session: [FlowName]
	Rail     string     `json:"rail,omitempty"` // whose flow it is; empty: it has the name of the rail
	Op       Op         `json:"op,omitempty"`
	Flow     int        `json:"flow,omitempty"`    // number of its first flow label
	Answers  bool       `json:"answers,omitempty"` // it is a target's in the session of an asker: a rail to this node
	Stamps   bool       `json:"stamps,omitempty"`  // the adapter stamps completions; for latencies only
	Device   string     `json:"device,omitempty"`
	Port     int        `json:"port,omitempty"`
	GIDIndex int        `json:"gid_index"`
	GID      netip.Addr `json:"gid"`              // expected at GIDIndex; zero: any
	NUMANode int        `json:"numa_node"`        // of the device; -1: unknown
	GPU      string     `json:"gpu,omitempty"`    // PCI address of the nearest one
	Local    netip.Addr `json:"local"`            // TCP: source address
	Netdev   string     `json:"netdev,omitempty"` // TCP: interface
}

// Opened is the session's own ends.
type Opened struct {
	Ends    []End  `json:"ends"`     // in the order of OpenArgs.Rails
	TCPPort uint16 `json:"tcp_port"` // of a TCP target
}

// ConnectArgs connect the session's rails to the peer's ends. Other rails stay unconnected.
type ConnectArgs struct {
	Rails        []ConnectRail `json:"rails"`
	RetryCount   uint8         `json:"retry_count"`
	TrafficClass uint8         `json:"traffic_class"`
	ServiceLevel uint8         `json:"service_level"`
}

// ConnectRail is one of them.
type ConnectRail struct {
	Name     string         `json:"name"`
	Remote   End            `json:"remote"`
	PathMTU  int            `json:"path_mtu"`  // bytes
	InFlight time.Duration  `json:"in_flight"` // that an acknowledgement may take on a healthy path
	TCP      netip.AddrPort `json:"tcp"`       // of a TCP target
}

// FlowName is the name of a flow in a session: that of the rail for the one that writes with the first flow labels.
func FlowName(rail string, op Op, flow int) string {
	if op == Read {
		rail += " " + string(Read)
	}
	if flow > 0 {
		rail += " " + strconv.Itoa(flow)
	}
	return rail
}

// LatencyArgs measure one rail.
type LatencyArgs struct {
	Rail  string        `json:"rail"`
	Size  int64         `json:"size"` // bytes of a write
	N     int           `json:"n"`
	Limit time.Duration `json:"limit"`
}

// TransfersArgs measure transfers over several rails at once, one after the other.
type TransfersArgs struct {
	Shares   []Share       `json:"shares"`
	N        int           `json:"n"`
	Limit    time.Duration `json:"limit"`    // after which no other one begins
	Deadline time.Duration `json:"deadline"` // that one may take
}

// Latencies are the answer, in the order of the writes or transfers.
type Latencies struct {
	Samples []time.Duration `json:"samples"`           // from the (first) post to the (last) completion
	Adapter []time.Duration `json:"adapter,omitempty"` // of each, until the adapter stamped it; of a rail with stamps
}

// VerifyArgs ask the end at which bytes arrive to compare its memory with what a burst moved.
type VerifyArgs struct {
	Seed  uint64       `json:"seed"`           // of the source
	Pass  int          `json:"pass"`           // of the burst
	Rails []VerifyRail `json:"rails"`          // that completed it
	Stop  []string     `json:"stop"`           // rails that failed: nothing may arrive on them any more
	Read  []VerifyRail `json:"read,omitempty"` // what the asker read over rails: a target counts it, and compares nothing

	Count bool `json:"count,omitempty"` // answer with Verified.Events, too
}

// VerifyRail is what a burst wrote over one rail.
type VerifyRail struct {
	Rail   string  `json:"rail"`
	Chunk  int64   `json:"chunk"`
	Writes []int64 `json:"writes"` // by queue pair or connection
}

// Verified is the answer.
type Verified struct {
	Rail     string `json:"rail,omitempty"` // the first with a wrong byte
	Mismatch int64  `json:"mismatch"`       // its offset in the rail's memory; -1: none
	Bytes    int64  `json:"bytes"`          // compared

	Failures []failure.Failure `json:"failures,omitempty"` // of rails on which the end of the burst did not arrive

	// Events are how many packets arrived out of sequence or twice since the session began, by rail. The target adds it,
	// not its worker; nil from one of an earlier version.
	Events map[string]uint64 `json:"events,omitempty"`
}

// Intake is what a target received over TCP.
type Intake struct {
	Bytes    int64 `json:"bytes"`    // of payload, written into the buffer: never more than the grant
	Exceeded bool  `json:"exceeded"` // an asker sent more, so the target is closed
}

// Bounds of a session.
const (
	MaxRails      = 64 // flows
	MaxFlow       = 255
	MaxQueuePairs = rail.MaxQueuePairs
	MaxDepth      = 1024      // writes in flight per rail
	MaxMemory     = 512 << 20 // bytes of a target, over all rails
	maxSamples    = 100_000
	MaxRepeats    = 3  // of a burst that was disturbed
	maxPasses     = 67 // over a ring in one burst: no two bursts write the same to a place
	maxPass       = 1 << 30
	maxWrites     = 1 << 40
	arriveTime    = 4 * time.Second // for the ends of a burst whose writes completed
)

// maxMessage bounds one message: the longest is a list of latencies.
const maxMessage = 4 << 20

// request is what the exporter sends: one line of JSON, as every message.
type request struct {
	ID   uint64          `json:"id"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// response is what the worker sends: any number of progress messages for a request, and one that ends it.
type response struct {
	ID       uint64           `json:"id"`
	Progress []int64          `json:"progress,omitempty"` // bytes completed so far, by rail, in the request's order
	At       int64            `json:"at,omitempty"`       // CLOCK_MONOTONIC in ns, taken just before Progress
	Done     bool             `json:"done,omitempty"`
	Result   json.RawMessage  `json:"result,omitempty"`
	Failure  *failure.Failure `json:"failure,omitempty"`
}

// writeMessage writes a message by one call of Write.
func writeMessage(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// newMessages reads messages from a connection.
func newMessages(r io.Reader) *bufio.Scanner {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxMessage)
	return in
}

// readMessage reads the next message; io.EOF at the end of the connection.
func readMessage(in *bufio.Scanner, v any) error {
	if !in.Scan() {
		return cmp.Or(in.Err(), io.EOF)
	}
	return json.Unmarshal(in.Bytes(), v)
}
