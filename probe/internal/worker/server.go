package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// engine is the transport of a session, in the worker process. One goroutine calls all methods except cancel and
// progress.
type engine interface {
	connect(ConnectArgs) []failure.Failure // returns the failures of rails
	latency(LatencyArgs) (Latencies, error)
	transfers(TransfersArgs) (Latencies, error)
	burst(source []byte, args BurstArgs) (BurstDone, error)   // an error beside results of rails is dropped
	arrived(rail string, pass int, limit time.Duration) error // returns when a target has received a whole burst
	stopRail(name string)                                     // keeps further bytes from arriving at a target
	tcpInfo() TCPInfo
	intake() Intake // valid after close
	progress() []int64
	cancel()
	close() error
}

// Main runs the worker process: it serves the exporter on descriptor 3 until the connection ends, and returns the exit
// code. library is the libibverbs to load; empty selects the system's.
func Main(library string, gpus Libraries) int {
	raiseMemlock()
	hugePages(false)
	_ = os.WriteFile("/proc/self/comm", []byte("railscope-probe"), 0) // name in ps; the program is /proc/self/exe
	debug.SetGCPercent(50)                                            // mostly idle: memory matters more than speed
	socket := os.NewFile(3, "exporter")
	if _, err := socket.Stat(); err != nil {
		fmt.Fprintln(os.Stderr, "railscope: this command is started by railscope itself, with a socket as descriptor 3")
		return 2
	}
	s := &server{library: library, gpus: gpus, out: socket}
	if err := s.serve(socket); !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "railscope: worker:", err)
		return 1
	}
	return 0 // a request in progress ends with the process
}

// server answers requests, one at a time.
type server struct {
	library    string
	gpus       Libraries
	simulation *Simulation // replaces libibverbs and the network; nil for the real ones
	verbs      verbsLibrary
	idle       chan struct{} // closed when serve has returned and the last request has ended

	// State of the session, which only the current request uses.
	memory  sessionMemory
	streams int // queue pairs or connections per rail
	pass    int // pass of the last burst

	mu  sync.Mutex // protects all following fields, and writes to out
	out io.Writer
	// engine is the transport of the session, nil without one. Only the current request changes it, and reads it
	// without mu.
	engine   engine
	running  uint64 // ID of the current request
	canceled uint64 // ID of the last canceled request, whose cancel may precede it
}

// serve reads requests until the connection ends. It does not wait for the current request, because the process ends.
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
	for messages := newMessages(in); ; {
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
	s.canceled = id
	if s.running == id {
		s.stopLocked()
	}
}

// stopLocked stops the session's current and future work.
func (s *server) stopLocked() {
	if s.engine != nil {
		s.engine.cancel()
	}
}

