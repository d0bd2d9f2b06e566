package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
)

// checkACS judges the path of GPUDirect, which matters only where a device below a switch sends to another one. It
// skips virtual machines, whose bridges belong to the hypervisor.
func checkACS(f *facts.Facts, report reporter) {
	const redirect = facts.ACSRequestRedirect | facts.ACSCompletionRedirect
	if possible := f.GPUDirect.Mode == "peermem" || f.GPUDirect.Mode == "dmabuf"; !possible || f.PCI.Virtual {
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
