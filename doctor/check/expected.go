package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/units"
)

// afterChange returns the last line of a fix: how to accept a deliberate change. A name is a rail's, or gpus.
func afterChange(source expect.Source, key string, names ...string) string {
	if source == expect.Configured {
		return note("after a planned change: set %s in the configuration", key)
	}
	var commands []string
	for _, name := range names {
		commands = append(commands, "railscope expect --reset="+shellWord(name))
	}
	return note("after a planned change, with the --state.dir of railscope: %s", strings.Join(commands, "; "))
}

// rateLost reports whether an adapter's port is slower than expected. It skips ports that are down, bonds with a member
// that is down, and software devices: their rates say nothing about hardware.
func rateLost(f *facts.Facts, r *facts.Rail) bool {
	hardware := !r.Software && r.PCIAddress != ""
	return hardware && r.Active() && r.Rate > 0 && r.Rate < r.Expected.Rate.Value && !memberDown(f, r)
}

// memberDown reports whether the rail is the device of a bond with a member that is down.
func memberDown(f *facts.Facts, r *facts.Rail) bool {
	return slices.ContainsFunc(f.Bonds, func(b facts.Bond) bool {
		down := func(m facts.Member) bool { return m.Status == "down" }
		return b.Name == r.Netdev && slices.ContainsFunc(b.Members, down)
	})
}

func checkRateLost(f *facts.Facts, r *facts.Rail, report reporter) {
	if !rateLost(f, r) {
		return
	}
	e := r.Expected.Rate
	fix := note("reseat the cable and its transceivers at both ends, or replace them; compare both ends: iblinkinfo")
	if nvidia(r) {
		fix += sh("; mlxlink -d %s", r.PCIAddress)
	}
	if r.Netdev != "" && r.Ethernet() {
		fix = note("reseat the cable and its transceivers at both ends, or replace them; check the speed, FEC and "+
			"autonegotiation of both ends: ethtool %[1]s; ethtool --show-fec %[1]s; ethtool -m %[1]s",
			shellWord(r.Netdev))
	}
	should := e.Value
	if link := r.Expected.Link; link.Known() {
		should = min(should, link.Value.BytesPerSecond())
	}
	report(finding.Finding{Severity: ofLink(r.Rate, should),
		Evidence: fmt.Sprintf("%s now, %s", units.Gigabits(r.Rate), e.Evidence(units.Gigabits(e.Value))),
		Why: "The port works, and carries no more than this: a job over all rails waits for the slowest. Its " +
			"capacity fell with the rate, so that nothing else shows it.",
		Fix: append(hands(f, fix), afterChange(e.Source, "expect.rate", r.Name))})
}

// mtuLost reports whether the rail's RoCE MTU is smaller than expected.
func mtuLost(f *facts.Facts, r *facts.Rail) bool {
	mtu := f.Netdev(r.Netdev).MTU
	half := f.WorkingHalf(r) // the fix of an unused half also sets its MTU
	return r.Active() && r.Ethernet() && mtu > 0 && r.RoCEMTU(mtu) < r.Expected.MTU.Value &&
		(half == nil || f.Netdev(half.Netdev).MTU <= mtu)
}

func checkMTULost(f *facts.Facts, r *facts.Rail, report reporter) {
	if !mtuLost(f, r) {
		return
	}
	n, e := f.Netdev(r.Netdev), r.Expected.MTU
	report(protectManagement(f, finding.Finding{
		Evidence: fmt.Sprintf("RoCE MTU %d now (%s has MTU %d), %s", r.RoCEMTU(n.MTU), n.Name, n.MTU,
			e.Evidence(fmt.Sprint(e.Value))),
		Why: "Each packet has 58 bytes of headers, so small packets cost goodput (1024: 5 %, 4096: 1 %), and there " +
			"are four times as many. Both ends of a connection use the smaller MTU.",
		Fix: append(setMTU(f, r, bestMTU(f, r)), afterChange(e.Source, "expect.mtu", r.Name))}, n.Name, r))
}

// lost reports whether the link is slower than it was, for its first rail with a known earlier speed.
func (l *pcieLink) lost() (best expect.Figure[rail.Link], lost bool) {
	for _, r := range l.rails {
		if e := r.Expected.Link; e.Known() && e.Value.BytesPerSecond() > linkBytes(l.Speed, l.Width) {
			return e, true
		}
	}
	return best, false
}

