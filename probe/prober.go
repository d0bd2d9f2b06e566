package probe

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/text"
	"github.com/railscope/railscope/probe/internal/failure"
)

// Prober runs a round with each peer at its time, and reports the results.
type Prober struct {
	node      *Node
	opts      Options
	observe   func(Result)
	events    Events
	directory *directory // nil: there are no DNS names
	now       func() time.Time
	runRound  func(ctx context.Context, r *round) Result

	outMu     sync.Mutex // one result or change of the peers at a time; locked before mu
	published []string   // labels of peers, as last published; nil: never; protected by outMu

	mu          sync.Mutex       // protects all following fields
	peers       map[string]*peer // by address
	order       []string         // addresses: configured, then found
	self        map[string]bool  // addresses that turned out to be this node's
	byName      map[string]string
	sortedNames []string // of all nodes; nil after a change
}

// peer is one node to ask.
type peer struct {
	target
	name   string // that it reports, for the schedule, or else its address; before it does, its host
	label  string // if it was found
	rounds int    // that were not skipped
}

// NewProber returns the prober. observe gets exactly one result per peer and round; it is not called concurrently.
// events report the peers.
func NewProber(node *Node, opts Options, observe func(Result), events Events) *Prober {
	p := &Prober{node: node, opts: opts, observe: observe, events: events, now: time.Now,
		runRound: func(ctx context.Context, r *round) Result { return r.run(ctx) }, peers: map[string]*peer{},
		self: map[string]bool{}, byName: map[string]string{}}
	p.directory = newDirectory(node, opts, p.events.Resolved)
	p.set(nil)
	if p.directory == nil {
		p.publish()
	}
	return p
}

// set sets the configured nodes and these as the ones to ask, and reports whether that changes them. Running rounds are
// not disturbed.
func (p *Prober) set(found []target) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.peers
	p.peers = map[string]*peer{}
	var order, added []string
	add := func(t target) {
		if p.peers[t.address] != nil {
			return
		}
		one := before[t.address]
		if one == nil {
			one, added = &peer{}, append(added, t.address)
		}
		one.target = t
		p.peers[t.address], order = one, append(order, t.address)
	}
	for _, address := range p.opts.Peers {
		add(target{address: address})
	}
	present := map[string]bool{}
	for _, t := range found {
		if present[t.address] = true; !p.self[t.address] && (!t.pending || p.node.labels.get(t.address) != "") {
			add(t)
		}
	}
	maps.DeleteFunc(p.self, func(address string, _ bool) bool { return !present[address] })
	for address, one := range before {
		if p.peers[address] == nil {
			p.forgetLocked(one)
		}
	}
	for _, address := range added {
		host, _, _ := net.SplitHostPort(address)
		p.setNameLocked(p.peers[address], cmp.Or(p.peers[address].node, host))
	}
	changed = !slices.Equal(order, p.order)
	p.order = order
	p.relabelLocked()
	return changed
}

func (p *Prober) forgetLocked(one *peer) {
	delete(p.byName, one.name)
	p.sortedNames = nil
}

// setNameLocked sets the name that a peer reports. Of two nodes with one name, of which one may be this node, the
// second is named by its address. Nobody else has an address as a name, even if it came first and reports it.
func (p *Prober) setNameLocked(one *peer, name string) {
	name = text.Label(name)
	other, taken := p.byName[name]
	if p.peers[name] != nil || name == text.Label(p.node.name()) || taken && other != one.address {
		name = one.address
	}
	if one.name == name {
		return
	}
	if other := p.peers[p.byName[name]]; other != nil {
		p.setNameLocked(other, other.address)
	}
	delete(p.byName, one.name)
	one.name, p.byName[name], p.sortedNames = name, one.address, nil
}

func (p *Prober) publish() {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	p.publishLocked()
}

func (p *Prober) publishLocked() {
	p.mu.Lock()
	labels := []string{}
	for _, address := range p.order {
		labels = append(labels, p.labelLocked(address))
	}
	p.mu.Unlock()
	if p.published == nil || !slices.Equal(labels, p.published) {
		p.published = labels
		p.events.Peers(slices.Clone(labels))
	}
}

