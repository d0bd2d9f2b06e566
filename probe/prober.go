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

// Prober asks the peers, each in its time, and hands on what every round came to.
type Prober struct {
	node      *Node
	opts      Options
	observe   func(Result)
	events    Events
	directory *directory // nil: there are no DNS names
	now       func() time.Time
	runRound  func(ctx context.Context, r *round) Result

	outMu         sync.Mutex // one result or change of the peers at a time; before mu
	published     []string   // peers, as last told; protected by out
	everPublished bool       // something was told; protected by out

	mu          sync.Mutex        // protects all following fields
	targets     map[string]target // by address
	order       []string          // addresses: as configured, then those that were found
	self        map[string]bool   // addresses that turned out to be this node
	names       map[string]string // address → as the peer calls itself, for the schedule; until it has said so, its host
	peers       map[string]string // the reverse
	sortedNames []string          // names of all nodes, sorted; nil when they changed
	rounds      map[string]int    // address → rounds that were not skipped
	labels      map[string]string // address → label, of peers that were found
}

// NewProber returns the prober. observe gets exactly one result per peer and
// round, from one goroutine at a time; events are told who the peers are.
func NewProber(node *Node, opts Options, observe func(Result), events Events) *Prober {
	p := &Prober{node: node, opts: opts, observe: observe, events: events.withDefaults(), now: time.Now,
		runRound: func(ctx context.Context, r *round) Result { return r.run(ctx) }, targets: map[string]target{},
		self:  map[string]bool{},
		names: map[string]string{}, peers: map[string]string{}, rounds: map[string]int{}}
	p.directory = newDirectory(node, opts, p.events.Resolved)
	p.set(nil)
	if p.directory == nil {
		p.publish()
	}
	return p
}

// set makes the configured nodes and these the ones to ask, and reports whether
// they are others than before. Rounds that go on are not disturbed.
func (p *Prober) set(found []target) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	targets, order := map[string]target{}, []string{}
	add := func(t target) {
		if _, twice := targets[t.address]; !twice {
			targets[t.address], order = t, append(order, t.address)
		}
	}
	for _, peer := range p.opts.Peers {
		add(target{address: peer})
	}
	present := map[string]bool{}
	for _, t := range found {
		if present[t.address] = true; !p.self[t.address] && (!t.pending || p.node.labels.get(t.address) != "") {
			add(t)
		}
	}
	maps.DeleteFunc(p.self, func(address string, _ bool) bool { return !present[address] })
	changed = !slices.Equal(order, p.order)
	before := p.targets
	p.targets, p.order = targets, order
	for address := range before {
		if _, stays := targets[address]; !stays {
			p.forgetLocked(address)
		}
	}
	for _, address := range order {
		if _, known := before[address]; !known {
			host, _, _ := net.SplitHostPort(address)
			p.setName(address, cmp.Or(targets[address].node, host))
		}
	}
	p.relabelLocked()
	return changed
}

// forgetLocked forgets what is known of a peer that is none any more.
func (p *Prober) forgetLocked(address string) {
	delete(p.peers, p.names[address])
	delete(p.names, address)
	delete(p.rounds, address)
	delete(p.labels, address)
	p.sortedNames = nil
}

// called notes what a peer calls itself. Of two nodes with one name, this one perhaps among them, the second goes by
// its address; nobody else does by that, even if it came first and calls itself so.
func (p *Prober) setName(address, name string) {
	name = text.Label(name)
	if _, taken := p.targets[name]; taken || name == text.Label(p.node.name()) {
		name = address
	}
	if other, taken := p.peers[name]; taken && other != address {
		name = address
	}
	if old := p.names[address]; old != name {
		if other, taken := p.peers[name]; taken {
			p.setName(other, other)
		}
		delete(p.peers, old)
		p.names[address], p.peers[name], p.sortedNames = name, address, nil
	}
}

// publish tells who the peers are, if they are not those of before.
func (p *Prober) publish() {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	p.publishLocked()
}

