package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
)

// railChecks are the checks of what railFacts hold. Each fault is one check's:
// where two could say the same thing, the one nearer to the cause does.
func railChecks() []Check {
	return typed([]Check{
		{ID: "no_rails", About: "there is no rail: no RDMA in the kernel, no RDMA device of an adapter, or every port left out", Run: checkNoRails},
		{ID: "netdev_down", About: "the rail's interface is down by configuration", Run: eachRail(checkNetdevDown)},
		{ID: "port_down", About: "the rail's port is not ACTIVE though its interface is up: no link, no subnet manager, a cable", Run: eachRail(checkPortDown)},
		{ID: "carrier_flapping", About: "the rail's link has gone down more than 20 times, and more than 4 times a day, since its interface was made", Run: eachRail(checkFlapping)},
		{ID: "mtu_low", About: "the interface's MTU leaves RoCE less than 4096", Run: eachRail(checkMTULow)},
		{ID: "mtu_unlike", About: "rails of one rate whose interfaces have unlike MTUs", Run: checkMTUUnlike},
		{ID: "gid_missing", About: "no RoCE v2 GID at all, or none over IPv4", Run: eachRail(checkGIDMissing)},
		{ID: "gid_link_local", About: "the only RoCE v2 GIDs are link-local: the interface has no address", Run: eachRail(checkGIDLinkLocal)},
		{ID: "gid_misbound", About: "the RoCE v2 IPv4 GIDs of the rail sit on a bond or bridge over its interface", Run: eachRail(checkGIDMisbound)},
		{ID: "gid_index_unlike", About: "the GID to use has another index than on the other rails: no fixed index fits all", Run: checkGIDIndex},
		{ID: "half_unused", About: "one of the two PCIe halves of a port (DGX Spark) works, the other is not used", Run: eachRail(checkHalfUnused)},
		{ID: "same_subnet", About: "rails in one subnet, without the ARP settings or the policy routing for it", Run: checkSameSubnet},
		{ID: "bond_mode", About: "a bond over rails in a mode in which no driver does RDMA", Run: eachBond(checkBondMode)},
		{ID: "bond_no_lag", About: "a bond over several rails of which the driver has not made one RDMA device", Run: eachBond(checkBondNoLAG)},
		{ID: "bond_member_down", About: "a member of a bond over rails is down", Run: eachBond(checkBondMemberDown)},
		{ID: "bond_lacp", About: "a bond in mode 802.3ad without a LACP partner, or with members in several aggregators", Run: eachBond(checkBondLACP)},
		{ID: "pcie_link_low", About: "a rail's PCIe link is slower or narrower than both its ends can, or its slot too narrow for the port", Run: checkPCIeLink},
		{ID: "pcie_shared", About: "ports that share a PCIe link on which they cannot all run at their rate", Run: checkPCIeShared},
		{ID: "numa_far", About: "GPUs in a NUMA node in which no rail is, nor in another of the same processor", Run: checkNUMA},
	})
}

// eachRail is a check of each rail that is not known to be unused.
func eachRail(check func(f *RailFacts, r *Rail, found func(Finding))) func(*Facts, func(Finding)) {
	return func(f *Facts, found func(Finding)) {
		for i := range f.Rails.Rails {
			if r := &f.Rails.Rails[i]; !f.Rails.unused(r) {
				check(&f.Rails, r, found)
			}
		}
	}
}

func eachBond(check func(f *RailFacts, b *Bond, found func(Finding))) func(*Facts, func(Finding)) {
	return func(f *Facts, found func(Finding)) {
		for i := range f.Rails.Bonds {
			check(&f.Rails, &f.Rails.Bonds[i], found)
		}
	}
}

