// Package transfer is the vocabulary of a transfer: what the worker process, its transports and the exporter's end of
// it exchange. The JSON of [End] also travels between nodes.
package transfer

import (
	"net/netip"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// End is one end of a rail's queue pairs, as the other end needs it.
type End struct {
	Name      string           `json:"name"`
	QPNs      []uint32         `json:"qpns,omitempty"` // 24-bit numbers of the queue pairs
	PSNs      []uint32         `json:"psns,omitempty"` // random 24-bit numbers with which they start to send
	GID       netip.Addr       `json:"gid"`
	LID       uint16           `json:"lid,omitempty"`        // InfiniBand address; 0 on Ethernet
	ActiveMTU int              `json:"active_mtu,omitempty"` // bytes: of the link now; 0: unknown
	MaxMTU    int              `json:"max_mtu,omitempty"`    // bytes: of the device; 0: unknown
	AckDelay  uint8            `json:"ack_delay,omitempty"`  // the device may need 4.096 µs × 2^AckDelay; at most 31
	Reads     uint8            `json:"reads,omitempty"`      // in flight, that a queue pair manages; 0: one
	Addr      uint64           `json:"addr,omitempty"`       // of the registered memory
	RKey      uint32           `json:"rkey,omitempty"`
	Size      int64            `json:"size,omitempty"`    // bytes of it; each queue pair owns an equal part
	Failure   *failure.Failure `json:"failure,omitempty"` // why this rail is missing
}

// Op is how bytes move: from a source through queue pairs or connections into rings, one for each of these.
type Op string

// The operations. The asker posts both.
const (
	Write Op = "write" // from the asker's source into the target's rings; the zero Op, too
	Read  Op = "read"  // from the target's source into the asker's rings
)

// Load is what one rail carries in a burst.
type Load struct {
	Rail  string        `json:"rail"`
	Chunk int64         `json:"chunk"` // bytes of one write
	Cap   int64         `json:"cap"`   // bytes after which the burst ends for all rails, whatever was measured
	Depth int           `json:"depth"` // writes in flight, over all queue pairs or connections
	RTT   time.Duration `json:"rtt"`   // of a small write; 0: unknown
}

// MaxCount is how many messages a rail has in one transfer at most.
const MaxCount = 1 << 20

// Share is what one rail moves in one transfer.
type Share struct {
	Rail  string `json:"rail"`
	Chunk int64  `json:"chunk"` // bytes of one message
	Count int    `json:"count"` // of messages
}

// BurstArgs describe a burst: every rail is kept at full depth, and what each carries meanwhile is measured. Queue pair
// or connection q of a rail owns the q-th part of the rail's memory at the target, and writes it in passes.
type BurstArgs struct {
	Loads    []Load        `json:"loads"`
	Warmup   time.Duration `json:"warmup"`   // nothing is measured before it: for TCP's slow start
	Window   time.Duration `json:"window"`   // to measure, with every rail at full depth
	Writes   int           `json:"writes"`   // fewest to measure, per rail
	Slow     time.Duration `json:"slow"`     // no new writes after it, whatever was measured
	Deadline time.Duration `json:"deadline"` // writes in flight are abandoned after it
	Software bool          `json:"software"` // the kernel does the work of the devices: polling must leave it time
	Once     bool          `json:"once"`     // not again, if it is disturbed
	Pass     int           `json:"pass"`     // pages by which the source is shifted in the first pass; see [Place]
}

// BurstDone is the result of a burst, in the order of the loads. If a rail fails, the burst ends for all.
type BurstDone struct {
	Pass  int         `json:"pass"` // see [BurstArgs]
	Rails []BurstRail `json:"rails"`
}

// BurstRail is one rail's part of a burst.
type BurstRail struct {
	Bytes     int64            `json:"bytes"`     // completed
	Measured  int64            `json:"measured"`  // of them, after First until Last
	First     time.Duration    `json:"first"`     // a completion with every rail at full depth, since the burst began
	Last      time.Duration    `json:"last"`      // the last such completion
	Gap       time.Duration    `json:"gap"`       // the longest time between two polls in between
	Disturbed bool             `json:"disturbed"` // the rail may have been idle in a gap, or nothing was measured
	Writes    []int64          `json:"writes"`    // posted, by queue pair or connection: what the target verifies
	Failure   *failure.Failure `json:"failure,omitempty"`
}

// Rate is what the rail carried, in bytes per second; 0 if nothing was measured.
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

// Disturbed reports whether a rail that works has no figure.
func (d BurstDone) Disturbed() bool {
	return slices.ContainsFunc(d.Rails, func(r BurstRail) bool { return r.Failure == nil && r.Disturbed })
}

// The source of all writes of a node. It is filled once: each pass over a ring writes from a place shifted by a page,
// so that the target finds a pass that did not arrive.
const (
	Page      = 4096
	Shifts    = 1024    // places; more passes start over
	MinChunk  = 512     // bytes of one write that is verified
	MaxChunk  = 1 << 20 // the most bytes of one
	SourceLen = Shifts*Page + MaxChunk
)

// Place returns where write i of a burst begins, in the ring of its queue pair and in the source. It is rs_place of
// verbs/write.c.
func Place(i, ring, chunk int64, pass int) (at, source int64) {
	slots := max(ring/chunk, 1)
	return i % slots * chunk, (i%slots*61 + i/slots + int64(pass)) % Shifts * Page
}

// TCPInfo is what the kernel reports of TCP connections (TCP_INFO).
type TCPInfo struct {
	Retransmits uint64        `json:"retransmits"` // segments, since the start of the session, of all connections
	PathMTU     int           `json:"path_mtu"`    // bytes, the smallest of all connections; 0: unknown
	RTT         time.Duration `json:"rtt"`         // smoothed, the largest of all connections
}

// Add adds other connections.
func (t *TCPInfo) Add(o TCPInfo) {
	t.Retransmits += o.Retransmits
	t.RTT = max(t.RTT, o.RTT)
	if o.PathMTU > 0 && (t.PathMTU == 0 || o.PathMTU < t.PathMTU) {
		t.PathMTU = o.PathMTU
	}
}
