package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Service is the probe of a running exporter: the prober and the responder of the applied configuration. Safe for
// concurrent use.
type Service struct {
	node    *node.Node
	observe func(result.Result)
	events  options.Events
	listen  func(address string) (net.Listener, error)

	active    atomic.Bool                      // options are applied
	listener  atomic.Pointer[controlListener]  // atomic, because Stats must not wait for a change; nil: not answering
	responder atomic.Pointer[target.Responder] // atomic for Stats and requests; nil: none until now
	prober    atomic.Pointer[schedule.Prober]  // atomic for Stats; nil: no peers

	byHand chan struct{} // holds one token while an interactive round runs or may start

	mu      sync.Mutex      // protects all following fields, and changes of those above
	ended   <-chan struct{} // closed by stop
	stop    context.CancelFunc
	running *sync.WaitGroup
	server  *target.Server // passes requests to responder
	closed  bool
}

// NewService returns a service that is idle until options are applied.
func NewService(node *node.Node, observe func(result.Result), events options.Events) *Service {
	node.Secrets.SetObservers(events.SecretFile, events.WeakToken)
	s := &Service{node: node, observe: observe, events: events, byHand: make(chan struct{}, 1),
		listen: func(address string) (net.Listener, error) { return net.Listen("tcp", address) }}
	s.server = target.NewServer(node, target.RequestTime, s.responder.Load)
	return s
}

// Change is a checked change of the applied options that can no longer fail.
type Change struct {
	service   *Service
	opts      *options.Options
	responder *target.Responder
	listener  *controlListener // listener of the new options; may be the present one
}

// Prepare checks options, nil for none, and opens the address that they name. An error changes nothing. With retry,
// an address that cannot be listened on is not an error, but retried. The result must be committed.
func (s *Service) Prepare(opts *options.Options, retry bool) (*Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Change{service: s, opts: opts}
	if opts == nil || opts.Listen == "" {
		return c, nil
	}
	s.node.Secrets.ResetWarnings()
	var err error
	c.responder, err = target.NewResponder(s.node, *opts)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	c.listener = s.listener.Load()
	if c.listener != nil && c.listener.address == opts.Listen {
		return c, nil // no error if the listener retries
	}
	l, err := s.openLocked(opts.Listen)
	if err != nil && !retry {
		return nil, fmt.Errorf("probe.listen: %w", err)
	}
	c.listener = newControlListener(opts.Listen, l, err, s)
	return c, nil
}

// openLocked listens on an address. If the present listener occupies it, as with the same port on all addresses,
// that listener is closed first, and opened again after an error.
func (s *Service) openLocked(address string) (net.Listener, error) {
	l, err := s.listen(address)
	old := s.listener.Load()
	if err == nil || !errors.Is(err, unix.EADDRINUSE) || old == nil || !samePort(old.address, address) {
		return l, err
	}
	old.close()
	l, err = s.listenAgain(address)
	if err == nil {
		return l, nil
	}
	back, backErr := s.listenAgain(old.address)
	again := newControlListener(old.address, back, backErr, s)
	s.listener.Store(again)
	again.start(s.server)
	return nil, err
}

// listenAgain listens on an address that this process has just closed. It retries for a moment: a worker that is
// being forked holds all descriptors until it runs its own program.
func (s *Service) listenAgain(address string) (net.Listener, error) {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(20 * time.Millisecond) {
		l, err := s.listen(address)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return l, err
		}
	}
}

func samePort(a, b string) bool {
	_, portA, errA := net.SplitHostPort(a)
	_, portB, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && portA == portB
}

// Commit applies the options in place of the previous ones, whose rounds and leases end. A listener that stays is
// not closed meanwhile.
func (c *Change) Commit(ctx context.Context) {
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.prober.Load()
	s.endLocked()
	old := s.listener.Swap(c.listener)
	if old != nil && old != c.listener {
		old.close()
	}
	if old != nil && c.listener == nil {
		s.server.Shutdown()
		s.server = target.NewServer(s.node, target.RequestTime, s.responder.Load)
	}
	switch {
	case s.closed:
		if c.listener != nil {
			c.listener.close()
		}
	case c.opts == nil:
		s.events.Peers(nil)
	default:
		s.startLocked(ctx, *c.opts, c.responder, before)
		if c.listener != nil && c.listener != old {
			c.listener.start(s.server)
		}
	}
}

// startLocked starts prober and responder. r is nil if no peer is answered, before is nil or the previous prober.
func (s *Service) startLocked(ctx context.Context, opts options.Options, r *target.Responder, before *schedule.Prober) {
	ctx, s.stop = context.WithCancel(ctx)
	s.ended = ctx.Done()
	s.running = &sync.WaitGroup{}
	s.node.SetBudget(opts.Budget)
	s.node.SetName(opts.Name)
	if r != nil {
		s.responder.Store(r)
		s.listener.Load().announce()
		s.running.Go(func() { r.Run(ctx) })
	}
	if opts.Events && s.events.Device != nil {
		s.running.Go(func() { node.WatchDevices(ctx, s.node, s.events.LetGo, s.events.Device) })
	}
	if len(opts.Peers)+len(opts.DNS)+len(opts.Files) > 0 {
		p := schedule.NewProber(s.node, opts, s.observe, s.events)
		if before != nil {
			p.Directory.Keep(before.Directory)
		}
		s.prober.Store(p)
		s.running.Go(func() { p.Run(ctx) })
	} else {
		s.events.Peers(nil)
	}
	s.active.Store(true)
}

// Close ends rounds, leases, listener and worker process.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.endLocked()
	if d := s.listener.Swap(nil); d != nil {
		d.close()
	}
	s.server.Shutdown()
	s.node.Close()
}

func (s *Service) endLocked() {
	if s.stop == nil {
		return
	}
	s.stop()
	s.running.Wait()
	s.stop = nil
	s.active.Store(false)
	s.prober.Store(nil)
	s.node.Asked.Store(nil)
	s.node.Listed.Store(nil)
}

// Stats returns counts beside the results.
func (s *Service) Stats() options.Stats {
	st := options.Stats{Running: s.active.Load(),
		BudgetSeconds:  min(s.node.AskBudget.Remaining(), s.node.AnswerBudget.Remaining()),
		WorkerRestarts: s.node.Worker.Restarts() + s.node.Gaps.Worker.Restarts()}
	listener := s.listener.Load()
	st.Up = st.Running && (listener == nil || listener.current() != nil)
	s.node.Refused.Each(func(reason string, n uint64) {
		st.Refused = append(st.Refused, options.Refusal{Reason: reason, Count: n})
	})
	if r := s.responder.Load(); r != nil {
		st.Leases = r.Leases()
	}
	if p := s.prober.Load(); p != nil {
		st.Names = p.Directory.Stats()
		st.Interval = time.Duration(p.Cycle.Load())
		st.Full = time.Duration(p.Opts.SoloEvery) * st.Interval
		st.MinOfExpected = p.Opts.MinOfExpected
	}
	return st
}
