package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/resident"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/pattern"
)

// engine is the transport of a session, in the worker process. All methods but cancel and progress are called by one
// goroutine.
type engine interface {
	connect(ConnectArgs) Connected
	latency(LatencyArgs) ([]time.Duration, error)
	burst(BurstArgs) (BurstDone, error) // an error beside results of rails is dropped: their failures say more
	tcpInfo() []TCPInfo
	intake() Intake // valid after close
	bytes() []byte  // the buffer
	progress() []int64
	cancel()
	close() error
}

// Main is the worker process: it serves the exporter on descriptor 3 until that hangs up, and returns the exit code.
// library is the libibverbs to load; empty: the system's.
func Main(library string) int {
	raiseMemlock()
	hugePages(false)
	_ = os.WriteFile("/proc/self/comm", []byte("railscope-probe"), 0) // for ps; it was started as /proc/self/exe
	debug.SetGCPercent(50)                                            // mostly idle: memory matters more than speed
	socket := os.NewFile(3, "exporter")
	if _, err := socket.Stat(); err != nil {
		fmt.Fprintln(os.Stderr, "railscope: this command is started by railscope itself, with a socket as descriptor 3")
		return 2
	}
	_ = resident.DropStartup() // or they stay
	s := &server{library: library, out: socket}
	if err := s.serve(socket); !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "railscope: worker:", err)
		return 1
	}
	return 0 // a request in progress ends with the process
}

// server answers requests, one at a time.
type server struct {
	library    string
	simulation *Simulation // replaces libibverbs and the network; nil: none
	verbs      verbsLibrary
	idle       chan struct{} // closed when serve has returned and the last request has ended

	mu       sync.Mutex // protects all following fields, and writing to out
	out      io.Writer
	engine   engine // of the session; nil without one; only the current request changes it, and reads it without mu
	running  uint64 // id of the current request
	canceled uint64 // id of the request that was last canceled, maybe before it arrived
}

// serve reads requests until the connection ends. It does not wait for a request in progress then: the process ends.
func (s *server) serve(in io.Reader) error {
	todo := make(chan request, 1)
	s.idle = make(chan struct{})
	defer close(todo)
	go func() {
		defer close(s.idle)
		for req := range todo {
			s.answer(req)
		}
	}()
	for messages := bufio.NewReader(in); ; {
		var req request
		if err := readMessage(messages, &req); err != nil {
			return err
		}
		if req.Op == opCancel {
			s.cancel(req.ID)
			continue
		}
		select {
		case todo <- req:
		default:
			return fmt.Errorf("request %d (%q) while another one waits", req.ID, req.Op)
		}
	}
}

func (s *server) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.canceled = id; s.running == id {
		s.stopLocked()
	}
}

// stopLocked ends what the session does, and what it would do later.
func (s *server) stopLocked() {
	if s.engine != nil {
		s.engine.cancel()
	}
}

