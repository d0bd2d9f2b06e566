package worker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Options are how a worker is started.
type Options struct {
	Command []string          // of the process; it must call [Main]
	Env     []string          // beside this process's own
	Log     func(line string) // gets what it writes to stderr; nil drops it

	Simulation *Simulation // takes the place of the process; nil: there is one
}

// How long the worker may take for what should be quick, how long after a
// deadline it may still answer before it is killed, and how long RDMA is left
// alone after it crashed: twice as long each time.
const (
	quick        = 10 * time.Second
	grace        = 2 * time.Second
	firstBackoff = time.Second
	mostBackoff  = 5 * time.Minute
	mostUndead   = 2 // killed processes that the kernel does not let go
)

// Worker is the exporter's end: it starts the process when it is needed, and
// again after it died. Safe for concurrent use, but there is one session at a
// time, and whoever opens one ends the other.
type Worker struct {
	opts Options

	turn chan struct{} // holds one token: one request at a time

	mu        sync.Mutex // protects all following fields
	proc      *process
	undead    []*process // killed, not yet gone
	next      uint64     // id of the next request
	crashes   int        // in a row
	notBefore time.Time  // of the next try with RDMA
	restarts  uint64
}

// New returns a worker. Nothing is started before it is needed.
func New(opts Options) *Worker {
	if opts.Log == nil {
		opts.Log = func(string) {}
	}
	return &Worker{opts: opts, turn: make(chan struct{}, 1)}
}

// Restarts is how often the process died and had to be started again.
func (w *Worker) Restarts() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restarts
}

// Close ends the process, and with it whatever session there is.
func (w *Worker) Close() {
	w.mu.Lock()
	p := w.proc
	w.proc = nil
	w.mu.Unlock()
	if p == nil {
		return
	}
	p.kill()
	select {
	case <-p.gone:
	case <-time.After(grace):
	}
}

// Info loads libibverbs and tells what it found.
func (w *Worker) Info(ctx context.Context) (Info, error) {
	var info Info
	p, err := w.process(true)
	if err != nil {
		return info, err
	}
	err = w.call(ctx, p, failure.StageOpen, opInfo, quick, nil, &info, nil)
	return info, err
}

// Open begins a session. When it returns an error nothing is open: neither of
// this session nor of one before.
func (w *Worker) Open(ctx context.Context, args OpenArgs) (*Session, Opened, error) {
	var opened Opened
	p, err := w.process(args.Transport == RDMA)
	if err != nil {
		return nil, opened, err
	}
	s := &Session{worker: w, proc: p, rdma: args.Transport == RDMA}
	if err := s.call(ctx, failure.StageOpen, opOpen, quick, args, &opened, nil); err != nil {
		// It may have been opened all the same: when this was told to stop, or the answer made no sense.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), quick+grace)
		defer cancel()
		_ = s.Close(late)
		return nil, Opened{}, err
	}
	return s, opened, nil
}

// process returns the worker process, started if need be. After a crash RDMA
// waits; TCP, which loads no foreign code, does not.
func (w *Worker) process(rdma bool) (*process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := time.Until(w.notBefore); rdma && wait > 0 {
		return nil, failure.New(failure.StageOpen, failure.WorkerBackoff,
			"the worker process failed %d times in a row; RDMA is not tried again for %v", w.crashes,
			wait.Round(time.Second))
	}
	if w.proc != nil && !w.proc.ended() {
		return w.proc, nil
	}
	if w.proc != nil {
		// It died in idleness, between two sessions, which says nothing of the
		// provider: RDMA need not wait.
		w.proc = nil
		w.restarts++
	}
	kept := w.undead[:0]
	for _, p := range w.undead {
		if !p.ended() {
			kept = append(kept, p)
		}
	}
	if w.undead = kept; len(kept) >= mostUndead {
		return nil, failure.New(failure.StageOpen, failure.WorkerBackoff,
			"%d worker processes were killed and do not end: the kernel holds them (process %d); look at dmesg for "+
				"the RDMA driver", len(kept), kept[0].pid)
	}
	if w.opts.Simulation != nil {
		w.proc = w.opts.Simulation.start()
		return w.proc, nil
	}
	p, err := start(w.opts.Command, w.opts.Env, w.opts.Log)
	if err != nil {
		return nil, failure.New(failure.StageOpen, failure.WorkerCrashed, "cannot start the worker process: %v", err)
	}
	w.proc = p
	return p, nil
}

// buryLocked counts the end of a process that nobody asked to end.
func (w *Worker) buryLocked(p *process) {
	if w.proc != p {
		return // somebody else did, or it was closed
	}
	w.proc = nil
	if !p.ended() {
		w.undead = append(w.undead, p)
	}
	w.restarts++
	w.notBefore = time.Now().Add(min(firstBackoff<<min(w.crashes, 16), mostBackoff))
	w.crashes++
}

