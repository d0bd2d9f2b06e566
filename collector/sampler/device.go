package sampler

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// longest returns the longest time that one sample may cover: the mean of a longer time hides bursts.
func longest(every time.Duration) time.Duration { return max(10*every, time.Second) }

// Device holds statistics about sampling a device.
type Device struct {
	Name     string
	Interval time.Duration // time between samples; longer than configured if the device is slow or the kernel caches
	Samples  uint64        // samples of all rails
	Overruns uint64        // ticks without a sample
	Reading  time.Duration // total time of reads
	Stuck    time.Duration // age of the current read if it is stuck, else 0
	Err      error         // error of the last read of a rail
}

type device struct {
	s     *Sampler
	ports []*port
	cost  *Device      // protected by the sampler's mutex
	began atomic.Int64 // start of the current read, in nanoseconds since the epoch of ticks; 0 if there is none

	turn chan struct{} // held by the goroutine that reads or closes it; protects all following fields
	// Locks of reads are channels, because a test in fake time can wait for a channel.
	pace      pace
	lastTick  int64
	nextTick  int64
	nextState time.Time
}

type port struct {
	rail     rail.Rail
	account  *account
	files    *rail.Port
	counters [directions]counter
	readings [directions]reading
	notUntil time.Time // time of the next read after failures
	failed   int       // consecutive failures
	since    time.Time // time of the first of them
	err      error

	state       int // -1 if unknown
	untilLimits int // reads of the state until the limits are read again
}

// reading is the value of a counter in this tick, at the middle of the read.
type reading struct {
	mark
	took time.Duration
	ok   bool
}

func (d *device) readFor() time.Duration {
	began := d.began.Load()
	if began == 0 {
		return 0
	}
	return time.Since(d.s.epoch) - time.Duration(began)
}

// read reads the counters that are due, and then releases the device's turn.
func (d *device) read() {
	defer func() { <-d.turn }()
	start := time.Now()
	d.began.Store(int64(start.Sub(d.s.epoch)) | 1) // set the lowest bit: 0 means that there is no read
	if d.s.tick(start) >= d.nextTick {
		d.sample(start)
	}
	if !d.nextState.After(start) {
		for _, p := range d.ports {
			d.updateLimits(p)
		}
		d.nextState = d.s.after(start, time.Second)
	}
	d.began.Store(0)
}

// sample reads the counters of all ports and makes samples. It is the hot path and does not allocate.
func (d *device) sample(start time.Time) {
	end := start
	for _, p := range d.ports {
		if !start.Before(p.notUntil) {
			end = d.readPort(p, end)
		}
	}
	d.record(d.s.tick(start), start, end.Sub(start))
	stride := int64(d.pace.stride) // devices with the same pace are due at the same ticks
	d.nextTick = (d.s.tick(time.Now())/stride + 1) * stride
}

