package probe

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Prober asks the peers, each in its time, and hands on what every round came
// to.
type Prober struct {
	node    *Node
	opts    Options
	observe func(Result)

	mu    sync.Mutex        // protects all following fields
	names map[string]string // peer as configured → as it calls itself; until it has said so, its host
	peers map[string]string // the reverse
	all   []string          // names of all nodes, sorted; nil when they changed
	made  map[string]int    // peer → rounds that were not skipped
}

// NewProber returns the prober. observe gets exactly one result per peer and
// round, from one goroutine at a time.
func NewProber(node *Node, opts Options, observe func(Result)) *Prober {
	var mu sync.Mutex
	p := &Prober{node: node, opts: opts, names: map[string]string{}, peers: map[string]string{}, made: map[string]int{}, observe: func(r Result) {
		mu.Lock()
		defer mu.Unlock()
		observe(r)
	}}
	for _, peer := range opts.Peers {
		host, _, _ := net.SplitHostPort(peer)
		p.called(peer, host)
	}
	return p
}

// called notes what a peer calls itself. Of two nodes with one name, this one
// perhaps among them, the second goes by its address.
func (p *Prober) called(peer, name string) {
	if name == p.node.name() {
		name = peer
	}
	if other, taken := p.peers[name]; taken && other != peer {
		name = peer
	}
	if old := p.names[peer]; old != name {
		delete(p.peers, old)
		p.names[peer], p.peers[name], p.all = name, peer, nil
	}
}

// Run asks the peers until ctx is done, and returns when the rounds that were
// going on have ended.
func (p *Prober) Run(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	asking := make(chan string, len(p.opts.Peers)) // peers whose round has ended
	due := map[string]time.Time{}
	for _, peer := range p.opts.Peers {
		due[peer] = p.next(peer, time.Now())
	}
	for len(p.opts.Peers) > 0 {
		peer, at := earliest(due)
		timer := time.NewTimer(time.Until(at))
		if peer == "" {
			timer.Stop() // all are being asked
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case peer := <-asking:
			timer.Stop()
			due[peer] = p.next(peer, time.Now())
		case <-timer.C:
			delete(due, peer)
			rounds.Go(func() {
				p.round(ctx, peer)
				asking <- peer
			})
		}
	}
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
func (p *Prober) round(ctx context.Context, peer string) {
	p.mu.Lock()
	full := p.made[peer]%p.opts.SoloEvery == 0
	p.mu.Unlock()
	r := round{node: p.node, opts: p.opts, peer: peer, full: full, tell: func(Progress) {}}
	res := r.run(ctx)
	p.mu.Lock()
	if res.PeerNode != "" {
		p.called(peer, res.PeerNode)
	}
	if res.Outcome != Skipped {
		p.made[peer]++
	}
	p.mu.Unlock()
	if ctx.Err() != nil && res.Outcome != OK {
		return // the round was broken off because the prober ends: it says nothing of the peer
	}
	p.observe(res)
}

// next returns when a peer is to be asked, by what all nodes know of each other:
// their names.
func (p *Prober) next(peer string, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	self := p.node.name()
	if p.all == nil {
		p.all = slices.AppendSeq(append(make([]string, 0, len(p.names)+1), self), maps.Values(p.names))
		slices.Sort(p.all)
		p.all = slices.Compact(p.all)
	}
	return nextRound(p.all, self, p.names[peer], p.opts.Interval, now)
}

// Bench makes one full round with a peer now. tell gets how far it is, from
// several goroutines, but from one at a time.
func Bench(ctx context.Context, node *Node, opts Options, peer string, tell func(Progress)) Result {
	node.asked.resize(opts.Budget)
	var mu sync.Mutex
	r := round{node: node, opts: opts, peer: peer, full: true, tell: func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		tell(p)
	}}
	return r.run(ctx)
}
