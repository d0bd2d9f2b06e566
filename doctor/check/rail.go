package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
)

const tryRXE = "# to try RDMA without an adapter: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE"

func checkNoRails(f *facts.Facts, report reporter) {
	if len(f.Rails) > 0 || f.Hidden {
		return
	}
	out := finding.Finding{
		Why: `Without a rail everything uses TCP: NCCL logs "No device found" and falls back to sockets.`}
	switch {
	case f.LeftOut != "":
		out.Evidence = "every RDMA port is excluded; " + f.LeftOut
		out.Fix = []string{"# virtual functions are not rails: run railscope on the host, where the physical function is"}
	case len(f.RDMADevices) > 0:
		out.Evidence = fmt.Sprintf("none of the devices in /sys/class/infiniband (%s) has a readable port that the "+
			"configuration includes", listed(f.RDMADevices))
		out.Fix = []string{"# check rails.include in the configuration, and: ls /sys/class/infiniband/*/ports"}
	case len(f.Adapters) > 0:
		var modules, seen []string
		for _, a := range f.Adapters {
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
	case f.RDMA:
		out.Evidence = "/sys/class/infiniband is empty, and PCI has no adapter that is known to support RDMA"
		out.Fix = []string{tryRXE}
	default:
		out.Evidence = "there is no /sys/class/infiniband, and PCI has no adapter that is known to support RDMA"
		out.Fix = []string{"# in a container: mount the host's /sys and use the host's network namespace", tryRXE}
	}
	report(out)
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
		Why: "A port that is not ACTIVE carries nothing: the other rails do its work, or the job does not start."}
	switch {
	case r.LinkLayer == "InfiniBand":
		out.Fix = []string{"# a port in INIT waits for a subnet manager: check that the fabric has one (sminfo); if not: " +
			"systemctl start opensm", "# a port in DOWN has no link: check its cable"}
	case n.Carrier != nil && !*n.Carrier:
		out.Evidence += fmt.Sprintf("; %s has no carrier", n.Name)
		out.Fix = []string{note("plug in the cable at both ends, or replace it or its transceiver; check that the switch "+
			"port is enabled: ethtool %s; ethtool -m %s", shellWord(n.Name), shellWord(n.Name))}
	case n.Name != "":
		out.Fix = append(bounce(n.Name), "# if that does not help, see dmesg")
	default:
		out.Fix = []string{"# check its cable, and see dmesg"}
	}
	report(out)
}

// checkFlapping finds links that go down more often than boot and configuration explain.
func checkFlapping(f *facts.Facts, r *facts.Rail, report reporter) {
	n := f.Netdev(r.Netdev)
	days := f.Uptime / (24 * 3600)
	if n.Downs == nil || days <= 0 || *n.Downs <= 20 || float64(*n.Downs) <= 4*days {
		return
	}
	report(finding.Finding{
		Evidence: fmt.Sprintf("the link of %s went down %d times (/sys/class/net/%s/carrier_down_count); the kernel has "+
			"been up for %.1f days", n.Name, *n.Downs, n.Name, days),
		Why: "Each time costs seconds of retransmission, and a queue pair that times out ends its job. " +
			"The count is since the interface was created: netdev_carrier_changes_total shows whether it still rises.",
		Fix: []string{note("clean or replace the cable or its transceiver, at both ends: ethtool -m %s; mlxlink -d %s -c",
			shellWord(n.Name), shellWord(cmp.Or(r.PCIAddress, r.Device)))}})
}

// minMTU is the least with which any driver makes RoCE MTU 4096: 96 bytes of headers (iboe_get_mtu), rounded up.
const minMTU = 4200

// bestMTU is what the MTU of a rail's interface should be: the highest of the rails of its rate, and at least minMTU.
func bestMTU(f *facts.Facts, r *facts.Rail) int {
	best := minMTU
	for i := range f.Rails {
		if o := &f.Rails[i]; o.Ethernet() && o.Rate == r.Rate && o.Active() {
			best = max(best, f.Netdev(o.Netdev).MTU)
		}
	}
	return best
}

// setMTU is the line that sets it. The MTU of a bond's member is the bond's.
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
	half := f.WorkingHalf(r) // the fix of an unused half sets its MTU, too
	if !r.Active() || !mtuLow(f, r) || mtuLost(f, r) || half != nil && f.Netdev(half.Netdev).MTU > n.MTU {
		return
	}
	report(protectManagement(f, finding.Finding{Fix: setMTU(f, r, bestMTU(f, r)),
		Evidence: fmt.Sprintf("%s has MTU %d, which gives RoCE %d of 4096", n.Name, n.MTU, r.RoCEMTU(n.MTU)),
		Why: "Each packet has 58 bytes of headers, so small packets cost goodput (1024: 5 %, 4096: 1 %), and there are " +
			"four times as many. Both ends of a connection use the smaller MTU."}, n.Name, r))
}

func checkMTUUnlike(f *facts.Facts, report reporter) {
	for i := range f.Rails {
		r := &f.Rails[i]
		mtu, best := f.Netdev(r.Netdev).MTU, bestMTU(f, r)
		if !r.Active() || !r.Ethernet() || mtu == 0 || mtuLow(f, r) || mtuLost(f, r) || mtu >= best || best <= minMTU {
			continue
		}
		report(finding.Finding{Subject: r.Subject(), Where: r.Where(), Fix: setMTU(f, r, best),
			Evidence: fmt.Sprintf("%s has MTU %d, other rails of %s have %d", r.Netdev, mtu, gigabits(r.Rate), best),
			Why:      "Large datagrams from ends with the larger MTU are dropped silently, and TCP needs more packets."})
	}
}
