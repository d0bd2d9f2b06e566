package sampler

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// patience is how long a rail that could not be read is left alone, after so many tries at as many ticks: one that
// fails for a moment costs no second of samples.
const (
	patience = time.Second
	tries    = 3
)

// stateEvery is the time between two reads of the ports' state, and limitsEvery how many of these are between two of
// what a rail could carry, while the state stays the same: on mlx5 the rate costs firmware commands.
const (
	stateEvery  = time.Second
	limitsEvery = 10
)

// imprecise is the part of its interval that a single read may take and still belong to one moment. One that takes
// longer is dropped; the next sample covers both.
const imprecise = 4

// longest is the longest time that one sample may cover: after that the traffic of the whole gap says nothing of any
// moment in it.
func longest(every time.Duration) time.Duration { return max(10*every, time.Second) }

// meter is what reading a device costs. It outlives the device, as accounts do.
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

// device is one RDMA device, until it is removed.
type device struct {
	s       *Sampler
	ports   []*port
	meter   *meter
	stopped atomic.Bool  // what a read that was stuck meanwhile brings is dropped
	began   atomic.Int64 // of the read that is going on, nanoseconds since the epoch of ticks; 0 when none is

	// The following belong to the reader.
	pace      pace
	lastTick  int64
	nextTick  int64
	nextState time.Time
	took      time.Duration // by the last sample
	quick     int           // samples in a row that took no more than readers.share
}

// port is one rail of a device, until the device is removed.
type port struct {
	rail     rail.Rail
	account  *account
	files    *rail.Port
	found    bool // what counts its bytes
	marks    [directions]mark
	readings [directions]reading
	notUntil time.Time // when it is read again after it could not be
	failed   int       // tries in a row
	since    time.Time // of the first of them
	err      error

	state       int // -1 unknown
	limits      rail.Limits
	untilLimits int
}

// reading is what a counter held in this tick, at the middle between just before and just after the read.
type reading struct {
	mark
	took time.Duration
	ok   bool
}

// begin notes that a read begins.
func (d *device) begin() { d.began.Store(int64(time.Since(d.s.epoch)) | 1) } // never 0

// readFor is how long the read that is going on has taken.
func (d *device) readFor() time.Duration {
	began := d.began.Load()
	if began == 0 {
		return 0
	}
	return time.Since(d.s.epoch) - time.Duration(began)
}

// due is when the device is read next.
func (d *device) due() time.Time {
	if tick := d.s.when(d.nextTick); tick.Before(d.nextState) {
		return tick
	}
	return d.nextState
}

// slow reports whether reading the device usually takes longer than limit.
func (d *device) slow(limit time.Duration) bool { return d.took > limit && d.pace.usual() > limit }

// read reads what is due: the counters, the ports' state, or both.
func (d *device) read() {
	start := time.Now()
	if tick := d.s.tick(start); tick >= d.nextTick {
		d.sample(start)
	}
	if !d.nextState.After(start) {
		for _, p := range d.ports {
			p.updateLimits(&d.stopped)
		}
		d.nextState = d.s.after(start, stateEvery)
	}
	d.began.Store(0)
}

// sample reads the counters of all ports and makes samples of them. It is the hot path: it allocates nothing where all
// is well.
func (d *device) sample(start time.Time) {
	end := start
	for _, p := range d.ports {
		if !start.Before(p.notUntil) {
			end = d.readPort(p, end)
		}
	}
	if d.stopped.Load() {
		return
	}
	tick := d.s.tick(start)
	var samples uint64
	var dropped [Reasons]uint64
	for _, p := range d.ports {
		d.countSamples(p, tick, &samples, &dropped)
	}
	d.record(tick, samples, &dropped, end.Sub(start))
	stride := int64(d.pace.stride) // devices of the same pace are due at the same ticks
	d.nextTick = (d.s.tick(time.Now())/stride + 1) * stride
}

