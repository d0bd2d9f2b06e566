package probe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/text"
	"github.com/railscope/railscope/probe/internal/failure"
)

// Prober runs a round with each peer at its time, and reports the results. One goroutine knows the peers and reports;
// each round has its own.
type Prober struct {
	node      *Node
	opts      Options
	observe   func(Result)
	events    Events
	directory *directory                                       // nil: no names, no files
	find      func(ctx context.Context, found chan<- []target) // sends whom to ask; nil: nobody is found
	runRound  func(ctx context.Context, r *round) Result

	published []string         // labels of peers, as last published; nil: never
	peers     map[string]*peer // by address
	order     []string         // addresses: configured, then found
	schedule  *schedule
	cycle     atomic.Int64 // that of the schedule in ns, for Stats; 0: there are no peers
}

// roundEnd is the result of a round.
type roundEnd struct {
	address string
	res     Result
}

// peer is one node to ask.
type peer struct {
	target
	node   string    // name that it reported first; empty: none yet
	label  string    // of its series
	added  time.Time // as a peer
	shown  bool      // it has series: a found peer only after a round, to be named by what it reports
	rounds int       // that were not skipped
}

// NewProber returns the prober. observe gets exactly one result per peer and cycle; it is not called concurrently.
// events report the peers.
func NewProber(node *Node, opts Options, observe func(Result), events Events) *Prober {
	p := &Prober{node: node, opts: opts, observe: observe, events: events, peers: map[string]*peer{},
		runRound: func(ctx context.Context, r *round) Result { return r.run(ctx) },
		schedule: newSchedule(node.name(), opts.Interval, rand.N[time.Duration])}
	p.schedule.pace = func() time.Duration { return node.askBudget.pace(opts.SoloEvery) }
	p.directory = newDirectory(node, opts, p.events.Resolved)
	p.set(nil)
	if p.directory == nil {
		p.publish()
	} else {
		p.find = p.directory.run
	}
	return p
}

// set sets the configured nodes and these as the ones to ask. Running rounds are not disturbed.
func (p *Prober) set(found []target) {
	before, now := p.peers, time.Now()
	p.peers, p.order = map[string]*peer{}, nil
	add := func(t target) {
		if p.peers[t.address] != nil {
			return
		}
		one := before[t.address]
		if one == nil {
			one = &peer{added: now}
		}
		one.target = t
		p.peers[t.address], p.order = one, append(p.order, t.address)
	}
	for _, address := range p.opts.Peers {
		add(target{address: address})
	}
	for _, t := range found {
		add(t)
	}
	p.schedule.set(p.order, now)
	p.node.asked.Store(new(slices.Clone(p.order)))
	if found != nil { // not before the first lookup: labels outlive a reload
		maps.DeleteFunc(p.node.labels, func(address, _ string) bool { return p.peers[address] == nil })
	}
	if found != nil || p.directory == nil { // likewise the memory of earlier rounds; a static list is complete at once
		p.node.past.keep(p.peers)
	}
	for address, one := range p.peers {
		late := now.Sub(one.added) >= 2*p.schedule.cycle() // the first round may end after one
		one.shown = one.shown || late || !one.found || p.node.labels[address] != ""
	}
	p.relabel()
	p.cycle.Store(int64(p.schedule.cycle()))
}

func (p *Prober) publish() {
	labels := []string{}
	for _, address := range p.order {
		if one := p.peers[address]; one.shown {
			labels = append(labels, one.label)
		}
	}
	if p.published == nil || !slices.Equal(labels, p.published) {
		p.published = labels
		p.events.Peers(slices.Clone(labels))
	}
}

// Run asks the peers until ctx is done, and returns after the running rounds.
func (p *Prober) Run(ctx context.Context) {
	var running sync.WaitGroup
	found, ended := make(chan []target), make(chan roundEnd)
	if p.find != nil {
		running.Go(func() { p.find(ctx, found) })
	}
	for ctx.Err() == nil {
		address, at := p.schedule.next()
		var due <-chan time.Time
		if address != "" {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
		case list := <-found:
			p.set(list)
			p.publish()
		case e := <-ended: // it has its next turn
			p.report(e.address, e.res)
		case <-due:
			p.schedule.begin(address)
			overdue := p.schedule.overdue(address, time.Now())
			if !overdue && p.postpone(address) {
				continue
			}
			r := p.newRound(address, overdue)
			running.Go(func() {
				if res := p.runRound(ctx, r); ctx.Err() == nil || res.Outcome == OK { // else the prober stopped it
					ended <- roundEnd{address, res}
				}
			})
		}
	}
	go func() { running.Wait(); close(ended) }()
	for e := range ended {
		p.report(e.address, e.res)
	}
}

