package check

import (
	"fmt"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
)

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
