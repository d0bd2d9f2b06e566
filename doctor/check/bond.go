package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
)

func checkBondMode(f *facts.Facts, b *facts.Bond, report reporter) {
	on := f.RailsOn(b)
	over := slices.ContainsFunc(f.Hardware(), func(r *facts.Rail) bool { return r.Netdev == b.Name })
	if facts.BondCarriesRDMA(b.Mode) || len(on) == 0 && !over {
		return
	}
	out := finding.Finding{Fix: dissolve(f, b),
		Evidence: fmt.Sprintf("mode %s (/sys/class/net/%s/bonding/mode), over %s", b.Mode, b.Name,
			cmp.Or(listed(on), "a rail")),
		Why: "Drivers make one RDMA device of a bond only in modes active-backup, balance-xor and 802.3ad, and only " +
			"of two ports of one adapter. In this mode the rails' GIDs move to the bond, over which RDMA cannot send."}
	if oneAdapter(f, b) {
		out.Fix = changeMode(b)
	}
	report(protectManagement(f, out, b.Name, on...))
}

// protectManagement keeps a fix from disconnecting the node. An interface with the default route, while other rails
// have none, is probably the management interface.
func protectManagement(f *facts.Facts, out finding.Finding, netdev string, on ...*facts.Rail) finding.Finding {
	toAll := func(p netip.Prefix) bool { return p.Bits() == 0 }
	others := slices.ContainsFunc(f.Rails, func(r facts.Rail) bool {
		same := func(o *facts.Rail) bool { return o.Name == r.Name }
		return r.Active() && r.Netdev != netdev && !slices.ContainsFunc(on, same)
	})
	if !others || !slices.ContainsFunc(f.Netdev(netdev).Gateways, toAll) {
		return out
	}
	out.Severity = warning
	out.Evidence += fmt.Sprintf("; %s has the default route", netdev)
	lines := []string{note("if %s is for management: exclude its ports by rails.include in the configuration, and "+
		"change nothing. If it is for RDMA, from a console:", netdev)}
	for _, line := range out.Fix {
		lines = append(lines, "# "+strings.TrimPrefix(line, "# "))
	}
	out.Fix = lines
	return out
}

func checkBondNoLAG(f *facts.Facts, b *facts.Bond, report reporter) {
	on := f.RailsOn(b)
	if !facts.BondCarriesRDMA(b.Mode) || len(on) < 2 {
		return
	}
	out := finding.Finding{Fix: dissolve(f, b),
		Evidence: fmt.Sprintf("%s are members, mode %s, and each is still its own RDMA device: the driver made no "+
			"device of the bond", listed(on), b.Mode),
		Why: "The rails' GIDs move to the bond: two devices have one address, and the peer reaches only one of them. " +
			"RDMA libraries use several rails without a bond, and better."}
	if oneAdapter(f, b) {
		out.Evidence += whyNoLAG(b, on)
		out.Fix = append([]string{"# both are ports of one adapter, of which a driver can make one device: dmesg " +
			"says why it did not (SR-IOV, old firmware). Without the bond:"}, out.Fix...)
	}
	out = protectManagement(f, out, b.Name, on...)
	if !slices.ContainsFunc(on, func(r *facts.Rail) bool { return r.Role == rail.Compute }) {
		out.Severity = info
		out.Why += " These rails are not for jobs: a front end that uses TCP alone is often built so."
	}
	report(out)
}

func oneAdapter(f *facts.Facts, b *facts.Bond) bool {
	slot := ""
	for _, m := range b.Members {
		s := f.Netdev(m.Name).Slot
		if s == "" || slot != "" && s != slot {
			return false
		}
		slot = s
	}
	return slot != ""
}

// changeMode returns the commands that change a bond to the nearest mode that carries RDMA. The kernel allows this only
// while the bond is down and has no members.
func changeMode(b *facts.Bond) []string {
	mode := "active-backup" // needs no switch support, like balance-tlb and balance-alb
	if b.Mode == "balance-rr" || b.Mode == "broadcast" {
		mode = "balance-xor" // a static aggregate, which the switch already has
	}
	lines := []string{note("interrupts traffic over %s: use a console, not a session over it", b.Name)}
	for _, m := range b.Members {
		lines = append(lines, sh("ip link set dev %s nomaster", m.Name))
	}
	lines = append(lines, sh("ip link set dev %s down", b.Name),
		sh("ip link set dev %s type bond mode %s miimon 100", b.Name, mode))
	for _, m := range b.Members {
		lines = append(lines, sh("ip link set dev %s down", m.Name), sh("ip link set dev %s master %s", m.Name, b.Name))
	}
	return append(lines, sh("ip link set dev %s up", b.Name))
}

// dissolve deletes a bond. Its first member gets the bond's addresses, each other rail one that continues the pattern.
func dissolve(f *facts.Facts, b *facts.Bond) []string {
	if len(b.Members) == 0 {
		return []string{sh("ip link delete dev %s", b.Name)}
	}
	first, addresses := b.Members[0].Name, f.Netdev(b.Name).Addresses
	after := *f
	after.Netdevs = slices.Clone(f.Netdevs)
	if n := after.Find(b.Name); n != nil {
		n.Addresses = nil
	}
	if n := after.Find(first); n != nil {
		n.Addresses = slices.Concat(n.Addresses, addresses)
	}
	lines := []string{note("moves the addresses of %s to %s and loses its other configuration: use a console, not a "+
		"session over it", b.Name, first), sh("ip link delete dev %s", b.Name)}
	for _, m := range b.Members {
		lines = append(lines, sh("ip link set dev %s up", m.Name))
	}
	for _, p := range addresses {
		lines = append(lines, sh("ip address add %s dev %s", p, first))
	}
	for _, r := range after.RailsOn(b) {
		n := after.Find(r.Netdev)
		if n == nil || len(n.IPv4()) > 0 {
			continue
		}
		lines = append(lines, addressFor(&after, r)...)
		if p, _, ok := propose(&after, r); ok {
			n.Addresses = append(n.Addresses, p)
		}
	}
	return lines
}

