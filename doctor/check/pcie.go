package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/units"
)

type pcieLink struct {
	*facts.Link
	slot     *facts.Link
	canSpeed float64 // maximum that both ends support
	canWidth int
	rails    []*facts.Rail
	need     float64 // bytes per second that the active ports need from this link
	rate     float64 // sum of the active ports' rates, bytes per second
	ports    int     // active ports
}

// linksOf returns the PCIe links of the rails. Of a port with two halves, each link carries only its part.
func linksOf(f *facts.Facts) (list []*pcieLink) {
	byKey, ports := map[string]*pcieLink{}, map[string]bool{}
	for _, r := range f.Hardware() {
		if r.Link == nil {
			continue
		}
		key := r.LinkKey()
		l := byKey[key]
		if l == nil {
			l = &pcieLink{Link: r.Link, slot: r.Slot, canSpeed: r.Link.MaxSpeed, canWidth: r.Link.MaxWidth}
			if r.Slot != nil {
				l.canSpeed, l.canWidth = min(l.canSpeed, r.Slot.MaxSpeed), min(l.canWidth, r.Slot.MaxWidth)
			}
			// The emulated slot of a virtual machine often reports less than the link's actual speed.
			l.canSpeed, l.canWidth = max(l.canSpeed, r.Link.Speed), max(l.canWidth, r.Link.Width)
			byKey[key], list = l, append(list, l)
		}
		l.rails = append(l.rails, r)
		port := key + " " + cmp.Or(r.PortKey, r.Device+fmt.Sprint(r.Port))
		if r.Active() && !ports[port] {
			ports[port] = true
			l.ports++
			l.need += r.Rate / float64(1+len(f.Halves(r)))
			l.rate += r.Rate
		}
	}
	return list
}

func (l *pcieLink) can() float64 { return linkBytes(l.canSpeed, l.canWidth) }

func linkBytes(speed float64, width int) float64 {
	return rail.Link{GigaTransfers: speed, Width: width}.BytesPerSecond()
}

func generation(speed float64, width int) string { return fmt.Sprintf("%g GT/s x%d", speed, width) }

func checkPCIeLink(f *facts.Facts, report reporter) {
	for _, l := range linksOf(f) {
		_, lost := l.lost()
		switch {
		case lost: // pcie_lost reports it
		case l.Speed < l.canSpeed || l.Width < l.canWidth:
			report(l.degraded(f))
		case l.ports == 1 && l.need > l.can() && (l.canSpeed < l.MaxSpeed || l.canWidth < l.MaxWidth):
			subject, where := subjects(l.rails)
			report(finding.Finding{Subject: subject, Where: where,
				Evidence: fmt.Sprintf("the slot of %s supports %s (%s), the adapter %s, and its port runs at %s%s",
					l.Address,
					generation(l.canSpeed, l.canWidth), units.Gigabits(l.can()), generation(l.MaxSpeed, l.MaxWidth),
					units.Gigabits(l.rate), l.part()),
				Why: "The slot limits this rail, whatever its port could carry.",
				Fix: l.move(f)})
		}
	}
}

// part returns the share of the port's rate that this link should carry, if another link carries the rest.
func (l *pcieLink) part() string {
	if l.need == l.rate {
		return ""
	}
	return ", of which this link should carry " + units.Gigabits(l.need)
}

// move returns the fix for a slot that is too slow for its adapter.
func (l *pcieLink) move(f *facts.Facts) []string {
	if l.slot != nil && l.slot.SoC {
		return firmware()
	}
	return hands(f, note("if the adapter is a card, move it to a slot of %s", generation(l.MaxSpeed, l.MaxWidth)))
}

