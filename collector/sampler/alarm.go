package sampler

import (
	"context"
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
	a := &kernelAlarm{file: os.NewFile(uintptr(fd), "timerfd")}
	if a.conn, err = a.file.SyscallConn(); err != nil {
		a.Close()
		return RuntimeAlarm()
	}
	a.arm = func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, &a.spec, nil) } // cannot fail: the value is valid
	a.ready = func(uintptr) bool { a.polls++; return a.polls > 1 || a.passed(false) }
	return a
}

type kernelAlarm struct {
	file  *os.File
	conn  syscall.RawConn
	ready func(uintptr) bool
	arm   func(uintptr)
	polls int // calls of ready in one wait: the second one follows an event

	mu   sync.Mutex // protects all following fields
	spec unix.ItimerSpec
	at   time.Time
}

func (a *kernelAlarm) Set(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d = max(d, 1) // 0 would disarm it
	a.at = time.Now().Add(d)
	a.spec.Value = unix.NsecToTimespec(int64(d))
	_ = a.conn.Control(a.arm) // fails once it is closed
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

// Wait does not read the descriptor, which would cost two system calls: an event before it is lost, but then due.
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
