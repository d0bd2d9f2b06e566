package nvml

import (
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/lane"
)

// RetryInterval is the minimum time between initializations of NVML: without persistence mode one takes seconds.
const RetryInterval = time.Minute

// MaxGPUs limits the answer of nvmlDeviceGetCount.
const MaxGPUs = 128

// Session owns this process's use of NVML. It initializes the library when a [Reader] first reads, and again after the
// driver was unloaded, at most once per [RetryInterval]. A GPU has one call in flight for all readers, so that a call
// that hangs blocks one thread. Nothing is cached. Safe for concurrent use.
type Session struct {
	lib      Library
	released atomic.Int64 // end of the release: Unix time, nanoseconds
	lost     atomic.Int64 // number of the initialization for which no GPU works any more
	release  lane.Group[error]

	// Locks are channels, because a test in fake time can wait for a channel.
	front chan struct{} // held by calls that concern no GPU; protects the following fields
	// Each is held by the calls for one GPU, and in the second half by those of its recorder. opened is written
	// with all of them and front held.
	turns     [2 * MaxGPUs]chan struct{}
	recorders [MaxGPUs]recorder

	opened int64 // number of times that the library was opened
	open   bool
	err    error     // reason why it must be opened again, or could not be
	tried  time.Time // end of the last initialization; zero: initialize at once
}

// NewSession returns the session of lib, which must not be used elsewhere.
func NewSession(lib Library) *Session {
	s := &Session{lib: lib, front: make(chan struct{}, 1)}
	for i := range s.turns {
		s.turns[i] = make(chan struct{}, 1)
	}
	return s
}

// Release shuts NVML down for d, so that a GPU can be reset and the driver replaced. Meanwhile readers get
// [CodeReleased]. An error means that a call has not returned; every read tries again to shut down.
func (s *Session) Release(d time.Duration) error {
	until := time.Now().Add(d).UnixNano()
	for old := s.released.Load(); old < until && !s.released.CompareAndSwap(old, until); old = s.released.Load() {
	}
	res := s.release.Run(time.Second, []string{"release"}, func(string) error {
		s.front <- struct{}{}
		defer func() { <-s.front }()
		return s.shutDown()
	})[0]
	if res.State != lane.Done {
		return noAnswer(res.State, res.Err)
	}
	return res.Value
}

// shutDown closes the library. It and the following functions are called with front held.
func (s *Session) shutDown() error {
	if err := s.whileIdle(s.close); err != nil {
		return err
	}
	s.err, s.tried = nil, time.Time{}
	return nil
}

func (s *Session) close() {
	if s.open {
		for i := range s.recorders {
			s.recorders[i].free()
		}
		s.lib.Close()
		s.open = false
	}
}

// whileIdle calls fn while no call for a GPU is in the library.
func (s *Session) whileIdle(fn func()) error {
	timer := time.NewTimer(100 * time.Millisecond) // wait for calls that are in the library
	defer timer.Stop()
	for _, turn := range s.turns {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-timer.C:
			return &Error{Call: "NVML", Code: CodeNoAnswer,
				Err: errors.New("cannot be initialised or shut down while a call has not returned")}
		}
	}
	fn()
	return nil
}

func (s *Session) ready() error {
	if time.Now().UnixNano() < s.released.Load() {
		_ = s.shutDown() // the next read tries again
		return &Error{Call: "NVML", Code: CodeReleased}
	}
	if s.open && s.lost.Load() == s.opened {
		s.err = &Error{Call: "NVML", Code: CodeUninitialized}
	}
	if s.open && s.err == nil || !s.tried.IsZero() && time.Since(s.tried) < RetryInterval {
		return s.err
	}
	err := s.whileIdle(func() {
		s.close()
		s.err = s.lib.Open()
		s.tried = time.Now()
		s.open = s.err == nil
		if s.open {
			s.opened++
		}
	})
	if err != nil {
		return err
	}
	return s.err
}