func (p *Prober) publishLocked() {
	p.mu.Lock()
	var labels []string
	for _, address := range p.order {
		labels = append(labels, p.labelLocked(address))
	}
	p.mu.Unlock()
	if !p.everPublished || !slices.Equal(labels, p.published) {
		p.everPublished, p.published = true, labels
		p.events.Peers(slices.Clone(labels))
	}
}

// Run asks the peers until ctx is done, and returns when the rounds that were going on have ended.
func (p *Prober) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	found := make(chan []target)
	if p.directory != nil {
		running.Go(func() { p.directory.run(ctx, found) })
		select {
		case list := <-found:
			p.set(list)
			p.publish()
		case <-ctx.Done():
			return
		}
	}
	ended := make(chan string)
	asking := map[string]bool{}
	due := p.schedule(asking)
	for {
		address, at := earliest(due)
		timer := time.NewTimer(time.Until(at))
		if address == "" {
			timer.Stop() // there is none, or all are being asked
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case list := <-found:
			timer.Stop()
			if p.set(list) {
				p.publish()
				due = p.schedule(asking) // everybody's place in it has changed
			}
		case address := <-ended:
			timer.Stop()
			if delete(asking, address); p.isTarget(address) {
				due[address] = time.Now().Add(p.untilDue(address))
			}
		case <-timer.C:
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

// asks reports whether the address is one to ask.
func (p *Prober) isTarget(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.targets[address]
	return ok
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

// earliest returns the peer that is to be asked next; empty when there is none.
func earliest(due map[string]time.Time) (peer string, at time.Time) {
	for name, t := range due {
		if peer == "" || t.Before(at) {
			peer, at = name, t
		}
	}
	return peer, at
}

// round asks one peer.
func (p *Prober) round(ctx context.Context, address string) {
	p.mu.Lock()
	full := p.rounds[address]%p.opts.SoloEvery == 0
	t := p.targets[address]
	p.mu.Unlock()
	opts := p.opts
	opts.Security = t.security(opts.Security)
	r := round{node: p.node, opts: opts, peer: address, full: full, progress: func(Progress) {}}
	res := p.runRound(ctx, &r)
	if ctx.Err() != nil && res.Outcome != OK {
		return // the round was broken off because the prober ends: it says nothing of the peer
	}
	p.report(address, res)
}

// report hands on what a round with a peer came to, if it still is one.
func (p *Prober) report(address string, res Result) {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	p.mu.Lock()
	t, ok := p.targets[address]
	if ok && res.PeerNode != "" {
		p.setName(address, res.PeerNode)
	}
	if ok && res.Outcome != Skipped {
		p.rounds[address]++
	}
	if ok && t.found && res.Reason == failure.Self && res.PeerNode == "" { // by its hello, before it has a name here
		p.self[address], ok = true, false
		delete(p.targets, address)
		p.order = slices.DeleteFunc(slices.Clone(p.order), func(a string) bool { return a == address })
		p.forgetLocked(address)
	}
	res.Peer = p.labelLocked(address)
	p.mu.Unlock()
	p.publishLocked()
	if ok {
		p.observe(res)
	}
}

// wait returns how long it is until a peer is to be asked, by what all nodes know of each other: their names.
func (p *Prober) untilDue(address string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return untilRound(p.namesLocked(), text.Label(p.node.name()), p.names[address], p.opts.Interval, p.now())
}

// allLocked returns the names of all nodes, sorted.
func (p *Prober) namesLocked() []string {
	if p.sortedNames == nil {
		p.sortedNames = slices.AppendSeq(append(make([]string, 0, len(p.names)+1), text.Label(p.node.name())),
			maps.Values(p.names))
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

// Bench makes one full round with a peer now. tell gets how far it is, from several goroutines, but from one at a time.
func Bench(ctx context.Context, node *Node, opts Options, peer string, tell func(Progress)) Result {
	node.askBudget.resize(opts.Budget)
	var mu sync.Mutex
	r := round{node: node, opts: opts, peer: peer, full: true, progress: func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		tell(p)
	}}
	return r.run(ctx)
}
