package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
)

// pcieLink is one PCIe link with the rails that hang on it.
type pcieLink struct {
	*Link
	slot     *Link
	canSpeed float64 // what both ends can
	canWidth int
	rails    []*Rail
	need     float64 // what its active ports need of it, bytes per second
	ports    int     // active ones
}

// links are the PCIe links of the rails. Of a port with two halves, each link
// needs to carry only its part.
func (f *RailFacts) links() (list []*pcieLink) {
	byKey := map[string]*pcieLink{}
	ports := map[string]bool{}
	for _, r := range f.hardware() {
		if r.Link == nil {
			continue
		}
		key := rail.LinkKey(r.PCIAddress)
		l := byKey[key]
		if l == nil {
			l = &pcieLink{Link: r.Link, slot: r.Slot, canSpeed: r.Link.MaxSpeed, canWidth: r.Link.MaxWidth}
			if r.Slot != nil {
				l.canSpeed, l.canWidth = min(l.canSpeed, r.Slot.MaxSpeed), min(l.canWidth, r.Slot.MaxWidth)
			}
			// In a virtual machine the slot is emulated, and often less than what the
			// adapter does: that it does it is the better witness.
			l.canSpeed, l.canWidth = max(l.canSpeed, r.Link.Speed), max(l.canWidth, r.Link.Width)
			byKey[key], list = l, append(list, l)
		}
		l.rails = append(l.rails, r)
		port := key + " " + orElse(r.PortKey, r.Device+fmt.Sprint(r.Port))
		if r.active() && !ports[port] {
			ports[port] = true
			l.ports++
			l.need += r.Rate / float64(1+len(f.halves(r)))
		}
	}
	return list
}

func (l *pcieLink) can() float64 { return linkBytes(l.canSpeed, l.canWidth) }

// at is what an end of a link can, for people.
func at(speed float64, width int) string { return fmt.Sprintf("%g GT/s x%d", speed, width) }

func checkPCIeLink(facts *Facts, found func(Finding)) {
	for _, l := range facts.Rails.links() {
		now := linkBytes(l.Speed, l.Width)
		out := Finding{Severity: Warning, Subject: names(l.rails)}
		switch {
		case l.Speed < l.canSpeed || l.Width < l.canWidth:
			ends := "both its ends can"
			if l.slot == nil {
				ends = "what its slot can is not known, the adapter can"
			}
			out.Read = fmt.Sprintf("the PCIe link of %s runs at %s (%s), %s %s (%s)",
				l.Address, at(l.Speed, l.Width), gigabits(now), ends, at(l.canSpeed, l.canWidth), gigabits(l.can()))
			out.Why = "No rail carries more than its PCIe link, and nothing but the goodput shows it: the port still tells its full rate."
			if now < l.need {
				out.Severity = Fault
			}
			const seat = "seat the adapter and its riser anew; look in the BIOS for a limit of the slot, and for an update"
			if l.slot == nil {
				out.Mend = []string{note("look at what the slot can (lspci -vt shows the bridge above %s, lspci -vvs BRIDGE its LnkCap); if as much: "+seat, l.Address)}
				break
			}
			out.Mend = []string{note("trains the link anew, which breaks what goes over it now"), command("setpci", "-s", l.slot.Address, "CAP_EXP+10.w=20:20"), note("if that does not help: " + seat)}
		case l.ports == 1 && l.need > l.can() && (l.canSpeed < l.MaxSpeed || l.canWidth < l.MaxWidth):
			out.Read = fmt.Sprintf("the slot of %s can %s (%s), the adapter %s, and its port runs at %s",
				l.Address, at(l.canSpeed, l.canWidth), gigabits(l.can()), at(l.MaxSpeed, l.MaxWidth), gigabits(l.need))
			out.Why = "The slot is the limit of this rail, whatever its port could carry."
			out.Mend = []string{note("move the adapter to a slot of %s", at(l.MaxSpeed, l.MaxWidth))}
		default:
			continue
		}
		found(out)
	}
}

func checkPCIeShared(facts *Facts, found func(Finding)) {
	f := &facts.Rails
	for _, l := range f.links() {
		if l.ports < 2 || l.need <= l.can() || slices.ContainsFunc(l.rails, func(r *Rail) bool { return len(f.halves(r)) > 0 }) {
			continue // with halves it is how the machine is built, and its other links carry the rest
		}
		found(Finding{Severity: Warning, Subject: names(l.rails),
			Read: fmt.Sprintf("their ports run at %s together, on one PCIe link of %s that carries at most %s", gigabits(l.need), l.Address, gigabits(l.can())),
			Why:  "Striped over these rails a transfer gets what the link carries, not the sum: two ports of one adapter are not two rails' worth.",
			Mend: []string{note("use one port of each adapter, or move it to a slot that carries both; a connection over rails of different adapters gets the sum")}})
	}
}

// remoteDistance is from where on the way to a NUMA node leads out of the
// processor: nodes within one (sub-NUMA clustering, NPS) are at 11 to 17, those
// of another at 20, the kernel's REMOTE_DISTANCE, and more.
const remoteDistance = 20

func checkNUMA(facts *Facts, found func(Finding)) {
	f := &facts.Rails
	in := map[int]*Rail{} // the first in each node
	for _, r := range f.hardware() {
		if r.active() && r.NUMANode >= 0 && in[r.NUMANode] == nil {
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
		read := fmt.Sprintf("in NUMA node %d, where no active rail is", node)
		if nearest, ok := f.nearest(node, in); ok {
			if nearest.Value < remoteDistance {
				continue
			}
			read += fmt.Sprintf("; the nearest is %s in node %d, at distance %d (/sys/devices/system/node/node%d/distance; 10 is the node itself)", in[nearest.To], nearest.To, nearest.Value, node)
		}
		word := "GPU"
		if len(far[node]) > 1 {
			word = "GPUs"
		}
		found(Finding{Severity: Warning, Subject: fmt.Sprintf("%s %s", word, strings.Join(far[node], ", ")), Read: read,
			Why:  "What they send crosses the link between the processors, which is slower, shared, and on many machines no way for GPUDirect.",
			Mend: []string{note("move an adapter to a slot of NUMA node %d, or give these GPUs the jobs that stay within the node", node)}})
	}
}

// nearest returns which of the nodes that have a rail is the nearest to one.
func (f *RailFacts) nearest(node int, in map[int]*Rail) (best Distance, ok bool) {
	for _, n := range f.NUMA {
		for _, d := range n.Distances {
			if n.ID == node && in[d.To] != nil && (!ok || d.Value < best.Value) {
				best, ok = d, true
			}
		}
	}
	return best, ok
}
