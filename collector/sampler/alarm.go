package sampler

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
	a := &kernelAlarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}
	a.conn, err = a.file.SyscallConn()
	if err != nil {
		_ = a.file.Close() // nothing was written to it
		return RuntimeAlarm()
	}
	a.ready = func(uintptr) bool { a.polls++; return a.polls > 1 || a.passed(false) }
	return a
}

type kernelAlarm struct {
	file  *os.File
	conn  syscall.RawConn
	ready func(uintptr) bool
	polls int // calls of ready in one wait: the second one follows an event

	mu   sync.Mutex // protects all following fields
	fd   int        // -1 once closed
	spec unix.ItimerSpec
	at   time.Time
}

// Set implements Alarm.
func (a *kernelAlarm) Set(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 {
		return
	}
	d = max(d, 1) // 0 would disarm it
	a.at = time.Now().Add(d)
	a.spec.Value = unix.NsecToTimespec(int64(d))
	_ = unix.TimerfdSettime(a.fd, 0, &a.spec, nil) // it cannot fail: the descriptor and the value are valid
}

// passed reports whether the time has come, and clears it on request.
func (a *kernelAlarm) passed(clear bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	passed := !a.at.IsZero() && !time.Now().Before(a.at)
	if passed && clear {
		a.at = time.Time{}
	}
	return passed
}

// Wait implements Alarm. Reading the descriptor would cost two system calls. Without it an event before the wait is lost,
// but then the time has passed.
func (a *kernelAlarm) Wait() bool {
	for {
		a.polls = 0
		if a.conn.Read(a.ready) != nil {
			return false
		}
		if a.passed(true) { // else the event is of a time that Set has changed
			return true
		}
	}
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
