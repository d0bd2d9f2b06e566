// Package pcie reads the PCIe links of rails and GPUs (current and maximum speed and width, error counters), and
// the temperatures of the adapters and their modules.
package pcie

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
)

// Source is the source of the PCIe links of rails and GPUs.
type Source struct {
	*table
	sysfs     string
	find      func() rail.Snapshot
	functions *collector.Set[key, collector.Device]
}

type key struct {
	address string
	rails   string // rail names, one per line; empty for a GPU
	kind    string // nic or gpu
	sensors bool   // true: the device that reads its temperatures
}

// New returns the source of the tree at sysfsRoot. A function that is slower than budget is skipped.
func New(sysfsRoot string, find func() rail.Snapshot, budget time.Duration) *Source {
	s := &Source{sysfs: sysfsRoot, find: find, table: newTable()}
	s.functions = collector.NewSet(budget, func(k key) string { return k.address }, func(k key) collector.Device {
		if k.sensors {
			return s.openSensors(k)
		}
		return s.open(k)
	})
	return s
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	found := s.find() // the rdma source reports devices that cannot be examined
	var keys []key
	for _, r := range found.Rails {
		i := slices.IndexFunc(keys, func(k key) bool { return k.address == r.PCIAddress })
		switch {
		case r.PCIAddress == "":
		case i >= 0: // a device with several ports
			keys[i].rails += "\n" + r.Name
		default:
			keys = append(keys, key{address: r.PCIAddress, rails: r.Name, kind: "nic"})
		}
	}
	for _, k := range keys {
		k.sensors = true
		keys = append(keys, k)
	}
	for _, gpu := range found.GPUs {
		keys = append(keys, key{address: gpu.PCIAddress, kind: "gpu"})
	}
	_, faults := s.functions.Read(keys, emit)
	if len(keys) == 0 {
		return fmt.Errorf("no rail and no GPU on PCIe below %s: %w", s.sysfs, collector.ErrAbsent)
	}
	return errors.Join(faults...)
}
