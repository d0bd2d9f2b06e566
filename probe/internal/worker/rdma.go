//go:build cgo

package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

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

// info returns rdma-core's version, which the library's own contains: libibverbs.so.1.14.44.0 is from rdma-core 44.0.
func (v *verbsLibrary) info(path string) (info Info) {
	if lib, err := v.load(path); err == nil {
		_, own, _ := strings.Cut(filepath.Base(lib.File()), ".so.1.")
		_, info.RDMACore, _ = strings.Cut(own, ".")
	}
	return info
}

// watch keeps devices open until each failed or was removed. removed has the character devices of removed ones; an
// empty name means any. Without such announcements, as deaf says, no device stays open. One that hangs while it is
// opened does not keep the others open.
func (v *verbsLibrary) watch(path string, devices []string, removed <-chan string, deaf <-chan error,
	send func(DeviceEvent)) error {
	lib, err := v.load(path)
	if err != nil {
		return err
	}
	type opening struct {
		character string
		file      *os.File
	}
	opened, ended := make(chan opening), make(chan string)
	for _, device := range devices {
		go func() {
			w, file, err := openWatch(lib, device)
			if err != nil {
				send(DeviceEvent{Device: device, Closed: true})
				ended <- ""
				return
			}
			o := opening{w.Character(), file}
			opened <- o
			followDevice(w, file, device, send)
			ended <- o.character
		}()
	}
	files, gone := map[string]*os.File{}, map[string]bool{}
	for left := len(devices); left > 0; {
		select {
		case o := <-opened:
			files[o.character] = o.file
			if gone[o.character] || gone[""] {
				_ = o.file.Close() // ends followDevice
			}
		case name := <-removed:
			gone[name] = true
			closeFiles(files, name)
		case err = <-deaf:
			gone[""] = true
			closeFiles(files, "")
		case name := <-ended:
			delete(files, name)
			left--
		}
	}
	return err
}

// closeFiles closes the file of a character device; an empty name means all.
func closeFiles(files map[string]*os.File, name string) {
	for character, file := range files {
		if name == character || name == "" {
			_ = file.Close()
		}
	}
}

// openWatch opens a device, and a copy of its descriptor, which the runtime polls.
func openWatch(lib *verbs.Library, device string) (*verbs.Watch, *os.File, error) {
	w, err := lib.Watch(device)
	if err != nil {
		return nil, nil, err
	}
	fd, err := unix.FcntlInt(uintptr(w.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	return w, os.NewFile(uintptr(fd), device), nil
}

// watchPause is the time between two receptions of a device's events: in a storm several are one message.
const watchPause = 10 * time.Millisecond

// followDevice sends the events of a device until the file is closed or the device failed, and closes the device.
func followDevice(w *verbs.Watch, file *os.File, device string, send func(DeviceEvent)) {
	conn, err := file.SyscallConn()
	for fatal := false; err == nil && !fatal; time.Sleep(watchPause) {
		counts := map[DeviceEvent]uint64{}
		err = conn.Read(func(uintptr) bool {
			for event, port, ok := w.Next(); ok; event, port, ok = w.Next() {
				counts[DeviceEvent{Device: device, Port: port, Event: event.String()}]++
				fatal = fatal || event == verbs.EventDeviceFatal
			}
			return len(counts) > 0
		})
		for e, n := range counts {
			e.Count = n
			if e.Event != "" {
				send(e)
			}
		}
	}
	_ = file.Close() // before the device: the copy keeps it open, too
	w.Close()
	send(DeviceEvent{Device: device, Closed: true})
}

// rdmaEngine is a session over queue pairs.
type rdmaEngine struct {
	rails map[string]*verbs.Rail
	nodes map[string]int // rail → NUMA node

	canceled atomic.Bool
	run      atomic.Pointer[verbs.Run] // current run
}

// open opens the rails, each with its memory. The end of a failed rail has its failure.
func (v *verbsLibrary) open(path string, args OpenArgs, memory *sessionMemory) (engine, []End, error) {
	lib, err := v.load(path)
	if err != nil {
		return nil, nil, err
	}
	if err := lib.Check(); err != nil {
		return nil, nil, err
	}
	e, ends := &rdmaEngine{rails: map[string]*verbs.Rail{}, nodes: map[string]int{}}, make([]End, len(args.Rails))
	rails := make([]*verbs.Rail, len(args.Rails))
	atOnce(len(rails), func(i int) {
		r := args.Rails[i]
		var err error
		rails[i], err = openRail(lib, r, args, memory)
		if err != nil {
			ends[i].Failure = failure.As("", err)
			ends[i].Failure.Rail = r.Name
		} else {
			ends[i] = rails[i].Info().End
		}
		ends[i].Name = r.Name
	})
	for i, r := range rails {
		if r != nil {
			e.rails[args.Rails[i].Name], e.nodes[args.Rails[i].Name] = r, args.Rails[i].NUMANode
		}
	}
	return e, ends, nil
}

// atOnce calls fn for each of n rails concurrently, because each unresolved address takes 1 s. Verbs are safe for
// concurrent use, and rails do not share contexts.
func atOnce(n int, fn func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { fn(i) })
	}
	calls.Wait()
}