func (s *server) answer(req request) {
	s.mu.Lock()
	if s.running = req.ID; s.canceled == req.ID {
		s.stopLocked()
	}
	s.mu.Unlock()
	result, err := s.do(req)
	res := response{ID: req.ID, Done: true}
	if err == nil {
		res.Result, err = json.Marshal(result)
	}
	if err != nil {
		res.Failure, _ = json.Marshal(failure.As("", err)) // strings only: it cannot fail
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = 0
	if err := writeMessage(s.out, res); err != nil && s.simulation == nil {
		fmt.Fprintln(os.Stderr, "railscope: worker:", err) // serve sees the connection end
	}
}

// do executes one request.
func (s *server) do(req request) (any, error) {
	switch req.Op {
	case opInfo:
		if s.simulation != nil {
			return Info{}, nil
		}
		return s.verbs.info(s.library), nil
	case opOpen:
		return perform(req, s.open)
	case opClose:
		return s.close()
	}
	if s.engine == nil {
		return nil, failure.New("", failure.Other, "%q without a session", req.Op)
	}
	switch req.Op {
	case opConnect:
		return perform(req, func(a ConnectArgs) (Connected, error) { return s.engine.connect(a), nil })
	case opLatency:
		return perform(req, func(a LatencyArgs) (Latencies, error) {
			a.N = min(max(a.N, 1), maxSamples)
			samples, err := s.engine.latency(a)
			return Latencies{samples}, err
		})
	case opBurst:
		return perform(req, func(a BurstArgs) (BurstDone, error) { return s.burst(req.ID, a) })
	case opVerify:
		return perform(req, s.verify)
	case opTCPInfo:
		return s.engine.tcpInfo(), nil
	case opIntake:
		return s.engine.intake(), nil
	}
	return nil, failure.New("", failure.Other, "unknown operation %q", req.Op)
}

// perform decodes the arguments of a request and executes it.
func perform[A, R any](req request, fn func(A) (R, error)) (R, error) {
	var args A
	if err := json.Unmarshal(req.Args, &args); err != nil {
		var none R
		return none, failure.New("", failure.Other, "arguments of %q: %v", req.Op, err)
	}
	return fn(args)
}

func (s *server) open(args OpenArgs) (opened Opened, err error) {
	if _, err := s.close(); err != nil {
		return opened, err
	}
	switch {
	case len(args.Rails) == 0 || len(args.Rails) > MaxRails:
		return opened, failure.New("", failure.Other, "%d rails: 1 to %d are possible", len(args.Rails), MaxRails)
	case args.Buffer < pattern.Word || args.Buffer > MaxBuffer:
		return opened, failure.New("", failure.Other, "a buffer of %d bytes: %d to %d are possible", args.Buffer,
			pattern.Word, MaxBuffer)
	}
	for i, r := range args.Rails {
		if slices.ContainsFunc(args.Rails[:i], func(o RailArg) bool { return o.Name == r.Name }) {
			return opened, failure.New("", failure.Other, "two rails with the name %.40q", r.Name)
		}
	}
	var e engine
	switch {
	case s.simulation != nil:
		e, opened, err = s.simulation.open(args)
	case args.Transport == TCP:
		e, opened, err = openTCP(args, netip.Addr{})
	default:
		e, opened.Ends, err = s.verbs.open(s.library, args)
	}
	if err != nil {
		return Opened{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = e
	return opened, nil
}

// close ends the session, and returns what it received.
func (s *server) close() (Intake, error) {
	if s.engine == nil {
		return Intake{}, nil
	}
	defer func() { _ = resident.DropStartup() }() // a session needs other pages than waiting for the next
	err := s.engine.close()
	in := s.engine.intake()
	s.mu.Lock()
	s.engine = nil
	s.mu.Unlock()
	debug.FreeOSMemory()
	return in, err
}

// progressInterval is how often a burst reports its progress.
const progressInterval = 50 * time.Millisecond

// burst fills the buffer with the burst's pattern, and moves it.
func (s *server) burst(id uint64, args BurstArgs) (BurstDone, error) {
	buf := s.engine.bytes()
	switch {
	case args.Total < 1 || args.Chunk < 1 || args.Depth < 1 || args.Chunk > int64(len(buf)):
		return BurstDone{}, failure.New("", failure.Other,
			"a burst of %d bytes in chunks of %d, %d in flight, from a buffer of %d", args.Total, args.Chunk,
			args.Depth, len(buf))
	case len(args.Rails) == 0 || len(args.Rails) > MaxRails:
		return BurstDone{}, failure.New("", failure.Other, "a burst over %d rails", len(args.Rails))
	}
	pattern.Fill(buf[:min(args.Total, int64(len(buf)))], args.Seed, 0)
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() { s.report(id, done) })
	res, err := s.engine.burst(args)
	close(done)
	reporting.Wait()
	if len(res.Rails) > 0 {
		err = nil
	}
	for i, r := range res.Rails {
		if r.Failure != nil {
			r.Failure.Rail = args.Rails[i]
		}
	}
	return res, err
}

// report sends progress of the current burst until it is done.
func (s *server) report(id uint64, done <-chan struct{}) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			s.mu.Lock()
			at := monotonic()
			if bytes := s.engine.progress(); bytes != nil { // else it has ended meanwhile
				_ = writeMessage(s.out, response{ID: id, Progress: bytes, At: at}) // serve sees the connection end
			}
			s.mu.Unlock()
		}
	}
}

// verify looks for the pattern in the ranges of the buffer that the peer claims to have written.
func (s *server) verify(args VerifyArgs) (Verified, error) {
	buf := s.engine.bytes()
	if len(args.Ranges) > maxRanges {
		return Verified{}, failure.New("", failure.Other, "%d ranges to verify: at most %d are possible",
			len(args.Ranges), maxRanges)
	}
	v := Verified{Mismatch: -1}
	end := int64(0) // of the previous range: no byte is compared twice
	for _, r := range args.Ranges {
		size := int64(len(buf))
		if r.Offset < end || r.Length < 0 || r.Offset > size || r.Length > size-r.Offset || r.Offset%pattern.Word != 0 {
			return Verified{}, failure.New("", failure.Other, "verify %d bytes at %d of a buffer of %d, after %d bytes",
				r.Length, r.Offset, size, end)
		}
		end = r.Offset + r.Length
		if at := pattern.Check(buf[r.Offset:end], args.Seed, r.Offset); at >= 0 && v.Mismatch < 0 {
			v.Mismatch = at
		}
		v.Bytes += r.Length
	}
	return v, nil
}
