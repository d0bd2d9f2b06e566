package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// A fleet in virtual time. Everything that decides who asks whom and when is real: ring, prober, schedule, slot,
// budget, grant and lease. Only the network and the transfer are sleeps.

// simFleet is the fleet. Node i has the address of fleet(n)[i].
type simFleet struct {
	start  time.Time
	nodes  []*simNode
	at     map[string]*simNode
	fanout int
	real   bool // each node has a directory; else one ring serves all

	mu   sync.Mutex // protects all following fields
	list []string   // of the nodes, as a DNS would answer
	ring map[string]ring
}

// simNode is one node.
type simNode struct {
	fleet   *simFleet
	address string
	ip      netip.Addr
	node    *Node
	resp    *Responder
	random  *rand.Rand // protected by mu

	took      time.Duration // its rounds
	clock     time.Duration // of its wall clock, ahead of the others
	steps     time.Duration // when it steps there, since the start
	away      away          // while it is dead, busy with a job, or in maintenance
	liesAsked bool          // it denies everything, and says that it takes an hour
	liesAsks  bool          // it never releases a lease, and says that it moved nothing

	mu                             sync.Mutex
	pairs                          map[string]time.Time // peer → since when it is to be measured
	rounds, results, denied, shown int
	used                           time.Duration // of each rail
	worst                          time.Duration // longest gap of a pair
	worstPair                      string
	gaps                           int // pairs and times that broke the promise
}

// away is when a node takes no part, and why.
type away struct {
	from, to time.Duration // since the start
	reason   failure.Reason
}

func (n *simNode) isAway(reason failure.Reason) bool {
	t := time.Since(n.fleet.start)
	return n.away.reason == reason && t >= n.away.from && t < n.away.to
}

const promise = 5 * time.Minute

// newSimFleet makes n nodes. The last joins of them are not in the list yet.
func newSimFleet(t *testing.T, n, joins int, real bool) *simFleet {
	f := &simFleet{start: time.Now(), at: map[string]*simNode{}, ring: map[string]ring{}, real: real}
	opts := DefaultOptions()
	opts.Security.Insecure = true
	f.fanout = opts.Fanout
	for i, address := range fleet(n) {
		s := &simNode{fleet: f, address: address, ip: netip.MustParseAddrPort(address).Addr(), took: 4 * time.Second,
			random: rand.New(rand.NewPCG(13, uint64(i))), pairs: map[string]time.Time{}}
		s.node = NewNode(NodeOptions{Name: fmt.Sprint("node-", i),
			Rails:       func() ([]rail.Rail, error) { return nil, nil },
			Maintenance: func() bool { return s.isAway(failure.Maintenance) },
			Addresses: func() (map[string][]netip.Prefix, error) {
				return map[string][]netip.Prefix{"eth0": {netip.PrefixFrom(s.ip, 8)}}, nil
			},
			Lookup: f.lookup})
		s.node.setBudget(opts.Budget)
		s.node.guardInterval = time.Minute // rails that do not exist are not read
		var err error
		if s.resp, err = NewResponder(s.node, opts); err != nil {
			t.Fatal(err)
		}
		f.nodes, f.at[address] = append(f.nodes, s), s
		if i < n-joins {
			f.list = append(f.list, address)
		}
	}
	return f
}

func (f *simFleet) lookup(context.Context, string) (list []netip.Addr, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, address := range f.list {
		list = append(list, f.at[address].ip)
	}
	return list, nil
}

// setList changes what is in the DNS.
func (f *simFleet) setList(list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.ring = list, map[string]ring{}
}

// prober is that of a node.
func (f *simFleet) prober(n *simNode) *Prober {
	opts := n.resp.opts
	opts.Listen = ":10092"
	if f.real {
		opts.DNS = []string{"peers:10092"}
	}
	p := NewProber(n.node, opts, func(Result) { n.mu.Lock(); n.results++; n.mu.Unlock() },
		Events{Peers: func(list []string) { n.shown = max(n.shown, len(list)) }}.withDefaults())
	p.runRound, p.schedule.random = n.round, n.wait
	if p.directory != nil {
		p.directory.now = n.now
	}
	find := p.find
	p.find = func(ctx context.Context, found chan<- []target) {
		lists := make(chan []target)
		go func() {
			defer close(lists)
			if find == nil {
				find = f.find(n)
			}
			find(ctx, lists)
		}()
		for list := range lists {
			n.choose(list)
			select {
			case found <- list:
			case <-ctx.Done():
			}
		}
	}
	return p
}

