package worker

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/memory"
)

// Options configure a worker.
type Options struct {
	Command []string          // command of the process, which must call [Main]
	Env     []string          // additions to this process's environment
	Log     func(line string) // receives lines of its stderr; nil drops them
	Ended   func(why string)  // called when it crashed or was killed, before a restart; may be nil

	Patience *time.Duration // what is added to the limits of its answers; nil: nothing

	Simulation *Simulation // replaces the process; nil for a real one
}

const (
	quick         = 10 * time.Second // limit for an operation without its own
	perRail       = time.Second      // extra time per rail to open, connect or close, which a kernel may serialize
	perQueuePair  = 100 * time.Millisecond
	grace         = 2 * time.Second // delay between a deadline and killing the process
	minBackoff    = time.Second     // time without RDMA after a crash, doubled each time
	maxBackoff    = 5 * time.Minute
	maxUnkillable = 2 // killed processes that the kernel does not release
)

// Worker is the exporter's end. It starts the process on demand, and restarts it after it ended. Safe for concurrent
// use, but there is only one session: opening one ends the other.
type Worker struct {
	opts   Options
	stderr *stderrLog

	turn   sync.Mutex // serializes requests
	lastID uint64     // ID of the last request; protected by turn

	mu         sync.Mutex // protects all following fields
	proc       *process
	unkillable []*process // killed processes that still exist
	crashes    int        // consecutive crashes
	notBefore  time.Time  // earliest time of the next RDMA session
	restarts   uint64
}

// New returns a worker. The process is started on demand.
func New(opts Options) *Worker {
	if opts.Log == nil {
		opts.Log = func(string) {}
	}
	if opts.Ended == nil {
		opts.Ended = func(string) {}
	}
	return &Worker{opts: opts, stderr: newStderrLog(opts.Log)}
}

func (w *Worker) patience() time.Duration {
	if w.opts.Patience == nil {
		return 0
	}
	return *w.opts.Patience
}

// Restarts returns how often the process had to be restarted.
func (w *Worker) Restarts() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restarts
}

// Close ends the process and its session.
func (w *Worker) Close() {
	w.mu.Lock()
	p := w.proc
	w.proc = nil
	w.mu.Unlock()
	if p != nil {
		p.kill()
		p.wait()
	}
	w.stderr.report()
}

// Rest ends the process if no session is open, to save its memory. The next session starts another.
func (w *Worker) Rest() {
	w.mu.Lock()
	p := w.proc
	w.mu.Unlock()
	if p != nil {
		w.release(p)
	}
}

// Info loads libibverbs and describes it.
func (w *Worker) Info(ctx context.Context) (Info, error) {
	p, err := w.process(true)
	if err != nil {
		return Info{}, err
	}
	return ask[Info](ctx, &Session{worker: w, proc: p}, failure.StageOpen, opInfo, quick, nil)
}

// SetupTime returns the maximum time to open, connect or close this many rails with this many queue pairs each.
func SetupTime(rails, queuePairs int) time.Duration {
	return quick + time.Duration(rails)*(perRail+time.Duration(queuePairs)*perQueuePair)
}

// Open opens a session. On an error no session is open, neither this one nor an earlier one.
func (w *Worker) Open(ctx context.Context, args OpenArgs) (*Session, Opened, error) {
	p, err := w.process(args.Transport == RDMA)
	if err != nil {
		return nil, Opened{}, err
	}
	s := &Session{worker: w, proc: p, rdma: args.Transport == RDMA, gpus: args.kind() != memory.Host}
	s.setup = SetupTime(len(args.Rails), args.QueuePairs)
	opened, err := ask[Opened](ctx, s, failure.StageOpen, opOpen, s.setup, args)
	if err != nil {
		_, _ = s.Close() // the worker may have opened it before a cancel or an invalid answer
		return nil, Opened{}, err
	}
	return s, opened, nil
}

