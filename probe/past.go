package probe

import (
	"slices"
	"sync"
	"time"
)

// keepPast is for how long a rail of an earlier round is remembered.
const keepPast = 24 * time.Hour

// past is what a node remembers of its rounds, by address of the peer: a fault that repeats is not noise. It
// outlives a reload. Of 1,000 peers with 8 rails it takes less than 4 MB (TestPastBounded). Safe for concurrent use;
// rounds with one peer follow each other.
type past struct {
	mu    sync.Mutex // protects peers
	peers map[string]*pastPeer
}

// pastPeer are the rounds with one peer; used by one round at a time.
type pastPeer struct {
	node  string // name that it reports
	rails []pastRail
	low   int       // striped bursts in a row that found a bottleneck
	runs  []float64 // bytes per second of the last striped bursts
	tcp   []float64 // likewise of the last TCP baselines, each the best of its streams

	extras []Measured // the last ones of each kind, without samples
}

// pastRail are those over one of this node's rails.
type pastRail struct {
	name    string
	partner string // the peer's rail that it was paired with
	at      time.Time
	solo    float64                 // of the last full round, bytes per second; 0: none
	loss    [rememberLoss]lossRound // of the last rounds, latest first
	latency latencyMemory
}

// of returns the memory of the peer at an address. A node of another name there has none yet.
func (m *past) of(peer, node string) *pastPeer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.peers == nil {
		m.peers = map[string]*pastPeer{}
	}
	if m.peers[peer] == nil || m.peers[peer].node != node {
		m.peers[peer] = &pastPeer{node: node}
	}
	return m.peers[peer]
}

// keep forgets all other peers.
func (m *past) keep(peers map[string]*peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for address := range m.peers {
		if peers[address] == nil {
			delete(m.peers, address)
		}
	}
}

// rail returns the memory of a rail; nil: there is none.
func (p *pastPeer) rail(name string) *pastRail {
	if i := slices.IndexFunc(p.rails, func(r pastRail) bool { return r.name == name }); i >= 0 {
		return &p.rails[i]
	}
	return nil
}

// partner is the peer's rail that earlier rounds used with this rail; empty: none did.
func (p *pastPeer) partner(name string) string {
	if r := p.rail(name); r != nil {
		return r.partner
	}
	return ""
}

// note remembers a round, judges what needs several ones, and forgets rails that were not seen for a day.
func (p *pastPeer) note(res *Result, evenAlone, alone bool) {
	for i := range res.Rails {
		one := &res.Rails[i]
		if one.PeerRail == "" {
			continue
		}
		r := p.rail(one.Rail)
		if r == nil {
			p.rails = append(p.rails, pastRail{name: one.Rail})
			r = &p.rails[len(p.rails)-1]
		}
		r.partner, r.at = one.PeerRail, res.Start
		if res.Transport != RDMA {
			continue
		}
		if r.noteLoss(one.Loss); one.Failure != nil {
			r.solo = 0
		} else if one.Solo != nil {
			r.solo = one.Solo.BytesPerSecond()
		}
	}
	p.rails = slices.DeleteFunc(p.rails, func(r pastRail) bool { return res.Start.Sub(r.at) > keepPast })
	p.noteRuns(res)
	if res.Transport != RDMA {
		return
	}
	needed := int8(unevenRounds)
	if alone {
		needed = 1
	}
	p.judgeLoss(res)
	p.judgeLatency(res, needed)
	p.judgeRuns(res, evenAlone)
}
