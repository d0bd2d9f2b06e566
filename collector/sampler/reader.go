package sampler

import (
	"context"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hangAfter is the delay of the goroutine that reads the devices after which another one takes over.
const hangAfter = 75 * time.Millisecond

// guard runs one goroutine that reads all devices: waking one per device costs more than reading. If it is late,
// another goroutine takes over, and the late one ends after its read. If that one is also late soon after, it first
// reads each device in a separate goroutine, so that hangs do not add up.
func (s *Sampler) guard(ctx context.Context) {
	watch := s.opts.Alarm() // fires when the reader is late
	context.AfterFunc(ctx, watch.Close)
	var last time.Time
	for ctx.Err() == nil {
		apart := time.Since(last) < time.Second
		last = time.Now()
		current, end := context.WithCancel(ctx)
		watch.Set(hangAfter)
		s.running.Go(func() { s.readDevices(current, watch, apart) })
		watch.Wait()
		end()
	}
}

// readDevices reads the devices at each tick, and at least once a second. Slow devices (at first all, if apart is
// true) are read in separate goroutines and do not delay others.
func (s *Sampler) readDevices(ctx context.Context, watch Alarm, apart bool) {
	period := s.opts.Interval / ((s.opts.Interval + time.Second - 1) / time.Second)
	var devices []*device
	s.every(ctx, period, func() {
		s.mu.Lock()
		devices = slices.AppendSeq(devices[:0], maps.Values(s.devices))
		s.mu.Unlock()
		for _, d := range devices {
			if ctx.Err() != nil {
				return
			}
			select {
			case d.turn <- struct{}{}:
			default:
				continue // its last read has not returned
			}
			if apart || d.pace.longest() > s.opts.Interval/time.Duration(2*len(devices)) {
				s.running.Go(d.read)
			} else {
				d.read()
			}
		}
		apart = false
		watch.Set(time.Until(s.after(time.Now(), period)) + hangAfter)
	})
}

// Alarm wakes one goroutine at a time, which can be changed. Safe for concurrent use.
type Alarm interface {
	// Set makes Wait return after d. It replaces the time that was set before.
	Set(d time.Duration)
	// Wait returns true at the time that is set, and false once the alarm is closed.
	Wait() bool
	Close()
}

// KernelAlarm returns an alarm that uses a timerfd, or a RuntimeAlarm if the process has no descriptor left. A
// timer of the Go runtime wakes a second thread each time, which costs as much as reading ten rails.
func KernelAlarm() Alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return RuntimeAlarm()
	}
	a := &kernelAlarm{file: os.NewFile(uintptr(fd), "timerfd")}
	a.conn, err = a.file.SyscallConn()
	if err != nil {
		a.Close()
		return RuntimeAlarm()
	}
	return a
}

type kernelAlarm struct {
	file   *os.File
	conn   syscall.RawConn
	passed [8]byte // number of expirations; not used
}

func (a *kernelAlarm) Set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would disarm it
	_ = a.conn.Control(func(fd uintptr) {                                 // fails after Close
		_ = unix.TimerfdSettime(int(fd), 0, &spec, nil) // cannot fail: the value is valid
	})
}

// Wait blocks in a read. It keeps blocking if Set replaces a time that had just passed.
func (a *kernelAlarm) Wait() bool {
	_, err := a.file.Read(a.passed[:])
	return err == nil
}

func (a *kernelAlarm) Close() { _ = a.file.Close() } // nothing was written to it

// RuntimeAlarm returns an alarm that uses a timer of the Go runtime, which follows the fake time of
// testing/synctest.
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
