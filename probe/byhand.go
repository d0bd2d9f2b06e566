package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Errors of an interactive request to a running [Service]; always wrapped.
var (
	// ErrNotPeer is returned when the service has no peer of that name or address.
	ErrNotPeer = errors.New("not a peer of the railscope that runs on this node")
	// ErrInUse is returned when another interactive measurement runs or waits.
	ErrInUse = errors.New("this node is in use")
)

// Bench runs a round with a peer of the service as [Bench] does. The peer is named by its address or its label in
// the series, and change modifies a copy of the service's options. The service's schedule waits meanwhile, and its
// budget is not charged.
func (s *Service) Bench(ctx context.Context, peer string, change func(*options.Options),
	progress func(result.Progress)) (result.Result,
	error) {
	ctx, one, opts, done, err := s.enter(ctx, peer)
	if err != nil {
		return result.Result{}, err
	}
	defer done()
	free, err := s.reserve(ctx)
	if err != nil {
		return result.Result{}, err
	}
	defer free()
	change(&opts)
	r := schedule.NewBench(s.node, opts, one.Address, progress)
	r.Uncharged = true
	res := s.node.CompareWithPast(r.Run(ctx), true)
	res.Peer = one.Label
	return res, nil
}

// Plans calls [BenchPlans] for a peer of the service.
func (s *Service) Plans(ctx context.Context, peer string, change func(*options.Options),
	lists [][]result.Extra) (result.Plans, error) {
	ctx, one, opts, done, err := s.enter(ctx, peer)
	if err != nil {
		return result.Plans{}, err
	}
	defer done()
	change(&opts)
	return BenchPlans(ctx, s.node, opts, one.Address, lists)
}

// Facts calls [FetchFacts] for a peer of the service.
func (s *Service) Facts(ctx context.Context, peer string) (node string, facts []byte, err error) {
	ctx, one, opts, done, err := s.enter(ctx, peer)
	if err != nil {
		return "", nil, err
	}
	defer done()
	return FetchFacts(ctx, one.Address, opts.Security)
}

// enter returns the peer and the options of its rounds. The context ends when these options are replaced; they stay
// valid until done is called.
func (s *Service) enter(ctx context.Context, peer string) (_ context.Context, one schedule.KnownPeer,
	opts options.Options, done func(),
	err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.prober.Load()
	if p == nil || s.stop == nil {
		return nil, one, opts, nil, fmt.Errorf("%s: %w, which has none", peer, ErrNotPeer)
	}
	known := *p.Known.Load()
	one, ok := known[peer]
	// The peer is named by its label in the series: the host.
	if host, port, err := net.SplitHostPort(peer); !ok && err == nil && port == options.DefaultPort {
		one, ok = known[host]
	}
	if !ok {
		return nil, one, opts, nil, fmt.Errorf("%s: %w: add it to probe.peers, or write it as there", peer, ErrNotPeer)
	}
	opts = p.Opts
	opts.Security = one.Security(opts.Security)
	ctx, done = s.untilStopLocked(ctx)
	return ctx, one, opts, done, nil
}

// untilStopLocked returns a context that ends with the applied options. Stopping them waits until done is called.
func (s *Service) untilStopLocked(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := s.ended
	left := make(chan struct{})
	s.running.Go(func() {
		defer cancel()
		select {
		case <-ended:
			cancel()
			<-left
		case <-left:
		}
	})
	return ctx, func() { close(left) }
}

// reserve reserves the node for one interactive measurement at a time, until free is called.
func (s *Service) reserve(ctx context.Context) (free func(), err error) {
	select {
	case s.byHand <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(round.SlotTime): // a command that was just stopped needs a moment to end
		return nil, fmt.Errorf("%w: another benchmark runs on it", ErrInUse)
	}
	for end := time.Now().Add(round.OverdueTime); ; {
		other, ok := s.node.Reserved.Take(node.ReservedHere, "about to measure by hand", node.MaxReserved)
		if ok {
			return func() { s.node.Reserved.End(node.ReservedHere); <-s.byHand }, nil
		}
		err = fmt.Errorf("%w: it is %s", ErrInUse, other)
		if time.Now().After(end) {
			break
		}
		select {
		case <-time.After(round.AskEvery):
			continue
		case <-ctx.Done():
		}
		break
	}
	<-s.byHand
	return nil, err
}

// Hold keeps the node's slot for a measurement by another process on this node while held runs. held returns when
// its context ends. Bytes passed to add count as the probe's own traffic.
func (s *Service) Hold(ctx context.Context, held func(ctx context.Context, add func(node.OwnBytes) error)) error {
	s.mu.Lock()
	if s.stop == nil {
		s.mu.Unlock()
		return nil // there is no slot: no probe runs
	}
	ctx, done := s.untilStopLocked(ctx)
	s.mu.Unlock()
	defer done()
	free, err := s.reserve(ctx)
	if err != nil {
		return err
	}
	defer free()
	if holder, ok := s.node.Slot.Acquire(ctx, round.OverdueTime, netip.Addr{}, "measuring by hand"); !ok {
		return fmt.Errorf("%w: it is %s", ErrInUse, cmp.Or(holder, "busy"))
	}
	defer s.node.Slot.Release()
	held(ctx, s.node.AddOwn)
	return nil
}
