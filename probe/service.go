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

// Service is the probe of a running exporter: the prober and the responder of
// the configuration in force, on one node. Safe for concurrent use.
type Service struct {
	node    *Node
	observe func(Result)
	events  Events

	on        atomic.Bool               // something is in force
	responder atomic.Pointer[Responder] // whoever counts must not wait for a change to end
	prober    atomic.Pointer[Prober]    // likewise

	mu        sync.Mutex // protects all following fields
	stop      context.CancelFunc
	running   *sync.WaitGroup
	listening string // as configured
}

// Events are told to whoever keeps the log and the series. Nil ones are told to
// nobody.
type Events struct {
	Answering func(addr net.Addr) // peers are answered there
	Stopped   func(err error)     // the responder ended by itself
	// Peers are those whose results come from now on, by [Result.Peer]. It is
	// never called while a result is observed.
	Peers func(peers []string)
	// Resolved tells of a DNS name, host:port, for how many peers it stands, when
	// that changes or the lookup begins to fail or to succeed. With an error they
	// are those of before.
	Resolved func(name string, peers int, err error)
	// SecretFile is told when a token or certificate file that was good cannot be
	// used any more, so that what it held last stays in use, and, with nil, when it
	// can again.
	SecretFile func(path string, err error)
	// WeakToken is told of a token file whose shortest token has so few bytes that
	// it can be guessed: once for each content, and again when options are applied.
	WeakToken func(path string, bytes int)
}

// orNobody returns events that can be called.
func (e Events) orNobody() Events {
	if e.Answering == nil {
		e.Answering = func(net.Addr) {}
	}
	if e.Stopped == nil {
		e.Stopped = func(error) {}
	}
	if e.Peers == nil {
		e.Peers = func([]string) {}
	}
	if e.Resolved == nil {
		e.Resolved = func(string, int, error) {}
	}
	if e.SecretFile == nil {
		e.SecretFile = func(string, error) {}
	}
	if e.WeakToken == nil {
		e.WeakToken = func(string, int) {}
	}
	return e
}

// NewService returns a service that does nothing yet.
func NewService(node *Node, observe func(Result), events Events) *Service {
	events = events.orNobody()
	node.secrets.report(events.SecretFile, events.WeakToken)
	return &Service{node: node, observe: observe, events: events}
}

// Apply puts options in force, nil for none, in the place of those that were:
// their rounds are broken off, their leases end. Options that cannot be put in
// force change nothing.
func (s *Service) Apply(ctx context.Context, opts *Options) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opts == nil {
		s.endLocked()
		s.events.Peers(nil)
		return nil
	}
	s.node.secrets.warnAgain()
	var r *Responder
	var l net.Listener
	if opts.Listen != "" {
		var err error
		if r, err = NewResponder(s.node, *opts); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		ours := opts.Listen == s.listening
		if ours { // it must be given up first
			s.endLocked()
		}
		if l, err = listen(opts.Listen, ours); err != nil {
			return fmt.Errorf("probe.listen: %w", err)
		}
	}
	s.endLocked()
	s.startLocked(ctx, *opts, r, l)
	return nil
}

// listen listens. On an address that was ours it tries for a moment: a worker
// that is being forked holds all descriptors until it runs its own program.
func listen(address string, ours bool) (net.Listener, error) {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(20 * time.Millisecond) {
		l, err := net.Listen("tcp", address)
		if !ours || !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return l, err
		}
	}
}

// startLocked starts prober and responder; r and l are nil where nobody is to be
// answered.
func (s *Service) startLocked(ctx context.Context, opts Options, r *Responder, l net.Listener) {
	ctx, s.stop = context.WithCancel(ctx)
	s.running, s.listening = &sync.WaitGroup{}, opts.Listen
	s.node.asked.resize(opts.Budget)
	s.node.answered.resize(opts.Budget)
	s.node.rename(opts.Name)
	if r != nil {
		s.responder.Store(r)
		s.events.Answering(l.Addr())
		s.running.Go(func() {
			if err := r.Serve(ctx, l); err != nil {
				s.events.Stopped(err)
			}
		})
	}
	if len(opts.Peers)+len(opts.DNS) > 0 {
		p := NewProber(s.node, opts, s.observe, s.events)
		s.prober.Store(p)
		s.running.Go(func() { p.Run(ctx) })
	} else {
		s.events.Peers(nil)
	}
	s.on.Store(true)
}

// Close ends everything, and the worker process.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
	s.node.Close()
}

func (s *Service) endLocked() {
	if s.stop == nil {
		return
	}
	s.stop()
	s.running.Wait()
	s.stop, s.listening = nil, ""
	s.on.Store(false)
	s.responder.Store(nil)
	s.prober.Store(nil)
}

// Stats is what the service counts beside the results.
func (s *Service) Stats() Stats {
	st := Stats{Running: s.on.Load(), BudgetBytes: min(s.node.asked.remaining(), s.node.answered.remaining()), WorkerRestarts: s.node.worker.Restarts()}
	if r := s.responder.Load(); r != nil {
		st.Leases = r.Leases()
	}
	if p := s.prober.Load(); p != nil {
		st.Names = p.directory.Stats()
	}
	return st
}
