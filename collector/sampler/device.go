package sampler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// patience is how long a rail that could not be read is left alone, after so many
// tries at as many ticks: one that fails for a moment costs no second of samples.
const (
	patience = time.Second
	tries    = 3
)

// longest is the longest time that one sample may cover: after that the traffic
// of the whole gap says nothing of any moment in it.
func longest(every time.Duration) time.Duration { return max(10*every, time.Second) }

// meter is what reading a device costs and how it goes. It outlives the device,
// as accounts do.
type meter struct {
	mu   sync.Mutex // protects all following fields
	cost Device
}

// Device is how sampling a device goes.
type Device struct {
	Name     string
	Interval time.Duration // between samples, longer than asked where the device is slow or its kernel caches
	Samples  uint64        // taken, of all rails
	Overruns uint64        // ticks that passed without a sample of their own
	Dropped  [Reasons]uint64
	Reading  time.Duration // spent in reads altogether
	Stuck    time.Duration // for how long the read that is going on has taken, where that is long; else 0
	Err      error         // why some rail could not be read the last time
}

// device is one RDMA device in one life of it.
type device struct {
	s       *Sampler
	id      string
	rails   []*railLife
	meter   *meter
	stop    context.CancelFunc
	stopped atomic.Bool  // what a read that was stuck meanwhile brings is not taken in
	began   atomic.Int64 // of the read that is going on, nanoseconds since the epoch of ticks; 0 when none is

	// The following belong to the goroutine of the ticks.
	pace     pace
	lastTick int64
	buf      []byte
}

// railLife is one rail of a device in one life of it.
type railLife struct {
	rail     rail.Rail
	account  *account
	counters *byteCounters // nil until found
	marks    [directions]mark
	notUntil time.Time // when it is read again after it could not be
	failed   int       // tries in a row
	since    time.Time // of the first of them
	err      error
	lost     error // why counters that had been found could not be read
	readings [directions]reading
}

// reading is what a counter said in this tick, at the middle between just before
// and just after the read.
type reading struct {
	mark
	took time.Duration
	ok   bool
}

// vague is the part of its interval that a single read may take and still tell
// of one moment. One that takes longer is left out; the next sample covers both.
const vague = 4

// ticks samples at every tick until ctx is done.
func (d *device) ticks(ctx context.Context) {
	defer d.closeFiles()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	d.lastTick = d.s.tick(time.Now())
	for {
		timer.Reset(time.Until(d.s.when(d.next(time.Now()))))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		d.sample()
	}
}

// next is the next tick at which the device is due. Devices of the same pace are
// due at the same ticks: one wake-up serves them all.
func (d *device) next(now time.Time) int64 {
	stride := int64(d.pace.stride)
	return (d.s.tick(now)/stride + 1) * stride
}

// sample reads all rails and takes in what they say. It is the hot path: it
// allocates nothing where all is well.
func (d *device) sample() {
	start := time.Now()
	d.began.Store(int64(start.Sub(d.s.epoch)) | 1) // never 0
	end := start
	for _, r := range d.rails {
		if !start.Before(r.notUntil) {
			end = d.read(r, end)
		}
	}
	d.began.Store(0)
	if d.stopped.Load() {
		return
	}
	tick := d.s.tick(start)
	var samples uint64
	var dropped [Reasons]uint64
	for _, r := range d.rails {
		d.takeIn(r, tick, &samples, &dropped)
	}
	d.account(tick, samples, &dropped, end.Sub(start))
}

