package sampler

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The shared reader is replaced when it is hangAfter late. If that happens twice within manyHang, each device is read
// alone, so that hangs do not add up.
const (
	hangAfter = 75 * time.Millisecond
	manyHang  = time.Second
)

// readers read all devices at their ticks. One goroutine reads all fast devices: waking one for each costs more than
// reading. A device that hangs or is slow has its own goroutine until it is fast again.
type readers struct {
	interval time.Duration
	newAlarm func() Alarm
	running  *sync.WaitGroup
	total    atomic.Int64 // devices that are read
	alone    device       // marks readers of one device in reader.in

	mu      sync.Mutex // protects all following fields, and is held while devices change hands
	shared  *reader    // reads all fast devices
	watch   Alarm      // rings when shared is late
	arrived []*device  // will be read by shared
	all     []Alarm    // that are open
	closed  bool
}

// reader is one goroutine that reads devices.
type reader struct {
	of      *readers
	alarm   Alarm
	in      atomic.Pointer[device] // being read; &readers.alone if the other devices have another reader
	devices []*device              // belongs to the goroutine, except while guard replaces the reader
}

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

func (rs *readers) readAloneLocked(d *device) {
	r := &reader{of: rs, alarm: rs.alarmLocked(), devices: []*device{d}}
	r.in.Store(&rs.alone)
	rs.running.Go(r.run)
}

// close ends all readers, one that hangs when its read returns.
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
	rs.shared.alarm.Set(0)
}

// guard replaces the shared reader whenever it hangs. The old one keeps only the device that it reads.
func (rs *readers) guard() {
	var last time.Time
	for rs.watch.Wait() {
		rs.mu.Lock()
		d := rs.shared.in.Load() // nil, or has just begun, if only the processor was busy
		if d != nil && d.readFor() >= hangAfter/2 && rs.shared.in.CompareAndSwap(d, &rs.alone) {
			rs.replaceLocked(d, time.Since(last) < manyHang)
			last = time.Now()
		}
		rs.watch.Set(hangAfter)
		rs.mu.Unlock()
	}
}

// replaceLocked leaves the shared reader only the device that hangs, and starts one for the others or for each of them.
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

// run reads the reader's devices when they are due, until there are none or the sampler ends.
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
	r.of.mu.Lock() // wait until guard has changed r.devices
	defer r.of.mu.Unlock()
	return false
}

func (r *reader) isShared() bool { return r.in.Load() == nil }

// share is how long reading one device may take in the shared reader.
func (rs *readers) share() time.Duration {
	return rs.interval / time.Duration(2*max(rs.total.Load(), 1))
}

// settle closes stopped devices, moves slow ones out of the shared reader and fast ones into it. It reports whether the
// reader is still needed.
func (r *reader) settle() bool {
	shared := r.isShared()
	leaving := func(d *device) bool {
		return d.stopped.Load() || shared && d.slow(r.of.share()) || !shared && d.quick >= remembered
	}
	rs := r.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !(shared && len(rs.arrived) > 0) && !slices.ContainsFunc(r.devices, leaving) {
		return true
	}
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
			rs.shared.alarm.Set(0)
		}
	}
	if r.devices = stay; shared {
		r.devices = append(r.devices, rs.arrived...)
		rs.arrived = nil
	}
	return shared || len(stay) > 0
}

func (r *reader) sleep() time.Duration {
	next := time.Now().Add(time.Hour)
	for _, d := range r.devices {
		if due := d.due(); due.Before(next) {
			next = due
		}
	}
	return time.Until(next)
}

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