func (s *server) answer(req request) {
	s.mu.Lock()
	s.running = req.ID
	if s.canceled == req.ID {
		s.stopLocked()
	}
	s.mu.Unlock()
	result, err := s.do(req)
	res := response{ID: req.ID, Done: true}
	if err == nil {
		res.Result, err = json.Marshal(result)
	}
	if err != nil {
		res.Failure = failure.As("", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = 0
	if err := writeMessage(s.out, res); err != nil && s.simulation == nil {
		fmt.Fprintln(os.Stderr, "railscope: worker:", err) // serve notices the end of the connection
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
	case opWatch:
		return perform(req, func(devices []string) (any, error) { return nil, s.watch(req.ID, devices) })
	}
	if s.engine == nil {
		return nil, failure.New("", failure.Other, "%q without a session", req.Op)
	}
	switch req.Op {
	case opConnect:
		return perform(req, func(a ConnectArgs) ([]failure.Failure, error) { return s.engine.connect(a), nil })
	case opLatency:
		return perform(req, func(a LatencyArgs) (Latencies, error) {
			a.N, a.Size = min(max(a.N, 1), maxSamples), min(max(a.Size, 1), transfer.MaxChunk)
			return s.engine.latency(a)
		})
	case opTransfers:
		return perform(req, func(a TransfersArgs) (Latencies, error) {
			a.N = min(max(a.N, 1), maxSamples)
			return s.engine.transfers(a)
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
	case args.QueuePairs < 1 || args.QueuePairs > MaxQueuePairs || args.Depth < 1 || args.Depth > MaxDepth:
		return opened, failure.New("", failure.Other, "%d writes in flight over %d queue pairs", args.Depth,
			args.QueuePairs)
	case args.Buffer < transfer.Page || args.Buffer > MaxMemory/int64(len(args.Rails)):
		return opened, failure.New("", failure.Other, "%d bytes for each of %d rails: %d to %d are possible",
			args.Buffer, len(args.Rails), transfer.Page, MaxMemory/len(args.Rails))
	}
	for i, r := range args.Rails {
		if slices.ContainsFunc(args.Rails[:i], func(o RailArg) bool { return o.Name == r.Name }) {
			return opened, failure.New("", failure.Other, "two rails with the name %.40q", r.Name)
		}
		if r.Flow < 0 || r.Flow > MaxFlow || r.Op != "" && r.Op != Write && r.Op != Read {
			return opened, failure.New("", failure.Other, "flow %d of operation %.20q", r.Flow, r.Op)
		}
	}
	s.pass, s.streams = 0, args.QueuePairs
	if err := s.memory.open(args, s.gpus); err != nil {
		return opened, err
	}
	var e engine
	switch {
	case s.simulation != nil:
		err = s.memory.fill(args.Seed) // an asker's reads take it from there
		if err == nil {
			e, opened, err = s.simulation.open(args, s.memory.bytes())
		}
	case args.Transport == TCP:
		e, opened, err = openTCP(args, s.memory.bytes(), netip.Addr{})
	default:
		e, opened.Ends, err = s.verbs.open(s.library, args, &s.memory)
	}
	if err != nil {
		return Opened{}, errors.Join(err, s.memory.close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = e
	return opened, nil
}

// close ends the session, and returns what it received over TCP.
func (s *server) close() (Intake, error) {
	if s.engine == nil {
		return Intake{}, nil
	}
	err := s.engine.close()
	in := s.engine.intake()
	s.mu.Lock()
	s.engine = nil
	s.mu.Unlock()
	err = errors.Join(err, s.memory.close())
	debug.FreeOSMemory()
	return in, err
}

// progressInterval is the interval of a burst's progress messages.
const progressInterval = 50 * time.Millisecond

// burst makes a burst, and repeats a disturbed one while there is time. Each attempt shifts the source by other pages.
func (s *server) burst(id uint64, args BurstArgs) (res BurstDone, err error) {
	earlier := make([]atomic.Int64, len(args.Loads)) // bytes of earlier attempts
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() { s.report(id, earlier, done) })
	for end, try := time.Now().Add(args.Deadline), 0; ; try++ {
		s.pass += maxPasses
		args.Pass, args.Deadline = s.pass, time.Until(end)
		res, err = s.engine.burst(s.memory.pattern, args)
		once := args.Once || args.Warmup > 0 // over TCP a slow lane disturbs it, not this process
		if err != nil || once || res.Failed() || !res.Disturbed() || try == MaxRepeats || time.Until(end) < args.Slow {
			break
		}
		for i, r := range res.Rails {
			earlier[i].Add(r.Bytes)
		}
	}
	close(done)
	reporting.Wait()
	res.Pass = s.pass
	if len(res.Rails) > 0 {
		err = nil
	}
	for i := range res.Rails {
		res.Rails[i].Bytes += earlier[i].Load()
		if f := res.Rails[i].Failure; f != nil {
			f.Rail = args.Loads[i].Rail
		}
	}
	return res, err
}

// report sends progress of the current burst until done is closed. earlier has the bytes of earlier attempts, by rail.
func (s *server) report(id uint64, earlier []atomic.Int64, done <-chan struct{}) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			s.mu.Lock()
			at := monotonic()
			if bytes := s.engine.progress(); bytes != nil { // nil after the burst has ended
				for i := range min(len(bytes), len(earlier)) {
					bytes[i] += earlier[i].Load()
				}
				// On an error the connection ends, which serve notices.
				_ = writeMessage(s.out, response{ID: id, Progress: bytes, At: at})
			}
			s.mu.Unlock()
		}
	}
}

// verify compares the memory of rails with the writes that the peer claims for a burst.
func (s *server) verify(args VerifyArgs) (Verified, error) {
	if args.Pass < 0 || args.Pass > maxPass {
		return Verified{}, failure.New("", failure.Other, "verify a burst with pass %d", args.Pass)
	}
	for _, rail := range args.Stop {
		s.engine.stopRail(rail)
	}
	if err := s.memory.fill(args.Seed); err != nil {
		return Verified{}, err
	}
	v, end := Verified{Mismatch: -1}, time.Now().Add(arriveTime)
	for _, r := range args.Rails {
		size := s.memory.size(r.Rail)
		if r.Chunk < transfer.MinChunk || r.Chunk > transfer.MaxChunk || len(r.Writes) != s.streams ||
			size < r.Chunk*int64(len(r.Writes)) {
			return Verified{}, failure.New("", failure.Other, "verify chunks of %d bytes of %d queue pairs over %.40q",
				r.Chunk, len(r.Writes), r.Rail)
		}
		if err := s.engine.arrived(r.Rail, args.Pass, max(time.Until(end), time.Millisecond)); err != nil {
			f := failure.As("", err)
			f.Rail = r.Rail
			v.Failures = append(v.Failures, *f)
			continue
		}
		ring := size / int64(len(r.Writes))
		for q, writes := range r.Writes {
			arrived, err := s.memory.rails[r.Rail].Read(int64(q)*ring, int(ring))
			if err != nil {
				return Verified{}, err
			}
			at, n := s.compare(arrived, r.Chunk, writes, args.Pass)
			v.Bytes += n
			if at >= 0 && v.Mismatch < 0 {
				v.Rail, v.Mismatch = r.Rail, int64(q)*ring+at
			}
		}
	}
	return v, nil
}

// compare compares one ring with the last write to each of its places. It returns the offset of the first wrong byte,
// -1 if there is none, and the number of bytes compared.
func (s *server) compare(ring []byte, chunk, writes int64, pass int) (wrong, n int64) {
	slots := max(int64(len(ring))/chunk, 1)
	wrong = -1
	for i := max(min(writes, maxWrites)-slots, 0); i < min(writes, maxWrites); i++ {
		at, from := transfer.Place(i, int64(len(ring)), chunk, pass)
		got, want := ring[at:at+chunk], s.memory.pattern[from:from+chunk]
		n += chunk
		if wrong < 0 && !bytes.Equal(got, want) {
			k := 0
			for got[k] == want[k] {
				k++
			}
			wrong = at + int64(k)
		}
	}
	return wrong, n
}