// postpone puts a round off while this node asks or answers somebody: the peer is not contacted to no purpose.
func (p *Prober) postpone(address string) bool {
	holder := p.node.slot.holder()
	if holder == "" {
		return false
	}
	p.node.slot.deny(netip.Addr{}) // who holds it has to let this node have a turn
	p.report(address, Result{Start: time.Now(), Outcome: Skipped, Transport: NoTransport, Reason: failure.Busy,
		Detail: "this node is " + holder, RetryAfter: retryLeast})
	return true
}

func (p *Prober) newRound(address string, overdue bool) *round {
	one, opts := p.peers[address], p.opts
	opts.Security = one.security(opts.Security)
	r := &round{node: p.node, plan: plan{Options: opts, full: one.rounds%opts.SoloEvery == 0}, peer: address,
		overdue: overdue, progress: func(Progress) {}}
	if n := len(opts.Extras); n > 0 && r.plan.full {
		r.plan.extras = opts.Extras[one.rounds/opts.SoloEvery%n:][:1]
	}
	return r
}

// report reports the result of a round, if its peer still is one and the round is not tried again.
func (p *Prober) report(address string, res Result) {
	final := p.schedule.end(address, &res, time.Now())
	p.cycle.Store(int64(p.schedule.cycle()))
	one := p.peers[address]
	if one == nil {
		return
	}
	one.node = cmp.Or(one.node, res.PeerNode)
	switch {
	case !final:
		return
	case one.found && res.Reason == failure.Self: // known by nothing but its answer
		p.directory.setSelf(address)
		one.shown = false
		return
	}
	if res.Outcome != Skipped || res.Bytes > 0 { // a disturbed round was one
		one.rounds++
	}
	one.shown = true
	p.relabel()
	res.Peer = one.label
	p.publish()
	p.observe(res)
}

// Bench runs one full round with a peer now. progress is called from several goroutines, but not concurrently.
func Bench(ctx context.Context, node *Node, opts Options, peer string, progress func(Progress)) Result {
	node.setBudget(opts.Budget)
	r := round{node: node, plan: plan{Options: opts, full: true, runs: singleRuns, extras: opts.Extras}, peer: peer,
		byHand: true, progress: progress}
	return r.run(ctx)
}

// configuredLabel is the label of a configured peer: its address. One that is longer than a label may be is cut, and
// made unique.
func configuredLabel(address string) string {
	label := text.Label(address)
	if label == address {
		return label
	}
	const digits = 17
	return fmt.Sprintf("%s-%016x", label[:min(len(label), text.MaxLabel-digits)], hash(address))
}

// relabel labels the found peers after a change: with the name that a peer reported first, else its host. If
// another peer or this node has that label, it is the address. Who has a label by its name keeps it.
func (p *Prober) relabel() {
	taken := map[string]bool{text.Label(p.node.name()): true}
	var others []*peer
	for _, address := range p.order {
		one := p.peers[address]
		known := p.node.labels[address]
		switch {
		case !one.found:
			one.label = configuredLabel(address)
		case known != "" && !taken[known]:
			one.label = known
		default:
			others = append(others, one)
			continue
		}
		taken[one.label] = true
	}
	for _, one := range others {
		if one.label = reportedLabel(one); taken[one.label] {
			one.label = text.Label(one.address)
		}
		taken[one.label] = true
		if one.node != "" {
			p.node.labels[one.address] = one.label
		}
	}
}

// reportedLabel is the name that a peer reports, unless it looks like an address of another; else its host.
func reportedLabel(one *peer) string {
	host, _, _ := net.SplitHostPort(one.address)
	name := text.Label(one.node)
	_, err := netip.ParseAddr(name)
	_, portErr := netip.ParseAddrPort(name)
	switch {
	case name == "", name == host:
		return text.Label(host)
	case err == nil || portErr == nil:
		return text.Label(one.address)
	}
	return name
}
