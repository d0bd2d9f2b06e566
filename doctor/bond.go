package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

func checkBondMode(f *RailFacts, b *Bond, found func(Finding)) {
	on := f.railsOn(b)
	if bondCarriesRDMA(b.Mode) || len(on) == 0 && !slices.ContainsFunc(f.hardware(), func(r *Rail) bool { return r.Netdev == b.Name }) {
		return
	}
	out := Finding{Severity: Fault, Subject: b.Name, Mend: f.takeApart(b),
		Read: fmt.Sprintf("mode %s (/sys/class/net/%s/bonding/mode), over %s", b.Mode, b.Name, orElse(names(on), "a rail")),
		Why:  "Drivers make one RDMA device of a bond in modes active-backup, balance-xor and 802.3ad only, and of two ports of one adapter only. In this mode the rails' GIDs go to the bond, and RDMA has no way out by it."}
	if f.oneAdapter(b) {
		out.Mend = changeMode(b)
	}
	f.spare(&out, b.Name, on)
	found(out)
}

// spare keeps a finding from cutting off the node: an interface over which its
// default route goes, while other rails do without it, is more likely there for
// management than for RDMA.
func (f *RailFacts) spare(out *Finding, netdev string, on []*Rail) {
	management := slices.ContainsFunc(f.netdev(netdev).Gateways, func(p netip.Prefix) bool { return p.Bits() == 0 })
	others := slices.ContainsFunc(f.Rails, func(r Rail) bool {
		return r.active() && r.Netdev != netdev && !slices.ContainsFunc(on, func(o *Rail) bool { return o.Name == r.Name })
	})
	if !management || !others {
		return
	}
	out.Severity = Warning
	out.Read += fmt.Sprintf("; the default route goes over %s", netdev)
	lines := []string{note("if %s is there for management: leave its ports out by rails.include in the configuration, and change nothing. If it is there for RDMA, from a console:", netdev)}
	for _, line := range out.Mend {
		lines = append(lines, "# "+strings.TrimPrefix(line, "# "))
	}
	out.Mend = lines
}

func checkBondNoLAG(f *RailFacts, b *Bond, found func(Finding)) {
	on := f.railsOn(b)
	if !bondCarriesRDMA(b.Mode) || len(on) < 2 {
		return
	}
	out := Finding{Severity: Fault, Subject: b.Name, Mend: f.takeApart(b),
		Read: fmt.Sprintf("%s are members, mode %s, and each is still a device of its own: the driver has made no RDMA device of the bond", names(on), b.Mode),
		Why:  "The rails' GIDs go to the bond: two devices with one address, of which the peer reaches one. RDMA libraries use several rails by themselves, and better than a bond."}
	if f.oneAdapter(b) {
		out.Mend = append([]string{note("both are ports of one adapter, of which a driver could make one device: dmesg says why it did not (SR-IOV, an old firmware). Without the bond:")}, out.Mend...)
	}
	f.spare(&out, b.Name, on)
	found(out)
}

// oneAdapter tells whether all members of a bond are functions of one PCI slot.
func (f *RailFacts) oneAdapter(b *Bond) bool {
	slot := ""
	for _, m := range b.Members {
		s := f.netdev(m.Name).Slot
		if s == "" || slot != "" && s != slot {
			return false
		}
		slot = s
	}
	return slot != ""
}

// changeMode changes the mode of a bond to the nearest with which RDMA goes. The
// kernel does that only while it is down and has no members.
func changeMode(b *Bond) (lines []string) {
	mode := "active-backup" // what balance-tlb and balance-alb ask of a switch: nothing
	if b.Mode == "balance-rr" || b.Mode == "broadcast" {
		mode = "balance-xor" // a static aggregate, as the switch has it already
	}
	lines = []string{note("what goes over %s stops meanwhile: do it from a console, not over %s itself", b.Name, b.Name)}
	for _, m := range b.Members {
		lines = append(lines, ip("link set dev %s nomaster", m.Name))
	}
	lines = append(lines, ip("link set dev %s down", b.Name), ip("link set dev %s type bond mode %s miimon 100", b.Name, mode))
	for _, m := range b.Members {
		lines = append(lines, ip("link set dev %s down", m.Name), ip("link set dev %s master %s", m.Name, b.Name))
	}
	return append(lines, ip("link set dev %s up", b.Name))
}

