package worker

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/verbs"
)

// verbsLibrary is libibverbs, loaded when it is first needed and never
// unloaded.
type verbsLibrary struct{ lib *verbs.Library }

func (v *verbsLibrary) load(path string) (*verbs.Library, error) {
	if v.lib == nil {
		lib, err := verbs.Open(path)
		if err != nil {
			return nil, failed(err)
		}
		v.lib = lib
	}
	return v.lib, nil
}

// info says what there is of RDMA.
func (v *verbsLibrary) info(path string) Info {
	lib, err := v.load(path)
	if err != nil {
		return Info{Failure: failure.As("", err)}
	}
	info := Info{Library: lib.File(), RDMACore: coreVersion(lib.File())}
	if info.Devices, err = lib.Devices(); err != nil {
		info.Failure = failure.As("", failed(err))
	}
	return info
}

// failed puts an error of the verbs into the words of a round.
func failed(err error) error {
	if e, ok := errors.AsType[*verbs.Error](err); ok {
		return e.Failure("")
	}
	return err
}

var librarySuffix = regexp.MustCompile(`\.so\.1\.\d+\.(\d+(?:\.\d+)*)$`)

// coreVersion is rdma-core's version, which its build puts behind the library's
// own: libibverbs.so.1.14.44.0 is of rdma-core 44.0. Empty where the name does
// not tell.
func coreVersion(file string) string {
	m := librarySuffix.FindStringSubmatch(filepath.Base(file))
	if m == nil {
		return ""
	}
	return m[1]
}

// rdmaEngine is a session over queue pairs.
type rdmaEngine struct {
	depth  int
	buffer *verbs.Buffer
	rails  map[string]*verbs.Rail
	own    []End

	mu       sync.Mutex // protects all following fields: what they point to is memory of C
	canceled bool
	run      *verbs.Run // what is going on
}

// open registers one buffer on every rail that can be opened, and brings up its
// queue pairs. Rails that cannot have a failure in their end.
func (v *verbsLibrary) open(path string, args OpenArgs) (engine, error) {
	lib, err := v.load(path)
	if err != nil {
		return nil, err
	}
	if _, err := lib.Devices(); err != nil {
		return nil, failed(err) // ib_uverbs is not there: that is no rail's fault
	}
	hugePages(true)
	buffer, err := verbs.NewBuffer(int(args.Buffer))
	hugePages(false)
	if err != nil {
		return nil, failed(err)
	}
	e := &rdmaEngine{depth: args.Depth, buffer: buffer, rails: map[string]*verbs.Rail{}}
	for _, r := range args.Rails {
		end, rail, err := openRail(lib, r, args, buffer)
		if err != nil {
			end.Failure = failure.As("", err)
			end.Failure.Rail = r.Name
		} else {
			e.rails[r.Name] = rail
		}
		e.own = append(e.own, end)
	}
	return e, nil
}

func openRail(lib *verbs.Library, r RailArg, args OpenArgs, buffer *verbs.Buffer) (End, *verbs.Rail, error) {
	end := End{Name: r.Name}
	rail, err := lib.OpenRail(verbs.Spec{Device: r.Device, Port: r.Port, GIDIndex: r.GIDIndex,
		QueuePairs: args.QueuePairs, Depth: args.Depth})
	if err != nil {
		return end, nil, failed(err)
	}
	info := rail.Info()
	gid := netip.AddrFrom16(info.GID)
	region, err := rail.Register(buffer)
	switch {
	case err != nil:
		err = failed(err)
	case info.State != verbs.PortActive:
		err = failure.New("", failure.PortDown, "%s port %d is not active (state %d)", r.Device, r.Port, info.State)
	case r.GID.IsValid() && gid != r.GID:
		err = failure.New("", failure.GIDChanged,
			"entry %d of %s's GID table was %s when it was chosen and is %s now; the next round chooses anew",
			r.GIDIndex, r.Device, r.GID, gid)
	}
	if err != nil {
		_ = rail.Close() // the first error counts
		return end, nil, err
	}
	end.QPNs, end.PSNs, end.GID, end.LID = info.QPNs, info.PSNs, gid, info.LID
	end.ActiveMTU, end.MaxMTU, end.Addr, end.RKey = info.ActiveMTU, info.MaxMTU, region.Addr, region.RKey
	return end, rail, nil
}

