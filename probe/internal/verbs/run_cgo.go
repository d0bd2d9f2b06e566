//go:build cgo

package verbs

// #include "shim.h"
import "C"

import (
	"cmp"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// Run is one measurement. Other goroutines may call Cancel and Progress during it.
type Run struct {
	canceled atomic.Int32
	done     []atomic.Int64
}

// NewRun returns a run over at most this many rails.
func NewRun(rails int) *Run { return &Run{done: make([]atomic.Int64, rails)} }

// Cancel stops the run: nothing more is posted, and writes in flight have 100 ms to complete.
func (run *Run) Cancel() { run.canceled.Store(1) }

// Progress returns the bytes completed on each rail in the current or last burst.
func (run *Run) Progress() []int64 {
	bytes := make([]int64, len(run.done))
	for i := range run.done {
		bytes[i] = run.done[i].Load()
	}
	return bytes
}

// flag returns the flag by which C sees that the run is canceled.
func (run *Run) flag() *C.int32_t { return (*C.int32_t)(unsafe.Pointer(&run.canceled)) }

// usable checks the arguments of a call before they are passed to C.
func (run *Run) usable(rails []*Rail) error {
	if len(rails) == 0 || len(rails) > len(run.done) {
		return misuse("run", "no rails, or too many")
	}
	for i, r := range rails {
		switch {
		case r.c == nil || r.memory.Size == 0:
			return misuse(r.spec.Device, "closed, or without a buffer")
		case slices.Contains(rails[:i], r):
			return misuse(r.spec.Device, "the same rail twice")
		}
	}
	return nil
}

// Latency writes size bytes n times, each write after the previous one completed, and returns the times from post to
// completion, without a few warm-up writes. After limit it stops with the samples so far, at least one. A write that
// takes longer than limit fails with reason Timeout. With a failure it also returns the samples before it.
//
// For a rail with stamps, adapter is the part of each time until the adapter stamped the completion, which covers the
// adapter, the wire and the peer. The rest is this host's.
func (run *Run) Latency(r *Rail, size, n int, limit time.Duration) (samples, adapter []time.Duration, err error) {
	if err := run.usable([]*Rail{r}); err != nil {
		return nil, nil, err
	}
	rings, source := r.ends()
	if n < 1 || n > 1<<20 || limit <= 0 || size < 1 || size > transfer.MaxChunk || int64(size) > min(rings, source) {
		return nil, nil, misuse(r.spec.Device, "size, samples, limit or source out of range")
	}
	samples, taken := make([]time.Duration, n), C.uint32_t(0)
	var stamped *C.int64_t
	if r.spec.Stamps {
		adapter = make([]time.Duration, n)
		stamped = (*C.int64_t)(unsafe.Pointer(&adapter[0]))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = check(C.rs_latency(run.flag(), r.c, C.int64_t(size), C.uint32_t(n), C.int64_t(limit),
		(*C.int64_t)(unsafe.Pointer(&samples[0])), stamped, &taken), r.spec.Device)
	return samples[:taken], adapter[:min(len(adapter), int(taken))], r.explain(err)
}

// Arrivals is like Latency, with one write at each of the times after the warm-up writes, ascending, as arrivals that
// do not wait for each other. Samples are left out during which this thread did not run for more than a quarter of
// them, unless the device is software, whose driver works on the same processors.
func (run *Run) Arrivals(r *Rail, size int, at []time.Duration, software bool,
	limit time.Duration) (samples []time.Duration, err error) {
	if err := run.usable([]*Rail{r}); err != nil {
		return nil, err
	}
	rings, source := r.ends()
	if n := len(at); n < 1 || n > 1<<20 || limit <= 0 || size < 1 || size > transfer.MaxChunk ||
		int64(size) > min(rings, source) || r.spec.Stamps {
		return nil, misuse(r.spec.Device, "size, times, limit or source out of range")
	}
	samples, taken := make([]time.Duration, len(at)), C.uint32_t(0)
	all := C.int32_t(0)
	if software {
		all = 1
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = check(C.rs_arrivals(run.flag(), r.c, C.int64_t(size), (*C.int64_t)(unsafe.Pointer(&at[0])),
		C.uint32_t(len(at)), all, C.int64_t(limit), (*C.int64_t)(unsafe.Pointer(&samples[0])), &taken), r.spec.Device)
	return samples[:taken], r.explain(err)
}

// Transfers moves the shares of all rails at once, n times in sequence, and returns the times from the first post to
// the last completion, without a few warm-up transfers. After limit it stops with the samples so far, at least one. A
// transfer that takes longer than deadline fails with reason Timeout. A failure names the rail of its share, and stops
// all rails; the samples before it are returned, too.
func (run *Run) Transfers(rails []*Rail, shares []transfer.Share, n int,
	limit, deadline time.Duration) ([]time.Duration, error) {
	if err := run.usable(rails); err != nil {
		return nil, err
	}
	if len(shares) != len(rails) || n < 1 || n > 1<<20 || limit <= 0 || deadline <= 0 {
		return nil, misuse("transfers", "shares, number or limit out of range")
	}
	c, parts := make([]*C.struct_rs_rail, len(rails)), make([]C.struct_rs_share, len(rails))
	for i, r := range rails {
		rings, source := r.ends()
		s := shares[i]
		if s.Chunk < 1 || s.Chunk > min(transfer.MaxChunk, rings/int64(r.spec.QueuePairs)) || s.Count < 1 ||
			s.Count > transfer.MaxCount || source == 0 || r.spec.Stamps {
			return nil, misuse(r.spec.Device, "chunk, count or source out of range")
		}
		c[i], parts[i] = r.c, C.struct_rs_share{chunk: C.int64_t(s.Chunk), count: C.uint32_t(s.Count)}
	}
	samples, taken, failed := make([]time.Duration, n), C.uint32_t(0), C.uint32_t(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := C.rs_transfers(run.flag(), &c[0], C.uint32_t(len(c)), &parts[0], C.uint32_t(n), C.int64_t(limit),
		C.int64_t(deadline), (*C.int64_t)(unsafe.Pointer(&samples[0])), &taken, &failed)
	r := rails[failed]
	f := failure.As("", r.explain(check(e, r.spec.Device)))
	if f == nil {
		return samples[:taken], nil
	}
	f.Rail = shares[failed].Rail
	return samples[:taken], f
}

// ends returns the bytes that the rail can fill in the rings, and those of the source; 0 if the source is too small.
func (r *Rail) ends() (rings, source int64) {
	rings, source = r.remote, r.memory.Size
	if r.memory.Stage != nil && source >= rings { // the GPU has a complete source
		return rings, transfer.SourceLen
	}
	if r.spec.Op == transfer.Read {
		rings, source = source, rings
	}
	if source < transfer.SourceLen {
		source = 0
	}
	return rings, source
}

// Burst keeps all rails at full depth for a time, measures what each carries, and returns when all writes in flight
// have completed or were abandoned. It fails if no rail is left (with the first rail's failure), after Cancel
// (Canceled) and after the deadline (Timeout). The result always has what completed.
func (run *Run) Burst(rails []*Rail, o transfer.BurstArgs) (transfer.BurstDone, error) {
	var done transfer.BurstDone
	if err := run.usable(rails); err != nil {
		return done, err
	}
	if len(o.Loads) != len(rails) || o.Window < 0 || o.Writes < 0 || o.Slow <= 0 || o.Deadline <= 0 || o.Pass < 0 {
		return done, misuse("burst", "loads, times, writes or pass out of range")
	}
	c, loads := make([]*C.struct_rs_rail, len(rails)), make([]C.struct_rs_load, len(rails))
	for i, r := range rails {
		l := o.Loads[i]
		rings, source := r.ends()
		ring := rings / int64(r.spec.QueuePairs)
		if l.Chunk < 1 || l.Chunk > transfer.MaxChunk || l.Chunk > ring || l.Cap < 1 || l.Depth < 1 || l.RTT < 0 ||
			source == 0 || r.spec.Stamps {
			return done, misuse(r.spec.Device, "chunk, cap, depth, RTT or source out of range")
		}
		c[i] = r.c
		loads[i] = C.struct_rs_load{chunk: C.int64_t(l.Chunk), cap: C.int64_t(l.Cap), rtt: C.int64_t(l.RTT),
			ring: C.int64_t(ring), depth: C.uint32_t(min(l.Depth, r.spec.Depth))}
	}
	for i := range run.done {
		run.done[i].Store(0)
	}
	plan := C.struct_rs_plan{window: C.int64_t(o.Window), slow: C.int64_t(o.Slow), deadline: C.int64_t(o.Deadline),
		writes: C.uint32_t(o.Writes), pass: C.uint32_t(o.Pass), load: &loads[0]}
	if o.Software {
		plan.software = 1
	}
	parts, lanes := make([]C.struct_rs_part, len(rails)), make([]C.struct_rs_lane, len(rails))
	var pin runtime.Pinner
	pin.Pin(&loads[0])
	defer pin.Unpin()
	runtime.LockOSThread()
	why := C.rs_burst(run.flag(), (*C.int64_t)(unsafe.Pointer(&run.done[0])), &c[0], C.uint32_t(len(c)), &plan,
		&parts[0], &lanes[0])
	runtime.UnlockOSThread()
	var first error
	failed := 0
	for i, p := range parts {
		rail := transfer.BurstRail{Bytes: int64(p.bytes), Measured: int64(p.measured), First: time.Duration(p.first),
			Last: time.Duration(p.last), Gap: time.Duration(p.gap), Disturbed: p.disturbed != 0,
			Ramping: p.ramping != 0, Early: float64(p.early) * 1e9, Late: float64(p.late) * 1e9,
			Failure: failure.As("", rails[i].explain(check(p.error, rails[i].spec.Device)))}
		for q := range rails[i].spec.QueuePairs {
			rail.Writes = append(rail.Writes, int64(p.written[q]))
		}
		if rail.Failure != nil {
			failed++
			first = cmp.Or(first, error(rail.Failure))
		}
		done.Rails = append(done.Rails, rail)
	}
	switch {
	case why != 0:
		return done, fault{op: string(cmp.Or(rails[0].spec.Op, transfer.Write)), errno: syscall.Errno(-why)}.failure()
	case failed == len(rails):
		return done, first
	}
	return done, nil
}

// Stop moves the queue pairs to an error state, so that no write in flight arrives later.
func (r *Rail) Stop() {
	if r.c != nil {
		C.rs_rail_stop(r.c)
	}
}

// Expect prepares the rail for the writes that end the peer's bursts. It must be called before the peer connects.
func (r *Rail) Expect() error {
	if r.c == nil {
		return misuse(r.spec.Device, "closed")
	}
	return check(C.rs_rail_expect(r.c), r.spec.Device)
}

// Arrived waits until all writes of the peer over this rail, in its burst with this pass, are in memory, for at most
// limit (Timeout).
func (run *Run) Arrived(r *Rail, pass int, limit time.Duration) error {
	if err := run.usable([]*Rail{r}); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return r.explain(check(C.rs_rail_arrived(run.flag(), r.c, C.uint32_t(pass), C.int64_t(limit)), r.spec.Device))
}