// readPort reads one port's counters. now is the time before, and the result is the time after the reads.
func (d *device) readPort(p *port, now time.Time) time.Time {
	p.err = p.files.FindBytes()
	if p.err == nil {
		d.pace.atLeast(2 * p.files.BytesAge()) // read no cached value twice
		now = time.Now()
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

// fail records that the port could not be read, and returns the time. Open files still belong to the same device:
// the next sample covers both ticks, up to most. An empty file is being written: it is retried at every tick for
// that time.
func (p *port) fail(most time.Duration) (now time.Time) {
	now = time.Now()
	for i := range p.readings {
		p.readings[i].ok = false
	}
	p.failed++
	if p.failed == 1 {
		p.since = now
	}
	if p.failed < 3 || sysfs.Reason(p.err) == sysfs.ReasonEmpty && now.Sub(p.since) < most {
		return now
	}
	p.notUntil = now.Add(time.Second)
	for i := range p.counters {
		p.counters[i].start.opens = -1 // the next reading cannot be compared with this one
	}
	p.files.ForgetBytes()
	return now
}

// record makes samples from the readings, adds the cost of the tick, and adjusts the pace.
func (d *device) record(tick int64, start time.Time, took time.Duration) {
	overruns := max((tick-d.lastTick)/int64(d.pace.stride)-1, 0)
	d.lastTick = tick
	d.s.mu.Lock()
	if d.goneLocked() {
		d.s.mu.Unlock()
		return
	}
	c := d.cost
	c.Err = nil
	failing := false
	for _, p := range d.ports {
		d.addSamplesLocked(p, tick)
		if c.Err == nil {
			c.Err = p.err
		}
		failing = failing || p.failed > 0 && !p.notUntil.After(start)
	}
	if failing { // the next sample covers this tick, too
		overruns++
	}
	changed := d.pace.note(took)
	c.Overruns += uint64(overruns)
	c.Reading += took
	c.Interval = d.pace.every()
	d.s.mu.Unlock()
	if changed && d.s.opts.Paced != nil {
		d.s.opts.Paced(c.Name, d.pace.every(), d.pace.usual())
	}
}

func (d *device) addSamplesLocked(p *port, tick int64) {
	every, known := d.pace.every(), p.files.BytesPeriod()
	for i := range p.readings {
		reading, c := &p.readings[i], &p.counters[i]
		if !reading.ok {
			continue
		}
		reading.ok, reading.tick = false, tick
		if reading.took > every/4 { // the time of the reading is uncertain: the next sample covers both
			d.s.dropped[droppedSlow]++
			continue
		}
		switch sample, what := c.add(reading.mark, known, every, d.s.opts.Interval); what {
		case counted:
			d.cost.Samples++
			busy, stalled := p.account.observe(i, sample)
			if busy {
				d.s.union.mark(i, sample.from, sample.to)
			}
			if stalled {
				c.pace.Stalled(sample.still)
			}
		case droppedReset, droppedGap:
			d.s.dropped[what]++
		}
	}
	p.account.window = max(p.counters[Receive].window, p.counters[Transmit].window)
}

// updateLimits reads the state, and also the rail's limits after a change of the state and every 10 s. Values that
// cannot be read are unknown.
func (d *device) updateLimits(p *port) {
	var limits rail.Limits
	switch state, err := p.files.State(); {
	case err != nil:
		p.state = -1
	case state == p.state && p.untilLimits > 0:
		p.untilLimits--
		return
	default:
		limits = p.files.LimitsIn(state)
		// On mlx5, reading the rate costs firmware commands.
		p.state, p.untilLimits = state, 9
		if limits.Active && limits.Rate == 0 {
			p.untilLimits = 0 // it came up just now
		}
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if !d.goneLocked() {
		p.account.limits = limits
	}
}

// goneLocked reports whether the accounts belong to another device now: the result of a read that was stuck is
// dropped.
func (d *device) goneLocked() bool { return d.s.devices[d.ports[0].rail.ID] != d }

// close closes the files once no read is running, and keeps the turn, so that no later read starts.
func (d *device) close() {
	d.turn <- struct{}{}
	for _, p := range d.ports {
		p.files.Close()
	}
}

// same compares rails without names and roles: a device that hangs must not be read again because the configuration
// changed them, or a GPU disappeared.
func (d *device) same(rails []rail.Rail) bool {
	return slices.EqualFunc(rails, d.ports, func(r rail.Rail, p *port) bool {
		r.Name, r.Role, r.GPU, r.GPUDistance = p.rail.Name, p.rail.Role, p.rail.GPU, p.rail.GPUDistance
		return r == p.rail
	})
}

// Limits of --sample.interval. A slow device is read at least every MaxInterval.
const (
	MinInterval     = 10 * time.Millisecond
	DefaultInterval = 100 * time.Millisecond
	MaxInterval     = 10 * time.Second
)

// share limits the time for reading a device to 1/10 of its interval.
const share = 10

// remembered is the number of reads for the median: one read that waited for the processor changes nothing, five of
// nine do.
const remembered = 9

// pace is the interval at which a device is read: every stride-th tick, so that reading takes less than 1/10 of the
// time.
type pace struct {
	interval time.Duration // time between ticks
	stride   int
	least    int                       // minimum stride
	took     [remembered]time.Duration // durations of the last reads
	at       int                       // index of the oldest
}

func newPace(interval time.Duration) pace { return pace{interval: interval, stride: 1, least: 1} }

func (p *pace) every() time.Duration { return p.interval * time.Duration(p.stride) }

func (p *pace) atLeast(every time.Duration) {
	p.least = max(p.least, min(p.most(), int((every+p.interval-1)/p.interval)))
	p.stride = max(p.stride, p.least)
}

func (p *pace) most() int { return max(1, int(MaxInterval/p.interval)) }

// note records the duration of a read, and reports whether the pace changed.
func (p *pace) note(took time.Duration) (changed bool) {
	p.took[p.at] = took
	p.at = (p.at + 1) % remembered
	usual, was := p.usual(), p.stride
	if want := p.needed(usual); want > p.stride {
		p.stride = want
	} else if want := p.needed(usual * 3 / 2); want < p.stride { // hysteresis, because each change is logged
		p.stride = want
	}
	return p.stride != was
}

// needed returns the lowest stride at which a read of that duration takes at most 1/10 of the time.
func (p *pace) needed(took time.Duration) int {
	return min(p.most(), max(p.least, int((took*share+p.interval-1)/p.interval)))
}

// longest returns the longest duration of the last reads.
func (p *pace) longest() time.Duration { return slices.Max(p.took[:]) }

func (p *pace) usual() time.Duration {
	sorted := p.took
	slices.Sort(sorted[:])
	return max(sorted[remembered/2], 1)
}