func openRail(lib *verbs.Library, r RailArg, args OpenArgs, memory *sessionMemory) (*verbs.Rail, error) {
	area, err := memory.area(r.Name)
	if err != nil {
		return nil, err
	}
	rail, err := lib.OpenRail(verbs.Spec{Device: r.Device, Port: r.Port, GIDIndex: r.GIDIndex,
		QueuePairs: args.QueuePairs, Depth: args.Depth, PKey: args.PKey, Op: r.Op, Flow: r.Flow, Stamps: r.Stamps,
		Target: args.answers(r)})
	if err != nil {
		return nil, err
	}
	if err = rail.Register(area); err == nil && args.answers(r) && r.Op != Read {
		err = rail.Expect()
	}
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
		_ = rail.Close() // the first error is reported
		return nil, err
	}
	return rail, nil
}

func (e *rdmaEngine) tcpInfo() TCPInfo { return TCPInfo{} }
func (e *rdmaEngine) intake() Intake   { return Intake{} }

func (e *rdmaEngine) rail(name string) (*verbs.Rail, error) {
	if r := e.rails[name]; r != nil {
		return r, nil
	}
	return nil, failure.New("", failure.Other, "unknown rail %q", name)
}

// Bounds on the transport's timeout for an acknowledgement, as exponents: 67 ms, the usual value, or the delay of the
// peer's device, up to 1 s, so that a dead path is found within 10 s.
const (
	minTimeout = 14
	maxTimeout = 18
)

func (e *rdmaEngine) connect(args ConnectArgs) (failures []failure.Failure) {
	errs := make([]error, len(args.Rails))
	atOnce(len(errs), func(i int) { errs[i] = e.connectRail(args.Rails[i], args) })
	for i, err := range errs {
		if err != nil {
			f := failure.As("", err)
			f.Rail = args.Rails[i].Name
			failures = append(failures, *f)
		}
	}
	return failures
}

func (e *rdmaEngine) connectRail(r ConnectRail, args ConnectArgs) error {
	rail, err := e.rail(r.Name)
	if err != nil {
		return err
	}
	if !r.Remote.GID.IsValid() {
		return failure.New("", failure.Protocol, "the peer sent no GID")
	}
	timeout := verbs.TimeoutExponent(r.InFlight, max(minTimeout, min(r.Remote.AckDelay, maxTimeout)), maxTimeout)
	return rail.Connect(r.Remote, verbs.Attr{PathMTU: r.PathMTU, RetryCount: args.RetryCount, Timeout: timeout,
		TrafficClass: args.TrafficClass, ServiceLevel: args.ServiceLevel})
}

// begin returns a run that cancel and progress act on until end is called.
func (e *rdmaEngine) begin(rails int) (run *verbs.Run, end func()) {
	run = verbs.NewRun(rails)
	e.run.Store(run)
	if e.canceled.Load() {
		run.Cancel()
	}
	return run, func() { e.run.Store(nil) }
}

func (e *rdmaEngine) latency(args LatencyArgs) (Latencies, error) {
	rail, err := e.rail(args.Rail)
	if err != nil {
		return Latencies{}, err
	}
	run, end := e.begin(1)
	defer end()
	var l Latencies
	onNode(nodesDir, e.nodes[args.Rail], func() {
		if args.Over > 0 {
			l.Samples, err = run.Arrivals(rail, int(args.Size), args.arrivals(), args.Software, args.Limit)
		} else {
			l.Samples, l.Adapter, err = run.Latency(rail, int(args.Size), args.N, args.Limit)
		}
	})
	if f := failure.As("", err); f != nil {
		f.Rail = args.Rail
		return Latencies{}, f
	}
	return l, nil
}

func (e *rdmaEngine) transfers(args TransfersArgs) (l Latencies, err error) {
	rails, nodes := make([]*verbs.Rail, len(args.Shares)), make([]int, len(args.Shares))
	for i, s := range args.Shares {
		rails[i], err = e.rail(s.Rail)
		if err != nil {
			return Latencies{}, err
		}
		nodes[i] = e.nodes[s.Rail]
	}
	run, end := e.begin(max(len(rails), 1))
	defer end()
	onNode(nodesDir, mostOf(nodes), func() {
		l.Samples, err = run.Transfers(rails, args.Shares, args.N, args.Limit, args.Deadline)
	})
	return l, err
}

func (e *rdmaEngine) burst(_ []byte, args BurstArgs) (done BurstDone, err error) {
	rails, nodes := make([]*verbs.Rail, len(args.Loads)), make([]int, len(args.Loads))
	for i, l := range args.Loads {
		rails[i], err = e.rail(l.Rail)
		if err != nil {
			return BurstDone{}, err
		}
		nodes[i] = e.nodes[l.Rail]
	}
	run, end := e.begin(len(rails))
	defer end()
	onNode(nodesDir, mostOf(nodes), func() { done, err = run.Burst(rails, args) })
	return done, err
}

func (e *rdmaEngine) arrived(name string, pass int, limit time.Duration) error {
	rail, err := e.rail(name)
	if err != nil || rail.Op() == Read { // a completed read is already in memory
		return err
	}
	run, end := e.begin(1)
	defer end()
	return run.Arrived(rail, pass, limit)
}

func (e *rdmaEngine) stopRail(name string) {
	if rail := e.rails[name]; rail != nil {
		rail.Stop()
	}
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
	return errors.Join(errs...)
}
