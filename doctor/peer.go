package doctor

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

func railPeerChecks() []PeerCheck {
	return typedPeer([]PeerCheck{
		{ID: "peer_rails", About: "the nodes have unlike numbers of rails", Run: checkPeerRails},
		{ID: "peer_link_layer", About: "rails of one name are Ethernet on one node and InfiniBand on the other", Run: eachPair(checkPeerLinkLayer)},
		{ID: "peer_rate", About: "rails of one name have unlike rates", Run: eachPair(checkPeerRate)},
		{ID: "peer_mtu", About: "the interfaces of rails of one name have unlike MTUs", Run: eachPair(checkPeerMTU)},
		{ID: "peer_subnet", About: "rails of one name share no subnet, and have no route to each other", Run: eachPair(checkPeerSubnet)},
		{ID: "peer_gid", About: "rails of one name would use GIDs of unlike types", Run: eachPair(checkPeerGID)},
	})
}

// pair is two rails of one name, this node's and the peer's.
type pair struct {
	here, there         *RailFacts
	a, b                *Rail
	hereNode, thereNode string
}

func (p pair) subject() string { return fmt.Sprintf("%s and %s of %s", p.a, p.b, p.thereNode) }

// eachPair is a check of the rails that both nodes have under one name, and that
// are up: what is down is another check's.
func eachPair(check func(p pair, found func(Finding))) func(here, there *Facts, found func(Finding)) {
	return func(here, there *Facts, found func(Finding)) {
		for i := range here.Rails.Rails {
			a := &here.Rails.Rails[i]
			at := slices.IndexFunc(there.Rails.Rails, func(b Rail) bool { return b.Name == a.Name })
			if at < 0 || !a.active() || !there.Rails.Rails[at].active() {
				continue
			}
			check(pair{&here.Rails, &there.Rails, a, &there.Rails.Rails[at], here.Node, there.Node}, found)
		}
	}
}

func checkPeerRails(here, there *Facts, found func(Finding)) {
	a, b := len(here.Rails.Rails), len(there.Rails.Rails)
	if a == b || a == 0 || b == 0 {
		return
	}
	found(Finding{Severity: Warning, Subject: fmt.Sprintf("%s and %s", here.Node, there.Node),
		Read: fmt.Sprintf("%s on %s, %d on %s", count(a, "rail"), here.Node, b, there.Node),
		Why:  "Only rails that both have carry what goes between them; those of one node alone stand idle.",
		Mend: []string{note("compare railscope rails on both: a device that is missing on one, or rails.include in the configuration that differs")}})
}

func checkPeerLinkLayer(p pair, found func(Finding)) {
	if p.a.LinkLayer == p.b.LinkLayer || p.a.LinkLayer == "" || p.b.LinkLayer == "" {
		return
	}
	found(Finding{Severity: Fault, Subject: p.subject(),
		Read: fmt.Sprintf("%s on %s, %s on %s", p.a.LinkLayer, p.hereNode, p.b.LinkLayer, p.thereNode),
		Why:  "The two speak different protocols on the wire: nothing connects over this rail.",
		Mend: []string{note("set both ports to one: mlxconfig -d %s set LINK_TYPE_P%d=2 (1 InfiniBand, 2 Ethernet), then restart the node", shellWord(orElse(p.a.PCIAddress, p.a.Device)), p.a.Port)}})
}

func checkPeerRate(p pair, found func(Finding)) {
	if p.a.Rate == p.b.Rate || p.a.Rate == 0 || p.b.Rate == 0 {
		return
	}
	slow, node := p.a, p.hereNode
	if p.b.Rate < p.a.Rate {
		slow, node = p.b, p.thereNode
	}
	found(Finding{Node: node, Severity: Warning, Subject: p.subject(),
		Read: fmt.Sprintf("%s on %s, %s on %s", gigabits(p.a.Rate), p.hereNode, gigabits(p.b.Rate), p.thereNode),
		Why:  "The faster end sends more than the slower takes: goodput is the slower one's, and the switch in between pauses or drops.",
		Mend: []string{note("see why %s has come up slower: a cable or transceiver for less, or a fixed speed: ethtool %s", slow, shellWord(slow.Netdev))}})
}

