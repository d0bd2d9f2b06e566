// Package schedule decides which peers are asked, and when.
package schedule

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
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Prober runs a round with each peer at its scheduled time, and reports the results. One goroutine owns the peers
// and reports; each round has its own goroutine.
type Prober struct {
	Node      *node.Node
	Opts      options.Options
	observe   func(result.Result)
	events    options.Events
	Directory *Directory                                       // nil: no DNS names and no files
	Find      func(ctx context.Context, found chan<- []Target) // sends the nodes to ask; nil: none are found
	RunRound  func(ctx context.Context, r *round.Round) result.Result

	published []string         // labels of peers, as last published; nil: not yet published
	Peers     map[string]*Peer // peers by address
	order     []string         // addresses: configured ones, then found ones
	Schedule  *Schedule
	Known     atomic.Pointer[map[string]KnownPeer] // peers by address and by label, for interactive rounds
	Cycle     atomic.Int64                         // cycle of the schedule in ns, for Stats; 0: no peers
}

// roundEnd is the result of a round.
type roundEnd struct {
	address string
	res     result.Result
}

// Peer is a node to ask.
type Peer struct {
	Target
	node   string    // name that it reported first; empty: none yet
	label  string    // label of its series
	added  time.Time // time when it became a peer
	shown  bool      // the peer has series: if found, only after a round, because its label is the name that it reports
	Rounds int       // rounds that were not skipped
}

// NewProber returns the prober. observe gets exactly one result per peer and cycle, and is not called concurrently.
// events reports the peers.
func NewProber(node *node.Node, opts options.Options, observe func(result.Result), events options.Events) *Prober {
	p := &Prober{Node: node, Opts: opts, observe: observe, events: events, Peers: map[string]*Peer{},
		RunRound: func(ctx context.Context, r *round.Round) result.Result { return r.Run(ctx) },
		Schedule: NewSchedule(node.Name(), opts.Interval, rand.N[time.Duration])}
	p.Schedule.Pace = func() time.Duration { return node.AskBudget.Pace(opts.SoloEvery) }
	p.Directory = NewDirectory(node, opts, p.events.Resolved)
	p.Set(nil)
	if p.Directory == nil {
		p.Publish()
	} else {
		p.Find = p.Directory.run
	}
	return p
}

// Set sets the nodes to ask: the configured ones and found. Running rounds are not disturbed.
func (p *Prober) Set(found []Target) {
	before, now := p.Peers, time.Now()
	p.Peers, p.order = map[string]*Peer{}, nil
	add := func(t Target) {
		if p.Peers[t.Address] != nil {
			return
		}
		one := before[t.Address]
		if one == nil {
			one = &Peer{added: now}
		}
		one.Target = t
		p.Peers[t.Address], p.order = one, append(p.order, t.Address)
	}
	for _, address := range p.Opts.Peers {
		add(Target{Address: address})
	}
	for _, t := range found {
		add(t)
	}
	p.Schedule.Set(p.order, now)
	p.Node.Asked.Store(new(tlsNames(p.Peers)))
	if found != nil { // labels outlive a reload until the first lookup
		maps.DeleteFunc(p.Node.Labels, func(address, _ string) bool { return p.Peers[address] == nil })
	}
	// The memory of earlier rounds is kept until the first lookup. A static list is complete at once.
	if found != nil || p.Directory == nil {
		p.Node.Past.Keep(func(address string) bool { return p.Peers[address] != nil })
	}
	for address, peer := range p.Peers {
		late := now.Sub(peer.added) >= 2*p.Schedule.Cycle() // the first round may end after a cycle
		peer.shown = peer.shown || late || !peer.Found || p.Node.Labels[address] != ""
	}
	p.relabel()
	p.Cycle.Store(int64(p.Schedule.Cycle()))
}

// tlsNames returns the names that the certificates of peers must contain, by address.
func tlsNames(peers map[string]*Peer) map[string]string {
	names := make(map[string]string, len(peers))
	for address, p := range peers {
		names[address] = p.TLSName
	}
	return names
}

// Publish reports the addresses whose results follow.
func (p *Prober) Publish() {
	labels := []string{}
	for _, address := range p.order {
		if one := p.Peers[address]; one.shown {
			labels = append(labels, one.label)
		}
	}
	if p.published == nil || !slices.Equal(labels, p.published) {
		p.published = labels
		p.events.Peers(slices.Clone(labels))
	}
}

// Run asks the peers until ctx is done, and returns after the running rounds have ended.
func (p *Prober) Run(ctx context.Context) {
	var running sync.WaitGroup
	found, ended := make(chan []Target), make(chan roundEnd)
	if p.Find != nil {
		running.Go(func() { p.Find(ctx, found) })
	}
	for ctx.Err() == nil {
		address, at := p.Schedule.Next()
		var due <-chan time.Time
		if address != "" {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
		case list := <-found:
			p.Set(list)
			p.Publish()
		case e := <-ended: // report schedules the next round
			p.Report(e.address, e.res)
		case <-due:
			p.Schedule.Begin(address)
			overdue := p.Schedule.Overdue(address, time.Now())
			if p.Postpone(address, overdue) {
				continue
			}
			r := p.NewRound(address, overdue)
			running.Go(func() {
				// A round that the stop of the prober ended has no result.
				if res := p.RunRound(ctx, r); ctx.Err() == nil || res.Outcome == result.OK {
					ended <- roundEnd{address, res}
				}
			})
		}
	}
	go func() { running.Wait(); close(ended) }()
	for e := range ended {
		p.Report(e.address, e.res)
	}
}

