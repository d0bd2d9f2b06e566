package rail

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// inGuest reports whether the PCI function at a path belongs to a virtual machine, whose hypervisor invents
// addresses, bridges and links. It is one if it is on Hyper-V's bus or below a hypervisor's bridge, if it is a
// virtual function without its physical one, or if firmware tables name a hypervisor.
func inGuest(sysfsRoot, function string) bool {
	if function == "" {
		return false
	}
	for dir := filepath.Dir(function); strings.Contains(dir, "/pci") || strings.Contains(dir,
		"VMBUS"); dir = filepath.Dir(dir) {
		if strings.HasPrefix(strings.ToUpper(filepath.Base(dir)), "VMBUS:") || emulated(dir) {
			return true
		}
	}
	return virtualFunctionAlone(function) || firmwareOfGuest(sysfsRoot)
}

// emulated reports whether the bridge at dir is emulated by a hypervisor: by the vendor numbers of QEMU (Red Hat),
// VMware and virtio.
func emulated(dir string) bool {
	vendor, err := sysfs.ReadString(dir, "vendor")
	return err == nil && slices.Contains([]string{"0x1b36", "0x15ad", "0x1af4"}, vendor)
}

// virtualFunctionAlone reports whether a function is virtual, by its device number, and its physical function is
// not here (mlx5/core/main.c, mlx5_core_pci_table: MLX5_PCI_DEV_IS_VF; broadcom/bnxt/bnxt.c, bnxt_vf_pciid).
func virtualFunctionAlone(function string) bool {
	if exists(function, "physfn") {
		return false
	}
	vendor, _ := sysfs.ReadString(function, "vendor")
	device, _ := sysfs.ReadString(function, "device")
	return slices.Contains(map[string][]string{
		"0x15b3": {"0x1004", "0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e", "0xa2d3"},
		"0x14e4": {"0x1606", "0x1609", "0x16bd", "0x16c1", "0x16cb", "0x16d3", "0x16dc", "0x16e1", "0x16e5", "0x16e9",
			"0x1806", "0x1807", "0x1808", "0x1809", "0x1819", "0xd800"},
	}[vendor], device)
}

// firmwareOfGuest reports whether the firmware tables name a hypervisor. Amazon's bare-metal machines name EC2,
// too.
func firmwareOfGuest(sysfsRoot string) bool {
	dir := filepath.Join(sysfsRoot, "class/dmi/id")
	vendor, _ := sysfs.ReadString(dir, "sys_vendor")
	product, _ := sysfs.ReadString(dir, "product_name")
	switch vendor {
	case "Microsoft Corporation":
		return product == "Virtual Machine"
	case "Amazon EC2":
		return !strings.Contains(product, "metal")
	case "Google":
		return product == "Google Compute Engine"
	}
	for _, name := range []string{"QEMU", "KVM", "VMware", "Xen", "OpenStack", "Bochs", "innotek",
		"Alibaba Cloud ECS"} {
		if strings.HasPrefix(vendor, name) || strings.HasPrefix(product, name) {
			return true
		}
	}
	return false
}
