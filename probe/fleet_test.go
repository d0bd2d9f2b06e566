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
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// A fleet in virtual time. Everything that decides who asks whom and when is real: ring, prober, schedule, slot,
// budget, grant and lease. Only the network and the transfer are sleeps.

// simFleet is a simulated fleet. Node i has the address fleet(n)[i].
type simFleet struct {
	start  time.Time
	nodes  []*simNode
	at     map[string]*simNode
	fanout int
	real   bool // each node has a directory; else they share one ring

	mu   sync.Mutex // protects all following fields
	list []string   // nodes in the DNS answer
	ring map[string]schedule.Ring
}

// simNode is one node of the fleet.
type simNode struct {
	fleet   *simFleet
	address string
	ip      netip.Addr
	node    *node.Node
	resp    *target.Responder
	random  *rand.Rand // protected by mu

	took      time.Duration // duration of its rounds
	clock     time.Duration // offset of its wall clock
	steps     time.Duration // time since the start at which its wall clock steps to that offset
	away      away          // time in which it is dead, busy with a job, or in maintenance
	liesAsked bool          // claims that it takes an hour, and denies every request
	liesAsks  bool          // claims that it moved nothing, and never releases a lease

	mu                             sync.Mutex
	pairs                          map[string]time.Time // start of the present gap, by peer
	rounds, results, denied, shown int
	used                           time.Duration // rail time used
	worst                          time.Duration // longest gap of a pair
	worstPair                      string
	gaps                           int // pairs and gaps that broke the promise
}

// away is when and why a node takes no part.
type away struct {
	from, to time.Duration // times since the start
	reason   failure.Reason
}

func (n *simNode) isAway(reason failure.Reason) bool {
	t := time.Since(n.fleet.start)
	return n.away.reason == reason && t >= n.away.from && t < n.away.to
}

const promise = 5 * time.Minute

