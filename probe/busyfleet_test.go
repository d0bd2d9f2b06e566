package probe

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// A fleet whose jobs run all day, in virtual time. As in TestFleet, everything that decides who asks whom and when is
// real, and so are the places of gaps and the memory of collisions. Jobs fill all rails of their nodes, but for their
// gaps.

// busyFleet is a fleet with jobs, and what it measured.
type busyFleet struct {
	*simFleet
	jobs   *jobs
	number map[string]int // number of each node, by address
	mu     sync.Mutex
	seen   map[[2]string]*pairTimes
}

// pairTimes are the times at which a pair was reached, and measured by a burst.
type pairTimes struct{ reached, bursts []time.Duration }

func (f *busyFleet) note(asker, peer string, burst bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.seen[[2]string{asker, peer}]
	if p == nil {
		p = &pairTimes{}
		f.seen[[2]string{asker, peer}] = p
	}
	now := time.Since(f.start)
	if burst {
		p.bursts = append(p.bursts, now)
	} else {
		p.reached = append(p.reached, now)
	}
}

// round simulates a round: what round.go and gap.go do, with the network and the transfers as sleeps.
func (f *busyFleet) round(n *simNode) func(context.Context, *round.Round) result.Result {
	return func(ctx context.Context, r *round.Round) result.Result {
		start, peer := time.Now(), f.at[r.Peer]
		r.Res = result.Result{Peer: r.Peer, Start: start, Transport: result.NoTransport}
		busy, err := f.visit(ctx, n, peer, r)
		r.Free()
		switch {
		case err != nil:
			round.SetOutcome(&r.Res, err)
		case busy:
			r.Res.Transport, r.Res.Outcome = result.RDMA, result.Reached
			f.note(n.address, peer.address, false)
			waited := time.Now()
			f.gap(ctx, n, peer, r)
			r.Res.Waited = time.Since(waited)
		default:
			r.Res.Transport, r.Res.Outcome = result.RDMA, result.OK
			f.note(n.address, peer.address, false)
			f.note(n.address, peer.address, true)
		}
		r.Res.Duration = time.Since(start)
		return r.Res
	}
}

// visit makes the part of a round that needs the slot, and reports whether a job uses the rails of an end.
func (f *busyFleet) visit(ctx context.Context, n, peer *simNode, r *round.Round) (busy bool, err error) {
	r.Remote, r.Plan.Rails = protocol.Hello{Node: peer.node.Name(), Parts: true}, 8
	r.Client = new(control.Client)
	err = r.Reserve(ctx)
	r.Client = nil
	if err != nil {
		return false, err
	}
	now := time.Since(f.start)
	a, b := f.number[n.address], f.number[peer.address]
	busy = f.jobs.uses(a, now) > n.resp.Opts.BusyAbove || f.jobs.uses(b, now) > n.resp.Opts.BusyAbove
	part, took := protocol.Measure, 1200*time.Millisecond // with 200 ms of latencies at random times
	if busy {
		part, took = protocol.Reach, 700*time.Millisecond
	}
	return busy, r.Persist(ctx, func() error {
		l, denied := peer.resp.Grant(ctx, r.LeaseRequest(part), n.ip)
		if denied != nil {
			return denied
		}
		time.Sleep(took*9/10 + n.wait(took/5))
		l.Reported.Store(1)
		l.End(nil)
		<-l.Finished
		return nil
	})
}

// gap waits for a gap of both ends, with the real places, and bursts in it.
func (f *busyFleet) gap(ctx context.Context, n, peer *simNode, r *round.Round) {
	end := time.Now().Add(r.Plan.Interval / 3)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	sleep(ctx, n.wait(r.Plan.Interval/12))
	if n.node.Gaps.Collided("0") != nil || peer.node.Gaps.Collided("0") != nil {
		return
	}
	for ctx.Err() == nil {
		place := n.node.Gaps.Slot
		if _, ok := place.Acquire(ctx, time.Until(end), netip.Addr{}, "waiting"); !ok {
			return
		}
		place.Start(netip.Addr{})
		l, denied := peer.resp.Grant(ctx, r.LeaseRequest(protocol.Gap), n.ip)
		if denied == nil {
			f.burst(ctx, n, peer)
			l.Reported.Store(1)
			l.End(nil)
			<-l.Finished
			place.Release()
			return
		}
		place.Release()
		sleep(ctx, 250*time.Millisecond+n.wait(time.Second))
	}
}