// read reads one rail's counters; now is the time, and what it returns is, too.
func (d *device) read(r *railLife, now time.Time) time.Time {
	r.err = nil
	if r.counters == nil {
		if r.counters, r.err = openBytes(d.s.open, d.s.opts.Sysfs, r.rail, d.buf); r.err == nil {
			d.pace.atLeast(2 * r.counters[Receive].age) // so that no value is told twice
			now = time.Now()
		} else if r.lost != nil && errors.Is(r.err, ErrUncounted) {
			r.err = r.lost // it did count; a firmware that fails can look like a driver that does not know the counter
		}
	}
	for i := range r.readings {
		reading := &r.readings[i]
		reading.ok = false
		if r.err != nil {
			continue
		}
		var err error
		if reading.value, reading.opens, err = r.counters[i].read(d.buf); err != nil {
			r.err, r.lost = err, err
		}
		after := time.Now()
		reading.took, reading.ok = after.Sub(now), err == nil
		reading.at = now.Add(reading.took / 2)
		now = after
	}
	if r.err == nil {
		r.failed = 0
		return now
	}
	return r.fail(longest(d.pace.every()))
}

// fail takes in that the rail could not be read, and returns the time. Files that
// are still open are the same device's: the next sample covers both ticks, for as
// long as most. A file that is empty is no device that fails, somebody is writing
// to it: for that time it is tried at every tick.
func (r *railLife) fail(most time.Duration) (now time.Time) {
	now = time.Now()
	for i := range r.readings {
		r.readings[i].ok = false
	}
	if r.failed++; r.failed == 1 {
		r.since = now
	}
	if r.failed < tries || sysfs.Reason(r.err) == sysfs.ReasonEmpty && now.Sub(r.since) < most {
		return now
	}
	r.notUntil = now.Add(patience)
	for i := range r.marks {
		r.marks[i].opens = -1 // whatever comes next does not go on from here
	}
	if r.counters != nil {
		r.counters.close()
		r.counters = nil
	}
	return now
}

// takeIn makes samples of a rail's readings.
func (d *device) takeIn(r *railLife, tick int64, samples *uint64, dropped *[Reasons]uint64) {
	for i := range r.readings {
		reading := &r.readings[i]
		if !reading.ok {
			continue
		}
		reading.ok, reading.tick = false, tick
		if reading.took > d.pace.every()/vague {
			dropped[droppedSlow]++
			continue
		}
		from := r.marks[i].tick
		grew, took, what := r.marks[i].advance(reading.mark, longest(d.pace.every()))
		switch what {
		case counted:
			*samples++
			if r.account.observe(i, grew, took) {
				d.s.union.mark(i, from, tick)
			}
		case reset:
			dropped[droppedReset]++
		case gap:
			dropped[droppedGap]++
		case first:
		}
	}
}

// account notes what the tick cost, and slows down or speeds up.
func (d *device) account(tick int64, samples uint64, dropped *[Reasons]uint64, took time.Duration) {
	overruns := max((tick-d.lastTick)/int64(d.pace.stride)-1, 0)
	d.lastTick = tick
	changed := d.pace.note(took)
	var err error
	again := false
	for _, r := range d.rails {
		if err == nil {
			err = r.err
		}
		again = again || r.counters != nil && r.failed > 0
	}
	if again { // the next sample is of this tick, too
		overruns++
	}
	d.meter.mu.Lock()
	c := &d.meter.cost
	c.Samples += samples
	c.Overruns += uint64(overruns)
	for i, n := range dropped {
		c.Dropped[i] += n
	}
	c.Reading += took
	c.Interval = d.pace.every()
	c.Err = err
	d.meter.mu.Unlock()
	if changed && d.s.opts.Paced != nil {
		d.s.opts.Paced(d.rails[0].rail.Device, d.pace.every(), d.pace.usual())
	}
}

// end tells the device's goroutines to end; a stuck one does when it returns.
func (d *device) end() {
	d.stopped.Store(true)
	d.stop()
}

func (d *device) closeFiles() {
	for _, r := range d.rails {
		if r.counters != nil {
			r.counters.close()
		}
	}
}

// same reports whether the device's rails are still what they were, whatever
// they are called: a device that is stuck must not be read again because the
// configuration has another name for it.
func (d *device) same(rails []rail.Rail) bool {
	if len(rails) != len(d.rails) {
		return false
	}
	for i, r := range rails {
		was := d.rails[i].rail
		if was.Name = r.Name; was != r {
			return false
		}
	}
	return true
}
