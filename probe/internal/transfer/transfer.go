// Package transfer defines the types of a transfer that the worker process, its transports and the exporter exchange.
// Nodes also exchange the JSON of [End].
package transfer

import (
	"net/netip"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// End is one end of a rail's queue pairs, for the other end to connect to.
type End struct {
	Name      string           `json:"name"`
	QPNs      []uint32         `json:"qpns,omitempty"` // 24-bit numbers of the queue pairs
	PSNs      []uint32         `json:"psns,omitempty"` // random 24-bit numbers of their first packets
	GID       netip.Addr       `json:"gid"`
	LID       uint16           `json:"lid,omitempty"`        // InfiniBand address; 0 on Ethernet
	ActiveMTU int              `json:"active_mtu,omitempty"` // current MTU of the link in bytes; 0 if unknown
	MaxMTU    int              `json:"max_mtu,omitempty"`    // MTU of the device in bytes; 0 if unknown
	AckDelay  uint8            `json:"ack_delay,omitempty"`  // the device may need 4.096 µs × 2^AckDelay; at most 31
	Reads     uint8            `json:"reads,omitempty"`      // reads in flight that a queue pair supports; 0 means 1
	Addr      uint64           `json:"addr,omitempty"`       // address of the registered memory
	RKey      uint32           `json:"rkey,omitempty"`
	Size      int64            `json:"size,omitempty"`    // its bytes; each queue pair owns an equal part
	Failure   *failure.Failure `json:"failure,omitempty"` // reason why this rail is missing
}

// Op is the direction of bytes. They move from a source through queue pairs or connections, each into its own ring.
type Op string

// Operations, which the asker posts.
const (
	Write Op = "write" // from the asker's source into the target's rings; also the zero Op
	Read  Op = "read"  // from the target's source into the asker's rings
)

// Load is the work of one rail in a burst.
type Load struct {
	Rail  string        `json:"rail"`
	Chunk int64         `json:"chunk"` // bytes of one write
	Cap   int64         `json:"cap"`   // bytes after which the burst ends for all rails
	Depth int           `json:"depth"` // writes in flight, over all queue pairs or connections
	RTT   time.Duration `json:"rtt"`   // round trip of a small write; 0 if unknown
}

// MaxCount is the maximum number of messages of a rail in one transfer.
const MaxCount = 1 << 20

// Share is one rail's part of a transfer.
type Share struct {
	Rail  string `json:"rail"`
	Chunk int64  `json:"chunk"` // bytes of one message
	Count int    `json:"count"` // number of messages
}

// BurstArgs are the arguments of a burst, which keeps every rail at full depth and measures what each carries. Queue
// pair or connection q of a rail owns the q-th part of the rail's memory at the target, and writes it in passes.
type BurstArgs struct {
	Loads    []Load        `json:"loads"`
	Warmup   time.Duration `json:"warmup"`   // time before the measurement, for TCP's slow start
	Window   time.Duration `json:"window"`   // time to measure, with every rail at full depth
	Writes   int           `json:"writes"`   // minimum number of measured writes per rail
	Slow     time.Duration `json:"slow"`     // time after which no new writes are posted
	Deadline time.Duration `json:"deadline"` // time after which writes in flight are abandoned
	Software bool          `json:"software"` // the kernel does the devices' work, so polling must yield the CPU
	Once     bool          `json:"once"`     // no repetition if it is disturbed
	Pass     int           `json:"pass"`     // pages by which the source is shifted in the first pass; see [Place]
}

// BurstDone is the result of a burst, in the order of the loads. If a rail fails, the burst ends for all.
type BurstDone struct {
	Pass  int         `json:"pass"` // see [BurstArgs]
	Rails []BurstRail `json:"rails"`
}

// BurstRail is one rail's part of a burst.
type BurstRail struct {
	Bytes    int64         `json:"bytes"`    // bytes of completed writes
	Measured int64         `json:"measured"` // completed bytes after First, until Last
	First    time.Duration `json:"first"`    // time of a completion at full depth, since the burst began
	Last     time.Duration `json:"last"`     // time of the last such completion
	Gap      time.Duration `json:"gap"`      // longest time between two polls from First to Last
	// Disturbed reports that the rail may have been idle in a gap, or that nothing was measured.
	Disturbed bool `json:"disturbed"`
	Ramping   bool `json:"ramping,omitempty"` // the rate still rose when the window ended
	// Early and Late are the rates in the two halves of the window, in bytes per second.
	Early   float64          `json:"early,omitempty"`
	Late    float64          `json:"late,omitempty"`
	Writes  []int64          `json:"writes"` // writes posted, by queue pair or connection, for the target to verify
	Failure *failure.Failure `json:"failure,omitempty"`
}

// Rate returns the rail's rate in bytes per second; 0 if nothing was measured.
func (r BurstRail) Rate() float64 {
	if r.Measured <= 0 || r.Last <= r.First {
		return 0
	}
	return float64(r.Measured) / (r.Last - r.First).Seconds()
}

// Failed reports whether a rail failed.
func (d BurstDone) Failed() bool {
	return slices.ContainsFunc(d.Rails, func(r BurstRail) bool { return r.Failure != nil })
}

// Ramping returns the index of the first working rail whose rate still rose when its window ended; -1 if there is none.
func (d BurstDone) Ramping() int {
	return slices.IndexFunc(d.Rails, func(r BurstRail) bool { return r.Failure == nil && r.Ramping })
}

// Disturbed reports whether a working rail has no figure.
func (d BurstDone) Disturbed() bool {
	return slices.ContainsFunc(d.Rails, func(r BurstRail) bool { return r.Failure == nil && r.Disturbed })
}

// Sizes of the source of all writes of a node. It is filled once: each pass over a ring starts at a place shifted by a
// page, so that the target detects a missing pass.
const (
	Page      = 4096
	Shifts    = 1024    // number of places; further passes start over
	MinChunk  = 512     // minimum bytes of a verified write
	MaxChunk  = 1 << 20 // maximum bytes of a write
	SourceLen = Shifts*Page + MaxChunk
)

// Place returns the offsets of write i of a burst, in the ring of its queue pair and in the source. It matches rs_place
// in verbs/write.c.
func Place(i, ring, chunk int64, pass int) (at, source int64) {
	slots := max(ring/chunk, 1)
	return i % slots * chunk, (i%slots*61 + i/slots + int64(pass)) % Shifts * Page
}

// TCPInfo is the kernel's report on TCP connections (TCP_INFO).
type TCPInfo struct {
	Retransmits uint64        `json:"retransmits"` // segments of all connections since the start of the session
	PathMTU     int           `json:"path_mtu"`    // minimum of all connections in bytes; 0 if unknown
	RTT         time.Duration `json:"rtt"`         // smoothed, the maximum of all connections
}

// Add adds another report.
func (t *TCPInfo) Add(o TCPInfo) {
	t.Retransmits += o.Retransmits
	t.RTT = max(t.RTT, o.RTT)
	if o.PathMTU > 0 && (t.PathMTU == 0 || o.PathMTU < t.PathMTU) {
		t.PathMTU = o.PathMTU
	}
}