// burst bursts in the first gap of both ends in which both slots are free.
func (f *busyFleet) burst(ctx context.Context, n, peer *simNode) {
	end, _ := ctx.Deadline()
	a, b := f.number[n.address], f.number[peer.address]
	watched := map[*simNode]time.Duration{n: time.Since(f.start), peer: time.Since(f.start)}
	for ctx.Err() == nil {
		now := time.Since(f.start)
		both, ok := f.jobs.together(a, b, now, end.Sub(f.start))
		if !ok {
			sleep(ctx, time.Until(end))
			f.watch(watched)
			return
		}
		noticed := simReadings - n.wait(5*time.Millisecond)
		sleep(ctx, both.from+noticed-now)
		f.watch(watched)
		if !n.node.Gaps.Lasts("0", noticed) || !peer.node.Gaps.Lasts("0", noticed) {
			const long = 100 * time.Millisecond
			sleep(ctx, min(both.to, both.from+long)-time.Since(f.start))
			if both.to <= both.from+long || !n.node.Gaps.Lasts("0", long) {
				continue
			}
		}
		if !claimBoth(n, peer) {
			sleep(ctx, 5*time.Millisecond+n.wait(10*time.Millisecond))
			continue
		}
		from := time.Since(f.start)
		time.Sleep(simBurst)
		met := false
		for _, node := range []int{a, b} {
			met = f.jobs.meets(node, from, from+simBurst) || met
		}
		time.Sleep(simVerify)
		n.node.Slot.Release()
		peer.node.Slot.Release()
		if met {
			n.node.Gaps.Collide("0")
			peer.node.Gaps.Collide("0")
			return
		}
		f.note(n.address, peer.address, true)
		return
	}
}

// watch records, as the watches of nodes do, the gaps that they have noticed from beginning to end since a time.
func (f *busyFleet) watch(since map[*simNode]time.Duration) {
	now := time.Since(f.start)
	for n, from := range since {
		for {
			gap := f.jobs.quiet(f.number[n.address], from)
			if gap.to >= now {
				break
			}
			seen := (gap.to - gap.from) / simReading * simReading
			if gap.from > from && seen >= 4*simReading {
				n.node.Gaps.NoteGap("0", seen)
			}
			from = gap.to + time.Microsecond
		}
		since[n] = from
	}
}

// claimBoth takes the slots of both ends, if these are free at this moment.
func claimBoth(n, peer *simNode) bool {
	if !n.node.Slot.TryAcquire("bursting") {
		return false
	}
	time.Sleep(simClaim)
	if !peer.node.Slot.TryAcquire("bursting") {
		n.node.Slot.Release()
		return false
	}
	return true
}

