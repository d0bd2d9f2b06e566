//go:build cgo && linux

// Package linerate runs the loop of package verbs, unmodified, over a model of adapters in virtual time: at rates that
// no test machine has. It is for tests.
package linerate

// #include "model.h"
import "C"

import (
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// Rail is a modelled adapter and its path.
type Rail struct {
	Rate            float64       // payload, bytes per second
	RTT             time.Duration // from the last byte on the wire to the completion
	Stops           time.Duration // from then on nothing completes; 0: never
	Pauses, Resumes time.Duration // nothing is carried in between
	Loses           int           // number of the write that is lost once, from 1; 0: none
	Timeout         time.Duration // of an acknowledgement
	Shared          bool          // behind the link of Model.Link
	Copies          float64       // bytes per second from a GPU, before they are written; 0: no copies
	Read            bool          // it reads, at most 16 at a time; not with Stops, Loses or Shared

	Expected float64 // what the burst is planned for; 0: Rate
}

// Model is what the loop runs on.
type Model struct {
	Rails []Rail  // at most 16
	Link  float64 // bytes per second of the link that rails share

	Stall  time.Duration // that the polling thread loses
	First  time.Duration // when it does so for the first time
	Every  time.Duration // and then again; 0: once
	Random uint64        // not 0: Every is a mean, also of the first; the seed
}

// Costs of an ideal adapter's calls.
const (
	postCost  = 120 * time.Nanosecond
	pollCost  = 15 * time.Nanosecond
	entryCost = 20 * time.Nanosecond
	clockCost = 22 * time.Nanosecond

	// Of copies from a GPU: assumed, as no GPU was measured.
	copyCost  = 3 * time.Microsecond
	queryCost = 500 * time.Nanosecond
	copyLate  = 5 * time.Microsecond
)

// Run makes one burst, and returns how long it took in virtual time. It is not safe for concurrent use: the C code has
// one clock.
func Run(m Model, b transfer.BurstArgs) (done transfer.BurstDone, elapsed time.Duration) {
	c := C.struct_lr_model{
		rails: C.uint32_t(len(m.Rails)), link_rate: C.double(m.Link / 1e9),
		post: C.int64_t(postCost), poll: C.int64_t(pollCost), entry: C.int64_t(entryCost), clock: C.int64_t(clockCost),
		copy: C.int64_t(copyCost), query: C.int64_t(queryCost), copy_late: C.int64_t(copyLate),
		stall: C.int64_t(m.Stall), first: C.int64_t(m.First), every: C.int64_t(m.Every), random: C.uint64_t(m.Random),
	}
	for i, r := range m.Rails {
		c.rail[i] = C.struct_lr_rail{
			rate: C.double(r.Rate / 1e9), rtt: C.int64_t(r.RTT), stops: C.int64_t(r.Stops),
			pauses: C.int64_t(r.Pauses), resumes: C.int64_t(r.Resumes), loses: C.int64_t(r.Loses),
			timeout: C.int64_t(r.Timeout), copies: C.double(r.Copies / 1e9),
		}
		if r.Shared {
			c.rail[i].link = 1
		}
		if r.Read {
			c.rail[i].read = 1
		}
	}
	o := C.struct_lr_burst{
		window: C.int64_t(b.Window), slow: C.int64_t(b.Slow), deadline: C.int64_t(b.Deadline), writes: C.uint32_t(b.Writes),
	}
	for i, l := range b.Loads {
		o.load[i] = C.struct_lr_load{chunk: C.int64_t(l.Chunk), cap: C.int64_t(l.Cap), rtt: C.int64_t(l.RTT),
			depth: C.uint32_t(l.Depth)}
	}
	var out C.struct_lr_result
	C.lr_run(&c, &o, &out)
	for i := range m.Rails {
		p := out.rail[i]
		rail := transfer.BurstRail{
			Bytes: int64(p.bytes), Measured: int64(p.measured), First: time.Duration(p.first), Last: time.Duration(p.last),
			Gap: time.Duration(p.gap), Disturbed: p.disturbed != 0,
		}
		if p.failed != 0 {
			rail.Failure = failure.New("", failure.Other, "status or error %d", p.failed)
		}
		done.Rails = append(done.Rails, rail)
	}
	return done, time.Duration(out.elapsed)
}
