package sampler

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hangAfter is how late the shared reader may be before it is replaced, and manyHang the time in which a second hang
// means that all devices may: then each is read alone, so that hangs do not add up.
const (
	hangAfter = 75 * time.Millisecond
	manyHang  = time.Second
)

// readers read all devices at their ticks. One goroutine reads all that are quick: waking one for each device costs
// more than reading. A device whose read hangs, or is slow, keeps a goroutine of its own until it is quick again.
type readers struct {
	interval time.Duration
	newAlarm func() Alarm
	running  *sync.WaitGroup
	total    atomic.Int64 // devices that are read
	arriving atomic.Bool  // arrived is not empty
	alone    device       // its address stands in reader.in of readers of one device

	mu      sync.Mutex // protects all following fields, and is held while devices change hands
	shared  *reader    // reads all quick devices
	watch   Alarm      // rings when shared is late
	arrived []*device  // that shared has yet to take on
	all     []Alarm    // that are open
	closed  bool
}

// reader is one goroutine that reads devices.
type reader struct {
	of      *readers
	alarm   Alarm
	in      atomic.Pointer[device] // that is being read; &readers.alone where the others have another reader
	devices []*device              // belongs to the goroutine, but for the moment in which guard sets in
}

// start begins to read, and to watch the shared reader.
func (rs *readers) start() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.watch = rs.alarmLocked()
	rs.shared = &reader{of: rs, alarm: rs.alarmLocked()}
	rs.running.Go(rs.shared.run)
	rs.running.Go(rs.guard)
}

func (rs *readers) alarmLocked() Alarm {
	a := rs.newAlarm()
	rs.all = append(rs.all, a)
	if rs.closed {
		a.Close()
	}
	return a
}

// readAloneLocked gives a device a reader of its own.
func (rs *readers) readAloneLocked(d *device) {
	r := &reader{of: rs, alarm: rs.alarmLocked(), devices: []*device{d}}
	r.in.Store(&rs.alone)
	rs.running.Go(r.run)
}

// close ends all readers. One that is stuck in a read ends when it returns.
func (rs *readers) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	for _, a := range rs.all {
		a.Close()
	}
}

// add hands devices to the shared reader.
func (rs *readers) add(devices ...*device) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.total.Add(int64(len(devices)))
	rs.arrived = append(rs.arrived, devices...)
	rs.arriving.Store(true)
	rs.shared.alarm.Set(0)
}

// guard replaces the shared reader whenever it is stuck in a read: the stuck one keeps that device alone.
func (rs *readers) guard() {
	var last time.Time
	for rs.watch.Wait() {
		rs.mu.Lock()
		d := rs.shared.in.Load() // nil, or just begun, where only the processor was busy
		if d != nil && d.readFor() >= hangAfter/2 && rs.shared.in.CompareAndSwap(d, &rs.alone) {
			rs.replaceLocked(d, time.Since(last) < manyHang)
			last = time.Now()
		}
		rs.watch.Set(hangAfter)
		rs.mu.Unlock()
	}
}

// replaceLocked leaves the shared reader alone with the device in which it is stuck, and starts another for the
// others, or, where all may hang, one for each.
func (rs *readers) replaceLocked(d *device, each bool) {
	others := slices.DeleteFunc(slices.Clone(rs.shared.devices), func(o *device) bool { return o == d })
	rs.shared.devices = []*device{d}
	if each {
		for _, o := range others {
			rs.readAloneLocked(o)
		}
		others = nil
	}
	rs.shared = &reader{of: rs, alarm: rs.alarmLocked(), devices: others}
	rs.running.Go(rs.shared.run)
}

// run reads the reader's devices whenever they are due, until there are none or the sampler ends.
func (r *reader) run() {
	defer r.end()
	for {
		now := time.Now()
		for _, d := range r.devices {
			if d.due().After(now) || d.stopped.Load() {
				continue
			}
			if !r.read(d) {
				break // the others have another reader
			}
			now = time.Now()
		}
		if !r.settle() {
			return
		}
		wait := r.sleep()
		r.alarm.Set(wait)
		if r.isShared() {
			r.of.watch.Set(wait + hangAfter)
		}
		if !r.alarm.Wait() {
			return
		}
	}
}

// read reads one device, and reports whether the reader still has the others.
func (r *reader) read(d *device) bool {
	d.begin()
	if !r.in.CompareAndSwap(nil, d) { // it has one device alone
		d.read()
		return true
	}
	d.read()
	if r.in.CompareAndSwap(d, nil) {
		return true
	}
	r.of.mu.Lock() // until guard is done with r.devices
	defer r.of.mu.Unlock()
	return false
}

func (r *reader) isShared() bool { return r.in.Load() == nil }

// share is the part of each interval that reading one device may take in the shared reader.
func (rs *readers) share() time.Duration {
	return rs.interval / time.Duration(2*max(rs.total.Load(), 1))
}

// settle changes which devices the reader has: those that were stopped end, slow ones leave the shared reader and quick
// ones return to it. It reports whether the reader is still needed.
func (r *reader) settle() bool {
	shared := r.isShared()
	leaving := func(d *device) bool {
		return d.stopped.Load() || shared && d.slow(r.of.share()) || !shared && d.quick >= remembered
	}
	if !(shared && r.of.arriving.Load()) && !slices.ContainsFunc(r.devices, leaving) {
		return true
	}
	rs := r.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var stay []*device
	for _, d := range r.devices {
		switch {
		case d.stopped.Load():
			d.close()
			rs.total.Add(-1)
		case !leaving(d):
			stay = append(stay, d)
		case shared:
			rs.readAloneLocked(d)
		default:
			d.quick = 0
			rs.arrived = append(rs.arrived, d)
			rs.arriving.Store(true)
			rs.shared.alarm.Set(0)
		}
	}
	if r.devices = stay; shared {
		r.devices = append(r.devices, rs.arrived...)
		rs.arrived = nil
		rs.arriving.Store(false)
	}
	return shared || len(stay) > 0
}

// sleep is how long nothing is due.
func (r *reader) sleep() time.Duration {
	next := time.Now().Add(time.Hour)
	for _, d := range r.devices {
		if due := d.due(); due.Before(next) {
			next = due
		}
	}
	return time.Until(next)
}

// end closes what the reader has.
func (r *reader) end() {
	rs := r.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, d := range r.devices {
		d.close()
	}
	r.alarm.Close()
	rs.all = slices.DeleteFunc(rs.all, func(a Alarm) bool { return a == r.alarm })
}
