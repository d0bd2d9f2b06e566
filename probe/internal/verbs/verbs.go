// Package verbs writes to the memory of other hosts by RDMA. It is the only
// package of ours with C: libibverbs is opened at run time, never linked, and
// what is hot runs in C from the first post to the last completion. Without cgo
// it builds, and [Open] says so.
//
// Who owns what: buffers and rails are C's memory and live until Close. A rail
// may be used by one goroutine at a time, and must be closed before the buffer
// registered on it: until then the device may still read and write there.
// Times are those of CLOCK_MONOTONIC. Errors are *[Error].
package verbs

import (
	"cmp"
	"slices"
	"time"
)

// Bounds of a [Spec].
const (
	MaxQueuePairs = 16
	MaxDepth      = 1024
)

// Spec says which rail to open, and how much it is to hold.
type Spec struct {
	Device     string // as libibverbs and sysfs call it: mlx5_0
	Port       int    // from 1
	GIDIndex   int    // entry of the port's GID table, from 0
	QueuePairs int    // queue pairs to the peer, 1 to MaxQueuePairs
	Depth      int    // writes in flight at most, over all queue pairs, 1 to MaxDepth
}

// Port states: enum ibv_port_state of rdma-core's libibverbs/verbs.h.
const (
	PortDown   = 1
	PortActive = 4
)

// Info is what a rail found when it was opened.
type Info struct {
	State     int      // PortActive, or the port carries nothing
	ActiveMTU int      // bytes: of this link now
	MaxMTU    int      // bytes: of the device
	Ethernet  bool     // the link layer; else InfiniBand
	LID       uint16   // InfiniBand's address; 0 on Ethernet
	GID       [16]byte // entry Spec.GIDIndex of the table
	QPNs      []uint32 // 24 bit numbers of the queue pairs
	PSNs      []uint32 // random 24 bit numbers with which they begin to send
	MaxInline int      // bytes that a write may carry in its work request
}

// Region is registered memory as a peer must name it.
type Region struct {
	Addr uint64
	RKey uint32
}

// Remote is what a rail must know of its peer: its [Info] and its [Region].
type Remote struct {
	QPNs, PSNs []uint32 // one for each queue pair of this rail
	GID        [16]byte
	LID        uint16
	Addr       uint64
	RKey       uint32
}

// Attr are attributes of a connection on which both ends agreed.
type Attr struct {
	PathMTU      int   // bytes: 256, 512, 1024, 2048, 4096
	Timeout      uint8 // of an acknowledgement: 4.096 µs × 2^Timeout; 1 to 31 (IBTA 9.7.6.1.3)
	RetryCount   uint8 // 0 to 7
	TrafficClass uint8 // DSCP<<2
}

// TimeoutExponent returns the [Attr] timeout for which an acknowledgement may
// take as long as all that is in flight: the least n with 4.096 µs × 2^n ≥
// inFlight, but not under min nor over max.
func TimeoutExponent(inFlight time.Duration, min, max uint8) uint8 {
	n := min
	for n < max && 4096*time.Nanosecond<<n < inFlight {
		n++
	}
	return n
}

// Mode is how a burst is spread over rails.
type Mode int

// The modes.
const (
	Static   Mode = iota // rail i of n writes the i-th of n equal parts
	Stealing             // whichever rail has room takes the next chunk
)

// BurstOptions say what to write. Offsets in the buffer are those of the bytes
// to write modulo its size, so Total may exceed it.
type BurstOptions struct {
	Mode     Mode
	Total    int64         // bytes in all
	Chunk    int64         // bytes of one write at most, up to 1 GiB
	MinChunk int64         // Stealing: the smallest part of a chunk near the end; 0: a 16th, but not under 4 KiB
	Depth    int           // writes in flight per rail at most; 0 or more than the Spec's: the Spec's
	Limit    time.Duration // after which no new writes begin; 0: none
	Deadline time.Duration // after which those that are in flight are given up
}

// BurstResult is what a burst came to, whether or not there is an error too.
type BurstResult struct {
	Elapsed time.Duration // from the first post to the last completion, over all rails
	Bytes   int64         // completed
	Rails   []RailBurst   // in the order of the rails
	Done    []Range       // of the buffer: what completed, merged, in order
}

// RailBurst is one rail's part of a burst.
type RailBurst struct {
	Bytes       int64         // completed
	Writes      int           // completed
	First, Last time.Duration // its first post and its last completion, since the burst began
	Err         *Error        // the first thing that failed on this rail
}

// Range is part of a buffer.
type Range struct{ Offset, Length int64 }

// fold returns which parts of a buffer ranges of a longer transfer lie in, when
// the buffer begins anew at every multiple of its size: merged, in order.
func fold(ranges []Range, size int64) []Range {
	var parts []Range
	for _, r := range ranges {
		if r.Length >= size {
			return []Range{{Length: size}}
		}
		r.Offset %= size
		if over := r.Offset + r.Length - size; over > 0 {
			parts = append(parts, Range{Length: over})
			r.Length -= over
		}
		parts = append(parts, r)
	}
	slices.SortFunc(parts, func(a, b Range) int { return cmp.Compare(a.Offset, b.Offset) })
	var merged []Range
	for _, r := range parts {
		if n := len(merged) - 1; n >= 0 && r.Offset <= merged[n].Offset+merged[n].Length {
			merged[n].Length = max(merged[n].Length, r.Offset+r.Length-merged[n].Offset)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
