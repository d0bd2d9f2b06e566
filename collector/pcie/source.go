// Package pcie reads the PCIe links of rails and GPUs: what they run at, what
// they could run at, and their error counters.
package pcie

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source is the source of the PCIe links of rails and GPUs.
type Source struct {
	sysfs string
	rails func() ([]rail.Rail, error)
	table *table

	gpus      []string // PCI addresses
	scanned   time.Time
	functions *collector.Set[key, *function]
}

// key is a PCI function with what is behind it.
type key struct {
	address string
	rails   string // names, one a line; empty for a GPU
	kind    string // nic or gpu
}

// New returns the source for the tree at sysfsRoot. A function that has not
// answered within budget is left out until it does.
func New(sysfsRoot string, rails func() ([]rail.Rail, error), budget time.Duration) *Source {
	s := &Source{sysfs: sysfsRoot, rails: rails, table: newTable()}
	s.functions = collector.NewSet(budget, func(k key) string { return k.address }, s.open)
	return s
}

// Name implements [collector.Source].
func (s *Source) Name() string { return "pcie" }

// Metrics implements [collector.Source].
func (s *Source) Metrics() []*collector.Metric { return s.table.Metrics() }

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	rails, _ := s.rails() // what cannot be examined is the rdma source's to report
	s.scanGPUs()
	var keys []key
	for _, r := range rails {
		if r.PCIAddress == "" {
			continue
		}
		i := slices.IndexFunc(keys, func(k key) bool { return k.address == r.PCIAddress })
		if i >= 0 { // a device of several ports
			keys[i].rails += "\n" + r.Name
		} else {
			keys = append(keys, key{r.PCIAddress, r.Name, "nic"})
		}
	}
	for _, address := range s.gpus {
		keys = append(keys, key{address, "", "gpu"})
	}
	_, faults := s.functions.Read(keys, emit)
	if len(keys) == 0 {
		return fmt.Errorf("no rail and no GPU on PCIe below %s: %w", s.sysfs, collector.ErrAbsent)
	}
	return errors.Join(faults...)
}

// scanGPUs searches all PCI functions for GPUs, once a minute: there are hundreds
// of functions, and GPUs are hardly ever plugged in.
func (s *Source) scanGPUs() {
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
