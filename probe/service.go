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
)

// Service is the probe of a running exporter: the prober and the responder of the applied configuration. Safe for
// concurrent use.
type Service struct {
	node    *Node
	observe func(Result)
	events  Events
	listen  func(address string) (net.Listener, error)
	conns   chan net.Conn // from the listener to the current responder

	active    atomic.Bool                     // options are applied
	listener  atomic.Pointer[controlListener] // Stats must not wait for a change; nil: nobody is answered
	responder atomic.Pointer[Responder]       // likewise
	prober    atomic.Pointer[Prober]          // likewise

	mu      sync.Mutex // protects all following fields, and changes of those above
	stop    context.CancelFunc
	running *sync.WaitGroup
	closed  bool
}

// Events are for the log and the series. All are required.
type Events struct {
	Answering func(addr net.Addr) // peers are answered there
	Stopped   func(err error)     // peers are not answered: listening failed, and is retried
	// Peers are those whose results follow, by [Result.Peer]. It is never called while a result is observed.
	Peers func(peers []string)
	// Resolved is called for a DNS name, host:port, or file:PATTERN with the number of nodes that it lists, when that
	// changes or its lookup starts to fail or to succeed. With an error, they are those of before.
	Resolved func(name string, peers int, err error)
	// SecretFile is called when a good token or certificate file can no longer be used and its last content stays in
	// use, and with nil when it can be used again.
	SecretFile func(path string, err error)
	// WeakToken is called for a token file whose shortest token has so few bytes that it can be guessed: once for each
	// content, and again when options are applied.
	WeakToken func(path string, bytes int)
}

// NewService returns a service that is idle until options are applied.
func NewService(node *Node, observe func(Result), events Events) *Service {
	node.secrets.setObservers(events.SecretFile, events.WeakToken)
	return &Service{node: node, observe: observe, events: events, conns: make(chan net.Conn),
		listen: func(address string) (net.Listener, error) { return net.Listen("tcp", address) }}
}

// Change is a change of the applied options that can no longer fail.
type Change struct {
	service   *Service
	opts      *Options
	responder *Responder
	listener  *controlListener // of the new options; may be the current one
}

// Prepare checks options, nil for none, and opens the address that they name. An error changes nothing. With retry, an
// address that cannot be listened on is not an error, but retried. The result must be committed.
func (s *Service) Prepare(opts *Options, retry bool) (*Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Change{service: s, opts: opts}
	if opts == nil || opts.Listen == "" {
		return c, nil
	}
	s.node.secrets.resetWarnings()
	var err error
	if c.responder, err = NewResponder(s.node, *opts); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	if c.listener = s.listener.Load(); c.listener != nil && c.listener.address == opts.Listen {
		return c, nil // also while it retries
	}
	l, err := s.openLocked(opts.Listen)
	if err != nil && !retry {
		return nil, fmt.Errorf("probe.listen: %w", err)
	}
	c.listener = newControlListener(opts.Listen, l, err, s)
	return c, nil
}

// openLocked listens on an address. If the current listener occupies it, as with the same port on all addresses, that
// is closed first, and opened again after an error.
func (s *Service) openLocked(address string) (net.Listener, error) {
	l, err := s.listen(address)
	old := s.listener.Load()
	if err == nil || !errors.Is(err, unix.EADDRINUSE) || old == nil || !samePort(old.address, address) {
		return l, err
	}
	old.close()
	if l, err = s.listenAgain(address); err == nil {
		return l, nil
	}
	back, backErr := s.listenAgain(old.address)
	s.listener.Store(newControlListener(old.address, back, backErr, s))
	return nil, err
}

// listenAgain listens on an address that was just ours. It retries for a moment: a worker that is being forked holds
// all descriptors until it runs its own program.
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

// Commit applies the options and replaces the previous ones: their rounds and leases end. A listener that stays is
// never closed meanwhile.
func (c *Change) Commit(ctx context.Context) {
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.prober.Load()
	s.endLocked()
	if old := s.listener.Swap(c.listener); old != nil && old != c.listener {
		old.close()
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
	}
}

// startLocked starts prober and responder; r is nil if nobody is answered, before is nil or the last prober.
func (s *Service) startLocked(ctx context.Context, opts Options, r *Responder, before *Prober) {
	ctx, s.stop = context.WithCancel(ctx)
	s.running = &sync.WaitGroup{}
	s.node.setBudget(opts.Budget)
	s.node.setName(opts.Name)
	if r != nil {
		s.responder.Store(r)
		s.listener.Load().announce()
		s.running.Go(func() {
			if err := r.Serve(ctx, newResponderListener(s.conns)); err != nil {
				s.events.Stopped(err)
			}
		})
	}
	if len(opts.Peers)+len(opts.DNS)+len(opts.Files) > 0 {
		p := NewProber(s.node, opts, s.observe, s.events)
		if before != nil {
			p.directory.keep(before.directory)
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
	s.responder.Store(nil)
	s.prober.Store(nil)
}

// Stats are counts beside the results.
func (s *Service) Stats() Stats {
	st := Stats{Running: s.active.Load(),
		BudgetSeconds:  min(s.node.askBudget.remaining(), s.node.answerBudget.remaining()),
		WorkerRestarts: s.node.worker.Restarts()}
	listener := s.listener.Load()
	st.Up = st.Running && (listener == nil || listener.current() != nil)
	s.node.refused.Each(func(reason string, n uint64) { st.Refused = append(st.Refused, Refusal{reason, n}) })
	if r := s.responder.Load(); r != nil {
		st.Leases = r.Leases()
	}
	if p := s.prober.Load(); p != nil {
		st.Names = p.directory.Stats()
		st.Interval = time.Duration(p.cycle.Load())
	}
	return st
}