func checkNoRails(facts *Facts, found func(Finding)) {
	f := &facts.Rails
	if len(f.Rails) > 0 || f.Hidden {
		return
	}
	out := Finding{Severity: Fault, Subject: "this node", Why: "Without a rail everything goes by TCP: NCCL says \"No device found\" and uses sockets."}
	switch {
	case len(f.LeftOut) > 0:
		out.Read = fmt.Sprintf("every RDMA port is left out; %s port %d: %s", f.LeftOut[0].Device, f.LeftOut[0].Port, f.LeftOut[0].Reason)
		out.Mend = []string{note("virtual functions are no rails of the node: run railscope where the physical function is, on the host")}
	case len(f.Devices) > 0:
		out.Read = fmt.Sprintf("none of the devices in /sys/class/infiniband (%s) has a port that could be read and that the configuration takes", listed(f.Devices))
		out.Mend = []string{note("look at rails.include in the configuration, and at ls /sys/class/infiniband/*/ports")}
	case len(f.Adapters) > 0:
		var mod, seen []string
		for _, a := range f.Adapters {
			mod = append(mod, a.Module)
			seen = append(seen, strings.TrimSpace(a.Address+" "+a.Driver))
		}
		slices.Sort(mod)
		out.Read = fmt.Sprintf("adapters on PCI (%s), and no RDMA device in /sys/class/infiniband", enumerate(seen))
		for _, m := range slices.Compact(mod) {
			out.Mend = append(out.Mend, command("modprobe", m))
		}
		out.Mend = append(out.Mend, note("if that does not help: dmesg says why"))
	case f.RDMA:
		out.Read = "/sys/class/infiniband is empty, and no adapter on PCI is known for RDMA"
		out.Mend = []string{note("to try RDMA without an adapter: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE")}
	default:
		out.Read = "there is no /sys/class/infiniband, and no adapter on PCI is known for RDMA"
		out.Mend = []string{note("in a container: mount the host's /sys and use the host's network namespace"),
			note("to try RDMA without an adapter: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE")}
	}
	found(out)
}

func checkNetdevDown(f *RailFacts, r *Rail, found func(Finding)) {
	n := f.netdev(r.Netdev)
	if n.Up == nil || *n.Up || !r.ethernet() || f.memberOf(r) != nil || f.idleHalf(r) != nil {
		return
	}
	found(Finding{Severity: Fault, Subject: r.String(),
		Read: fmt.Sprintf("%s is down by configuration (/sys/class/net/%s/flags); the port is %q", n.Name, n.Name, r.State),
		Why:  "A port is ACTIVE only while its interface is up: this rail carries nothing.",
		Mend: []string{ip("link set dev %s up", n.Name)}})
}

func checkPortDown(f *RailFacts, r *Rail, found func(Finding)) {
	n := f.netdev(r.Netdev)
	down := r.ethernet() && n.Up != nil && !*n.Up // InfiniBand does without its interface
	if r.StateID == 0 || r.active() || down || f.memberOf(r) != nil || f.idleHalf(r) != nil {
		return
	}
	out := Finding{Severity: Fault, Subject: r.String(), Why: "Nothing is carried by a port that is not ACTIVE: the other rails do its work, or the job does not start.",
		Read: fmt.Sprintf("the port is %q, physically %q", r.State, r.PhysState)}
	switch {
	case r.LinkLayer == "InfiniBand":
		out.Mend = []string{note("a port in INIT waits for a subnet manager: see that one runs in the fabric (sminfo); without any: systemctl start opensm"),
			note("a port in DOWN has no link: look at its cable")}
	case n.Carrier != nil && !*n.Carrier:
		out.Read += fmt.Sprintf("; %s has no carrier", n.Name)
		out.Mend = []string{note("plug in the cable at both ends, or change it or its transceiver; see that the switch's port is on: ethtool %s; ethtool -m %s", shellWord(n.Name), shellWord(n.Name))}
	case n.Name != "":
		out.Mend = append(bounce(n.Name), note("if that does not help: dmesg says why"))
	default:
		out.Mend = []string{note("look at its cable, and at dmesg")}
	}
	found(out)
}

// A link that flaps: not the few times of a boot and of configuring.
const (
	flapsAtLeast = 20
	flapsADay    = 4
)

