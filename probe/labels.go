package probe

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/railscope/railscope/internal/text"
)

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
