// Package pcie reads the PCIe links of rails and GPUs: current and maximum speed and width, and error counters.
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
	*table
	sysfs string
	rails func() ([]rail.Rail, error)

	gpus      []string // PCI addresses
	scanned   time.Time
	functions *collector.Set[key, *function]
}

type key struct {
	address string
	rails   string // names, one a line; empty for a GPU
	kind    string // nic or gpu
}

// New returns the source of the tree at sysfsRoot. A function that is slower than budget is left out.
func New(sysfsRoot string, rails func() ([]rail.Rail, error), budget time.Duration) *Source {
	s := &Source{sysfs: sysfsRoot, rails: rails, table: newTable()}
	s.functions = collector.NewSet(budget, func(k key) string { return k.address }, s.open)
	return s
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	rails, _ := s.rails() // the rdma source reports what cannot be examined
	s.scanGPUs()
	var keys []key
	for _, r := range rails {
		i := slices.IndexFunc(keys, func(k key) bool { return k.address == r.PCIAddress })
		switch {
		case r.PCIAddress == "":
		case i >= 0: // a device of several ports
			keys[i].rails += "\n" + r.Name
		default:
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

// scanGPUs searches the hundreds of PCI functions for GPUs, which are rarely plugged in, once a minute.
func (s *Source) scanGPUs() {
	if time.Since(s.scanned) < time.Minute {
		return
	}
	s.scanned, s.gpus = time.Now(), nil
	dir := filepath.Join(s.sysfs, "bus/pci/devices")
	list, _ := sysfs.List(dir) // no PCI bus: no GPUs
	for _, e := range list {
		vendor, _ := sysfs.ReadString(dir, e.Name, "vendor")
		class, _ := sysfs.ReadString(dir, e.Name, "class")
		const display = "0x03" // PCI base class, include/linux/pci_ids.h
		if (vendor == "0x10de" || vendor == "0x1002") && strings.HasPrefix(class, display) {
			s.gpus = append(s.gpus, e.Name)
		}
	}
}