// checkPCIeLost finds links that were faster before. They may still be as fast as their slot: the adapter was moved, or
// the machine's firmware limits the slot now.
func checkPCIeLost(f *facts.Facts, report reporter) {
	for _, l := range linksOf(f) {
		best, lost := l.lost()
		if !lost {
			continue
		}
		out := l.degraded(f)
		if l.Speed >= l.canSpeed && l.Width >= l.canWidth {
			out.Fix = hands(f, note("the slot of %s supports no more now: if the adapter was moved, move it back; "+
				"else check the BIOS for a limit or a bifurcation of the slot", l.Address))
			if l.slot != nil && l.slot.SoC {
				out.Fix = firmware()
			}
		}
		now := linkBytes(l.Speed, l.Width)
		if l.need > 0 {
			out.Severity = ofLink(now, min(l.need, best.Value.BytesPerSecond()))
		}
		out.Evidence = fmt.Sprintf("the PCIe link of %s: %s (%s) now, %s", l.Address, generation(l.Speed, l.Width),
			units.Gigabits(now), best.Evidence(fmt.Sprintf("%s (%s)", expect.LinkText(best.Value),
				units.Gigabits(best.Value.BytesPerSecond()))))
		var names []string
		for _, r := range l.rails {
			names = append(names, r.Name)
		}
		out.Fix = append(out.Fix, afterChange(best.Source, "", names...))
		report(out)
	}
}

// checkRailMissing finds known rails that are absent, and rails that are missing from the configured number. Without
// any rail, no_rails reports the cause.
func checkRailMissing(f *facts.Facts, report reporter) {
	const why = "The other rails do its work, or the job does not start."
	if len(f.Rails) == 0 {
		return
	}
	e := f.Expected.Rails
	for _, m := range f.Missing {
		what, fix := cmp.Or(m.Device, m.PCIAddress),
			[]string{"# check that its device exists: rdma link; and see dmesg"}
		if m.Port > 1 {
			what += fmt.Sprintf(" port %d", m.Port)
		}
		if m.PCIAddress != "" {
			fix = []string{note("check that PCI has the adapter: lspci -s %[1]s. If it has, the driver is not bound, "+
				"or made no device: dmesg | grep %[1]s. If not: %[2]s", shellWord(m.PCIAddress),
				reseat(f, "the adapter"))}
		}
		evidence := fmt.Sprintf("%s at %s is known, and is not there; %d of %d rails are", what,
			cmp.Or(m.PCIAddress, "an unknown place"), len(f.Rails), max(e.Value, len(f.Rails)+len(f.Missing)))
		report(finding.Finding{Subject: "rail " + m.Name, Where: what, Evidence: evidence, Why: why,
			Fix: append(hands(f, fix...), afterChange(expect.BestSeen, "", m.Name))})
	}
	if short := e.Value - len(f.Rails) - len(f.Missing); e.Source == expect.Configured && short > 0 {
		report(finding.Finding{Evidence: fmt.Sprintf("%d rails now, %d configured (expect.rails)", len(f.Rails),
			e.Value),
			Why: why, Fix: []string{"# compare with the adapters on PCI: lspci -d ::0207; lspci -d ::0200; and see " +
				"rails.include in the configuration", afterChange(e.Source, "expect.rails")}})
	}
}

func checkGPUMissing(f *facts.Facts, report reporter) {
	e := f.Expected
	if len(f.GPUs) >= e.GPUs.Value {
		return
	}
	evidence := fmt.Sprintf("%d GPUs on PCI now, %s", len(f.GPUs), e.GPUs.Evidence(fmt.Sprint(e.GPUs.Value)))
	gone := slices.DeleteFunc(slices.Clone(e.GPUAddresses), func(address string) bool {
		return slices.ContainsFunc(f.GPUs, func(g facts.GPU) bool { return g.Address == address })
	})
	if len(gone) > 0 {
		evidence += "; missing: " + listed(gone)
	}
	report(finding.Finding{Evidence: evidence,
		Why: "Jobs that ask for all GPUs do not start on this node, or start with fewer.",
		Fix: append(hands(f, note("see dmesg for errors of PCIe and of the GPU's driver (NVIDIA: Xid 79, fallen off "+
			"the bus); %s; if that does not help, it must be replaced", reseat(f, "the GPU"))),
			afterChange(e.GPUs.Source, "expect.gpus", expect.ResetGPUs))})
}
