package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/units"
)

const tryRXE = "# to try RDMA without an adapter: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE"

// railsExpected reports whether the configuration or the memory has rails, so that a node without any has a fault.
func railsExpected(f *facts.Facts) bool { return f.Expected.Rails.Value > 0 || len(f.Missing) > 0 }

func checkNoRails(f *facts.Facts, report reporter) {
	if len(f.Rails) > 0 || f.Hidden {
		return
	}
	out := finding.Finding{
		Why: `Without a rail everything uses TCP: NCCL logs "No device found" and falls back to sockets.`}
	virtual := func(l rail.LeftOut) bool {
		return l.Reason == rail.ReasonVirtualFunction || l.Reason == rail.ReasonSubfunction
	}
	adapters := slices.DeleteFunc(slices.Clone(f.Adapters), func(a facts.Adapter) bool { return a.Module == "" })
	switch {
	case slices.ContainsFunc(f.LeftOut, virtual) && !railsExpected(f):
		out.Severity = info
		out.Evidence = fmt.Sprintf("the only RDMA ports here are virtual functions (%s)", leftOut(f))
		out.Why = "Jobs can use them, as in a pod. railscope does not judge them: their physical functions, which " +
			"carry their traffic, are rails of the host."
		out.Fix = []string{"# run railscope on the host; to export the counters of virtual functions here, set " +
			"rails.virtual_functions: report"}
	case len(f.LeftOut) > 0:
		out.Evidence = "no RDMA port is a rail: " + leftOut(f)
		for _, pattern := range f.Idle {
			out.Evidence += "; " + pattern + " matches none"
		}
		out.Fix = []string{"# check rails.include and rails.exclude in the configuration: railscope rails --all " +
			"lists the ports"}
	case len(f.RDMADevices) > 0:
		out.Evidence = fmt.Sprintf("none of the devices in /sys/class/infiniband (%s) has a readable port that the "+
			"configuration includes", listed(f.RDMADevices))
		out.Fix = []string{"# check rails.include in the configuration, and: ls /sys/class/infiniband/*/ports"}
	case len(adapters) > 0:
		var modules, seen []string
		for _, a := range adapters {
			modules = append(modules, a.Module)
			seen = append(seen, strings.TrimSpace(a.Address+" "+a.Driver))
		}
		slices.Sort(modules)
		out.Evidence = fmt.Sprintf("PCI has adapters that support RDMA (%s), but /sys/class/infiniband has no device",
			listed(seen))
		for _, m := range slices.Compact(modules) {
			out.Fix = append(out.Fix, sh("modprobe %s", m))
		}
		out.Fix = append(out.Fix, "# if that does not help, see dmesg")
	default:
		out.Evidence = "no RDMA hardware on this node: /sys/class/infiniband has no device, and PCI has no adapter " +
			"that is known to support RDMA"
		out.Fix = []string{"# in a container: mount the host's /sys and use the host's network namespace", tryRXE}
		if !railsExpected(f) {
			out.Severity = info
			out.Why = "That is no fault, unless jobs with RDMA are meant to run here: then set expect.rails."
		}
	}
	report(out)
}

// leftOut counts the ports that are not rails, by reason, and names the first ones.
func leftOut(f *facts.Facts) string {
	var parts []string
	for _, c := range rail.CountReasons(f.LeftOut) {
		parts = append(parts, c.String())
	}
	return strings.Join(parts, ", ") + "; the first is " + f.LeftOut[0].String()
}

func checkNetdevDown(f *facts.Facts, r *facts.Rail, report reporter) {
	n := f.Netdev(r.Netdev)
	if n.Up == nil || *n.Up || !r.Ethernet() || f.BondOf(r) != nil || f.WorkingHalf(r) != nil {
		return
	}
	report(finding.Finding{
		Evidence: fmt.Sprintf("%s is administratively down (/sys/class/net/%s/flags); the port is %q", n.Name, n.Name,
			r.State),
		Why: "A port is ACTIVE only while its interface is up: this rail carries nothing.",
		Fix: []string{sh("ip link set dev %s up", n.Name)}})
}

func checkPortDown(f *facts.Facts, r *facts.Rail, report reporter) {
	n := f.Netdev(r.Netdev)
	down := r.Ethernet() && n.Up != nil && !*n.Up // InfiniBand does not need its interface
	if r.StateID == 0 || r.Active() || down || f.BondOf(r) != nil || f.WorkingHalf(r) != nil {
		return
	}
	out := finding.Finding{Evidence: fmt.Sprintf("the port is %q, physically %q", r.State, r.PhysState),
		Why: "A port that is not ACTIVE carries no traffic: jobs fail, or run on the other rails."}
	switch {
	case r.LinkLayer == "InfiniBand":
		out.Fix = append([]string{"# a port in INIT waits for a subnet manager: check that the fabric has one " +
			"(sminfo), and start one if not: on a switch, or opensm on a node; opafm for Omni-Path"},
			hands(f, "# a port in DOWN has no link: check its cable")...)
	case n.Carrier != nil && !*n.Carrier:
		out.Evidence += fmt.Sprintf("; %s has no carrier", n.Name)
		if n.NoLink != "" {
			out.Evidence += ", by its driver because " + n.NoLink
		}
		out.Fix = hands(f, noCarrier(n.Name))
	case n.Name != "":
		out.Fix = append(bounce(n.Name), "# if that does not help, see dmesg")
	default:
		out.Fix = hands(f, "# check its cable, and see dmesg")
	}
	report(out)
}

