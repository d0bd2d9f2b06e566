package probe

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/railscope/railscope/internal/text"
)

// maxLabels is the number of labels that are kept: as many as there may be peers. The least recently used are dropped.
const maxLabels = maxPeers

// labelCache keeps the label of each address that was found for the life of the process, whatever its node reports
// later and also while it is not in the DNS: a new label would reset the counters. Safe for concurrent use.
type labelCache struct {
	mu    sync.Mutex // protects all following fields
	known map[string]labelEntry
	uses  int // of all entries
}

type labelEntry struct {
	label string
	used  int // uses at its last one
}

// get returns the label of a peer; empty if the address never was one.
func (l *labelCache) get(address string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.known[address]
	if ok {
		l.setLocked(address, e.label)
	}
	return e.label
}

func (l *labelCache) set(address, label string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(address, label)
	if len(l.known) > maxLabels {
		delete(l.known, slices.MinFunc(slices.Collect(maps.Keys(l.known)), func(a, b string) int {
			return cmp.Compare(l.known[a].used, l.known[b].used)
		}))
	}
}

func (l *labelCache) setLocked(address, label string) {
	l.uses++
	l.known[address] = labelEntry{label, l.uses}
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

func (p *Prober) labelLocked(address string) string {
	if one := p.peers[address]; one != nil && one.found {
		return one.label
	}
	return configuredLabel(address)
}

// relabelLocked labels every peer that was found, after the peers have changed: with its label so far, else the name
// that it reports, else its host. If another peer or this node has that label, it is the address.
func (p *Prober) relabelLocked() {
	taken := map[string]bool{text.Label(p.node.name()): true}
	for address, one := range p.peers {
		if !one.found {
			taken[configuredLabel(address)] = true
		}
	}
	set := func(one *peer, label string) {
		one.label, taken[label] = label, true
		p.node.labels.set(one.address, label)
	}
	var others []*peer
	for _, address := range p.order { // a label in use precedes one of a peer that returns
		if one := p.peers[address]; one.found && one.label != "" && !taken[one.label] {
			set(one, one.label)
		} else if one.found {
			others = append(others, one)
		}
	}
	for _, one := range others {
		label := cmp.Or(p.node.labels.get(one.address), reportedLabel(one.target))
		if taken[label] {
			label = text.Label(one.address)
		}
		set(one, label)
	}
}

// reportedLabel is the name that a peer reports, unless it looks like an address of another; else its host.
func reportedLabel(t target) string {
	host, _, _ := net.SplitHostPort(t.address)
	name := text.Label(t.node)
	_, err := netip.ParseAddr(name)
	_, portErr := netip.ParseAddrPort(name)
	switch {
	case name == "", name == host:
		return text.Label(host)
	case err == nil || portErr == nil:
		return text.Label(t.address)
	}
	return name
}
