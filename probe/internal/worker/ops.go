// Package worker is the process that touches libibverbs and moves bytes, and
// the exporter's end of it. A provider is a foreign library that runs in the
// caller's address space, may crash and may never return; so it is loaded by a
// child of the same binary, which only it can take down. Both ends talk in
// frames of JSON over a socket pair. The worker serves one session at a time: a
// buffer, the rails it is registered on, and the queue pairs or connections to
// one peer.
package worker

import (
	"net/netip"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// The operations, in the order of a session.
const (
	opInfo    = "info"
	opOpen    = "open"
	opConnect = "connect"
	opLatency = "latency"
	opBurst   = "burst"
	opVerify  = "verify"
	opTCPInfo = "tcp_info"
	opIntake  = "intake"
	opClose   = "close"
	opCancel  = "cancel" // no answer of its own: the one that runs ends early
)

// Info is what the worker found of libibverbs.
type Info struct {
	Library string           `json:"library"`           // file, symlinks resolved
	Failure *failure.Failure `json:"failure,omitempty"` // why there is no RDMA
	Devices []string         `json:"devices,omitempty"`
	// version of rdma-core, by the library's name; empty when it does not tell
	RDMACore string `json:"rdma_core,omitempty"`
}

// Transport of a session.
const (
	RDMA = "rdma"
	TCP  = "tcp"
)

// OpenArgs begin a session. A session that is open is closed first.
type OpenArgs struct {
	Transport  string    `json:"transport"`
	Target     bool      `json:"target"` // the peer writes here
	Rails      []RailArg `json:"rails"`
	Buffer     int64     `json:"buffer"` // bytes
	Depth      int       `json:"depth"`
	QueuePairs int       `json:"queue_pairs"`   // queue pairs, or TCP connections, per rail
	Key        []byte    `json:"key,omitempty"` // 32 bytes that both ends know; RDMA has keys of its own
	// bytes that a TCP target may take in; RDMA cannot be refused byte by byte
	Grant int64 `json:"grant"`
}

// RailArg is this node's end of a rail.
type RailArg struct {
	Name     string     `json:"name"`
	Device   string     `json:"device,omitempty"`
	Port     int        `json:"port,omitempty"`
	GIDIndex int        `json:"gid_index"`
	GID      netip.Addr `json:"gid"`              // what the entry must be; zero: whatever it is
	Local    netip.Addr `json:"local"`            // TCP: address to leave from
	Netdev   string     `json:"netdev,omitempty"` // TCP: interface to leave by
}

// Opened is the session's own ends.
type Opened struct {
	Ends    []End  `json:"ends"`     // in the order of OpenArgs.Rails
	TCPPort uint16 `json:"tcp_port"` // of a TCP target
}

// End is one end of a rail's queue pairs, as the other side needs it.
type End struct {
	Name      string           `json:"name"`
	QPNs      []uint32         `json:"qpns,omitempty"`
	PSNs      []uint32         `json:"psns,omitempty"`
	GID       netip.Addr       `json:"gid"`
	LID       uint16           `json:"lid,omitempty"`
	ActiveMTU int              `json:"active_mtu,omitempty"` // bytes
	MaxMTU    int              `json:"max_mtu,omitempty"`    // bytes
	Addr      uint64           `json:"addr,omitempty"`
	RKey      uint32           `json:"rkey,omitempty"`
	Failure   *failure.Failure `json:"failure,omitempty"` // why this rail is not there
}

// ConnectArgs connect the session's rails to the peer's ends. Rails that are
// not named stay unconnected.
type ConnectArgs struct {
	Rails        []ConnectRail `json:"rails"`
	RetryCount   uint8         `json:"retry_count"`
	TrafficClass uint8         `json:"traffic_class"`
}

// ConnectRail is one of them.
type ConnectRail struct {
	Name     string         `json:"name"`
	Remote   End            `json:"remote"`
	PathMTU  int            `json:"path_mtu"`  // bytes
	InFlight time.Duration  `json:"in_flight"` // how long an acknowledgement may rightly take
	TCP      netip.AddrPort `json:"tcp"`       // of a TCP target
}

// Connected says which rails did not connect.
type Connected struct {
	Failures []failure.Failure `json:"failures,omitempty"`
}

// LatencyArgs measure one rail.
type LatencyArgs struct {
	Rail  string        `json:"rail"`
	N     int           `json:"n"`
	Limit time.Duration `json:"limit"`
}

// Latencies are full round trips, in the order they were taken.
type Latencies struct {
	Samples []time.Duration `json:"samples"`
}

// BurstArgs move bytes over the rails named.
type BurstArgs struct {
	Rails    []string      `json:"rails"`
	Stealing bool          `json:"stealing"` // otherwise equal parts, fixed before
	Total    int64         `json:"total"`
	Chunk    int64         `json:"chunk"`
	Depth    int           `json:"depth"`
	Seed     uint64        `json:"seed"`     // of the pattern that is sent
	Limit    time.Duration `json:"limit"`    // after that no more is begun
	Deadline time.Duration `json:"deadline"` // after that all is given up
}

// BurstDone is what a burst came to.
type BurstDone struct {
	Elapsed time.Duration `json:"elapsed"` // first post to last completion
	Bytes   int64         `json:"bytes"`
	Rails   []BurstRail   `json:"rails"` // in the order of the request
	Done    []Range       `json:"done"`  // of the buffer: what completed
}

// BurstRail is one rail's part.
type BurstRail struct {
	Bytes   int64            `json:"bytes"`
	First   time.Duration    `json:"first"` // post, since the burst began
	Last    time.Duration    `json:"last"`  // completion, since the burst began
	Failure *failure.Failure `json:"failure,omitempty"`
}

// Range is a part of the buffer.
type Range struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// VerifyArgs ask a target what it finds.
type VerifyArgs struct {
	Seed   uint64  `json:"seed"`
	Ranges []Range `json:"ranges"`
}

// Verified is the answer.
type Verified struct {
	Mismatch int64 `json:"mismatch"` // offset of the first byte that is not as it should be; -1: none
	Bytes    int64 `json:"bytes"`    // how many were looked at
}

// Intake is what came in over TCP.
type Intake struct {
	Bytes    int64 `json:"bytes"`    // of payload, written into the buffer: never more than the grant
	Exceeded bool  `json:"exceeded"` // somebody wanted to write more, so the target is closed
}

// TCPInfo is what the kernel knows of a rail's connections.
type TCPInfo struct {
	Retransmits uint64        `json:"retransmits"`
	PathMTU     int           `json:"path_mtu"`
	RTT         time.Duration `json:"rtt"`
}

// Bounds on what a session may hold, whoever asks.
const (
	MaxRails   = 64
	MaxBuffer  = 1 << 30
	maxSamples = 100_000
	maxRanges  = 4096
)
