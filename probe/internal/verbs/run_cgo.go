//go:build cgo && linux

package verbs

// #include "shim.h"
import "C"

import (
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"
)

// Run is what is written in one round. Cancel and Progress may be called from
// other goroutines while it writes, but not after Close.
type Run struct {
	c     *C.struct_rs_run
	rails int
}

// NewRun makes a run over so many rails at most.
func NewRun(rails int) (*Run, error) {
	if rails < 1 {
		return nil, misuse("", "a run has rails")
	}
	run := &Run{c: C.rs_run_new(C.uint32_t(rails)), rails: rails}
	if run.c == nil {
		return nil, newError(opMap, "", syscall.ENOMEM, 0, 0)
	}
	return run, nil
}

// Cancel ends what is being written, and everything that this run would write
// later: nothing is posted any more, and what is in flight has 100 ms.
func (run *Run) Cancel() {
	if run.c != nil {
		C.rs_run_cancel(run.c)
	}
}

// Progress returns the bytes that completed on each rail of the burst that
// runs, or ran last.
func (run *Run) Progress() []int64 {
	done := make([]int64, run.rails)
	for i := range done {
		if run.c != nil {
			done[i] = int64(C.rs_run_done(run.c, C.uint32_t(i)))
		}
	}
	return done
}

// Close frees the run. Closing again does nothing.
func (run *Run) Close() {
	if run.c != nil {
		C.rs_run_free(run.c)
		run.c = nil
	}
}

// usable says what is wrong with a call, before C sees it.
func (run *Run) usable(rails []*Rail) error {
	if run.c == nil {
		return misuse("", "the run is closed")
	}
	if len(rails) == 0 || len(rails) > run.rails {
		return misuse("", "no rails, or more than the run is for")
	}
	for i, r := range rails {
		if r.c == nil || r.buffer == nil || r.buffer.memory == nil {
			return misuse(r.spec.Device, "closed, or without a buffer")
		}
		if slices.Contains(rails[:i], r) {
			return misuse(r.spec.Device, "the same rail twice")
		}
	}
	return nil
}

// Latency writes 8 bytes at a time, n times, each when the one before completed,
// and returns how long each took from posting to its completion. The first few
// warm up and do not count. After limit it stops, with what there is: at least
// one. A write that takes longer than limit is an error, of reason Timeout, as
// is any that fails; what there was before is returned with it.
func (run *Run) Latency(r *Rail, n int, limit time.Duration) ([]time.Duration, error) {
	if err := run.usable([]*Rail{r}); err != nil {
		return nil, err
	}
	if n < 1 || n > 1<<20 || limit <= 0 || r.buffer.size < 8 {
		return nil, misuse(r.spec.Device, "samples, limit or buffer out of range")
	}
	samples, taken := make([]time.Duration, n), C.uint32_t(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := failed(C.rs_latency(run.c, r.c, C.uint32_t(n), C.int64_t(limit), (*C.int64_t)(unsafe.Pointer(&samples[0])),
		&taken), r.spec.Device)
	samples = samples[:taken]
	if err != nil {
		return samples, err
	}
	return samples, nil
}

// plan is the options as C has them, with what was left out.
func (o BurstOptions) plan(size int) C.struct_rs_plan {
	least := o.MinChunk
	if least <= 0 {
		least = max(o.Chunk/16&^4095, 4096)
	}
	return C.struct_rs_plan{
		total: C.int64_t(o.Total), size: C.int64_t(size), chunk: C.int64_t(o.Chunk),
		min_chunk: C.int64_t(min(least, o.Chunk)),
		limit:     C.int64_t(o.Limit), deadline: C.int64_t(o.Deadline), depth: C.uint32_t(o.Depth),
		stealing: C.uint32_t(o.Mode),
	}
}

// Burst writes from a buffer to the same places of the peers', over all rails
// at once, and returns when all that is in flight completed or was given up.
// Rails that fail are left out, and in mode Stealing the others do their part;
// there is an error when none is left (the first rail's), after Cancel
// (Canceled), and after Deadline (Timeout). The result always says what
// completed.
func (run *Run) Burst(rails []*Rail, b *Buffer, o BurstOptions) (BurstResult, error) {
	if err := run.usable(rails); err != nil {
		return BurstResult{}, err
	}
	c := make([]*C.struct_rs_rail, len(rails))
	for i, r := range rails {
		if r.buffer != b {
			return BurstResult{}, misuse(r.spec.Device, "another buffer is registered")
		}
		if o.Depth < 1 || o.Depth > r.spec.Depth {
			o.Depth = r.spec.Depth
		}
		c[i] = r.c
	}
	if o.Total < 1 || o.Total > 1<<48 || o.Chunk < 8 || o.Chunk > 1<<
		30 || o.Deadline <= 0 || o.Mode < Static || o.Mode > Stealing {
		return BurstResult{}, misuse("", "total, chunk, deadline or mode out of range")
	}
	plan := o.plan(b.size)
	parts := make([]C.struct_rs_part, len(rails))
	done := make([]C.struct_rs_range, 2*len(rails)*(o.Depth+1))
	dones := C.uint32_t(len(done))
	runtime.LockOSThread()
	e := C.rs_burst(run.c, &c[0], C.uint32_t(len(c)), &plan, &parts[0], &done[0], &dones)
	runtime.UnlockOSThread()
	result := newResult(rails, parts, done[:dones], int64(b.size))
	device := ""
	if i := slices.IndexFunc(parts, func(p C.struct_rs_part) bool { return p.error == e }); i >= 0 {
		device = rails[i].spec.Device
	}
	if err := failed(e, device); err != nil {
		return result, err
	}
	return result, nil
}

func newResult(rails []*Rail, parts []C.struct_rs_part, done []C.struct_rs_range, size int64) BurstResult {
	var result BurstResult
	first := time.Duration(-1)
	for i, p := range parts {
		rail := RailBurst{
			Bytes: int64(p.bytes), Writes: int(p.writes), First: time.Duration(p.first), Last: time.Duration(p.last),
			Err: failed(p.error, rails[i].spec.Device),
		}
		result.Rails = append(result.Rails, rail)
		result.Bytes += rail.Bytes
		if rail.Writes > 0 && (first < 0 || rail.First < first) {
			first = rail.First
		}
		result.Elapsed = max(result.Elapsed, rail.Last)
	}
	result.Elapsed -= max(first, 0)
	ranges := make([]Range, len(done))
	for i, r := range done {
		ranges[i] = Range{int64(r.at), int64(r.length)}
	}
	result.Done = fold(ranges, size)
	return result
}
