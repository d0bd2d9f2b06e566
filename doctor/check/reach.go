package check

import (
	"fmt"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
)

// hands are the lines of a fix for which somebody must touch the machine: its cables or a part. The user of a virtual
// machine cannot, nor one of a cloud's own adapters, which its machines without a hypervisor have as well.
func hands(f *facts.Facts, lines ...string) []string {
	switch {
	case f.Guest():
		return []string{"# this is a virtual machine, whose hardware its provider looks after: report it there, with " +
			"this finding"}
	case slices.ContainsFunc(f.Rails, func(r facts.Rail) bool {
		return slices.Contains([]string{"efa", "mana", "erdma"}, r.Provider)
	}):
		return []string{"# this is a machine of a cloud, whose provider looks after the hardware: report it there, " +
			"with this finding"}
	}
	return lines
}

// reseat is what to do about a part that does not answer, or not at its speed. Where all adapters are soldered to the
// processor's own root ports, nothing has a slot; elsewhere nobody knows whether a part is a card.
func reseat(f *facts.Facts, part string) string {
	with := func(soldered bool) bool {
		return slices.ContainsFunc(f.Rails, func(r facts.Rail) bool { return r.Slot != nil && r.Slot.SoC == soldered })
	}
	if with(true) && !with(false) {
		return fmt.Sprintf("power the machine off, take its power away for a minute, and start it again; %s is "+
			"soldered, and cannot be reseated", part)
	}
	return fmt.Sprintf("power the machine off and on; if %s is a card in a slot, reseat it and its riser", part)
}

// firmware is the fix of a link that is not what its parts support, where no part can be moved.
func firmware() []string {
	return []string{"# nothing here can be reseated or moved: update the firmware of the machine, then power it off " +
		"and on",
		"fwupdmgr refresh && fwupdmgr update"}
}

// nvidia reports whether NVIDIA's tools for adapters (mlxlink, mlxconfig) know this one.
func nvidia(r *facts.Rail) bool { return slices.Contains([]string{"mlx4", "mlx5"}, r.Provider) }
