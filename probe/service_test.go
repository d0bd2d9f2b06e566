package probe

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// served is a service on a node, with its events.
type served struct {
	*Service
	mu      sync.Mutex
	results []result.Result
	addr    net.Addr
	peers   []string // peers as last reported
	stopped []error
}

func newServed(t *testing.T, n *node.Node) *served {
	s := &served{}
	s.Service = NewService(n, func(r result.Result) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.results = append(s.results, r)
	}, quiet(options.Events{
		Answering: func(a net.Addr) { s.addr = a },
		Peers: func(peers []string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.peers = peers
		},
		Stopped: func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stopped = append(s.stopped, err)
		},
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *served) all() []result.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]result.Result(nil), s.results...)
}

func (s *served) apply(t *testing.T, opts *options.Options) {
	t.Helper()
	if err := s.Apply(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
}

// addresses counts the addresses from freeAddress.
var addresses atomic.Uint32

// freeAddress returns an unused address of the loopback network, a new one each time, at a port that only this
// process uses. DefaultPort may be in use on all addresses.
func freeAddress() string {
	n := addresses.Add(1)
	return fmt.Sprintf("127.9.%d.%d:%d", n/250, n%250+1, 20000+os.Getpid()%10000)
}

// TestServiceApply: applied options replace all earlier ones.
func TestServiceApply(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	s := newServed(t, p.a)
	opts := p.opts
	opts.Listen, opts.Name, opts.Peers = freeAddress(), "here", []string{freeAddress()}
	hello := func() (string, failure.Reason) {
		h, f := askHello(t, opts.Listen, opts.Security)
		if f != nil {
			return "", f.Reason
		}
		return h.Node, ""
	}
	for range 3 {
		s.apply(t, &opts)
		if name, r := hello(); name != "here" || r != "" || !s.Stats().Running || len(s.peers) != 1 {
			t.Errorf("%q %s, peers %q", name, r, s.peers)
		}
	}
	opts.Name, opts.Budget = "there", options.Budget{Share: 0.0001}
	s.apply(t, &opts)
	if name, _ := hello(); name != "there" || s.Stats().BudgetSeconds > 1 {
		t.Errorf("changed: %q, budget %v s", name, s.Stats().BudgetSeconds)
	}
	for range 2 {
		s.apply(t, nil)
		if _, r := hello(); r != failure.PeerUnreachable || s.Stats().Running || len(s.peers) > 0 {
			t.Errorf("with nothing: %q, peers %q", r, s.peers)
		}
	}
	s.apply(t, &opts)
	busy := opts
	busy.Listen = p.peer // b already listens there
	if err := s.Apply(t.Context(), &busy); err == nil || !strings.Contains(err.Error(),
		"probe.listen") || !s.Stats().Running {
		t.Errorf("an address in use: %v", err)
	}
	unsafe := opts
	unsafe.Security = options.Security{}
	if err := s.Apply(t.Context(), &unsafe); err == nil || !s.Stats().Running {
		t.Errorf("without proof: %v", err)
	}
	if name, r := hello(); name != "there" || r != "" {
		t.Errorf("what was in force before: %q %s", name, r)
	}
	s.apply(t, &opts)
	s.Close()
	if _, r := hello(); r != failure.PeerUnreachable || len(p.workers("a")) > 0 {
		t.Errorf("closed: %q, workers %v", r, p.workers("a"))
	}
	if len(s.stopped) > 0 {
		t.Errorf("stopped by itself: %v", s.stopped)
	}
}

// TestServiceReload: when the peers change during a burst, the round stops at once without a result, and the new
// peers are asked.
func TestServiceReload(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, func(_ string, _ int, d *fakeverbs.Device) { d.Rate = 2e6 })
	s := newServed(t, p.a)
	opts := p.opts
	opts.Peers, opts.Interval = []string{p.peer}, time.Second
	s.apply(t, &opts)
	if !within(20*time.Second, func() bool { return p.resp.Leases() > 0 && len(p.fabric.Left()) > 4 }) {
		t.Fatal("no round begins")
	}
	time.Sleep(300 * time.Millisecond)
	nobody := freeAddress()
	start := time.Now()
	opts.Peers = []string{nobody}
	s.apply(t, &opts)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	p.clean()
	if !within(5*time.Second, func() bool { return len(s.all()) > 0 }) {
		t.Fatal("the new peer is not asked")
	}
	s.Close()
	for _, r := range s.all() {
		if r.Peer != nobody || r.Reason != failure.PeerUnreachable {
			t.Errorf("%s: %s because of %q (%s)", r.Peer, r.Outcome, r.Reason, r.Detail)
		}
	}
	if n := p.a.Worker.Restarts() + p.b.Worker.Restarts(); n > 0 {
		t.Errorf("%d workers were killed", n)
	}
}