// find does for a large fleet what a directory does, with one ring for all nodes that know the same day.
func (f *simFleet) find(n *simNode) func(context.Context, chan<- []target) {
	return func(ctx context.Context, found chan<- []target) {
		var sent []target
		for {
			day := n.now().UTC().Format(time.DateOnly)
			f.mu.Lock()
			r := f.ring[day]
			if r == nil {
				r = newRing(f.list, n.now())
				f.ring[day] = r
			}
			f.mu.Unlock()
			list := []target{}
			for _, address := range r.after(n.address, n.now(), f.fanout) {
				list = append(list, target{address: address, found: true})
			}
			if !slices.Equal(list, sent) {
				select {
				case found <- list:
					sent = list
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-time.After(lookupEvery):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (n *simNode) now() time.Time {
	if time.Since(n.fleet.start) < n.steps {
		return time.Now()
	}
	return time.Now().Add(n.clock)
}

func (n *simNode) wait(most time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Duration(n.random.Int64N(int64(most)))
}

// choose records from when on which pairs are to be measured.
func (n *simNode) choose(list []target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.pairs
	n.pairs = map[string]time.Time{}
	for _, t := range list {
		since, known := before[t.address]
		if !known {
			since = time.Now()
		}
		n.pairs[t.address] = since
		delete(before, t.address)
	}
	for peer, since := range before { // not its peer any more
		n.judgeLocked(peer, since)
	}
}

// measured records a round.
func (n *simNode) measured(peer string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rounds++
	if since, ok := n.pairs[peer]; ok {
		n.judgeLocked(peer, since)
		n.pairs[peer] = time.Now()
	}
}

// judgeLocked compares the time that a pair was not measured with the promise, without times when either end was away.
func (n *simNode) judgeLocked(peer string, since time.Time) {
	other := n.fleet.at[peer]
	if n.liesAsks || other.liesAsked {
		return
	}
	from, to := since.Sub(n.fleet.start), time.Since(n.fleet.start)
	cuts := []time.Duration{from, to}
	for _, a := range []away{n.away, other.away} {
		if a.reason != "" {
			cuts = append(cuts, min(max(a.from, from), to), min(max(a.to, from), to))
		}
	}
	slices.Sort(cuts)
	for i := range cuts[1:] {
		middle := (cuts[i] + cuts[i+1]) / 2
		inside := func(a away) bool { return a.reason != "" && middle >= a.from && middle < a.to }
		gap := cuts[i+1] - cuts[i]
		if inside(n.away) || inside(other.away) {
			continue
		}
		if gap > n.worst {
			n.worst, n.worstPair = gap, fmt.Sprintf("%s → %s, until %v", n.address, peer, to)
		}
		if gap > promise {
			n.gaps++
		}
	}
}

// round is a round whose network and transfer are sleeps.
func (n *simNode) round(ctx context.Context, r *round) Result {
	start := time.Now()
	r.res = Result{Peer: r.peer, Start: start, Transport: NoTransport}
	r.session = &workerSession{node: n.node}
	err := n.visit(ctx, r, n.fleet.at[r.peer])
	r.free()
	r.setOutcome(err)
	r.res.Duration = time.Since(start)
	switch {
	case r.res.Transport != NoTransport:
		n.measured(r.peer)
	case r.res.RetryAfter > 0:
		n.mu.Lock()
		n.denied++
		n.mu.Unlock()
	}
	return r.res
}

func (n *simNode) visit(ctx context.Context, r *round, peer *simNode) error {
	switch {
	case n.node.maintenance():
		return failure.New(failure.StageHello, failure.Maintenance, "this node is in maintenance")
	case peer.isAway(failure.PeerUnreachable):
		sleep(ctx, dialTime)
		return failure.New(failure.StageHello, failure.PeerUnreachable, "nobody answers")
	}
	r.remote, r.plan.rails, r.res.PeerNode = hello{Node: peer.node.name()}, 8, peer.node.name()
	r.client = new(client) // of which the round only wants to know the peer's address
	err := r.reserve(ctx)
	if r.client = nil; err != nil {
		return err
	}
	switch {
	case n.isAway(failure.Busy) || peer.isAway(failure.Busy):
		return failure.New(failure.StageLease, failure.Busy, "a job uses the rails")
	case peer.liesAsked:
		return later(time.Hour, failure.Busy, "the peer is busy, always")
	}
	// The nodes have no rails, which the budgets of a round and of a lease would need.
	cost, used := roundCost(r.plan)
	for _, b := range []*budget{n.node.askBudget, peer.node.answerBudget} {
		if wait, ok := b.reserve(cost); !ok {
			return budgetFailure("this node's or the peer's", cost, wait)
		}
		defer func() {
			b.settle(cost, used)
			b.note(r.plan.full, used)
		}()
	}
	var l *lease
	if err := r.persist(ctx, func() error {
		var denied *failure.Failure
		if l, denied = peer.resp.grant(ctx, r.leaseRequest(), n.ip); denied != nil {
			return denied
		}
		return nil
	}); err != nil {
		used = 0
		return err
	}
	took := max(n.took, peer.took)
	time.Sleep(took*9/10 + n.wait(took/5))
	l.reported.Store(1)
	n.mu.Lock()
	n.used += used
	n.mu.Unlock()
	if n.liesAsks { // it ends when the holder is silent for too long
		l.reported.Store(0)
	} else {
		l.end(nil)
	}
	<-l.finished
	r.res.Transport = RDMA
	return nil
}

// roundCost is what a round over 8 × 400 Gb/s reserves, and what it uses of it: bursts as long as they measure, and TCP
// at the full rate.
func roundCost(p plan) (reserved, used time.Duration) {
	var paths []*path
	for range 8 {
		paths = append(paths, ratedPath(400))
	}
	p.rails, p.rate = 8, 8*50e9
	used = p.Burst + time.Millisecond
	if p.full {
		used += used + time.Duration(len(baselineStreams))*(tcpWarmup+tcpWindow)
	}
	return railTime(p.bytes(paths, paths), p.rate), used
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// TestFleet: every pair of the ring is measured at least every five minutes, while nodes die, join, are busy, slow or
// lie, their clocks step, and a day ends.
func TestFleet(t *testing.T) {
	t.Logf("%6s %5s %9s %11s %10s %9s %8s %8s %7s", "nodes", "time", "rounds", "per pair, h", "collisions", "worst gap",
		"of rails", "peers", "CPU")
	for _, tc := range []struct {
		nodes int
		time  time.Duration
	}{{2, time.Hour}, {10, time.Hour}, {100, 15 * time.Minute}, {1000, 20 * time.Minute},
		{10000, promise + 30*time.Second}} { // 40 s of processor time
		if raceEnabled && tc.nodes > 100 || testing.Short() && tc.nodes > 1000 {
			continue // the race detector is ten times as slow
		}
		synctest.Test(t, func(t *testing.T) { runFleet(t, tc.nodes, tc.time) })
	}
}

func runFleet(t *testing.T, n int, length time.Duration) {
	defer debug.SetGCPercent(debug.SetGCPercent(200))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // goroutines that meet cost more than those that wait
	used := cpuTime()
	time.Sleep(time.Until(time.Date(2026, 11, 22, 23, 59, 50, 0, time.UTC))) // the day ends after 10 s
	joins := n / 50
	f := newSimFleet(t, n, joins, n <= 100)
	for i, s := range f.nodes[:n-joins] { // a part of each kind
		switch k := i % 50; {
		case n < 50 && i > 0:
		case k == 1:
			s.away = away{20 * time.Second, length, failure.PeerUnreachable}
		case k == 2:
			s.away = away{15 * time.Second, 2 * time.Minute, failure.Busy}
		case k == 3:
			s.away = away{30 * time.Second, 3 * time.Minute, failure.Maintenance}
		case k == 4:
			s.took = 8 * time.Second
		case k == 5:
			s.liesAsks = true
		case k == 6:
			s.liesAsked = true
		case k == 7:
			s.clock = 5 * time.Minute // a new day, right away
		case k == 8:
			s.clock = -100 * time.Hour
		case k == 9:
			s.clock, s.steps = 30*time.Hour, 90*time.Second
		case k == 10:
			s.clock, s.steps = -30*time.Hour, 4*time.Minute
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	run := func(s *simNode) {
		p := f.prober(s)
		running.Go(func() {
			sleep(ctx, s.wait(lookupEvery)) // not all at once
			p.Run(ctx)
		})
	}
	for _, s := range f.nodes[:n-joins] {
		run(s)
	}
	const joined = 5 * time.Second
	time.Sleep(joined)
	all := slices.Clone(f.list)
	for _, s := range f.nodes[n-joins:] {
		all = append(all, s.address)
		run(s)
	}
	f.setList(all)
	time.Sleep(length - joined)
	stop()
	running.Wait()
	f.check(t, length, cpuTime()-used)
}

// check prints what happened, and fails where the promise was broken.
func (f *simFleet) check(t *testing.T, length, used time.Duration) {
	var rounds, denied, gaps, shown, pairs int
	var worst *simNode
	var railUse time.Duration
	for _, s := range f.nodes {
		railUse += s.used
		for peer, since := range s.pairs {
			s.judgeLocked(peer, since)
		}
		rounds, denied, gaps, pairs = rounds+s.rounds, denied+s.denied, gaps+s.gaps, pairs+len(s.pairs)
		shown = max(shown, s.shown)
		if worst == nil || s.worst > worst.worst {
			worst = s
		}
		if most := len(s.pairs) * int(2+length/(30*time.Second)); s.results > 2*most {
			t.Errorf("%s has %d results of %d peers", s.address, s.results, len(s.pairs))
		}
	}
	share := railUse.Seconds() / float64(len(f.nodes)) / length.Seconds() // asked; answers use the other direction
	t.Logf("%6d %5.1f %9d %11.1f %10.2f %9v %7.3f%% %8d %6.1fs", len(f.nodes), length.Minutes(), rounds,
		float64(rounds)/float64(pairs)/length.Hours(), float64(denied)/float64(rounds), worst.worst.Round(time.Second),
		100*share, shown, used.Seconds())
	if gaps > 0 {
		t.Errorf("%d nodes: %d times a pair was not measured for %v; the worst was %s", len(f.nodes), gaps, promise,
			worst.worstPair)
	}
	if most := min(f.fanout, len(f.nodes)-1); shown > most {
		t.Errorf("%d nodes: series of %d peers, want at most %d", len(f.nodes), shown, most)
	}
	if share > 0.005 {
		t.Errorf("%d nodes: rounds take %.2f %% of a rail's time", len(f.nodes), 100*share)
	}
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(os.NewSyscallError("getrusage", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
