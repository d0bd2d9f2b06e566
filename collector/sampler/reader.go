package sampler

import (
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hangAfter is how late the shared reader is when it is replaced.
const hangAfter = 75 * time.Millisecond

// readers read all devices at their ticks. One goroutine reads all fast devices: waking one for each costs more than
// reading. A device that hangs or is slow has its own goroutine until it is fast again.
type readers struct {
	interval time.Duration
	newAlarm func() Alarm
	running  *sync.WaitGroup
	total    atomic.Int64    // devices that are read
	ctx      context.Context // of start
	watch    Alarm           // rings when shared is late

	mu     sync.Mutex // protects shared and the fields of the readers
	shared *reader    // reads all fast devices
}

// reader is one goroutine that reads devices. What a device keeps between reads belongs to it.
type reader struct {
	of      *readers
	alarm   Alarm
	reading *device // nil between reads
	devices []*device
}

// start starts the shared reader. All readers end with ctx.
func (rs *readers) start(ctx context.Context) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.ctx, rs.watch = ctx, rs.newAlarm()
	context.AfterFunc(ctx, rs.watch.Close)
	rs.shared = rs.newLocked()
	rs.running.Go(rs.guard)
}

func (rs *readers) newLocked(devices ...*device) *reader {
	r := &reader{of: rs, alarm: rs.newAlarm(), devices: devices}
	for _, d := range devices {
		d.quick = 0 // it stays alone until it proves to be fast
	}
	rs.running.Go(r.run)
	return r
}

func (rs *readers) add(d *device) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.total.Add(1)
	rs.shareLocked(d)
}

func (rs *readers) shareLocked(d *device) {
	rs.shared.devices = append(rs.shared.devices, d)
	rs.shared.alarm.Set(0)
}

// share is how long reading one device may take in the shared reader.
func (rs *readers) share() time.Duration {
	return rs.interval / time.Duration(2*max(rs.total.Load(), 1))
}

// guard replaces the shared reader whenever it hangs. The old one keeps only the device that it reads.
func (rs *readers) guard() {
	var last time.Time
	for rs.watch.Wait() {
		rs.mu.Lock()
		d := rs.shared.reading // nil, or has just begun, if only the processor was busy
		if d != nil && d.readFor() >= hangAfter/2 {
			others := slices.DeleteFunc(slices.Clone(rs.shared.devices), func(o *device) bool { return o == d })
			rs.shared.devices = []*device{d}
			if time.Since(last) < time.Second { // so that hangs do not add up
				for _, o := range others {
					rs.newLocked(o)
				}
				others = nil
			}
			rs.shared = rs.newLocked(others...)
			last = time.Now()
		}
		rs.watch.Set(hangAfter)
		rs.mu.Unlock()
	}
}

// run reads the reader's devices when they are due, until there are none or the sampler ends.
func (r *reader) run() {
	defer r.end()
	defer context.AfterFunc(r.of.ctx, r.alarm.Close)()
	for {
		devices, needed := r.schedule()
		if !needed || !r.alarm.Wait() {
			return
		}
		now := time.Now()
		for _, d := range devices {
			if d.due().After(now) || d.stopped.Load() {
				continue
			}
			if !r.read(d) {
				break // the others have another reader
			}
			now = time.Now()
		}
	}
}

// schedule closes stopped devices, moves slow ones out of the shared reader and fast ones into it, and sets the alarm.
// It returns the reader's devices, and whether the reader is still needed.
func (r *reader) schedule() (devices []*device, needed bool) {
	rs := r.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	shared, now := rs.shared == r, time.Now()
	wait := time.Hour
	r.devices = slices.DeleteFunc(r.devices, func(d *device) bool {
		switch {
		case d.stopped.Load():
			d.close()
			rs.total.Add(-1)
		case shared && d.slow(rs.share()):
			rs.newLocked(d)
		case !shared && d.quick >= remembered:
			rs.shareLocked(d)
		default:
			wait = max(0, min(wait, d.due().Sub(now)))
			return false
		}
		return true
	})
	r.alarm.Set(wait)
	if shared {
		rs.watch.Set(wait + hangAfter)
	}
	return r.devices, shared || len(r.devices) > 0
}

func (r *reader) read(d *device) (shared bool) {
	rs := r.of
	rs.mu.Lock()
	r.reading = d
	rs.mu.Unlock()
	d.read()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.reading = nil
	return rs.shared == r
}

func (r *reader) end() {
	rs := r.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, d := range r.devices {
		d.close()
	}
	r.alarm.Close()
}

// Alarm wakes one goroutine at a time that can be changed. Safe for concurrent use.
type Alarm interface {
	// Set makes Wait return in d, and no longer at the time that was set before.
	Set(d time.Duration)
	// Wait returns true at the time that is set, and false once the alarm is closed.
	Wait() bool
	Close()
}

// KernelAlarm returns an alarm on a timerfd, or a RuntimeAlarm if the process has no descriptor left. A timer of the Go
// runtime wakes a second thread each time, which costs as much as reading ten rails.
func KernelAlarm() Alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return RuntimeAlarm()
	}
	a := &kernelAlarm{file: os.NewFile(uintptr(fd), "timerfd")}
	if a.conn, err = a.file.SyscallConn(); err != nil {
		a.Close()
		return RuntimeAlarm()
	}
	return a
}

type kernelAlarm struct {
	file   *os.File
	conn   syscall.RawConn
	passed [8]byte // how often the time has passed, as last read
}

func (a *kernelAlarm) Set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would disarm it
	_ = a.conn.Control(func(fd uintptr) {                                 // fails once it is closed
		_ = unix.TimerfdSettime(int(fd), 0, &spec, nil) // cannot fail: the value is valid
	})
}

// Wait blocks in a read, also when Set has just changed a time that had passed.
func (a *kernelAlarm) Wait() bool {
	_, err := a.file.Read(a.passed[:])
	return err == nil
}

func (a *kernelAlarm) Close() { _ = a.file.Close() } // nothing was written to it

// RuntimeAlarm returns an alarm on a timer of the Go runtime, which follows the fake time of testing/synctest.
func RuntimeAlarm() Alarm {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	return &runtimeAlarm{timer: timer, open: ctx, close: cancel}
}

type runtimeAlarm struct {
	timer *time.Timer
	open  context.Context
	close func()
}

func (a *runtimeAlarm) Set(d time.Duration) { a.timer.Reset(d) }

func (a *runtimeAlarm) Wait() bool {
	select {
	case <-a.open.Done():
	case <-a.timer.C:
	}
	return a.open.Err() == nil
}

func (a *runtimeAlarm) Close() {
	a.close()
	a.timer.Stop()
}