// process returns the worker process, and starts it if necessary. After a crash RDMA has to wait, but not TCP, which
// loads no foreign code.
func (w *Worker) process(rdma bool) (*process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := time.Until(w.notBefore); rdma && wait > 0 {
		return nil, failure.New(failure.StageOpen, failure.WorkerBackoff,
			"the worker process failed %d times in a row; next try with RDMA in %v", w.crashes, wait.Round(time.Second))
	}
	if w.proc != nil && !w.proc.ended() {
		return w.proc, nil
	}
	if w.proc != nil { // it ended between two sessions, which is not the provider's fault
		w.opts.Ended(w.proc.exitReason())
		w.proc = nil
		w.restarts++
	}
	w.unkillable = slices.DeleteFunc(w.unkillable, (*process).ended)
	if n := len(w.unkillable); n >= maxUnkillable {
		return nil, failure.New(failure.StageOpen, failure.WorkerBackoff,
			"%d killed worker processes do not end: they hang in the kernel (process %d); check dmesg for the RDMA "+
				"driver",
			n, w.unkillable[0].pid)
	}
	if w.opts.Simulation != nil {
		w.proc = w.opts.Simulation.start()
		return w.proc, nil
	}
	p, err := start(w.opts.Command, w.opts.Env, w.stderr)
	if err != nil {
		return nil, failure.New(failure.StageOpen, failure.WorkerCrashed, "cannot start the worker process: %v", err)
	}
	w.proc = p
	return p, nil
}

// release ends a process whose session is closed: a library of GPUs may keep their devices open until then, and the
// driver cannot be unloaded (libhsakmt does).
func (w *Worker) release(p *process) {
	w.turn.Lock()
	defer w.turn.Unlock()
	w.mu.Lock()
	if w.proc == p {
		w.proc = nil
	}
	w.mu.Unlock()
	p.kill()
	p.wait()
	if !p.ended() {
		w.mu.Lock()
		w.unkillable = append(w.unkillable, p)
		w.mu.Unlock()
	}
}

// kill kills a failed process, counts its end, and delays the next session with RDMA.
func (w *Worker) kill(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	why := "it did not answer, and was killed"
	if p.ended() {
		why = p.exitReason()
	}
	p.kill()
	if w.proc != p {
		return // already counted, or closed
	}
	w.proc = nil
	w.opts.Ended(why)
	if !p.ended() {
		w.unkillable = append(w.unkillable, p)
	}
	w.restarts++
	w.notBefore = time.Now().Add(min(minBackoff<<min(w.crashes, 16), maxBackoff))
	w.crashes++
}

// settle decodes an answer, or returns the failure of a crash.
func (w *Worker) settle(p *process, stage failure.Stage, op string, res response, err error, result any) error {
	if err != nil {
		p.wait() // a crash closes the socket shortly before the process is gone
		w.kill(p)
		return failure.New(stage, failure.WorkerCrashed, "the worker process ended during %q: %s", op, p.exitReason())
	}
	if res.Failure != nil {
		res.Failure.Stage = stage
		return res.Failure
	}
	if err := json.Unmarshal(res.Result, result); err != nil {
		return failure.As(stage, err)
	}
	return nil
}

// Session is one transfer in the worker. Not safe for concurrent use. Errors are [*failure.Failure] of the whole
// session; failures of single rails are in the results.
type Session struct {
	worker *Worker
	proc   *process
	rdma   bool
	gpus   bool          // uses a library of GPUs
	setup  time.Duration // maximum time to open, connect or close the rails
}