// TestReloadKeepsFound: found peers stay over a reload while their name does not resolve.
func TestReloadKeepsFound(t *testing.T) {
	t.Parallel()
	n := bareNode(t, "self")
	z := &zone{}
	z.set(nil, "127.9.0.1", "127.9.0.2")
	n.Opts.Lookup = z.lookup
	s := newServed(t, n)
	opts := z.options()
	opts.Security.Insecure = true
	opts.Interval = 200 * time.Millisecond
	apply := func(opts *options.Options) {
		s.mu.Lock()
		s.peers = nil
		s.mu.Unlock()
		s.apply(t, opts)
	}
	asked := func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprint(s.peers)
	}
	const want = "[127.9.0.1 127.9.0.2]"
	for i := range 3 {
		apply(&opts)
		if !within(5*time.Second, func() bool { return asked() == want }) {
			t.Fatalf("after %d reloads: it asks %s", i, asked())
		}
		opts.Interval += time.Second
		z.set(errNone)
	}
	other := (&zone{}).options()
	other.DNS, other.Security, other.Interval = []string{"others.ns.svc:10092"}, opts.Security, 200*time.Millisecond
	apply(&other)
	time.Sleep(time.Second)
	if got := asked(); got != "[]" {
		t.Errorf("of another name: it asks %s", got)
	}
}

// TestProbersTakeTurns: two nodes that probe each other both get their rounds, and each cycle has one result.
func TestProbersTakeTurns(t *testing.T) {
	p := newPair(t, 2, nil)
	const periods, interval = 3, 4 * time.Second
	var services []*served
	addrs := []string{freeAddress(), freeAddress()}
	var hosts []string
	for _, addr := range addrs {
		host, _, _ := strings.Cut(addr, ":")
		hosts = append(hosts, host)
	}
	for i, n := range []*node.Node{p.a, p.b} {
		s := newServed(t, n)
		opts := p.opts
		opts.Listen, opts.Name, opts.Peers, opts.Interval = addrs[i], hosts[i], []string{addrs[1-i]},
			interval
		opts.Budget = options.Budget{Share: 1} // the default would extend the cycle
		s.apply(t, &opts)
		services = append(services, s)
	}
	both := time.Now()
	time.Sleep(periods * interval)
	var made [][]result.Result
	for _, s := range services {
		made = append(made, slices.DeleteFunc(s.all(), func(r result.Result) bool { return r.Start.Before(both) }))
	}
	for i, results := range made { // rounds since both nodes answer
		n := 0
		for _, r := range results {
			switch {
			case r.Outcome == result.OK && r.PeerNode == hosts[1-i]:
				n++
			case r.Outcome == result.Skipped && (r.Reason == failure.Busy || r.Reason == failure.Cooldown):
				// The other node was asking at that moment, or had its turn first.
			default:
				t.Errorf("%s asked %q: %s because of %q (%s)", hosts[i], r.PeerNode, r.Outcome, r.Reason, r.Detail)
			}
		}
		if n == 0 || len(results) > periods+1 {
			t.Errorf("%s made %d rounds in %d periods, %d of them good", hosts[i], len(results), periods, n)
		}
	}
}

// TestServiceLeavesNothing: everything that was started ends, and its descriptors are closed.
func TestServiceLeavesNothing(t *testing.T) {
	p := newPair(t, 1, nil)
	p.round() // opens what nodes keep open between rounds
	s := newServed(t, p.a)
	opts := p.opts
	opts.Listen, opts.Peers, opts.Interval = freeAddress(), []string{p.peer, freeAddress()}, time.Second
	goroutines, fds := 0, 0
	for i := range 6 {
		s.apply(t, &opts)
		askHello(t, opts.Listen, opts.Security)
		time.Sleep(200 * time.Millisecond)
		s.apply(t, nil)
		p.clean()
		if i == 2 {
			goroutines, fds = runtime.NumGoroutine(), descriptors(t, "self")
		}
	}
	if !within(5*time.Second, func() bool {
		return runtime.NumGoroutine() <= goroutines+4 && descriptors(t, "self") <= fds+2
	}) {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d descriptors; there were %d and %d\n%s", runtime.NumGoroutine(),
			descriptors(t, "self"), goroutines, fds, buf[:runtime.Stack(buf, true)])
	}
}

// TestProberStops: the prober ends soon after its context, even during a round, without a result.
func TestProberStops(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, slowly)
	opts := p.opts
	opts.Peers, opts.Interval = []string{p.peer}, time.Second
	results := make(chan result.Result, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	prober := schedule.NewProber(p.a, opts, func(r result.Result) { results <- r }, quiet(options.Events{}))
	go func() { defer close(done); prober.Run(ctx) }()
	if !within(20*time.Second, func() bool { return p.resp.Leases() > 0 && len(p.fabric.Left()) > 4 }) {
		t.Fatal("no round begins")
	}
	cancel()
	start := time.Now()
	<-done
	if took := time.Since(start); took > 5*time.Second || len(results) > 0 {
		t.Errorf("it took %v, and had %d results", took, len(results))
	}
	p.clean()
}

// Apply calls [Service.Prepare] and [Change.Commit].
func (s *Service) Apply(ctx context.Context, opts *options.Options) error {
	change, err := s.Prepare(opts, false)
	if err != nil {
		return err
	}
	change.Commit(ctx)
	return nil
}