func (e *rdmaEngine) ends() []End        { return e.own }
func (e *rdmaEngine) bytes() []byte      { return e.buffer.Bytes() }
func (e *rdmaEngine) tcpInfo() []TCPInfo { return []TCPInfo{} }
func (e *rdmaEngine) intake() Intake     { return Intake{} }

// Bounds on the time that the transport waits for an acknowledgement, as
// exponents: 67 ms, what everybody uses, and 1 s, so that a dead path is found
// out within ten seconds.
const (
	leastTimeout = 14
	mostTimeout  = 18
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
	rail := e.rails[r.Name]
	if rail == nil {
		return failure.New("", failure.Other, "the session has no rail %q", r.Name)
	}
	if !r.Remote.GID.IsValid() {
		return failure.New("", failure.Protocol, "the peer named no GID")
	}
	return failed(rail.Connect(
		verbs.Remote{QPNs: r.Remote.QPNs, PSNs: r.Remote.PSNs, GID: r.Remote.GID.As16(), LID: r.Remote.LID,
			Addr: r.Remote.Addr, RKey: r.Remote.RKey},
		verbs.Attr{PathMTU: r.PathMTU, Timeout: verbs.TimeoutExponent(r.InFlight, leastTimeout, mostTimeout),
			RetryCount: args.RetryCount, TrafficClass: args.TrafficClass}))
}

// begin makes what an operation can be watched and stopped by.
func (e *rdmaEngine) begin(rails int) (*verbs.Run, func(), error) {
	run, err := verbs.NewRun(rails)
	if err != nil {
		return nil, nil, failed(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run = run
	if e.canceled {
		run.Cancel()
	}
	return run, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.run = nil
		run.Close()
	}, nil
}

func (e *rdmaEngine) latency(args LatencyArgs) (Latencies, error) {
	rail := e.rails[args.Rail]
	if rail == nil {
		return Latencies{}, failure.New("", failure.Other, "the session has no rail %q", args.Rail)
	}
	run, end, err := e.begin(1)
	if err != nil {
		return Latencies{}, err
	}
	defer end()
	samples, err := run.Latency(rail, args.N, args.Limit)
	if err != nil {
		f := failure.As("", failed(err))
		f.Rail = args.Rail
		return Latencies{}, f
	}
	return Latencies{Samples: samples}, nil
}

func (e *rdmaEngine) burst(args BurstArgs) (BurstDone, error) {
	rails := make([]*verbs.Rail, len(args.Rails))
	for i, name := range args.Rails {
		if rails[i] = e.rails[name]; rails[i] == nil {
			return BurstDone{}, failure.New("", failure.Other, "the session has no rail %q", name)
		}
	}
	run, end, err := e.begin(len(rails))
	if err != nil {
		return BurstDone{}, err
	}
	defer end()
	mode := verbs.Static
	if args.Stealing {
		mode = verbs.Stealing
	}
	res, err := run.Burst(rails, e.buffer, verbs.BurstOptions{Mode: mode, Total: args.Total, Chunk: args.Chunk,
		Depth: min(args.Depth, e.depth), Limit: args.Limit, Deadline: args.Deadline})
	if len(res.Rails) == 0 && err != nil {
		return BurstDone{}, failed(err)
	}
	done := BurstDone{Elapsed: res.Elapsed, Bytes: res.Bytes}
	for i, r := range res.Rails {
		b := BurstRail{Bytes: r.Bytes, First: r.First, Last: r.Last}
		if r.Err != nil {
			b.Failure = r.Err.Failure("")
			b.Failure.Rail = args.Rails[i]
		}
		done.Rails = append(done.Rails, b)
	}
	for _, r := range res.Done {
		done.Done = append(done.Done, Range(r))
	}
	return done, nil
}

func (e *rdmaEngine) progress() []int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run == nil {
		return nil
	}
	return e.run.Progress()
}

func (e *rdmaEngine) cancel() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.canceled = true; e.run != nil {
		e.run.Cancel()
	}
}

func (e *rdmaEngine) close() error {
	var errs []error
	for name, r := range e.rails {
		if err := r.Close(); err != nil {
			errs = append(errs, fmt.Errorf("rail %s: %w", name, err))
		}
	}
	errs = append(errs, e.buffer.Close())
	return errors.Join(errs...)
}

var _ engine = (*rdmaEngine)(nil)