// readPort reads one port's counters; now is the time, and what it returns is, too.
func (d *device) readPort(p *port, now time.Time) time.Time {
	p.err = nil
	if !p.found {
		if p.err = p.files.FindBytes(); p.err == nil {
			p.found = true
			d.pace.atLeast(2 * p.files.BytesAge()) // so that no value is read twice
			now = time.Now()
		}
	}
	for i := range p.readings {
		reading := &p.readings[i]
		reading.ok = false
		if p.err != nil {
			continue
		}
		reading.value, reading.opens, p.err = p.files.Bytes(i)
		after := time.Now()
		reading.took, reading.ok = after.Sub(now), p.err == nil
		reading.at = now.Add(reading.took / 2)
		now = after
	}
	if p.err == nil {
		p.failed = 0
		return now
	}
	return p.fail(longest(d.pace.every()))
}

// fail records that the port could not be read, and returns the time. Files that are still open are the same device's:
// the next sample covers both ticks, for as long as most. A file that is empty is no device that fails, somebody is
// writing to it: for that time it is tried at every tick.
func (p *port) fail(most time.Duration) (now time.Time) {
	now = time.Now()
	for i := range p.readings {
		p.readings[i].ok = false
	}
	if p.failed++; p.failed == 1 {
		p.since = now
	}
	if p.failed < tries || sysfs.Reason(p.err) == sysfs.ReasonEmpty && now.Sub(p.since) < most {
		return now
	}
	p.notUntil = now.Add(patience)
	for i := range p.marks {
		p.marks[i].opens = -1 // whatever comes next does not go on from here
	}
	p.files.ForgetBytes()
	p.found = false
	return now
}

// countSamples makes samples of a port's readings.
func (d *device) countSamples(p *port, tick int64, samples *uint64, dropped *[Reasons]uint64) {
	for i := range p.readings {
		reading := &p.readings[i]
		if !reading.ok {
			continue
		}
		reading.ok, reading.tick = false, tick
		if reading.took > d.pace.every()/imprecise {
			dropped[droppedSlow]++
			continue
		}
		from := p.marks[i].tick
		grew, took, what := p.marks[i].advance(reading.mark, longest(d.pace.every()))
		switch what {
		case counted:
			*samples++
			if p.account.observe(i, grew, took) {
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

// record notes what the tick cost, and changes the pace.
func (d *device) record(tick int64, samples uint64, dropped *[Reasons]uint64, took time.Duration) {
	overruns := max((tick-d.lastTick)/int64(d.pace.stride)-1, 0)
	d.lastTick = tick
	if d.took = took; took > d.s.readers.share() {
		d.quick = 0
	} else {
		d.quick++
	}
	changed := d.pace.note(took)
	var err error
	again := false
	for _, p := range d.ports {
		if err == nil {
			err = p.err
		}
		again = again || p.found && p.failed > 0
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
		d.s.opts.Paced(d.meter.cost.Name, d.pace.every(), d.pace.usual())
	}
}

// updateLimits reads the port's state, and what the rail could carry when the state has changed and now and then. What
// cannot be read is not known; the rdma source reports why.
func (p *port) updateLimits(stopped *atomic.Bool) {
	switch state, err := p.files.State(); {
	case err != nil:
		p.state, p.limits = -1, rail.Limits{}
	case state == p.state && p.untilLimits > 0:
		p.untilLimits--
	default:
		p.state, p.limits, p.untilLimits = state, p.files.LimitsIn(state), limitsEvery-1
		if p.limits.Active && p.limits.Rate == 0 {
			p.untilLimits = 0 // a port that has just come up
		}
	}
	if stopped.Load() {
		return // another device has the account now
	}
	p.account.mu.Lock()
	p.account.limits = p.limits
	p.account.mu.Unlock()
}

// close closes the device's files.
func (d *device) close() {
	for _, p := range d.ports {
		p.files.Close()
	}
}

// same reports whether the device's rails are still what they were, whatever they are called: a device that is stuck
// must not be read again because the configuration has another name for it.
func (d *device) same(rails []rail.Rail) bool {
	if len(rails) != len(d.ports) {
		return false
	}
	for i, r := range rails {
		was := d.ports[i].rail
		if was.Name = r.Name; was != r {
			return false
		}
	}
	return true
}