func (l *pcieLink) degraded(f *facts.Facts) finding.Finding {
	const reseat = "if the adapter is a card in a slot, reseat it and its riser; check the BIOS for a limit of " +
		"the slot, and for an update"
	now, ends := linkBytes(l.Speed, l.Width), "both ends support"
	var fix []string
	if l.slot == nil {
		ends = "the slot's capability is unknown, the adapter supports"
		fix = []string{note("check what the slot supports (lspci -vt shows the bridge above %s, lspci -vvs BRIDGE its "+
			"LnkCap); if as much: "+reseat, l.Address)}
	} else {
		fix = []string{"# retrains the link, which interrupts traffic over it",
			sh("setpci -s %s CAP_EXP+10.w=20:20", l.slot.Address), "# if that does not help: " + reseat}
	}
	if l.slot != nil && l.slot.SoC {
		fix = append(fix[:2:2], firmware()...)
	}
	subject, where := subjects(l.rails)
	out := finding.Finding{Subject: subject, Where: where, Fix: hands(f, fix...),
		Evidence: fmt.Sprintf("the PCIe link of %s runs at %s (%s), %s %s (%s)", l.Address,
			generation(l.Speed, l.Width), units.Gigabits(now), ends, generation(l.canSpeed, l.canWidth),
			units.Gigabits(l.can())),
		Why: "The rail carries no more than its PCIe link, but the port still reports its full rate."}
	if l.need > 0 {
		out.Severity = ofLink(now, min(l.need, l.can()))
	}
	return out
}

func checkPCIeShared(f *facts.Facts, report reporter) {
	for _, l := range linksOf(f) {
		halves := slices.ContainsFunc(l.rails, func(r *facts.Rail) bool { return len(f.Halves(r)) > 0 })
		if l.ports < 2 || l.need <= l.can() || halves { // by design: the halves' other links carry the rest
			continue
		}
		subject, where := subjects(l.rails)
		report(finding.Finding{Subject: subject, Where: where,
			Evidence: fmt.Sprintf("their ports run at %s together, on one PCIe link of %s that carries at most %s",
				units.Gigabits(l.need), l.Address, units.Gigabits(l.can())),
			Why: "A transfer striped over these rails gets what the link carries, not the sum of the ports.",
			Fix: []string{"# plan with what the link carries, or use one port of each adapter: different adapters " +
				"give the sum"}})
	}
}