// withoutMembers is the severity of members that carry nothing. In the mode active-backup one carries all.
func withoutMembers(b *facts.Bond, lost int) finding.Severity {
	if b.Mode == "active-backup" && lost < len(b.Members) {
		return warning
	}
	return ofLink(float64(len(b.Members)-lost), float64(len(b.Members)))
}

func checkBondMemberDown(f *facts.Facts, b *facts.Bond, report reporter) {
	down := 0
	for _, m := range b.Members {
		if m.Status == "down" {
			down++
		}
	}
	for _, m := range b.Members {
		if m.Status != "down" {
			continue
		}
		n := f.Netdev(m.Name)
		out := finding.Finding{Severity: withoutMembers(b, down), Subject: "interface " + m.Name,
			Where:    "member of " + b.Name,
			Evidence: fmt.Sprintf("the bond reports it down (/sys/class/net/%s/bonding_slave/mii_status)", m.Name),
			Why:      fmt.Sprintf("%s carries its traffic, including RDMA, over fewer links than it has.", b.Name)}
		switch {
		case n.Up != nil && !*n.Up:
			out.Evidence += "; it is administratively down"
			out.Fix = []string{sh("ip link set dev %s up", m.Name)}
		case n.Carrier != nil && !*n.Carrier:
			out.Evidence += "; it has no carrier"
			out.Fix = hands(f, noCarrier(m.Name))
		default:
			out.Fix = []string{note("it has carrier, so the bond's own monitor rejects it: cat /proc/net/bonding/%s",
				shellWord(b.Name))}
		}
		report(out)
	}
}

func checkBondLACP(_ *facts.Facts, b *facts.Bond, report reporter) {
	if b.Mode != "802.3ad" {
		return
	}
	var silent, apart []string
	up := false
	for _, m := range b.Members {
		up = up || m.Status == "up"
		switch {
		case m.Status != "up":
		case m.ActorState != nil && *m.ActorState&0x40 != 0: // LACP_STATE_DEFAULTED of include/net/bond_3ad.h
			silent = append(silent, m.Name)
		case b.Aggregator != 0 && m.Aggregator != 0 && m.Aggregator != b.Aggregator:
			apart = append(apart, fmt.Sprintf("%s in %d", m.Name, m.Aggregator))
		}
	}
	out := finding.Finding{
		Why: "Only members that agree with their partner on one aggregate carry traffic: the bond uses one link, or " +
			"none.",
		Fix: []string{note("configure the switch ports of these links as one LACP group (mode active); then: cat "+
			"/proc/net/bonding/%s", shellWord(b.Name)),
			"# if the switch does not support LACP: use mode active-backup, which does not need it"}}
	switch {
	case len(silent) > 0:
		out.Severity = withoutMembers(b, len(silent))
		out.Evidence = fmt.Sprintf("no LACP partner is heard on %s", listed(silent))
	case len(apart) > 0:
		out.Severity = withoutMembers(b, len(apart))
		out.Evidence = fmt.Sprintf("the active aggregator is %d, and %s", b.Aggregator, strings.Join(apart, ", "))
		out.Fix = out.Fix[:1]
	case b.Partner == "00:00:00:00:00:00" && up:
		out.Evidence = fmt.Sprintf("no LACP partner is heard (/sys/class/net/%s/bonding/ad_partner_mac is %s)", b.Name,
			b.Partner)
	default:
		return
	}
	report(out)
}

// whyNoLAG returns the known reason why the driver made no device of a bond. mlx5 makes none, and logs nothing, while a
// port has virtual functions and its adapter is not in switchdev mode (mlx5_lag_check_prereq in core/lag/lag.c).
func whyNoLAG(b *facts.Bond, on []*facts.Rail) (text string) {
	mlx5 := slices.ContainsFunc(on, func(r *facts.Rail) bool { return r.Driver == "mlx5_core" })
	for _, m := range b.Members {
		if m.VFs > 0 && mlx5 {
			text += fmt.Sprintf("; %s has %d virtual functions (sriov_numvfs), with which mlx5 makes one device in "+
				"switchdev mode alone", m.Name, m.VFs)
		}
	}
	for _, message := range b.Log {
		text += fmt.Sprintf("; the kernel log has %q", message)
	}
	return text
}

func checkBondEmpty(f *facts.Facts, report reporter) {
	ethernet := slices.ContainsFunc(f.Rails, func(r facts.Rail) bool { return r.LinkLayer == "Ethernet" })
	for _, name := range f.EmptyBonds {
		if !ethernet {
			return // the message is about other interfaces
		}
		report(finding.Finding{Subject: "bond " + name,
			Evidence: fmt.Sprintf("%s is up, and /sys/class/net/%s/bonding/slaves is empty", name, name),
			Why:      "It carries nothing. If it was meant for rails, they are used one by one, or not at all.",
			Fix: []string{note("check the names of its members in the system's configuration: networkctl status %s, "+
				"nmcli device show %s, or /etc/netplan. If it is not needed: ip link delete dev %s", shellWord(name),
				shellWord(name), shellWord(name))}})
	}
}
