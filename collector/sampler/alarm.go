package sampler

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Alarm wakes one goroutine at a time that can be changed. Safe for concurrent use.
type Alarm interface {
	// Set makes Wait return once d has passed, and not when it was set before.
	Set(d time.Duration)
	// Wait returns true when the time has come, false once the alarm is closed.
	Wait() bool
	Close()
}

// KernelAlarm returns an alarm on a timerfd, or a RuntimeAlarm where the process has no descriptor left. A timer of
// the Go runtime wakes a second thread each time, which costs as much as reading ten rails.
func KernelAlarm() Alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return RuntimeAlarm()
	}
	return &kernelAlarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}
}

type kernelAlarm struct {
	file *os.File
	read [8]byte // what a timerfd returns: how often it has expired

	mu   sync.Mutex // protects all following fields
	fd   int        // -1 once closed
	spec unix.ItimerSpec
}

// Set implements Alarm.
func (a *kernelAlarm) Set(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 {
		return
	}
	a.spec.Value = unix.NsecToTimespec(int64(max(d, 1))) // 0 would disarm it
	_ = unix.TimerfdSettime(a.fd, 0, &a.spec, nil)       // it cannot fail: the descriptor and the value are valid
}

// Wait implements Alarm.
func (a *kernelAlarm) Wait() bool {
	_, err := a.file.Read(a.read[:])
	return err == nil
}

// Close implements Alarm.
func (a *kernelAlarm) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd >= 0 {
		a.fd = -1
		_ = a.file.Close() // nothing was written to it
	}
}

// RuntimeAlarm returns an alarm on a timer of the Go runtime, which follows the fake time of testing/synctest.
func RuntimeAlarm() Alarm {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &runtimeAlarm{timer: timer, closed: make(chan struct{})}
}

type runtimeAlarm struct {
	timer  *time.Timer
	closed chan struct{}
	once   sync.Once
}

// Set implements Alarm.
func (a *runtimeAlarm) Set(d time.Duration) { a.timer.Reset(d) }

// Wait implements Alarm.
func (a *runtimeAlarm) Wait() bool {
	select {
	case <-a.closed:
		return false
	case <-a.timer.C:
	}
	select {
	case <-a.closed: // both at once
		return false
	default:
		return true
	}
}

// Close implements Alarm.
func (a *runtimeAlarm) Close() {
	a.once.Do(func() { close(a.closed) })
	a.timer.Stop()
}