// runBusy runs a fleet of n nodes with a pattern of jobs for a time.
func runBusy(t *testing.T, n int, length time.Duration, p pattern) *busyFleet {
	t.Helper()
	time.Sleep(time.Until(time.Date(2026, 11, 23, 0, 0, 10, 0, time.UTC))) // nobody's peers change
	f := &busyFleet{simFleet: newSimFleet(t, n, 0, false), jobs: &jobs{pattern: p,
		delayed: map[string]map[time.Duration]time.Duration{}},
		number: map[string]int{}, seen: map[[2]string]*pairTimes{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i, s := range f.nodes {
		f.number[s.address] = i
	}
	for _, s := range f.nodes {
		s.node.SetBudget(options.Budget{Share: 0.005})
		prober := f.prober(s)
		prober.RunRound = f.round(s)
		running.Go(func() {
			sleep(ctx, s.wait(30*time.Second))
			prober.Run(ctx)
		})
	}
	time.Sleep(length)
	stop()
	running.Wait()
	return f
}

// measures returns what a run came to: rounds that reached a peer and bursts, per pair and hour; the part of the
// intervals in which a pair was reached, and of the time in which alerts on it can fire, which need two rounds in 30
// minutes; the median and the 90th percentile of the age of the last burst; and the pairs that were never measured.
func (f *busyFleet) measures(length time.Duration) (m busyMeasures) {
	const interval, first = time.Minute, 2 // intervals in which rounds begin for the first time
	var ages []time.Duration
	intervals, alertable, moments := 0, 0, 0
	m.pairs = len(f.seen)
	for _, p := range f.seen {
		m.reach, m.bursts = m.reach+float64(len(p.reached)), m.bursts+float64(len(p.bursts))
		if len(p.bursts) == 0 {
			m.never++
		}
		hit := map[time.Duration]bool{}
		for _, at := range p.reached {
			hit[at/interval] = true
		}
		delete(hit, 0)
		delete(hit, 1)
		intervals += len(hit)
		for at := min(30*time.Minute, length/2); at < length; at += 10 * time.Second {
			moments++
			recent := 0
			for _, r := range p.reached {
				if r <= at && r > at-30*time.Minute {
					recent++
				}
			}
			if recent >= 2 {
				alertable++
			}
			age := at
			if i, _ := slices.BinarySearch(p.bursts, at); i > 0 {
				age = at - p.bursts[i-1]
			}
			ages = append(ages, age)
		}
	}
	slices.Sort(ages)
	hours := length.Hours() * float64(m.pairs)
	m.reach, m.bursts = m.reach/hours, m.bursts/hours
	m.reached = float64(intervals) / float64(m.pairs*int(length/interval-first))
	m.alertable = float64(alertable) / float64(moments)
	m.median, m.p90 = ages[len(ages)/2], ages[len(ages)*9/10]
	return m
}

type busyMeasures struct {
	pairs, never       int
	reach, bursts      float64
	reached, alertable float64
	median, p90        time.Duration
}

// grows returns how much the 99.9th percentile of the steps of all jobs grew, as a ratio.
func (f *busyFleet) grows(nodes int, length time.Duration) float64 {
	steps := float64(length/f.jobs.step) * float64((nodes+f.jobs.nodes-1)/f.jobs.nodes)
	var delays []time.Duration
	for _, gaps := range f.jobs.delayed {
		sum := time.Duration(0)
		for _, d := range gaps {
			sum += d
		}
		delays = append(delays, sum)
	}
	slices.Sort(delays)
	slices.Reverse(delays)
	if i := int(steps / 1000); i < len(delays) {
		return delays[i].Seconds() / f.jobs.step.Seconds()
	}
	return 0
}

// TestBusyFleet: on clusters whose jobs run all day, peers are reached at every interval, alerts can fire, and bursts
// find the gaps that both ends share.
func TestBusyFleet(t *testing.T) {
	const hour = time.Hour
	ms := time.Millisecond
	const nodes = 24
	length := 4 * hour
	if raceEnabled {
		length = 40 * time.Minute
	}
	t.Logf("%-55s %9s %8s %9s %9s %8s %9s %6s", "jobs on 24 nodes", "reached/h", "of time", "alertable", "bursts/h", "median",
		"p90 age", "never")
	for _, tc := range []struct {
		pattern
		shared bool // pairs of one job share a gap of 50 ms in each step
	}{
		{pattern{name: "none"}, false},
		{pattern{name: "50 %, of 4 h, on 1 node", nodes: 1, runs: 4 * hour, busy: 0.5}, false},
		{pattern{name: "95 %, of 4 h, on 1 node", nodes: 1, runs: 4 * hour, busy: 0.95}, false},
		{pattern{name: "95 %, of 24 h, on 8 nodes", nodes: 8, runs: 24 * hour, busy: 0.95}, false},
		{pattern{name: "one for ever, without gaps", nodes: nodes, busy: 1}, false},
		{pattern{name: "steps of 20 s with 5 s of quiet", nodes: nodes, busy: 1, step: 20 * time.Second,
			gaps: []time.Duration{5 * time.Second}}, true},
		{pattern{name: "the same with steps of 23.7 s", nodes: nodes, busy: 1, step: 23700 * ms,
			gaps: []time.Duration{5 * time.Second}}, true},
		{pattern{name: "steps of 1 s, one gap of 50 ms", nodes: nodes, busy: 1, step: time.Second,
			gaps: []time.Duration{50 * ms}}, true},
		{pattern{name: "steps of 3 s, one gap of 50 ms", nodes: nodes, busy: 1, step: 3 * time.Second,
			gaps: []time.Duration{50 * ms}}, true},
		{pattern{name: "steps of 10 s, one gap of 50 ms", nodes: nodes, busy: 1, step: 10 * time.Second,
			gaps: []time.Duration{50 * ms}}, true},
		{pattern{name: "steps of 0.3 s, gaps of 30 ms", nodes: nodes, busy: 1, step: 300 * ms,
			gaps: []time.Duration{30 * ms}}, false},
		{pattern{name: "steps of 2 s, gaps of 5, 20 and 200 ms", nodes: nodes, busy: 1, step: 2 * time.Second,
			gaps: []time.Duration{5 * ms, 20 * ms, 200 * ms}}, true},
		{pattern{name: "steps of 5 s, gaps of 10 ms to 1 s", nodes: nodes, busy: 1, step: 5 * time.Second,
			gaps: []time.Duration{100 * ms, 100 * ms, 100 * ms}, spread: 10}, false},
		{pattern{name: "jobs of 8 nodes apart, steps of 1 s, gap of 50 ms", nodes: 8, busy: 1, step: time.Second,
			gaps: []time.Duration{50 * ms}, apart: true}, false},
		{pattern{name: "jobs of 1 node apart, steps of 1 s, gap of 100 ms", nodes: 1, busy: 1, step: time.Second,
			gaps: []time.Duration{100 * ms}, apart: true}, false},
		{pattern{name: "checkpoint of 60 s every 30 min, no gaps", nodes: nodes, busy: 1, step: 30 * time.Minute,
			gaps: []time.Duration{time.Minute}}, false},
		{pattern{name: "checkpoint of 20 s every 37 min, no gaps", nodes: nodes, busy: 1, step: 37 * time.Minute,
			gaps: []time.Duration{20 * time.Second}}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := runBusy(t, nodes, length, tc.pattern).measures(length)
			t.Logf("%-55s %9.1f %7.1f%% %8.1f%% %9.1f %8v %9v %5.0f%%", tc.name, m.reach, 100*m.reached, 100*m.alertable,
				m.bursts, m.median.Round(time.Second), m.p90.Round(time.Second), 100*float64(m.never)/float64(m.pairs))
			if m.reached < 0.99 || m.alertable < 0.95 {
				t.Errorf("%s: reached in %.2f %% of the intervals, alerts can fire in %.2f %% of the time", tc.name,
					100*m.reached, 100*m.alertable)
			}
			if tc.shared && m.median > 5*time.Minute {
				t.Errorf("%s: the median age of a burst is %v", tc.name, m.median)
			}
		})
	}
}

// TestBusyFleetSteps: bursts in gaps hardly hold up a job: the 99.9th percentile of its steps of a second or more
// grows by at most 0.1 %.
func TestBusyFleetSteps(t *testing.T) {
	if raceEnabled {
		t.Skip("too slow under the race detector")
	}
	ms := time.Millisecond
	for _, tc := range []struct {
		nodes  int
		length time.Duration
	}{{8, 4 * time.Hour}, {128, 30 * time.Minute}, {1024, 8 * time.Minute}} {
		if testing.Short() && tc.nodes > 128 {
			continue
		}
		for _, p := range []pattern{
			{name: "a gap of 5 ms to 5 s", step: 10 * time.Second, gaps: []time.Duration{158 * ms}, spread: 31},
			{name: "four gaps of 10 to 90 ms", step: time.Second, gaps: []time.Duration{30 * ms, 30 * ms, 30 * ms, 30 * ms},
				spread: 3},
			{name: "two gaps of 20 to 40 ms", step: time.Second, gaps: []time.Duration{28 * ms, 28 * ms}, spread: 1.4},
			{name: "a gap of 26 ms", step: time.Second, gaps: []time.Duration{26 * ms}},
			{name: "a gap of 25 to 30 ms, of 0.2 s", step: 200 * ms, gaps: []time.Duration{27 * ms}, spread: 1.1},
		} {
			p.nodes, p.busy = tc.nodes, 1
			synctest.Test(t, func(t *testing.T) {
				f := runBusy(t, tc.nodes, tc.length, p)
				grows := f.grows(tc.nodes, tc.length)
				m := f.measures(tc.length)
				t.Logf("%5d nodes, steps of %v with %s: %d steps delayed, p99.9 grows by %.3f %%; %.1f bursts per pair and hour",
					tc.nodes, p.step, p.name, len(f.jobs.delayed), 100*grows, m.bursts)
				if p.step >= time.Second && grows > 0.001 {
					t.Errorf("%d nodes, %s: the 99.9th percentile grows by %.3f %%", tc.nodes, p.name, 100*grows)
				}
			})
		}
	}
}
