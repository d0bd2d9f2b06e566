package facts

import (
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/rail"
)

// AMD is what the driver amdgpu reports of a GPU.
type AMD struct {
	Model string `json:"model"` // PCI device ID such as 0x74a1
	// Partitions are the compute and the memory partition mode, such as "SPX NPS1"; empty if unknown.
	Partitions string `json:"partitions"`
	// Hive is the ID of its xGMI hive, or [NoHive]; empty if unknown.
	Hive  string `json:"hive"`
	Links []int  `json:"links" max:"64"` // number of xGMI links to each GPU of its hive; empty if unknown
}

// NoHive is the hive of a GPU that the driver put in none.
const NoHive = "none"

// Domain is the default domain of a PCI function's IOMMU group.
type Domain struct {
	Address string `json:"address"`
	Type    string `json:"type"` // such as identity, DMA or DMA-FQ (iommu_group_show_type in drivers/iommu/iommu.c)
}

// findAMD finds AMD's GPUs for the readings that follow. readGPUs reports its errors.
func findAMD(sysfs string, found *[]amdgpu.GPU) work {
	return func(*reader) func(*Facts) {
		gpus, _ := amdgpu.NewFinder(sysfs).GPUs(time.Now())
		return func(*Facts) { *found = gpus }
	}
}

func readAMD(r *reader, sysfs string, gpu amdgpu.GPU) func(*Facts) {
	x, err := gpu.XGMI()
	r.fail(err)
	amd := AMD{Model: clean(r.text(sysfs, "bus/pci/devices", gpu.PCIAddress, "device")), Hive: x.Hive, Links: x.Links}
	if x.Hive == "" && err == nil {
		amd.Hive = NoHive
	}
	if !gpu.Suspended() { // a read may wake it
		compute, memory, err := gpu.Modes()
		r.fail(err)
		if err == nil {
			amd.Partitions = clean(strings.TrimSpace(compute + " " + memory))
		}
	}
	return func(f *Facts) {
		for i := range f.GPUs {
			if f.GPUs[i].Address == gpu.PCIAddress {
				f.GPUs[i].AMD = &amd
			}
		}
	}
}

// readDomains reads the IOMMU domains of GPUs and of the rails' adapters. Nodes without an IOMMU, or without these
// GPUs, have none.
func readDomains(r *reader, sysfs string, gpus []amdgpu.GPU, rails []rail.Rail) (list []Domain) {
	var addresses []string
	for _, one := range amdgpu.WithoutIntegrated(gpus) {
		addresses = append(addresses, one.PCIAddress)
	}
	if len(addresses) == 0 {
		return nil
	}
	for _, v := range rails[:min(len(rails), maxPorts)] {
		if v.PCIAddress != "" {
			addresses = append(addresses, v.PCIAddress)
		}
	}
	slices.Sort(addresses)
	for _, a := range slices.Compact(addresses) {
		if kind := r.text(sysfs, "bus/pci/devices", a, "iommu_group/type"); kind != "" {
			list = append(list, Domain{a, clean(kind)})
		}
	}
	return list
}