func (s *Session) roster() (r Roster) {
	s.front <- struct{}{}
	defer func() { <-s.front }()
	if err := s.ready(); err != nil {
		return Roster{err: err}
	}
	r.opened = s.opened
	r.Count, r.err = s.lib.Count()
	if r.err == nil && r.Count == 0 {
		r.err = &Error{Call: "nvmlDeviceGetCount_v2", Code: CodeGPUNotFound}
	}
	if reopens(r.err) {
		s.err = r.err
	}
	if r.err == nil {
		r.Driver, r.DriverErr = s.lib.Driver()
	}
	return r
}

// Roster is what NVML reports apart from single GPUs.
type Roster struct {
	Count     int // GPUs, at least 1; those beyond [MaxGPUs] are not read
	Driver    string
	DriverErr error // reason why Driver is empty

	opened int64 // number of the initialization to which it belongs
	err    error // if set, all other fields are empty
}

// GPU is one GPU during a read.
type GPU struct {
	Index  int
	Driver string // empty if unknown
	Device
}

// Result is the result of reading one GPU.
type Result[T any] struct {
	Index int
	Value T     // result of the read, which may be set beside an error
	Err   error // reason why the whole GPU could not be read, an [*Error]
}

// Reader reads the GPUs for one user, each in a lane: one that hangs does not affect others. Safe for concurrent
// use.
type Reader[T any] struct {
	session *Session
	read    func(GPU) (T, error)
	front   lane.Group[Roster] // a single lane
	gpus    lane.Group[Result[T]]
}

// NewReader returns a reader that calls read for each GPU, from several goroutines. read returns nil or an
// [Unreachable] error. It may outlive the [Reader.Read] that called it, and must not share data with its caller.
func NewReader[T any](s *Session, read func(GPU) (T, error)) *Reader[T] {
	return &Reader[T]{session: s, read: read}
}

// Read reads all GPUs concurrently. It waits up to budget for NVML, and up to budget for the GPUs. The error, an
// [*Error], is the reason why there are no GPUs; it is [Absent] without GPU or driver.
func (r *Reader[T]) Read(budget time.Duration) (Roster, []Result[T], error) {
	front := r.front.Run(budget, []string{"NVML"}, func(string) Roster { return r.session.roster() })[0]
	if front.State != lane.Done {
		return Roster{}, nil, noAnswer(front.State, front.Err)
	}
	roster := front.Value
	if roster.err != nil {
		return Roster{}, nil, roster.err
	}
	results := visit(&r.gpus, roster, budget, func(index int) Result[T] { return r.visit(index, roster) })
	if !slices.ContainsFunc(results, func(res Result[T]) bool { return !reopens(res.Err) }) {
		r.session.lost.Store(roster.opened)
	}
	return roster, results, nil
}

// visit calls fn for the index of each GPU, in its lane.
func visit[T any](lanes *lane.Group[Result[T]], roster Roster, budget time.Duration,
	fn func(index int) Result[T]) []Result[T] {
	keys := make([]string, min(roster.Count, MaxGPUs))
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	results := make([]Result[T], len(keys))
	for i, res := range lanes.Run(budget, keys, func(key string) Result[T] {
		index, _ := strconv.Atoi(key) // cannot fail: it was made by Itoa
		return fn(index)
	}) {
		results[i] = res.Value
		if res.State != lane.Done {
			results[i] = Result[T]{Index: i, Err: noAnswer(res.State, res.Err)}
		}
	}
	return results
}

// current returns an error if NVML was released or reopened since the GPUs were counted. A turn is held.
func (s *Session) current(roster Roster) error {
	if s.opened != roster.opened || !s.open {
		return &Error{Call: "NVML", Code: CodeUninitialized}
	}
	return nil
}

func (r *Reader[T]) visit(index int, roster Roster) Result[T] {
	res := Result[T]{Index: index}
	turn := r.session.turns[index]
	turn <- struct{}{}
	defer func() { <-turn }()
	res.Err = r.session.current(roster)
	if res.Err != nil {
		return res
	}
	device, err := r.session.lib.GPU(index)
	res.Err = err
	if err == nil {
		res.Value, res.Err = r.read(GPU{Index: index, Driver: roster.Driver, Device: device})
	}
	return res
}

func noAnswer(state lane.State, err error) error {
	code := CodeNoAnswer
	if state == lane.Died {
		code = CodePanic
	}
	return &Error{Call: "NVML", Code: code, Err: err}
}