// newSimFleet returns n nodes. The last joins of them are not in the list yet.
func newSimFleet(t *testing.T, n, joins int, real bool) *simFleet {
	f := &simFleet{start: time.Now(), at: map[string]*simNode{}, ring: map[string]schedule.Ring{}, real: real}
	opts := options.DefaultOptions()
	opts.Security.Insecure = true
	f.fanout = opts.Fanout
	for i, address := range fleet(n) {
		s := &simNode{fleet: f, address: address, ip: netip.MustParseAddrPort(address).Addr(), took: 4 * time.Second,
			random: rand.New(rand.NewPCG(13, uint64(i))), pairs: map[string]time.Time{}}
		s.node = node.NewNode(node.Options{Name: fmt.Sprint("node-", i),
			Rails:       func() ([]rail.Rail, error) { return nil, nil },
			Maintenance: func() bool { return s.isAway(failure.Maintenance) },
			Addresses: func() (map[string][]netip.Prefix, error) {
				return map[string][]netip.Prefix{"eth0": {netip.PrefixFrom(s.ip, 8)}}, nil
			},
			Lookup: f.lookup})
		s.node.SetBudget(opts.Budget)
		s.node.GuardInterval = time.Minute // rails that do not exist are not read
		var err error
		s.resp, err = target.NewResponder(s.node, opts)
		if err != nil {
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

// setList changes the DNS answer.
func (f *simFleet) setList(list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.ring = list, map[string]schedule.Ring{}
}

// prober returns the prober of a node.
func (f *simFleet) prober(n *simNode) *schedule.Prober {
	opts := n.resp.Opts
	opts.Listen = ":10092"
	if f.real {
		opts.DNS = []string{"peers:10092"}
	}
	p := schedule.NewProber(n.node, opts, func(result.Result) { n.mu.Lock(); n.results++; n.mu.Unlock() },
		quiet(options.Events{Peers: func(list []string) { n.shown = max(n.shown, len(list)) }}))
	p.RunRound, p.Schedule.Random = n.round, n.wait
	if p.Directory != nil {
		p.Directory.Now = n.now
	}
	find := p.Find
	p.Find = func(ctx context.Context, found chan<- []schedule.Target) {
		lists := make(chan []schedule.Target)
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

// find replaces the directory in a large fleet, with one ring for all nodes that know the same day.
func (f *simFleet) find(n *simNode) func(context.Context, chan<- []schedule.Target) {
	return func(ctx context.Context, found chan<- []schedule.Target) {
		var sent []schedule.Target
		for {
			day := n.now().UTC().Format(time.DateOnly)
			f.mu.Lock()
			r := f.ring[day]
			if r == nil {
				r = schedule.NewRing(f.list, n.now())
				f.ring[day] = r
			}
			f.mu.Unlock()
			list := []schedule.Target{}
			for _, address := range r.After(n.address, n.now(), f.fanout) {
				list = append(list, schedule.Target{Address: address, Found: true})
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
			case <-time.After(schedule.LookupEvery):
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

// choose records the time from which pairs must be measured.
func (n *simNode) choose(list []schedule.Target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.pairs
	n.pairs = map[string]time.Time{}
	for _, t := range list {
		since, known := before[t.Address]
		if !known {
			since = time.Now()
		}
		n.pairs[t.Address] = since
		delete(before, t.Address)
	}
	for peer, since := range before { // no longer a peer of the node
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

// judgeLocked compares the gap of a pair with the promise, without the time in which either end was away.
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

// round simulates a round: its network and transfer are sleeps.
func (n *simNode) round(ctx context.Context, r *round.Round) result.Result {
	start := time.Now()
	r.Res = result.Result{Peer: r.Peer, Start: start, Transport: result.NoTransport}
	err := n.visit(ctx, r, n.fleet.at[r.Peer])
	r.Free()
	round.SetOutcome(&r.Res, err)
	r.Res.Duration = time.Since(start)
	switch {
	case r.Res.Transport != result.NoTransport:
		n.measured(r.Peer)
	case r.Res.RetryAfter > 0:
		n.mu.Lock()
		n.denied++
		n.mu.Unlock()
	}
	return r.Res
}

func (n *simNode) visit(ctx context.Context, r *round.Round, peer *simNode) error {
	switch {
	case n.node.Maintenance():
		return failure.New(failure.StageHello, failure.Maintenance, "this node is in maintenance")
	case peer.isAway(failure.PeerUnreachable):
		sleep(ctx, control.DialTime)
		return failure.New(failure.StageHello, failure.PeerUnreachable, "nobody answers")
	}
	r.Remote, r.Plan.Rails, r.Res.PeerNode = protocol.Hello{Node: peer.node.Name()}, 8, peer.node.Name()
	r.Client = new(control.Client) // the round only needs the peer's address from it
	err := r.Reserve(ctx)
	r.Client = nil
	if err != nil {
		return err
	}
	switch {
	case n.isAway(failure.Busy) || peer.isAway(failure.Busy):
		return failure.New(failure.StageLease, failure.Busy, "a job uses the rails")
	case peer.liesAsked:
		return protocol.Later(time.Hour, failure.Busy, "the peer is busy, always")
	}
	// The nodes have no rails, from which rounds and leases would derive their budgets.
	cost, used := roundCost(r.Plan)
	for _, b := range []*node.Budget{n.node.AskBudget, peer.node.AnswerBudget} {
		if wait, ok := b.Reserve(cost); !ok {
			return protocol.BudgetFailure("this node's or the peer's", cost, wait)
		}
		defer func() {
			b.Settle(cost, used)
			b.Note(r.Plan.Full, used)
		}()
	}
	var l *target.Lease
	if err := r.Persist(ctx, func() error {
		var denied *failure.Failure
		l, denied = peer.resp.Grant(ctx, r.LeaseRequest(protocol.Measure), n.ip)
		if denied != nil {
			return denied
		}
		return nil
	}); err != nil {
		used = 0
		return err
	}
	took := max(n.took, peer.took)
	time.Sleep(took*9/10 + n.wait(took/5))
	l.Reported.Store(1)
	n.mu.Lock()
	n.used += used
	n.mu.Unlock()
	if n.liesAsks { // the lease ends by timeout
		l.Reported.Store(0)
	} else {
		l.End(nil)
	}
	<-l.Finished
	r.Res.Transport = result.RDMA
	return nil
}

// roundCost returns the rail time that a round over 8 × 400 Gb/s reserves, and uses: bursts of their measured time,
// and TCP at the full rate.
func roundCost(p round.Plan) (reserved, used time.Duration) {
	var paths []*round.Flow
	for range 8 {
		paths = append(paths, ratedPath(400))
	}
	p.Rails, p.Rate = 8, 8*50e9
	used = p.Burst + time.Millisecond
	if p.Full {
		used += used + time.Duration(len(round.BaselineStreams))*(round.TCPWarmup+round.TCPWindow)
	}
	return options.RailTime(p.Bytes(paths, paths), p.Rate), used
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// TestFleet: every pair of the ring is measured at least every five minutes, while nodes die, join, are busy, slow
// or lie, their clocks step, and a day ends.
func TestFleet(t *testing.T) {
	t.Logf("%6s %5s %9s %11s %10s %9s %8s %8s %7s", "nodes", "time", "rounds", "per pair, h", "collisions", "worst gap",
		"of rails", "peers", "CPU")
	for _, tc := range []struct {
		nodes int
		time  time.Duration
	}{{2, time.Hour}, {10, time.Hour}, {100, 15 * time.Minute}, {1000, 20 * time.Minute},
		{10000, promise + 30*time.Second}} { // needs 40 s of processor time
		if raceEnabled && tc.nodes > 100 || testing.Short() && tc.nodes > 1000 {
			continue // too slow under the race detector, by a factor of ten
		}
		synctest.Test(t, func(t *testing.T) { runFleet(t, tc.nodes, tc.time) })
	}
}

func runFleet(t *testing.T, n int, length time.Duration) {
	defer debug.SetGCPercent(debug.SetGCPercent(200))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // contention between goroutines costs more than waiting
	used := cpuTime()
	time.Sleep(time.Until(time.Date(2026, 11, 22, 23, 59, 50, 0, time.UTC))) // the day ends after 10 s
	joins := n / 50
	f := newSimFleet(t, n, joins, n <= 100)
	for i, s := range f.nodes[:n-joins] { // some nodes of each kind
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
			s.clock = 5 * time.Minute // a new day at once
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
			sleep(ctx, s.wait(schedule.LookupEvery)) // spreads the lookups
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

// check prints the result, and fails where the promise was broken.
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
	// Only time for asking counts: answers use the other direction.
	share := railUse.Seconds() / float64(len(f.nodes)) / length.Seconds()
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

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(os.NewSyscallError("getrusage", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
