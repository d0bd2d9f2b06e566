// Package worker is the process that touches libibverbs and moves bytes, and the exporter's end of it. A provider is a
// foreign library that runs in the caller's address space, may crash and may never return; so a child process of the
// same binary loads it. Both ends exchange lines of JSON over a socket pair. The worker serves one session at a time: a
// buffer, the rails it is registered on, and the queue pairs or connections to one peer.
package worker

import (
	"net/netip"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
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
	Range     = transfer.Range
	TCPInfo   = transfer.TCPInfo
)

// Info describes libibverbs on this node.
type Info struct {
	RDMACore string `json:"rdma_core"` // version, from the library's name; empty: unknown, or no libibverbs
}

// Transport of a session.
const (
	RDMA = "rdma"
	TCP  = "tcp"
)

// OpenArgs open a session. One that is open is closed first.
type OpenArgs struct {
	Transport  string    `json:"transport"`
	Target     bool      `json:"target"` // the peer writes here
	Rails      []RailArg `json:"rails"`
	Buffer     int64     `json:"buffer"` // bytes
	Depth      int       `json:"depth"`
	QueuePairs int       `json:"queue_pairs"`   // queue pairs, or TCP connections, per rail
	Key        []byte    `json:"key,omitempty"` // 32 bytes that both ends know, for TCP
	Grant      int64     `json:"grant"`         // bytes that a TCP target accepts; RDMA cannot refuse bytes
}

// RailArg is this node's end of a rail.
type RailArg struct {
	Name     string     `json:"name"`
	Device   string     `json:"device,omitempty"`
	Port     int        `json:"port,omitempty"`
	GIDIndex int        `json:"gid_index"`
	GID      netip.Addr `json:"gid"`              // expected at GIDIndex; zero: any
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
}

// ConnectRail is one of them.
type ConnectRail struct {
	Name     string         `json:"name"`
	Remote   End            `json:"remote"`
	PathMTU  int            `json:"path_mtu"`  // bytes
	InFlight time.Duration  `json:"in_flight"` // that an acknowledgement may take on a healthy path
	TCP      netip.AddrPort `json:"tcp"`       // of a TCP target
}

// Connected lists the rails that did not connect.
type Connected struct {
	Failures []failure.Failure `json:"failures,omitempty"`
}

// LatencyArgs measure one rail.
type LatencyArgs struct {
	Rail  string        `json:"rail"`
	N     int           `json:"n"`
	Limit time.Duration `json:"limit"`
}

// Latencies are round trips, in the order of measurement.
type Latencies struct {
	Samples []time.Duration `json:"samples"`
}

// VerifyArgs ask a target to compare ranges of its buffer with a pattern.
type VerifyArgs struct {
	Seed   uint64  `json:"seed"`
	Ranges []Range `json:"ranges"`
}

// Verified is the answer.
type Verified struct {
	Mismatch int64 `json:"mismatch"` // offset of the first wrong byte; -1: none
	Bytes    int64 `json:"bytes"`    // compared
}

// Intake is what a target received over TCP.
type Intake struct {
	Bytes    int64 `json:"bytes"`    // of payload, written into the buffer: never more than the grant
	Exceeded bool  `json:"exceeded"` // an asker sent more, so the target is closed
}

// Bounds of a session.
const (
	MaxRails   = 64
	MaxBuffer  = 1 << 30
	maxSamples = 100_000
	maxRanges  = 4096
)
