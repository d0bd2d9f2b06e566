package probe

import (
	"container/list"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/railscope/railscope/internal/text"
)

// labelCache keeps the label of each address that was found for the life of the process, whatever its node reports later
// and also while it is not in the DNS: a new label would reset the counters. Safe for concurrent use.
type labelCache struct {
	mu    sync.Mutex
	known map[string]*list.Element // by address; of labelEntry
	order *list.List               // the most recent peers first
}

type labelEntry struct{ address, label string }

// maxLabels is the number of labels that are kept: as many as there may be peers. The least recent are dropped.
const maxLabels = maxPeers

func newLabelCache() *labelCache {
	return &labelCache{known: map[string]*list.Element{}, order: list.New()}
}

// get returns the label of a peer; empty if the address never was one.
func (l *labelCache) get(address string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.known[address]
	if e == nil {
		return ""
	}
	l.order.MoveToFront(e)
	return e.Value.(labelEntry).label
}

func (l *labelCache) set(address, label string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.known[address]; e != nil {
		l.order.Remove(e)
	}
	l.known[address] = l.order.PushFront(labelEntry{address, label})
	for l.order.Len() > maxLabels {
		delete(l.known, l.order.Remove(l.order.Back()).(labelEntry).address)
	}
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

// labelLocked is the label of a peer.
func (p *Prober) labelLocked(address string) string {
	if p.targets[address].found {
		return p.labels[address]
	}
	return configuredLabel(address)
}

// relabelLocked labels every peer that was found, after the targets have changed: with its label so far, else the name
// that it reports, else its host. If another peer or this node has that label, it is the address.
func (p *Prober) relabelLocked() {
	before := p.labels
	p.labels = make(map[string]string, len(p.order))
	taken := map[string]bool{text.Label(p.node.name()): true}
	for address, t := range p.targets {
		if !t.found {
			taken[configuredLabel(address)] = true
		}
	}
	give := func(address, label string) {
		p.labels[address], taken[label] = label, true
		p.node.labels.set(address, label)
	}
	var others []string
	for _, address := range p.order { // a label in use precedes one of a peer that returns
		if label := before[address]; p.targets[address].found && label != "" && !taken[label] {
			give(address, label)
		} else if p.targets[address].found {
			others = append(others, address)
		}
	}
	for _, address := range others {
		label := p.node.labels.get(address)
		if label == "" {
			label = reportedLabel(p.targets[address])
		}
		if taken[label] {
			label = text.Label(address)
		}
		give(address, label)
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
