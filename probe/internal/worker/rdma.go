//go:build cgo

package worker

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/verbs"
)

// verbsLibrary is libibverbs, loaded on first use and never unloaded.
type verbsLibrary struct{ lib *verbs.Library }

func (v *verbsLibrary) load(path string) (_ *verbs.Library, err error) {
	if v.lib == nil {
		v.lib, err = verbs.Open(path)
	}
	return v.lib, err
}

// info returns rdma-core's version, which its build appends to the library's own: libibverbs.so.1.14.44.0 is of
// rdma-core 44.0.
func (v *verbsLibrary) info(path string) (info Info) {
	if lib, err := v.load(path); err == nil {
		_, own, _ := strings.Cut(filepath.Base(lib.File()), ".so.1.")
		_, info.RDMACore, _ = strings.Cut(own, ".")
	}
	return info
}

// rdmaEngine is a session over queue pairs.
type rdmaEngine struct {
	buffer *verbs.Buffer
	rails  map[string]*verbs.Rail

	canceled atomic.Bool
	run      atomic.Pointer[verbs.Run] // in progress
}

// open registers one buffer on every rail that opens. The others have a failure in their end.
func (v *verbsLibrary) open(path string, args OpenArgs) (engine, []End, error) {
	lib, err := v.load(path)
	if err != nil {
		return nil, nil, err
	}
	if err := lib.Check(); err != nil {
		return nil, nil, err
	}
	hugePages(true)
	buffer, err := verbs.NewBuffer(int(args.Buffer))
	hugePages(false)
	if err != nil {
		return nil, nil, err
	}
	e, ends := &rdmaEngine{buffer: buffer, rails: map[string]*verbs.Rail{}}, make([]End, len(args.Rails))
	for i, r := range args.Rails {
		rail, err := openRail(lib, r, args, buffer)
		if err != nil {
			ends[i].Failure = failure.As("", err)
			ends[i].Failure.Rail = r.Name
		} else {
			e.rails[r.Name], ends[i] = rail, rail.Info().End
		}
		ends[i].Name = r.Name
	}
	return e, ends, nil
}

func openRail(lib *verbs.Library, r RailArg, args OpenArgs, buffer *verbs.Buffer) (*verbs.Rail, error) {
	rail, err := lib.OpenRail(verbs.Spec{Device: r.Device, Port: r.Port, GIDIndex: r.GIDIndex,
		QueuePairs: args.QueuePairs, Depth: args.Depth})
	if err != nil {
		return nil, err
	}
	err = rail.Register(buffer)
	info := rail.Info()
	switch {
	case err != nil:
	case info.State != verbs.PortActive:
		err = failure.New("", failure.PortDown, "%s port %d is not active (state %d)", r.Device, r.Port, info.State)
	case r.GID.IsValid() && info.GID != r.GID:
		err = failure.New("", failure.GIDChanged,
			"entry %d of %s's GID table was %s when it was chosen and is %s now; the next round chooses again",
			r.GIDIndex, r.Device, r.GID, info.GID)
	}
	if err != nil {
		_ = rail.Close() // the first error counts
		return nil, err
	}
	return rail, nil
}

func (e *rdmaEngine) bytes() []byte      { return e.buffer.Bytes() }
func (e *rdmaEngine) tcpInfo() []TCPInfo { return nil }
func (e *rdmaEngine) intake() Intake     { return Intake{} }

func (e *rdmaEngine) rail(name string) (*verbs.Rail, error) {
	if r := e.rails[name]; r != nil {
		return r, nil
	}
	return nil, failure.New("", failure.Other, "unknown rail %q", name)
}

// Bounds of the transport's timeout for an acknowledgement, as exponents: 67 ms, the usual value, and 1 s, so that a
// dead path is found within ten seconds.
const (
	minTimeout = 14
	maxTimeout = 18
)

func (e *rdmaEngine) connect(args ConnectArgs) Connected {
	var c Connected
	for _, r := range args.Rails {
		if err := e.connectRail(r, args); err != nil {
			f := failure.As("", err)
			f.Rail = r.Name
			c.Failures = append(c.Failures, *f)
		}
	}
	return c
}

func (e *rdmaEngine) connectRail(r ConnectRail, args ConnectArgs) error {
	rail, err := e.rail(r.Name)
	if err != nil {
		return err
	}
	if !r.Remote.GID.IsValid() {
		return failure.New("", failure.Protocol, "the peer sent no GID")
	}
	return rail.Connect(r.Remote, verbs.Attr{PathMTU: r.PathMTU, RetryCount: args.RetryCount,
		Timeout: verbs.TimeoutExponent(r.InFlight, minTimeout, maxTimeout), TrafficClass: args.TrafficClass})
}

// begin returns a run that cancel and progress know of until end is called.
func (e *rdmaEngine) begin(rails int) (run *verbs.Run, end func()) {
	run = verbs.NewRun(rails)
	e.run.Store(run)
	if e.canceled.Load() {
		run.Cancel()
	}
	return run, func() { e.run.Store(nil) }
}

func (e *rdmaEngine) latency(args LatencyArgs) ([]time.Duration, error) {
	rail, err := e.rail(args.Rail)
	if err != nil {
		return nil, err
	}
	run, end := e.begin(1)
	defer end()
	samples, err := run.Latency(rail, args.N, args.Limit)
	if f := failure.As("", err); f != nil {
		f.Rail = args.Rail
		return nil, f
	}
	return samples, nil
}

func (e *rdmaEngine) burst(args BurstArgs) (BurstDone, error) {
	rails := make([]*verbs.Rail, len(args.Rails))
	for i, name := range args.Rails {
		var err error
		if rails[i], err = e.rail(name); err != nil {
			return BurstDone{}, err
		}
	}
	run, end := e.begin(len(rails))
	defer end()
	return run.Burst(rails, e.buffer, args)
}

func (e *rdmaEngine) progress() []int64 {
	if run := e.run.Load(); run != nil {
		return run.Progress()
	}
	return nil
}

func (e *rdmaEngine) cancel() {
	e.canceled.Store(true)
	if run := e.run.Load(); run != nil {
		run.Cancel()
	}
}

func (e *rdmaEngine) close() error {
	var errs []error
	for name, r := range e.rails {
		if err := r.Close(); err != nil {
			errs = append(errs, fmt.Errorf("rail %s: %w", name, err))
		}
	}
	return errors.Join(append(errs, e.buffer.Close())...)
}