func checkNUMA(f *facts.Facts, report reporter) {
	in := map[int]*facts.Rail{} // NUMA node → its first rail
	for _, r := range f.Hardware() {
		if r.Active() && r.NUMANode >= 0 && in[r.NUMANode] == nil {
			in[r.NUMANode] = r
		}
	}
	if len(in) == 0 {
		return
	}
	far := map[int][]string{}
	for _, g := range f.GPUs {
		if g.NUMANode >= 0 && in[g.NUMANode] == nil {
			far[g.NUMANode] = append(far[g.NUMANode], g.Address)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(far)) {
		evidence := fmt.Sprintf("in NUMA node %d, which has no active rail", node)
		if nearest, ok := nearestRail(f, node, in); ok {
			// REMOTE_DISTANCE of the kernel: within one processor (SNC, NPS) a distance is 11 to 17.
			if nearest.Value < 20 {
				continue
			}
			evidence += fmt.Sprintf("; the nearest is %s in node %d, at distance %d "+
				"(/sys/devices/system/node/node%d/distance; 10 is the node itself)",
				in[nearest.To], nearest.To, nearest.Value, node)
		}
		word := "gpu "
		if len(far[node]) > 1 {
			word = "gpus "
		}
		report(finding.Finding{Subject: word + strings.Join(far[node], ", "), Evidence: evidence,
			Why: "Their traffic crosses the link between the processors: slower, shared and often unusable for " +
				"GPUDirect.",
			Fix: []string{note("run jobs that stay within the node on these GPUs, or, where adapters can be moved, "+
				"move one to a slot of NUMA node %d", node)}})
	}
}

func nearestRail(f *facts.Facts, node int, in map[int]*facts.Rail) (best facts.Distance, ok bool) {
	for _, d := range f.NUMA {
		if d.From == node && in[d.To] != nil && (!ok || d.Value < best.Value) {
			best, ok = d, true
		}
	}
	return best, ok
}

// checkACS judges the path of GPUDirect, which matters only where a device below a switch sends to another one. It
// skips virtual machines, whose bridges belong to the hypervisor.
func checkACS(f *facts.Facts, report reporter) {
	const redirect = facts.ACSRequestRedirect | facts.ACSCompletionRedirect
	possible := f.GPUDirect.Mode == "peermem" || f.GPUDirect.Mode == "dmabuf" || onAMD(f)
	if !possible || f.PCI.Virtual {
		return
	}
	var ports, gpus, addresses []string
	var rails []*facts.Rail
	for _, p := range f.PCI.Ports {
		if p.Control&redirect == 0 {
			continue
		}
		addresses = append(addresses, p.Address)
		ports = append(ports, fmt.Sprintf("%s (ACSCtl 0x%04x)", p.Address, p.Control))
		for i := range f.Rails {
			if r := &f.Rails[i]; slices.Contains(p.Rails, r.Name) && !slices.Contains(rails, r) {
				rails = append(rails, r)
			}
		}
		for _, g := range p.GPUs {
			if !slices.Contains(gpus, "GPU "+g) {
				gpus = append(gpus, "GPU "+g)
			}
		}
	}
	if len(rails) == 0 {
		return
	}
	slices.Sort(gpus)
	fix := []string{"# until the next boot, or a reset of the switch:"}
	for _, a := range addresses {
		fix = append(fix, sh("setpci -s %s ECAP_ACS+6.w=0000:000c", a))
	}
	fix = append(fix, note("at each boot: the kernel parameter pci=disable_acs_redir=%s, or turn off ACS, or the "+
		"IOMMU, in the BIOS. ACS isolates devices that are passed to virtual machines: keep it on a host of such "+
		"machines", strings.Join(addresses, ";")))
	subject, where := subjects(rails)
	report(finding.Finding{Subject: subject, Where: where, Fix: fix,
		Evidence: fmt.Sprintf("P2P request or completion redirect is set at %s, on the way to %s below the same PCIe "+
			"switch", listed(ports), listed(gpus)),
		Why: "What the adapter and the GPU send to each other goes up to the root complex and back, instead of " +
			"through the switch: at a fraction of the rate, or not at all."})
}

// checkRelaxedOrdering judges the relaxed ordering bit of the Device Control Register. The bit is on by default; the
// kernel clears it below root ports in which relaxed ordering is slow or broken.
func checkRelaxedOrdering(f *facts.Facts, report reporter) {
	if f.PCI.Virtual {
		return
	}
	for _, a := range f.PCI.Adapters {
		var rails []*facts.Rail
		for i := range f.Rails {
			if f.Rails[i].PCIAddress == a.Address {
				rails = append(rails, &f.Rails[i])
			}
		}
		if a.Relaxed || len(rails) == 0 || withoutRelaxedOrdering(a.RootPort) {
			continue
		}
		subject, where := subjects(rails)
		report(finding.Finding{Subject: subject, Where: where,
			Evidence: fmt.Sprintf("Enable Relaxed Ordering is off in the PCIe device control of %s", a.Address),
			Why: "The adapter then keeps all its writes in order, whatever memory regions allow " +
				"(IBV_ACCESS_RELAXED_ORDERING, PCI_WR_ORDERING of mlx5). On some processors that limits the rate.",
			Fix: []string{"# the default is on: check the BIOS for relaxed ordering; until the next boot:",
				sh("setpci -s %s CAP_EXP+8.w=0010:0010", a.Address)}})
	}
}

// withoutRelaxedOrdering reports whether the kernel turns relaxed ordering off below a root port: Intel Xeon E5 and E7
// v3 and v4, AMD A1100 (quirk_relaxedordering_disable in drivers/pci/quirks.c, Linux 6.12).
func withoutRelaxedOrdering(port string) bool {
	vendor, device, _ := strings.Cut(port, ":")
	switch vendor {
	case "8086":
		return device >= "6f01" && device <= "6f0e" || device >= "2f01" && device <= "2f0e"
	case "1022":
		return device >= "1a00" && device <= "1a02"
	}
	return false
}