// call sends one request and waits for its answer until ctx is done or limit is over. Then it cancels the request, and
// after grace kills the process. The error is always a [*failure.Failure].
func (s *Session) call(ctx context.Context, stage failure.Stage, op string, limit time.Duration, args, result any,
	progress progressFunc) error {
	w, p := s.worker, s.proc
	if p.ended() {
		w.kill(p)
		return failure.New(stage, failure.WorkerCrashed, "the worker process ended before %q: %s", op, p.exitReason())
	}
	w.turn.Lock()
	defer w.turn.Unlock()
	body, err := json.Marshal(args)
	if err != nil {
		return failure.As(stage, err)
	}
	w.lastID++
	req := request{ID: w.lastID, Op: op, Args: body}
	patience := w.patience()
	_ = p.conn.SetDeadline(time.Now().Add(limit + patience)) // exchange fails on a closed connection
	canceled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(canceled)
		_ = p.conn.SetDeadline(time.Now().Add(grace + patience))
		_ = writeMessage(p.conn, request{ID: req.ID, Op: opCancel}) // fails if the worker does not read
	})
	res, err := p.exchange(req, progress)
	if !stop() {
		<-canceled
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.kill(p)
		return failure.New(stage, failure.WorkerTimeout,
			"the worker process did not answer %q in time and was killed: a provider hangs", op)
	}
	return w.settle(p, stage, op, res, err, result)
}

// ask is call without progress.
func ask[R any](ctx context.Context, s *Session, stage failure.Stage, op string, limit time.Duration,
	args any) (result R, err error) {
	err = s.call(ctx, stage, op, limit, args, &result, nil)
	return result, err
}

// Connect connects rails to the peer's ends, and returns the failures of rails.
func (s *Session) Connect(ctx context.Context, args ConnectArgs) ([]failure.Failure, error) {
	return ask[[]failure.Failure](ctx, s, failure.StageConnect, opConnect, s.setup, args)
}

// Latency measures round trips over one rail, and returns them in order.
func (s *Session) Latency(ctx context.Context, args LatencyArgs) (Latencies, error) {
	return ask[Latencies](ctx, s, failure.StageLatency, opLatency, args.Limit+quick, args)
}

// Transfers measures transfers over several rails at once, and returns them in order.
func (s *Session) Transfers(ctx context.Context, args TransfersArgs) (Latencies, error) {
	return ask[Latencies](ctx, s, failure.StageLatency, opTransfers, args.Limit+args.Deadline+quick, args)
}

// Burst moves bytes. progress, if not nil, gets the completed bytes by rail several times per second. at is the time at
// which they were counted: on a busy machine the call is much later.
func (s *Session) Burst(ctx context.Context, stage failure.Stage, args BurstArgs, progress func(at time.Time,
	bytes []int64)) (done BurstDone, err error) {
	err = s.call(ctx, stage, opBurst, args.Deadline+quick, args, &done, progress)
	if err == nil && s.rdma { // the provider works
		s.worker.mu.Lock()
		s.worker.crashes = 0
		s.worker.mu.Unlock()
	}
	return done, err
}

// Verify compares the peer's writes with the pattern.
func (s *Session) Verify(ctx context.Context, args VerifyArgs) (Verified, error) {
	return ask[Verified](ctx, s, failure.StageVerify, opVerify, 3*quick, args)
}

// TCPInfo describes the session's connections.
func (s *Session) TCPInfo(ctx context.Context) (TCPInfo, error) {
	return ask[TCPInfo](ctx, s, failure.StageBaseline, opTCPInfo, quick, nil)
}

// Intake returns what was received over TCP so far.
func (s *Session) Intake(ctx context.Context) (Intake, error) {
	return ask[Intake](ctx, s, failure.StageLease, opIntake, 3*quick, nil)
}

// Close ends the session: queue pairs are destroyed, listeners closed, memory is deregistered and freed. A worker that
// does not confirm this is killed: after an error the process is gone, unless it hangs in the kernel. received is what
// arrived over TCP in the whole session; nil if unknown.
func (s *Session) Close() (received *Intake, err error) {
	if s.proc.ended() {
		return nil, nil // the kernel closed everything
	}
	in, err := ask[Intake](context.Background(), s, failure.StageRelease, opClose, s.setup, nil)
	if err == nil && s.gpus {
		s.worker.release(s.proc)
	}
	if err == nil {
		return &in, nil
	}
	s.worker.kill(s.proc)
	s.proc.wait()
	return nil, err
}