func checkFlapping(f *RailFacts, r *Rail, found func(Finding)) {
	n := f.netdev(r.Netdev)
	days := f.Uptime / (24 * 3600)
	if n.Downs == nil || days <= 0 || *n.Downs <= flapsAtLeast || float64(*n.Downs) <= flapsADay*days {
		return
	}
	found(Finding{Severity: Warning, Subject: r.String(),
		Read: fmt.Sprintf("the link of %s went down %d times (/sys/class/net/%s/carrier_down_count); the kernel is up for %.1f days", n.Name, *n.Downs, n.Name, days),
		Why:  "Each time costs seconds of retransmission, and a queue pair that times out ends its job. The count is since the interface was made: netdev_carrier_changes_total shows whether it still rises.",
		Mend: []string{note("clean or change the cable or its transceiver, at both ends: ethtool -m %s; mlxlink -d %s -c", shellWord(n.Name), shellWord(orElse(r.PCIAddress, r.Device)))}})
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// minMTU is the least MTU of an interface with which any driver makes RoCE MTU
// 4096: that and 96 bytes of headers (include/rdma/ib_addr.h, iboe_get_mtu),
// rounded up as everyone does.
const minMTU = 4200

// bestMTU is what the MTU of a rail's interface should be: what its fellows
// have, and enough.
func (f *RailFacts) bestMTU(r *Rail) int {
	best := minMTU
	for i := range f.Rails {
		if o := &f.Rails[i]; o.ethernet() && o.Rate == r.Rate && o.active() {
			best = max(best, f.netdev(o.Netdev).MTU)
		}
	}
	return best
}

// setMTU is the line that sets it. The MTU of a bond's member is the bond's.
func (f *RailFacts) setMTU(r *Rail, mtu int) []string {
	name := r.Netdev
	if b := f.memberOf(r); b != nil {
		name = b.Name
	}
	return []string{note("every port of the switches in between needs %d or more, too", mtu), ip("link set dev %s mtu %s", name, fmt.Sprint(mtu))}
}

func (f *RailFacts) mtuLow(r *Rail) bool {
	mtu := f.netdev(r.Netdev).MTU
	return r.ethernet() && mtu > 0 && r.roceMTU(mtu) < 4096
}

func checkMTULow(f *RailFacts, r *Rail, found func(Finding)) {
	n := f.netdev(r.Netdev)
	if t := f.idleHalf(r); !r.active() || !f.mtuLow(r) || t != nil && f.netdev(t.Netdev).MTU > n.MTU { // the half that is not used is told its MTU, too
		return
	}
	out := Finding{Severity: Warning, Subject: r.String(),
		Read: fmt.Sprintf("%s has MTU %d, with which RoCE gets %d; it can do 4096", n.Name, n.MTU, r.roceMTU(n.MTU)),
		Why:  "Each packet has 58 bytes of headers, so that small ones cost goodput (1024: 5 %, 4096: 1 %) and four times the packets. Both ends of a connection use the smaller MTU.",
		Mend: f.setMTU(r, f.bestMTU(r))}
	f.spare(&out, n.Name, []*Rail{r})
	found(out)
}

func checkMTUUnlike(facts *Facts, found func(Finding)) {
	f := &facts.Rails
	for i := range f.Rails {
		r := &f.Rails[i]
		mtu := f.netdev(r.Netdev).MTU
		if best := f.bestMTU(r); r.active() && r.ethernet() && mtu > 0 && !f.mtuLow(r) && mtu < best && best > minMTU {
			found(Finding{Severity: Warning, Subject: r.String(),
				Read: fmt.Sprintf("%s has MTU %d, other rails of %s have %d", r.Netdev, mtu, gigabits(r.Rate), best),
				Why:  "RoCE gets 4096 either way; but large datagrams to this rail from ends with the larger MTU are dropped without a word, and TCP over it takes more packets.",
				Mend: f.setMTU(r, best)})
		}
	}
}

// bondCarriesRDMA reports whether drivers make one RDMA device of a bond of this
// mode (drivers/net/ethernet/mellanox/mlx5/core/lag, drivers/infiniband/hw/bnxt_re).
func bondCarriesRDMA(mode string) bool {
	return mode == "" || mode == "active-backup" || mode == "balance-xor" || mode == "802.3ad"
}

// hardware are the rails that sit on PCI.
func (f *RailFacts) hardware() (list []*Rail) {
	for i := range f.Rails {
		if f.Rails[i].PCIAddress != "" {
			list = append(list, &f.Rails[i])
		}
	}
	return list
}

func linkBytes(speed float64, width int) float64 {
	return rail.Link{GigaTransfers: speed, Width: width}.BytesPerSecond()
}
