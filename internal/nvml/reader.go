package nvml

import (
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/lane"
)

// Roster is what NVML reports beside single GPUs.
type Roster struct {
	Count     int // GPUs, at least 1; those beyond [MaxGPUs] are not read
	Driver    string
	DriverErr error // why Driver is empty

	opened int64 // the initialisation that it is of
	err    error // no other field is set
}

// GPU is one GPU while it is read.
type GPU struct {
	Index  int
	Driver string // empty: unknown
	Device
}

// Result is the result of reading one GPU.
type Result[T any] struct {
	Index int
	Value T     // what the read returned, also beside an error
	Err   error // why the GPU as a whole could not be read, an [*Error]
}

// Reader reads the GPUs for one user. Each GPU has a lane: a call that hangs costs the reader that GPU until it
// returns, and no other. Safe for concurrent use.
type Reader[T any] struct {
	session *Session
	read    func(GPU) (T, error)
	front   lane.Group[Roster] // one lane
	gpus    lane.Group[Result[T]]
}

// NewReader returns a reader that calls read for each GPU, from several goroutines; its error is nil or [Unreachable].
// read may outlive the [Reader.Read] that called it, and shares nothing with its caller.
func NewReader[T any](s *Session, read func(GPU) (T, error)) *Reader[T] {
	return &Reader[T]{session: s, read: read}
}

// Read reads all GPUs concurrently. It waits at most budget for NVML, and then as long for the GPUs. The error, an
// [*Error], is the reason why there are none; without GPU or driver [Absent] holds.
func (r *Reader[T]) Read(budget time.Duration) (Roster, []Result[T], error) {
	front := r.front.Run(budget, []string{"NVML"}, func(string) Roster { return r.session.roster() })[0]
	if front.State != lane.Done {
		return Roster{}, nil, noAnswer(front.State, front.Err)
	}
	roster := front.Value
	if roster.err != nil {
		return Roster{}, nil, roster.err
	}
	keys := make([]string, min(roster.Count, MaxGPUs))
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	results := make([]Result[T], len(keys))
	lost := true
	for i, res := range r.gpus.Run(budget, keys, func(key string) Result[T] { return r.visit(key, roster) }) {
		results[i] = res.Value
		if res.State != lane.Done {
			results[i] = Result[T]{Index: i, Err: noAnswer(res.State, res.Err)}
		}
		lost = lost && reopens(results[i].Err)
	}
	if lost {
		r.session.lost.Store(roster.opened)
	}
	return roster, results, nil
}

func (r *Reader[T]) visit(key string, roster Roster) Result[T] {
	index, _ := strconv.Atoi(key) // it is of Itoa
	res := Result[T]{Index: index}
	turn := r.session.turns[index]
	turn <- struct{}{}
	defer func() { <-turn }()
	if r.session.opened != roster.opened || !r.session.open { // released or opened again since the GPUs were counted
		res.Err = &Error{Call: "NVML", Code: CodeUninitialized}
		return res
	}
	device, err := r.session.lib.GPU(index)
	if res.Err = err; err == nil {
		res.Value, res.Err = r.read(GPU{Index: index, Driver: roster.Driver, Device: device})
	}
	return res
}

// noAnswer is the error of a lane that returned no value.
func noAnswer(state lane.State, err error) error {
	code := CodeNoAnswer
	if state == lane.Died {
		code = CodePanic
	}
	return &Error{Call: "NVML", Code: code, Err: err}
}