// call sends one request and waits for its answer: until ctx is done or limit
// is over, then shortly for the worker to end it early, then no longer. The
// error is always a [*failure.Failure].
func (w *Worker) call(ctx context.Context, p *process, stage failure.Stage, op string, limit time.Duration,
	args, result any, progress progressFunc) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return failure.New(stage, failure.Canceled, "%v", context.Cause(ctx))
	}
	body, err := json.Marshal(args)
	if err != nil {
		return failure.As(stage, err)
	}
	w.mu.Lock()
	w.next++
	req := request{ID: w.next, Op: op, Args: body}
	w.mu.Unlock()
	p.forget()

	type answer struct {
		res response
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		res, err := p.exchange(req, progress)
		answered <- answer{res, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var a answer
	select {
	case a = <-answered:
		return w.settle(p, stage, op, a.res, a.err, result)
	case <-timer.C:
	case <-ctx.Done():
		// Best effort: should the socket be full, the worker is beyond listening.
		_ = p.conn.SetWriteDeadline(time.Now().Add(grace))
		_ = writeFrame(p.conn, request{ID: req.ID, Op: opCancel})
		_ = p.conn.SetWriteDeadline(time.Time{})
		timer.Reset(grace)
		select {
		case a = <-answered:
			return w.settle(p, stage, op, a.res, a.err, result)
		case <-timer.C:
		}
	}
	w.mu.Lock()
	p.kill()
	w.buryLocked(p)
	w.mu.Unlock()
	<-answered // the connection is closed: nobody tells of progress after this
	return failure.New(stage, failure.WorkerTimeout,
		"the worker process did not answer %q in time and was killed: a provider that hangs", op)
}

// settle makes of an answer what the caller gets.
func (w *Worker) settle(p *process, stage failure.Stage, op string, res response, err error, result any) error {
	if err != nil {
		select { // a crash closes the socket a moment before the process is gone
		case <-p.gone:
		case <-time.After(grace):
		}
		w.mu.Lock()
		p.kill()
		w.buryLocked(p)
		w.mu.Unlock()
		return failure.New(stage, failure.WorkerCrashed, "the worker process ended during %q: %s", op, p.obituary())
	}
	if len(res.Failure) > 0 {
		var f failure.Failure
		if err := json.Unmarshal(res.Failure, &f); err != nil {
			return failure.As(stage, err)
		}
		f.Stage = stage
		return &f
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(res.Result, result); err != nil {
		return failure.As(stage, err)
	}
	return nil
}

// Session is what the worker holds open for one transfer. Not safe for
// concurrent use. Errors are [*failure.Failure]: of the whole session, while
// what befell single rails is in the answers.
type Session struct {
	worker *Worker
	proc   *process
	rdma   bool
	intake *Intake // all that came in; nil before the end, and when the worker did not live to tell
}

func (s *Session) call(ctx context.Context, stage failure.Stage, op string, limit time.Duration, args, result any,
	progress progressFunc) error {
	if s.proc.ended() {
		s.worker.mu.Lock()
		s.worker.buryLocked(s.proc)
		s.worker.mu.Unlock()
		return failure.New(stage, failure.WorkerCrashed, "the worker process ended before %q: %s", op,
			s.proc.obituary())
	}
	return s.worker.call(ctx, s.proc, stage, op, limit, args, result, progress)
}

// Connect connects rails to the peer's ends.
func (s *Session) Connect(ctx context.Context, args ConnectArgs) (Connected, error) {
	var c Connected
	err := s.call(ctx, failure.StageConnect, opConnect, quick, args, &c, nil)
	return c, err
}

// Latency measures one rail.
func (s *Session) Latency(ctx context.Context, args LatencyArgs) (Latencies, error) {
	var l Latencies
	err := s.call(ctx, failure.StageLatency, opLatency, args.Limit+quick, args, &l, nil)
	return l, err
}

// Burst moves bytes. progress, if not nil, gets the bytes that completed so
// far, by rail, several times a second, and the moment at which it was so: on a
// busy machine it hears of that much later.
func (s *Session) Burst(ctx context.Context, stage failure.Stage, args BurstArgs, progress func(at time.Time,
	bytes []int64)) (BurstDone, error) {
	var b BurstDone
	err := s.call(ctx, stage, opBurst, args.Deadline+quick, args, &b, progress)
	if err == nil && s.rdma { // the provider has shown that it works
		s.worker.mu.Lock()
		s.worker.crashes = 0
		s.worker.mu.Unlock()
	}
	return b, err
}

// Verify looks at what the peer wrote.
func (s *Session) Verify(ctx context.Context, args VerifyArgs) (Verified, error) {
	var v Verified
	err := s.call(ctx, failure.StageVerify, opVerify, 3*quick, args, &v, nil)
	return v, err
}

// TCPInfo tells of the session's connections, by rail in the order of Open.
func (s *Session) TCPInfo(ctx context.Context) ([]TCPInfo, error) {
	var list []TCPInfo
	err := s.call(ctx, failure.StageBaseline, opTCPInfo, quick, nil, &list, nil)
	return list, err
}

// Intake tells what has come in over TCP so far.
func (s *Session) Intake(ctx context.Context) (Intake, error) {
	var in Intake
	err := s.call(ctx, failure.StageLease, opIntake, 3*quick, nil, &in, nil)
	return in, err
}

// Total is all that came in over TCP, and whether the worker lived to tell it.
// To be asked after Close.
func (s *Session) Total() (in Intake, known bool) {
	if s.intake == nil {
		return Intake{}, false
	}
	return *s.intake, true
}

// Close ends the session: queue pairs are destroyed, listeners closed, memory is
// deregistered and given back. What the worker does not confirm it loses with its
// life: when Close returns an error the process was killed, and is gone unless
// the kernel holds it.
func (s *Session) Close(ctx context.Context) error {
	if s.proc.ended() {
		return nil // the kernel closed it all
	}
	var in Intake
	err := s.call(ctx, failure.StageRelease, opClose, quick, nil, &in, nil)
	if err == nil {
		s.intake = &in
		return nil
	}
	s.worker.mu.Lock()
	s.proc.kill() // it must not keep what it has
	s.worker.buryLocked(s.proc)
	s.worker.mu.Unlock()
	select {
	case <-s.proc.gone:
	case <-time.After(grace):
	}
	return err
}