// Run asks the peers until ctx is done, and returns after the running rounds.
func (p *Prober) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	found, ended := make(chan []target), make(chan string)
	asking := map[string]bool{}
	var due map[string]time.Time // nil until the DNS names are resolved
	if p.directory != nil {
		running.Go(func() { p.directory.run(ctx, found) })
	} else {
		due = p.schedule(asking)
	}
	for {
		address, at := earliest(due)
		var next <-chan time.Time
		if address != "" {
			next = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case list := <-found:
			if changed := p.set(list); changed || due == nil {
				p.publish()
				due = p.schedule(asking)
			}
		case address := <-ended:
			if delete(asking, address); p.isTarget(address) {
				due[address] = time.Now().Add(p.untilDue(address))
			}
		case <-next:
			delete(due, address)
			if !p.isTarget(address) {
				continue
			}
			asking[address] = true
			running.Go(func() {
				p.round(ctx, address)
				select {
				case ended <- address:
				case <-ctx.Done():
				}
			})
		}
	}
}

func (p *Prober) isTarget(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peers[address] != nil
}

// schedule is when to ask each peer that is not being asked.
func (p *Prober) schedule(asking map[string]bool) map[string]time.Time {
	p.mu.Lock()
	order := p.order
	p.mu.Unlock()
	due := map[string]time.Time{}
	for _, address := range order {
		if !asking[address] {
			due[address] = time.Now().Add(p.untilDue(address))
		}
	}
	return due
}

// earliest returns the peer that is asked next; empty: none.
func earliest(due map[string]time.Time) (peer string, at time.Time) {
	for name, t := range due {
		if peer == "" || t.Before(at) {
			peer, at = name, t
		}
	}
	return peer, at
}

func (p *Prober) round(ctx context.Context, address string) {
	opts, full := p.opts, false
	p.mu.Lock()
	if one := p.peers[address]; one != nil {
		full = one.rounds%opts.SoloEvery == 0
		opts.Security = one.security(opts.Security)
	}
	p.mu.Unlock()
	r := round{node: p.node, plan: plan{Options: opts, full: full}, peer: address, progress: func(Progress) {}}
	res := p.runRound(ctx, &r)
	if ctx.Err() != nil && res.Outcome != OK {
		return // the prober stopped the round
	}
	p.report(address, res)
}

// report reports the result of a round, if its peer still is one.
func (p *Prober) report(address string, res Result) {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	p.mu.Lock()
	one := p.peers[address]
	known := one != nil
	if known && res.PeerNode != "" {
		p.setNameLocked(one, res.PeerNode)
	}
	if known && res.Outcome != Skipped {
		one.rounds++
	}
	if known && one.found && res.Reason == failure.Self && res.PeerNode == "" { // before it reported a name
		p.self[address], known = true, false
		delete(p.peers, address)
		p.order = slices.DeleteFunc(slices.Clone(p.order), func(a string) bool { return a == address })
		p.forgetLocked(one)
	}
	res.Peer = p.labelLocked(address)
	p.mu.Unlock()
	p.publishLocked()
	if known {
		p.observe(res)
	}
}

// untilDue returns the time until a peer is asked, which all nodes compute from their names.
func (p *Prober) untilDue(address string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := ""
	if one := p.peers[address]; one != nil { // a result has not just shown that it is this node
		name = one.name
	}
	return untilRound(p.namesLocked(), text.Label(p.node.name()), name, p.opts.Interval, p.now())
}

func (p *Prober) namesLocked() []string {
	if p.sortedNames == nil {
		p.sortedNames = append(slices.Collect(maps.Keys(p.byName)), text.Label(p.node.name()))
		slices.Sort(p.sortedNames)
		p.sortedNames = slices.Compact(p.sortedNames)
	}
	return p.sortedNames
}

// cycle is the time from one round with a peer to the next; 0 when there are no peers.
func (p *Prober) cycle() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.order) == 0 {
		return 0
	}
	return cycleOf(len(p.namesLocked()), p.opts.Interval)
}

// Bench runs one full round with a peer now. progress is called from several goroutines, but not concurrently.
func Bench(ctx context.Context, node *Node, opts Options, peer string, progress func(Progress)) Result {
	node.askBudget.resize(opts.Budget)
	var mu sync.Mutex
	r := round{node: node, plan: plan{Options: opts, full: true}, peer: peer, progress: func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		progress(p)
	}}
	return r.run(ctx)
}
