// Package history remembers what earlier rounds with a peer came to.
package history

import (
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/result"
)

// NoteExtras remembers the extras of a round, and adds the last results of those that it did not make: scheduled
// rounds make one extra each, in turn.
func (p *PastPeer) NoteExtras(res *result.Result) {
	for _, kind := range result.Kinds() {
		of := func(m result.Measured) bool { return m.Kind == kind }
		made := func(m result.Measured) bool { return of(m) && m.Failure == nil }
		if slices.ContainsFunc(res.Extras, made) {
			p.Extras = slices.DeleteFunc(p.Extras, of)
			for _, m := range res.Extras {
				if of(m) {
					m.Made = res.Start
					p.Extras = append(p.Extras, m.WithoutSamples())
				}
			}
			continue
		}
		for _, m := range p.Extras {
			if of(m) && (res.Transport == result.RDMA || kind == result.Loopback) {
				res.Extras = append(res.Extras, m)
			}
		}
	}
}

// KeepPast is how long a rail of an earlier round is remembered.
const KeepPast = 24 * time.Hour

// Past is what a node remembers of its rounds, by address of the peer: a fault that repeats is not noise. It
// outlives a reload. 1,000 peers with 8 rails take less than 4 MB (TestPastBounded). Safe for concurrent use.
type Past struct {
	mu    sync.Mutex // protects peers
	Peers map[string]*PastPeer
}

// PastPeer is what a node remembers of its rounds with one peer.
type PastPeer struct {
	Turn chan struct{} // holds one token while a round uses the memory: one round at a time

	node  string // name that the peer reports
	Rails []PastRail
	Low   int       // striped bursts in a row that found a bottleneck
	runs  []float64 // bytes per second of the last striped bursts
	tcp   []float64 // bytes per second of the last TCP baselines, each with its best number of streams

	Extras []result.Measured // last extras of each kind, without samples
}

// PastRail is what a node remembers of its rounds over one rail.
type PastRail struct {
	Name    string
	Partner string // peer's rail that it was paired with
	At      time.Time
	Solo    float64                 // bytes per second in the last full round; 0: none
	loss    [rememberLoss]lossRound // loss in the last rounds, newest first
	latency latencyMemory
}

// Of returns the memory of the peer at an address. If the peer's node name has changed, the memory is empty.
func (m *Past) Of(peer, node string) *PastPeer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Peers == nil {
		m.Peers = map[string]*PastPeer{}
	}
	if m.Peers[peer] == nil || m.Peers[peer].node != node {
		m.Peers[peer] = NewPeer(node)
	}
	return m.Peers[peer]
}

// NewPeer returns the memory of a peer before the first round.
func NewPeer(node string) *PastPeer { return &PastPeer{node: node, Turn: make(chan struct{}, 1)} }

// Keep drops the memory of all other peers.
func (m *Past) Keep(isPeer func(address string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for address := range m.Peers {
		if !isPeer(address) {
			delete(m.Peers, address)
		}
	}
}

// Rail returns the memory of a rail, or nil.
func (p *PastPeer) Rail(name string) *PastRail {
	if i := slices.IndexFunc(p.Rails, func(r PastRail) bool { return r.Name == name }); i >= 0 {
		return &p.Rails[i]
	}
	return nil
}

// Partner returns the peer's rail that earlier rounds paired with this rail, or empty.
func (p *PastPeer) Partner(name string) string {
	if r := p.Rail(name); r != nil {
		return r.Partner
	}
	return ""
}

// Note remembers a round, makes the judgements that need several rounds, and drops rails not seen for a day.
func (p *PastPeer) Note(res *result.Result, alone bool) {
	for i := range res.Rails {
		rail := &res.Rails[i]
		r := p.Rail(rail.Rail)
		if rail.PeerRail == "" {
			if r != nil && res.LacksPartner(rail.Rail) { // a missing rail is kept
				r.At = res.Start
			}
			continue
		}
		if r == nil {
			p.Rails = append(p.Rails, PastRail{Name: rail.Rail})
			r = &p.Rails[len(p.Rails)-1]
		}
		r.Partner, r.At = rail.PeerRail, res.Start
		if res.Transport != result.RDMA {
			continue
		}
		r.noteLoss(rail.Loss)
		if rail.Failure != nil {
			r.Solo = 0
		} else if rail.Solo != nil {
			r.Solo = rail.Solo.BytesPerSecond()
		}
	}
	p.Rails = slices.DeleteFunc(p.Rails, func(r PastRail) bool { return res.Start.Sub(r.At) > KeepPast })
	p.noteRuns(res)
	if res.Transport != result.RDMA {
		res.EvenAlone = false
		return
	}
	needed := int8(unevenRounds)
	if alone {
		needed = 1
	}
	p.judgeLoss(res)
	p.judgeLatency(res, needed)
	p.judgeRuns(res)
}