// takeApart removes a bond: the first member gets its addresses, rails beside it
// one each after the pattern.
func (f *RailFacts) takeApart(b *Bond) []string {
	if len(b.Members) == 0 {
		return []string{ip("link delete dev %s", b.Name)}
	}
	after := *f
	after.Netdevs = slices.Clone(f.Netdevs)
	addresses := f.netdev(b.Name).Addresses
	for i := range after.Netdevs {
		switch after.Netdevs[i].Name {
		case b.Name:
			after.Netdevs[i].Addresses = nil
		case b.Members[0].Name:
			after.Netdevs[i].Addresses = append(slices.Clone(after.Netdevs[i].Addresses), addresses...)
		}
	}
	lines := []string{note("addresses of %s go to %s, what else was configured on it is lost: do it from a console, not over %s itself", b.Name, b.Members[0].Name, b.Name), ip("link delete dev %s", b.Name)}
	for _, m := range b.Members {
		lines = append(lines, ip("link set dev %s up", m.Name))
	}
	for _, p := range addresses {
		lines = append(lines, ip("address add %s dev %s", p.String(), b.Members[0].Name))
	}
	for _, r := range after.railsOn(b) {
		at := slices.IndexFunc(after.Netdevs, func(n Netdev) bool { return n.Name == r.Netdev })
		if at < 0 || len(after.Netdevs[at].ipv4()) > 0 {
			continue
		}
		lines = append(lines, after.addressFor(r)...)
		if p, _, ok := after.propose(r); ok {
			after.Netdevs[at].Addresses = append(after.Netdevs[at].Addresses, p)
		}
	}
	return lines
}

func checkBondMemberDown(f *RailFacts, b *Bond, found func(Finding)) {
	for _, m := range b.Members {
		if m.Status != "down" {
			continue
		}
		n := f.netdev(m.Name)
		out := Finding{Severity: Fault, Subject: fmt.Sprintf("%s of %s", m.Name, b.Name),
			Read: fmt.Sprintf("the bond holds it to be down (/sys/class/net/%s/bonding_slave/mii_status)", m.Name),
			Why:  fmt.Sprintf("%s carries its traffic, RDMA and all, on fewer links than it has.", b.Name)}
		switch {
		case n.Up != nil && !*n.Up:
			out.Read += "; it is down by configuration"
			out.Mend = []string{ip("link set dev %s up", m.Name)}
		case n.Carrier != nil && !*n.Carrier:
			out.Read += "; it has no carrier"
			out.Mend = []string{note("plug in its cable at both ends, or change it or its transceiver; see that the switch's port is on: ethtool %s", shellWord(m.Name))}
		default:
			out.Mend = []string{note("it has carrier, so the bond's own monitor is against it: cat /proc/net/bonding/%s", shellWord(b.Name))}
		}
		found(out)
	}
}

// actorDefaulted is the bit of our LACP state that says that the partner is not
// heard (include/net/bond_3ad.h, LACP_STATE_DEFAULTED).
const actorDefaulted = 0x40

const noLACP = "# where the switch cannot: use mode active-backup, which asks nothing of it"

func checkBondLACP(_ *RailFacts, b *Bond, found func(Finding)) {
	if b.Mode != "802.3ad" {
		return
	}
	var silent, apart []string
	up := false
	for _, m := range b.Members {
		up = up || m.Status == "up"
		switch {
		case m.Status != "up":
		case m.ActorState != nil && *m.ActorState&actorDefaulted != 0:
			silent = append(silent, m.Name)
		case b.Aggregator != 0 && m.Aggregator != 0 && m.Aggregator != b.Aggregator:
			apart = append(apart, fmt.Sprintf("%s in %d", m.Name, m.Aggregator))
		}
	}
	out := Finding{Severity: Fault, Subject: b.Name,
		Why:  "Only members that agree with their partner on one aggregate carry traffic: the bond runs on one link, or on none.",
		Mend: []string{note("configure the switch's ports of these links as one LACP group (mode active), the same on all of them; then: cat /proc/net/bonding/%s", shellWord(b.Name))}}
	switch {
	case len(silent) > 0:
		out.Read = fmt.Sprintf("no LACP partner is heard on %s", enumerate(silent))
		out.Mend = append(out.Mend, noLACP)
	case len(apart) > 0:
		out.Read = fmt.Sprintf("the active aggregator is %d, and %s", b.Aggregator, strings.Join(apart, ", "))
	case b.Partner == "00:00:00:00:00:00" && up:
		out.Read = fmt.Sprintf("no LACP partner is heard (/sys/class/net/%s/bonding/ad_partner_mac is %s)", b.Name, b.Partner)
		out.Mend = append(out.Mend, noLACP)
	default:
		return
	}
	found(out)
}
