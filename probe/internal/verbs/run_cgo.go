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

// Run is one measurement. Cancel and Progress may be called by other goroutines while it writes.
type Run struct {
	canceled atomic.Int32
	done     []atomic.Int64
}

// NewRun returns a run over at most so many rails.
func NewRun(rails int) *Run { return &Run{done: make([]atomic.Int64, rails)} }

// Cancel stops the run: nothing is posted any more, and writes in flight have 100 ms.
func (run *Run) Cancel() { run.canceled.Store(1) }

// Progress returns the bytes completed on each rail of the current or last burst.
func (run *Run) Progress() []int64 {
	bytes := make([]int64, len(run.done))
	for i := range run.done {
		bytes[i] = run.done[i].Load()
	}
	return bytes
}

// flag is what C reads to see that the run is canceled.
func (run *Run) flag() *C.int32_t { return (*C.int32_t)(unsafe.Pointer(&run.canceled)) }

// usable returns what is wrong with a call before C sees it.
func (run *Run) usable(rails []*Rail) error {
	if len(rails) == 0 || len(rails) > len(run.done) {
		return misuse("run", "no rails, or too many")
	}
	for i, r := range rails {
		switch {
		case r.c == nil || r.buffer == nil || r.buffer.data == nil:
			return misuse(r.spec.Device, "closed, or without a buffer")
		case slices.Contains(rails[:i], r):
			return misuse(r.spec.Device, "the same rail twice")
		}
	}
	return nil
}

// Latency writes 8 bytes n times, each after the one before completed, and returns the times from post to completion.
// The first few warm up and do not count. After limit it stops with the samples so far, at least one. A write that
// takes longer than limit fails with reason Timeout; the samples before a failure are returned with it.
func (run *Run) Latency(r *Rail, n int, limit time.Duration) ([]time.Duration, error) {
	if err := run.usable([]*Rail{r}); err != nil {
		return nil, err
	}
	if n < 1 || n > 1<<20 || limit <= 0 || len(r.buffer.data) < 8 {
		return nil, misuse(r.spec.Device, "samples, limit or buffer out of range")
	}
	samples, taken := make([]time.Duration, n), C.uint32_t(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := check(C.rs_latency(run.flag(), r.c, C.uint32_t(n), C.int64_t(limit),
		(*C.int64_t)(unsafe.Pointer(&samples[0])), &taken), r.spec.Device)
	return samples[:taken], err
}

// Burst writes from a buffer to the same offsets of the peers', over all rails at once, and returns when all writes in
// flight completed or were abandoned. A rail that fails is left out; when stealing, the others take over its part. It
// fails when no rail is left (with the first rail's failure), after Cancel (Canceled) and after the deadline (Timeout).
// The result always says what completed.
func (run *Run) Burst(rails []*Rail, b *Buffer, o transfer.BurstArgs) (transfer.BurstDone, error) {
	var done transfer.BurstDone
	if err := run.usable(rails); err != nil {
		return done, err
	}
	c := make([]*C.struct_rs_rail, len(rails))
	for i, r := range rails {
		if r.buffer != b {
			return done, misuse(r.spec.Device, "another buffer is registered")
		}
		if o.Depth < 1 || o.Depth > r.spec.Depth {
			o.Depth = r.spec.Depth
		}
		c[i] = r.c
	}
	if o.Total < 1 || o.Total > 1<<48 || o.Chunk < 8 || o.Chunk > 1<<30 || o.Deadline <= 0 {
		return done, misuse("burst", "total, chunk or deadline out of range")
	}
	for i := range run.done {
		run.done[i].Store(0)
	}
	plan := C.struct_rs_plan{total: C.int64_t(o.Total), size: C.int64_t(len(b.data)), chunk: C.int64_t(o.Chunk),
		limit: C.int64_t(o.Limit), deadline: C.int64_t(o.Deadline), depth: C.uint32_t(o.Depth)}
	if o.Stealing {
		plan.stealing = 1
	}
	parts, shares := make([]C.struct_rs_part, len(rails)), make([]C.struct_rs_share, len(rails))
	writes := make([]C.struct_rs_write, len(rails)*o.Depth)
	todo := make([]C.struct_rs_range, len(writes)+len(rails))
	for i, r := range o.Divide(len(rails)) {
		todo[i] = C.struct_rs_range{C.int64_t(r.Offset), C.int64_t(r.Length)}
	}
	runtime.LockOSThread()
	why := C.rs_burst(run.flag(), (*C.int64_t)(unsafe.Pointer(&run.done[0])), &c[0], C.uint32_t(len(c)), &plan,
		&parts[0], &shares[0], &writes[0], &todo[0])
	runtime.UnlockOSThread()
	list := make([]transfer.BurstRail, len(rails))
	for i, p := range parts {
		list[i] = transfer.BurstRail{Bytes: int64(p.bytes), Writes: int(p.writes), First: time.Duration(p.first),
			Last: time.Duration(p.last), Failure: failure.As("", check(p.error, rails[i].spec.Device))}
	}
	for _, w := range writes {
		if w.id != 0 {
			todo = append(todo, w._range)
		}
	}
	done, err := transfer.Sum(list, complement(todo, o.Total), int64(len(b.data)))
	if why != 0 {
		err = fault{op: "write", errno: syscall.Errno(-why)}.failure()
	}
	return done, err
}

// complement returns the parts of the total that are not missing.
func complement(missing []C.struct_rs_range, total int64) (done []transfer.Range) {
	missing = append(missing, C.struct_rs_range{at: C.int64_t(total)})
	slices.SortFunc(missing, func(a, b C.struct_rs_range) int { return cmp.Compare(a.at, b.at) })
	at := int64(0)
	for _, m := range missing {
		if m.length == 0 && int64(m.at) < total {
			continue // an empty place
		}
		if int64(m.at) > at {
			done = append(done, transfer.Range{Offset: at, Length: int64(m.at) - at})
		}
		at = int64(m.at + m.length)
	}
	return done
}