// checkPeerMTU leaves MTUs that are too low to the check of the node that has
// them.
func checkPeerMTU(p pair, found func(Finding)) {
	a, b := p.here.netdev(p.a.Netdev).MTU, p.there.netdev(p.b.Netdev).MTU
	if a == b || a == 0 || b == 0 || !p.a.ethernet() || !p.b.ethernet() || p.here.mtuLow(p.a) || p.there.mtuLow(p.b) {
		return
	}
	node, mend := p.hereNode, p.here.setMTU(p.a, b)
	if b < a {
		node, mend = p.thereNode, p.there.setMTU(p.b, a)
	}
	found(Finding{Node: node, Severity: Warning, Subject: p.subject(), Mend: mend,
		Read: fmt.Sprintf("%s of %s has MTU %d, %s of %s has %d", p.a.Netdev, p.hereNode, a, p.b.Netdev, p.thereNode, b),
		Why:  "RoCE gets 4096 either way, and TCP agrees on the smaller one; but nobody in an Ethernet segment cuts other packets to size: large datagrams of the one end the other drops without a word. Nodes of one job are meant to be alike."})
}

func checkPeerSubnet(p pair, found func(Finding)) {
	a, b := p.here.netdev(p.a.Netdev).ipv4(), p.there.netdev(p.b.Netdev).ipv4()
	if !p.a.ethernet() || !p.b.ethernet() || len(a) == 0 || len(b) == 0 || meet(a, b) ||
		routed(p.here.netdev(p.a.Netdev), b) && routed(p.there.netdev(p.b.Netdev), a) {
		return
	}
	out := Finding{Node: p.hereNode, Severity: Fault, Subject: p.subject(),
		Read: fmt.Sprintf("%s has %s, %s of %s has %s: no common subnet, and no route through a gateway", p.a.Netdev, prefixes(a), p.b.Netdev, p.thereNode, prefixes(b)),
		Why:  "Nobody answers ARP for the other end's address: queue pairs do not connect (rtr_unreachable)."}
	for i := range p.there.Rails {
		if o := &p.there.Rails[i]; o != p.b && meet(a, p.there.netdev(o.Netdev).ipv4()) {
			out.Severity = Warning
			out.Read += fmt.Sprintf("; it meets %s there", o)
			out.Why = "Programs that pair rails by their number connect what cannot reach each other."
			out.Mend = []string{note("give rails that meet one name on both nodes: rails.names in the configuration, %s/%d here and %s/%d there", p.a.Device, p.a.Port, o.Device, o.Port)}
			found(out)
			return
		}
	}
	if c, ok := join(a[0], b[0]); ok && !p.there.has(c.Addr()) {
		out.Mend = []string{note("%s joins the subnet of the other end; if your plan has another address for it, take that one", p.a),
			ip("address add %s dev %s", c.String(), p.a.Netdev)}
	} else {
		out.Mend = []string{note("give both ends addresses of one subnet: ip address add ADDRESS/LENGTH dev %s", shellWord(p.a.Netdev))}
	}
	found(out)
}

// meet tells whether two ends have addresses in a subnet that both know.
func meet(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool {
		return slices.ContainsFunc(b, func(q netip.Prefix) bool { return p.Contains(q.Addr()) && q.Contains(p.Addr()) })
	})
}

// routed tells whether an interface has a route through a gateway to one of the
// other end's addresses.
func routed(n Netdev, to []netip.Prefix) bool {
	return slices.ContainsFunc(to, func(q netip.Prefix) bool {
		return slices.ContainsFunc(n.Gateways, func(g netip.Prefix) bool { return g.Contains(q.Addr()) })
	})
}

func prefixes(list []netip.Prefix) string {
	var words []string
	for _, p := range list {
		words = append(words, p.String())
	}
	return enumerate(words)
}

// join is the address with a's place in the subnet of b.
func join(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() < 8 || a.Bits() > 30 {
		return netip.Prefix{}, false
	}
	mask := uint32(1)<<(32-a.Bits()) - 1
	x, y := a.Addr().As4(), b.Addr().As4()
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], binary.BigEndian.Uint32(y[:])&^mask|binary.BigEndian.Uint32(x[:])&mask)
	p := netip.PrefixFrom(netip.AddrFrom4(out), a.Bits())
	return p, p.Addr() != b.Addr()
}

// checkPeerGID leaves GIDs that will not do to the check of the node that has
// them.
func checkPeerGID(p pair, found func(Finding)) {
	a, qa := p.a.best()
	b, qb := p.b.best()
	if !p.a.ethernet() || !p.b.ethernet() || qa < ownIPv6 || qb < ownIPv6 || qa == qb {
		return
	}
	six := p.a
	node, facts := p.hereNode, p.here
	if qa > qb {
		six, node, facts = p.b, p.thereNode, p.there
	}
	found(Finding{Node: node, Severity: Fault, Subject: p.subject(), Mend: facts.addressFor(six),
		Read: fmt.Sprintf("%s would use GID %d (%s), %s GID %d (%s)", p.hereNode, a.Index, a.Addr.Unmap(), p.thereNode, b.Index, b.Addr.Unmap()),
		Why:  "A connection is over IPv4 or over IPv6: these two ends have no address family in common."})
}
