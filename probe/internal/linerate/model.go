//go:build cgo && linux

// Package linerate runs the loop of package verbs, unmodified, on a model of adapters in virtual time, at rates that no
// test machine has. It is for tests.
package linerate

// #include "model.h"
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// Rail is a modelled adapter with its path.
type Rail struct {
	Rate       float64       // payload, bytes per second
	RTT        time.Duration // time from the last byte on the wire to the completion
	RTTJitter  time.Duration // maximum random addition to RTT
	QueuePairs int           // queue pairs, which the adapter serves in turn; 0 means 1
	Quantum    int           // bytes per turn of a queue pair; 0 for a whole write
	Group      int           // completions that are reported together; up to 1 for each
	Hold       time.Duration // maximum delay of a completion by Group
	Stops      time.Duration // time after which nothing completes; 0 for never
	Loses      int           // number of the write that is lost once, from 1; 0 for none
	LosesEvery int           // every multiple of this number is lost once, too
	Silent     bool          // the peer does not report a loss, so a timeout occurs
	Timeout    time.Duration // timeout for an acknowledgement
	Shared     bool          // uses the link of Model.Link
	Copies     float64       // bytes per second of copies from a GPU before the writes; 0 for no copies
	Read       bool          // reads, at most 16 at a time; not with Stops, Loses or Shared
	Weather

	Expected float64 // rate for which the burst is planned; 0 for Rate
}

// Weather describes how a rate varies.
type Weather struct {
	Pauses, Resumes   time.Duration // start and end of a pause
	Pause, PauseEvery time.Duration // length and period of pauses at random times
	// Until Ramp, the rate rises from the share From.
	Ramp          time.Duration
	RampFrom      float64
	Cut, CutEvery time.Duration // duration and period of cuts to 1/2 of the rate
	// In each period JitterEvery, the rate is lower by a random share of up to Jitter.
	JitterEvery time.Duration
	Jitter      float64
	Seed        uint64
}

// Truth is the actual performance of a rail in the measured window, in bytes per second.
type Truth struct {
	Could   float64 // rate with unlimited queues
	Carried float64
}

// Model is the hardware that the loop runs on.
type Model struct {
	Rails []Rail  // at most 16
	Link  float64 // bytes per second of the link that Shared rails use

	Stall  time.Duration // duration of a stall of the polling thread
	First  time.Duration // time of the first stall
	Every  time.Duration // period of stalls; 0 for one stall
	Random uint64        // seed of random stalls with the mean period Every, also for the first; 0 for regular ones
}

// Costs of calls to an ideal adapter.
const (
	postCost  = 120 * time.Nanosecond
	pollCost  = 15 * time.Nanosecond
	entryCost = 20 * time.Nanosecond
	clockCost = 22 * time.Nanosecond

	// The cost of a copy from a GPU is an assumption: no GPU was measured.
	copyCost  = 3 * time.Microsecond
	queryCost = 500 * time.Nanosecond
	copyLate  = 5 * time.Microsecond
)

// c returns the model for C.
func (m Model) c() C.struct_lr_model {
	c := C.struct_lr_model{
		rails: C.uint32_t(len(m.Rails)), link_rate: C.double(m.Link / 1e9),
		post: C.int64_t(postCost), poll: C.int64_t(pollCost), entry: C.int64_t(entryCost), clock: C.int64_t(clockCost),
		copy: C.int64_t(copyCost), query: C.int64_t(queryCost), copy_late: C.int64_t(copyLate),
		stall: C.int64_t(m.Stall), first: C.int64_t(m.First), every: C.int64_t(m.Every), random: C.uint64_t(m.Random),
	}
	for i, r := range m.Rails {
		c.rail[i] = C.struct_lr_rail{
			rate: C.double(r.Rate / 1e9), rtt: C.int64_t(r.RTT), rtt_jitter: C.int64_t(r.RTTJitter),
			qps: C.uint32_t(max(r.QueuePairs, 1)), quantum: C.int64_t(r.Quantum), group: C.uint32_t(r.Group),
			hold: C.int64_t(r.Hold), stops: C.int64_t(r.Stops), loses: C.int64_t(r.Loses),
			loses_every: C.int64_t(r.LosesEvery), timeout: C.int64_t(r.Timeout), copies: C.double(r.Copies / 1e9),
			seed: C.uint64_t(r.Seed), pauses: C.int64_t(r.Pauses), resumes: C.int64_t(r.Resumes),
			pause: C.int64_t(r.Pause), pause_every: C.int64_t(r.PauseEvery), ramp: C.int64_t(r.Ramp),
			ramp_from: C.double(r.RampFrom), cut: C.int64_t(r.Cut), cut_every: C.int64_t(r.CutEvery),
			jitter_every: C.int64_t(r.JitterEvery), jitter: C.double(r.Jitter),
		}
		if r.Silent {
			c.rail[i].silent = 1
		}
		if r.Shared {
			c.rail[i].link = 1
		}
		if r.Read {
			c.rail[i].read = 1
		}
	}
	return c
}

// Latency returns the times of n writes of 8 B over the first rail, one after another, or of one write at each of the
// times after the first ones.
func Latency(m Model, n int, at []time.Duration) ([]time.Duration, error) {
	c := m.c()
	samples, taken := make([]time.Duration, max(n, len(at))), C.uint32_t(0)
	var times *C.int64_t
	if len(at) > 0 {
		times = (*C.int64_t)(unsafe.Pointer(&at[0]))
	}
	code := C.lr_latency(&c, times, C.uint32_t(len(samples)), C.int64_t(time.Hour),
		(*C.int64_t)(unsafe.Pointer(&samples[0])), &taken)
	if code != 0 {
		return nil, fmt.Errorf("status or error %d", code)
	}
	return samples[:taken], nil
}

// Run makes one burst, and returns its duration in virtual time. It is not safe for concurrent use, because the C code
// has one clock.
func Run(m Model, b transfer.BurstArgs) (done transfer.BurstDone, truth []Truth, elapsed time.Duration) {
	c := m.c()
	o := C.struct_lr_burst{
		window: C.int64_t(b.Window), slow: C.int64_t(b.Slow), deadline: C.int64_t(b.Deadline),
		writes: C.uint32_t(b.Writes),
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
			Bytes: int64(p.bytes), Measured: int64(p.measured), First: time.Duration(p.first),
			Last: time.Duration(p.last),
			Gap:  time.Duration(p.gap), Disturbed: p.disturbed != 0, Ramping: p.ramping != 0,
			Early: float64(p.early) * 1e9, Late: float64(p.late) * 1e9,
		}
		if seconds := (rail.Last - rail.First).Seconds(); seconds > 0 {
			truth = append(truth, Truth{float64(p.could) / seconds, float64(p.carried) / seconds})
		} else {
			truth = append(truth, Truth{})
		}
		if p.failed != 0 {
			rail.Failure = failure.New("", failure.Other, "status or error %d", p.failed)
		}
		done.Rails = append(done.Rails, rail)
	}
	return done, truth, time.Duration(out.elapsed)
}
