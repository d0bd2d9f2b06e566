package probe

import (
	"container/list"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/railscope/railscope/internal/text"
)

// labels remembers what each address that was found is called in metrics: for the life of the process, whatever its
// node calls itself later, and whether or not it leaves the DNS in between. Counters would start anew with each name.
// Safe for concurrent use.
type labelCache struct {
	mu    sync.Mutex
	known map[string]*list.Element // by address; of labelled
	order *list.List               // those that were peers last come first
}

type labelEntry struct{ address, label string }

// maxLabels bounds what is remembered: as many as there may be peers. Of more
// those are forgotten that have not been peers for longest.
const maxLabels = maxPeers

func newLabelCache() *labelCache {
	return &labelCache{known: map[string]*list.Element{}, order: list.New()}
}

// of returns the label of an address that is a peer now; empty when it never was one.
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

// fix remembers the label of an address.
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

// writtenLabel is the label of a peer that people wrote: what they wrote. Only a
// name that is longer than a label may be is cut, so that no two are alike.
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

// relabelLocked gives every peer that was found its label, after the targets have changed: the one that it had, else
// what it calls itself, else its host. Nobody gets what another peer or this node is called; who would goes by its
// address.
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
	for _, address := range p.order { // who has one keeps it, also from who comes back
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

// firstLabel is what a peer that was found goes by when it becomes one. What
// looks like the address of another is no name.
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
