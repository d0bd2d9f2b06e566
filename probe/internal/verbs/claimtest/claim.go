//go:build cgo

// Package claimtest runs the scheduler of RDMA bursts, claim.c, without a device, so that a test can simulate bursts.
package claimtest

// #include "../claim.c"
import "C"

import (
	"math"
	"time"

	"github.com/railscope/railscope/probe/internal/transfer"
)

// share is the scheduler's state of a rail: struct rs_share of shim.h.
type share struct {
	inflight, done int64
	age            time.Duration
	writes, window int
	alive          bool
}

// claim returns how many of the unclaimed bytes rail i may take at a time since the start.
func claim(shares []share, i int, unclaimed int64, now time.Duration, o transfer.BurstArgs) int64 {
	left := time.Duration(math.MaxInt64)
	if o.Limit > 0 {
		left = o.Limit - now
	}
	c := make([]C.struct_rs_share, len(shares))
	for i, s := range shares {
		c[i] = C.struct_rs_share{
			inflight: C.int64_t(s.inflight), done: C.int64_t(s.done), age: C.int64_t(s.age),
			writes: C.uint32_t(s.writes), window: C.uint32_t(s.window),
		}
		if s.alive {
			c[i].alive = 1
		}
	}
	p := C.struct_rs_plan{chunk: C.int64_t(o.Chunk)}
	if o.Stealing {
		p.stealing = 1
	}
	return int64(C.rs_claim(&c[0], C.uint32_t(len(c)), C.uint32_t(i), C.int64_t(unclaimed), C.int64_t(left), &p))
}
