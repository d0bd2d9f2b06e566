package collector

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// PCIe is the source of the PCIe links of rails and GPUs: what they run at,
// what they could run at, and their error counters.
type PCIe struct {
	sysfs  string
	rails  func() ([]rail.Rail, error)
	budget time.Duration
	rows   pcieRows

	gpus    []string // PCI addresses
	scanned time.Time
	lanes   lane.Group[*laneRead]
	funcs   map[string]*pciFunction // by PCI address
}

type pcieRows struct{ speed, maxSpeed, width, maxWidth, bandwidth, numa, aer *Metric }

// NewPCIe returns the source for the tree at sysfsRoot. A function that has not
// answered within budget is left out until it does.
func NewPCIe(sysfsRoot string, rails func() ([]rail.Rail, error), budget time.Duration) *PCIe {
	labels := []string{"rail", "pci_address", "kind"}
	const ref = "drivers/pci/pci-sysfs.c; Documentation/ABI/testing/sysfs-bus-pci"
	speed := func(name string) []Origin { return []Origin{{Name: name, Scale: 1e9}} }
	return &PCIe{sysfs: sysfsRoot, rails: rails, budget: budget, funcs: map[string]*pciFunction{}, rows: pcieRows{
		speed:     &Metric{Name: "pcie_link_transfers_per_second", Kind: Gauge, Labels: labels, From: speed("current_link_speed"), Ref: ref, Help: "Transfers per second and lane that the link of a rail (kind=nic) or GPU (kind=gpu) runs at. A GPU at rest may lower it."},
		maxSpeed:  &Metric{Name: "pcie_link_max_transfers_per_second", Kind: Gauge, Labels: labels, From: speed("max_link_speed"), Ref: ref, Help: "Transfers per second and lane that the device could run at."},
		width:     &Metric{Name: "pcie_link_width_lanes", Kind: Gauge, Labels: labels, From: from("current_link_width"), Ref: ref, Help: "Lanes that the link runs with."},
		maxWidth:  &Metric{Name: "pcie_link_max_width_lanes", Kind: Gauge, Labels: labels, From: from("max_link_width"), Ref: ref, Help: "Lanes that the device could run with."},
		bandwidth: &Metric{Name: "pcie_link_bytes_per_second", Kind: Gauge, Labels: labels, From: from("current_link_speed", "current_link_width"), Ref: "PCI Express Base Specification 6.0, 4.2", Help: "What the link carries in one direction: speed times width less line coding; packet headers not taken off. Functions of one slot share it."},
		numa:      &Metric{Name: "pcie_numa_node", Kind: Gauge, Labels: labels, From: from("numa_node"), Ref: ref, Help: "NUMA node of the device, absent where the machine does not say."},
		aer:       &Metric{Name: "pcie_aer_errors_total", Kind: Counter, Labels: append(append([]string{}, labels...), "severity"), From: from("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"), Ref: "Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats", Help: "Errors on the link that the device reported (Advanced Error Reporting), all types together."},
	}}
}

// Name implements [Source].
func (s *PCIe) Name() string { return "pcie" }

// Metrics implements [Source].
func (s *PCIe) Metrics() []*Metric {
	r := s.rows
	return []*Metric{r.speed, r.maxSpeed, r.width, r.maxWidth, r.bandwidth, r.numa, r.aer}
}

// owner is one rail or GPU behind a function, as labels.
type owner struct{ rail, kind string }

// Read implements [Source].
func (s *PCIe) Read(emit func(Sample)) error {
	rails, _ := s.rails() // what cannot be examined is the rdma source's to report
	s.scanGPUs()
	owners := map[string][]owner{}
	var keys []string
	add := func(address string, o owner) {
		if owners[address] == nil {
			keys = append(keys, address)
		}
		owners[address] = append(owners[address], o)
	}
	for _, r := range rails {
		if r.PCIAddress != "" {
			add(r.PCIAddress, owner{r.Name, "nic"})
		}
	}
	for _, address := range s.gpus {
		add(address, owner{"", "gpu"})
	}
	s.follow(owners)
	if len(keys) == 0 {
		return fmt.Errorf("no rail and no GPU on PCIe below %s: %w", s.sysfs, ErrAbsent)
	}
	funcs := maps.Clone(s.funcs) // a lane that starts late must not meet the next follow
	results := s.lanes.Run(s.budget, keys, func(key string) *laneRead { return funcs[key].read(s.rows) })
	return errors.Join(laneEmit(results, func(address string) string { return address }, emit)...)
}

// scanGPUs looks for GPUs among all PCI functions, now and then: there are
// hundreds of functions, and GPUs are not plugged in while we watch.
func (s *PCIe) scanGPUs() {
	if time.Since(s.scanned) < time.Minute {
		return
	}
	s.scanned, s.gpus = time.Now(), nil
	dir := filepath.Join(s.sysfs, "bus/pci/devices")
	list, err := sysfs.List(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		vendor, _ := sysfs.ReadString(dir, e.Name, "vendor")
		class, _ := sysfs.ReadString(dir, e.Name, "class")
		const display = "0x03" // PCI base class, include/linux/pci_ids.h
		if (vendor == "0x10de" || vendor == "0x1002") && strings.HasPrefix(class, display) {
			s.gpus = append(s.gpus, e.Name)
		}
	}
}

// follow makes the set of functions that of the owners.
func (s *PCIe) follow(owners map[string][]owner) {
	for address, f := range s.funcs {
		if owners[address] == nil {
			f.gone()
			delete(s.funcs, address)
		}
	}
	for address, list := range owners {
		f := s.funcs[address]
		if f == nil || !f.ownedBy(list) {
			if f != nil {
				f.gone()
			}
			s.funcs[address] = newPCIFunction(filepath.Join(s.sysfs, "bus/pci/devices", address), address, list)
		}
	}
}