// noCarrier is the fix of an interface that is up and has no carrier.
func noCarrier(netdev string) string {
	return note("plug in the cable at both ends, or replace it or its transceiver; check that the port at the "+
		"other end, of a switch or a node, is enabled: ethtool %[1]s; ethtool -m %[1]s", shellWord(netdev))
}

// checkFlapping finds links that go down more often than boot and configuration explain.
func checkFlapping(f *facts.Facts, r *facts.Rail, report reporter) {
	n := f.Netdev(r.Netdev)
	days := f.Uptime / (24 * 3600)
	if n.Downs == nil || days <= 0 || *n.Downs <= 20 || float64(*n.Downs) <= 4*days {
		return
	}
	fix := note("clean or replace the cable or its transceiver, at both ends: ethtool -m %s", shellWord(n.Name))
	if nvidia(r) {
		fix += sh("; mlxlink -d %s -c", cmp.Or(r.PCIAddress, r.Device))
	}
	report(finding.Finding{
		Evidence: fmt.Sprintf("the link of %s went down %d times (/sys/class/net/%s/carrier_down_count); the kernel "+
			"has been up for %.1f days", n.Name, *n.Downs, n.Name, days),
		Why: "Each time costs seconds of retransmission, and a queue pair that times out ends its job. " +
			"The count is since the interface was created: netdev_carrier_changes_total shows whether it still rises.",
		Fix: hands(f, fix)})
}

// minMTU is the smallest MTU with which every driver makes RoCE MTU 4096: 96 bytes of headers (iboe_get_mtu), rounded
// up.
const minMTU = 4200

// bestMTU returns the right MTU for a rail's interface: the highest among rails of its rate, and at least minMTU.
func bestMTU(f *facts.Facts, r *facts.Rail) int {
	best := minMTU
	for _, o := range f.Judged() {
		if o.Ethernet() && o.Rate == r.Rate && o.Active() {
			best = max(best, f.Netdev(o.Netdev).MTU)
		}
	}
	return best
}

// setMTU returns the command that sets the MTU. A bond's member takes the bond's MTU.
func setMTU(f *facts.Facts, r *facts.Rail, mtu int) []string {
	name := r.Netdev
	if b := f.BondOf(r); b != nil {
		name = b.Name
	}
	return []string{note("every switch port in between needs %d or more, too", mtu),
		sh("ip link set dev %s mtu %v", name, mtu)}
}

func mtuLow(f *facts.Facts, r *facts.Rail) bool {
	mtu := f.Netdev(r.Netdev).MTU
	return r.Ethernet() && mtu > 0 && r.RoCEMTU(mtu) < 4096
}

func checkMTULow(f *facts.Facts, r *facts.Rail, report reporter) {
	n := f.Netdev(r.Netdev)
	half := f.WorkingHalf(r) // the fix of an unused half also sets its MTU
	if !r.Active() || !mtuLow(f, r) || mtuLost(f, r) || half != nil && f.Netdev(half.Netdev).MTU > n.MTU {
		return
	}
	report(protectManagement(f, finding.Finding{Fix: setMTU(f, r, bestMTU(f, r)),
		Evidence: fmt.Sprintf("%s has MTU %d, which gives RoCE %d of 4096", n.Name, n.MTU, r.RoCEMTU(n.MTU)),
		Why: "Each packet has 58 bytes of headers, so small packets cost goodput (1024: 5 %, 4096: 1 %), and there " +
			"are four times as many. Both ends of a connection use the smaller MTU."}, n.Name, r))
}

func checkMTUUnlike(f *facts.Facts, report reporter) {
	for _, r := range f.Judged() {
		mtu, best := f.Netdev(r.Netdev).MTU, bestMTU(f, r)
		if !r.Active() || !r.Ethernet() || mtu == 0 || mtuLow(f, r) || mtuLost(f, r) || mtu >= best || best <= minMTU {
			continue
		}
		report(finding.Finding{Subject: r.Subject(), Where: r.Where(), Fix: setMTU(f, r, best),
			Evidence: fmt.Sprintf("%s has MTU %d, other rails of %s have %d", r.Netdev, mtu, units.Gigabits(r.Rate),
				best),
			Why: "Large datagrams from ends with the larger MTU are dropped silently, and TCP needs more packets."})
	}
}