// Postpone delays a round while this node is reserved, or, unless the round is overdue, asks or answers another
// node. A busy node does not contact the peer.
func (p *Prober) Postpone(address string, overdue bool) bool {
	holder := p.Node.Reserved.Against("")
	if holder == "" && !overdue {
		holder = p.Node.Slot.Holder()
	}
	if holder == "" {
		return false
	}
	p.Node.Slot.Deny(netip.Addr{}) // records the denial, so that the holder waits next time
	p.Report(address, result.Result{Start: time.Now(), Outcome: result.Skipped, Transport: result.NoTransport,
		Reason: failure.Busy,
		Detail: "this node is " + holder, RetryAfter: protocol.RetryLeast})
	return true
}

// NewRound returns a round with the peer at this address.
func (p *Prober) NewRound(address string, overdue bool) *round.Round {
	one, opts := p.Peers[address], p.Opts
	opts.Security = one.Security(opts.Security)
	r := &round.Round{Pairing: round.Pairing{Node: p.Node}, Peer: address, Overdue: overdue,
		Plan: round.Plan{Options: opts, Full: one.Rounds%opts.SoloEvery == 0}, Progress: func(result.Progress) {}}
	if n := len(opts.Extras); n > 0 && r.Plan.Full {
		r.Plan.ExtrasNow = opts.Extras[one.Rounds/opts.SoloEvery%n:][:1]
	}
	return r
}

// Report reports the result of a round, unless its peer is gone or the round will be retried.
func (p *Prober) Report(address string, res result.Result) {
	final := p.Schedule.End(address, &res, time.Now())
	p.Cycle.Store(int64(p.Schedule.Cycle()))
	peer := p.Peers[address]
	if peer == nil {
		return
	}
	peer.node = cmp.Or(peer.node, res.PeerNode)
	switch {
	case !final:
		return
	case peer.Found && res.Reason == failure.Self: // this node itself, recognized by its answer
		p.Directory.SetSelf(address)
		peer.shown = false
		return
	}
	// A full round that could make no burst is made again; a disturbed one counts.
	if !res.Outcome.Quiet() || res.StripedFailure != nil {
		peer.Rounds++
	}
	peer.shown = true
	p.relabel()
	res.Peer = peer.label
	p.Publish()
	p.observe(p.Node.CompareWithPast(res, false))
}

// NewBench returns one interactive round with a peer.
func NewBench(node *node.Node, opts options.Options, peer string, progress func(result.Progress)) *round.Round {
	return &round.Round{Pairing: round.Pairing{Node: node}, Peer: peer, Progress: progress,
		Plan: round.Plan{Options: opts, Full: true, Interactive: true, Runs: history.SingleRuns,
			ExtrasNow: opts.Extras}}
}

// configuredLabel returns the label of a configured peer: its address. An address longer than text.MaxLabel is
// truncated and gets a hash.
func configuredLabel(address string) string {
	label := text.Label(address)
	if label == address {
		return label
	}
	const digits = 17
	return fmt.Sprintf("%s-%016x", label[:min(len(label), text.MaxLabel-digits)], hash(address))
}

// relabel sets the labels of the found peers: the name that a peer reported first, else its host. If another peer
// or this node has that label, its address is used. A peer labelled by its name keeps the label.
func (p *Prober) relabel() {
	taken := map[string]bool{text.Label(p.Node.Name()): true}
	var others []*Peer
	for _, address := range p.order {
		one := p.Peers[address]
		known := p.Node.Labels[address]
		switch {
		case !one.Found:
			one.label = configuredLabel(address)
		case known != "" && !taken[known]:
			one.label = known
		default:
			others = append(others, one)
			continue
		}
		taken[one.label] = true
	}
	for _, other := range others {
		other.label = reportedLabel(other)
		if taken[other.label] {
			other.label = text.Label(other.Address)
		}
		taken[other.label] = true
		if other.node != "" {
			p.Node.Labels[other.Address] = other.label
		}
	}
	known := make(map[string]KnownPeer, len(p.Peers))
	for _, peer := range p.Peers {
		known[peer.label] = KnownPeer{peer.Target, peer.label}
	}
	for address, one := range p.Peers {
		known[address] = KnownPeer{one.Target, one.label}
	}
	p.Known.Store(&known)
}

// KnownPeer is what interactive rounds need to know about a peer.
type KnownPeer struct {
	Target
	Label string
}

// reportedLabel returns the name that a peer reports, or its host if the name looks like another node's address.
func reportedLabel(one *Peer) string {
	host, _, _ := net.SplitHostPort(one.Address)
	name := text.Label(one.node)
	_, err := netip.ParseAddr(name)
	_, portErr := netip.ParseAddrPort(name)
	switch {
	case name == "", name == host:
		return text.Label(host)
	case err == nil || portErr == nil:
		return text.Label(one.Address)
	}
	return name
}
