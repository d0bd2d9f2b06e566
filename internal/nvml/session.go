package nvml

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/lane"
)

// RetryInterval is the least time from the end of one initialisation of NVML to the next: without persistence mode it
// takes seconds.
const RetryInterval = time.Minute

// MaxGPUs bounds what is believed of nvmlDeviceGetCount.
const MaxGPUs = 128

// idleTimeout is how long initialisation and shutdown wait for calls that are in the library.
const idleTimeout = 100 * time.Millisecond

// releaseTimeout is how long [Session.Release] waits.
const releaseTimeout = time.Second

// Session is this process's use of NVML: it alone initialises the library and shuts it down. It initialises when a
// [Reader] first reads, and again after the driver was unloaded, at most once in [RetryInterval]. A GPU has one call in
// flight, whoever asks, so that one that hangs holds one thread. Nothing that NVML said is cached. Safe for concurrent
// use.
type Session struct {
	lib      Library
	released atomic.Int64 // until when NVML stays shut down: Unix time, nanoseconds
	lost     atomic.Int64 // the initialisation of which every GPU said that there must be another
	release  lane.Group[error]

	// Locks are channels, for a test in fake time to see them wait.
	front chan struct{}          // held by calls that are about no GPU; protects the following fields
	turns [MaxGPUs]chan struct{} // each is held by the calls about one GPU; with front, all of them to write opened

	opened int64     // how often the library was opened
	open   bool      // it is
	err    error     // why it must be opened again, or could not be
	tried  time.Time // end of the last initialisation; zero: at once
}

// NewSession returns the session over lib, which nobody else may use.
func NewSession(lib Library) *Session {
	s := &Session{lib: lib, front: make(chan struct{}, 1)}
	for i := range s.turns {
		s.turns[i] = make(chan struct{}, 1)
	}
	return s
}

// Release shuts NVML down for d from now: no device file of the driver is open, so that a GPU can be reset and the
// driver replaced. Readers get [CodeReleased] meanwhile. An error says that a call has not returned; the shutdown is
// tried again at every read.
func (s *Session) Release(d time.Duration) error {
	until := time.Now().Add(d).UnixNano()
	for old := s.released.Load(); old < until && !s.released.CompareAndSwap(old, until); old = s.released.Load() {
	}
	res := s.release.Run(releaseTimeout, []string{"release"}, func(string) error {
		s.front <- struct{}{}
		defer func() { <-s.front }()
		return s.shutDown()
	})[0]
	if res.State != lane.Done {
		return noAnswer(res.State, res.Err)
	}
	return res.Value
}

// shutDown closes the library. Like the following it is called with front held.
func (s *Session) shutDown() error {
	if s.open {
		idle, err := s.idle()
		if err != nil {
			return err
		}
		defer idle()
		s.lib.Close()
		s.open = false
	}
	s.err, s.tried = nil, time.Time{}
	return nil
}

// idle waits until no call about a GPU is in the library, and keeps others out until done is called.
func (s *Session) idle() (done func(), err error) {
	held := 0
	done = func() {
		for _, turn := range s.turns[:held] {
			<-turn
		}
	}
	timer := time.NewTimer(idleTimeout)
	defer timer.Stop()
	for _, turn := range s.turns {
		select {
		case turn <- struct{}{}:
			held++
		case <-timer.C:
			done()
			return nil, &Error{Call: "NVML", Code: CodeNoAnswer,
				Err: errors.New("cannot be initialised or shut down while a call has not returned")}
		}
	}
	return done, nil
}

// ready initialises NVML where that is needed, and returns why it cannot be used.
func (s *Session) ready() error {
	if time.Now().UnixNano() < s.released.Load() {
		_ = s.shutDown() // else it is tried again at the next read
		return &Error{Call: "NVML", Code: CodeReleased}
	}
	if s.open && s.lost.Load() == s.opened {
		s.err = &Error{Call: "NVML", Code: CodeUninitialized}
	}
	if s.open && s.err == nil || !s.tried.IsZero() && time.Since(s.tried) < RetryInterval {
		return s.err
	}
	idle, err := s.idle()
	if err != nil {
		return err
	}
	defer idle()
	if s.open {
		s.lib.Close()
	}
	s.err = s.lib.Open()
	s.tried = time.Now()
	s.open = s.err == nil
	if s.open {
		s.opened++
	}
	return s.err
}

// roster counts the GPUs.
func (s *Session) roster() roster {
	s.front <- struct{}{}
	defer func() { <-s.front }()
	err := s.ready()
	if err != nil {
		return roster{err: err}
	}
	r := roster{opened: s.opened}
	if r.Count, err = s.lib.Count(); err == nil && r.Count == 0 {
		err = &Error{Call: "nvmlDeviceGetCount_v2", Code: CodeGPUNotFound}
	}
	if err != nil {
		if reopens(err) {
			s.err = err
		}
		return roster{err: err}
	}
	r.Driver, r.DriverErr = s.lib.Driver()
	return r
}
