// Package transfer is the vocabulary of a transfer: what the worker process, its transports and the exporter's end of
// it exchange. The JSON of [End] and [Range] also travels between nodes.
package transfer

import (
	"cmp"
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
	ActiveMTU int              `json:"active_mtu,omitempty"` // bytes: of the link now
	MaxMTU    int              `json:"max_mtu,omitempty"`    // bytes: of the device
	Addr      uint64           `json:"addr,omitempty"`       // of the registered memory
	RKey      uint32           `json:"rkey,omitempty"`
	Failure   *failure.Failure `json:"failure,omitempty"` // why this rail is missing
}

// BurstArgs describe a burst over the named rails. Byte n of the total is at n modulo the size of the buffer, at both
// ends, so Total may exceed it.
type BurstArgs struct {
	Rails    []string      `json:"rails"`
	Stealing bool          `json:"stealing"` // whichever rail has room takes the next chunk; else equal parts
	Total    int64         `json:"total"`
	Chunk    int64         `json:"chunk"`    // bytes of one write at most
	Depth    int           `json:"depth"`    // writes in flight per rail
	Seed     uint64        `json:"seed"`     // of the pattern that is sent
	Limit    time.Duration `json:"limit"`    // no new writes after it; 0: none
	Deadline time.Duration `json:"deadline"` // writes in flight are abandoned after it
}

// Divide returns what n rails start with: the whole total when stealing, else one part each, of whole pages if a part
// has at least 1 MiB.
func (a BurstArgs) Divide(n int) []Range {
	if a.Stealing {
		return []Range{{Length: a.Total}}
	}
	unit := int64(8)
	if a.Total/int64(n) >= 1<<20 {
		unit = 4096
	}
	parts, at := make([]Range, n), int64(0)
	for i := range parts {
		end := a.Total / unit * int64(i+1) / int64(n) * unit
		if i+1 == n {
			end = a.Total
		}
		parts[i] = Range{Offset: at, Length: end - at}
		at = end
	}
	return parts
}

// BurstDone is the result of a burst.
type BurstDone struct {
	Elapsed time.Duration `json:"elapsed"` // first post to last completion, over all rails
	Bytes   int64         `json:"bytes"`   // completed
	Rails   []BurstRail   `json:"rails"`   // in the order of the request
	Done    []Range       `json:"done"`    // of the buffer: what completed, merged, in order
}

// BurstRail is one rail's part of a burst.
type BurstRail struct {
	Bytes   int64            `json:"bytes"`  // completed
	Writes  int              `json:"writes"` // completed
	First   time.Duration    `json:"first"`  // first post, since the burst began
	Last    time.Duration    `json:"last"`   // last completion, since the burst began
	Failure *failure.Failure `json:"failure,omitempty"`
}

// Range is a part of a buffer, in bytes.
type Range struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// TCPInfo is what the kernel reports of a rail's TCP connections (TCP_INFO).
type TCPInfo struct {
	Retransmits uint64        `json:"retransmits"` // segments, since the start of the session, of all connections
	PathMTU     int           `json:"path_mtu"`    // bytes, the smallest of all connections; 0: unknown
	RTT         time.Duration `json:"rtt"`         // smoothed, the largest of all connections
}

// Sum adds up the rails of a burst that completed ranges of the total. The error is the first rail's failure if no
// rail is left.
func Sum(rails []BurstRail, ranges []Range, size int64) (BurstDone, error) {
	d := BurstDone{Rails: rails, Done: merge(ranges, size)}
	var first, last time.Duration
	failed := 0
	for _, r := range rails {
		if r.Bytes > 0 && (d.Bytes == 0 || r.First < first) {
			first = r.First
		}
		d.Bytes, last = d.Bytes+r.Bytes, max(last, r.Last)
		if r.Failure != nil {
			failed++
		}
	}
	d.Elapsed = max(last-first, 0)
	switch {
	case len(rails) == 0:
		return d, failure.New("", failure.Other, "a burst over no rails")
	case failed == len(rails):
		return d, rails[0].Failure
	}
	return d, nil
}

// merge maps ranges of a transfer to a buffer of size bytes that starts over at every multiple of its size, sorts them
// and joins those that touch.
func merge(ranges []Range, size int64) []Range {
	var parts, merged []Range
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
	for _, r := range parts {
		if n := len(merged) - 1; n >= 0 && r.Offset <= merged[n].Offset+merged[n].Length {
			merged[n].Length = max(merged[n].Length, r.Offset+r.Length-merged[n].Offset)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
