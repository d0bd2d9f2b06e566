// Package gpudirect is the source that reports whether RDMA adapters can access the memory of NVIDIA GPUs.
package gpudirect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source reads files of the kernel and the driver. It opens no GPU.
type Source struct {
	*table
	sysfs, procfs string
	budget        time.Duration
	lanes         lane.Group[model]
}

type model struct {
	name *string
	err  error
}

// New returns the source for sysfs (/sys) and procfs (/proc). A read takes at most budget.
func New(sysfs, procfs string, budget time.Duration) *Source {
	return &Source{sysfs: sysfs, procfs: procfs, budget: budget, table: newTable()}
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	driver := filepath.Join(s.procfs, "driver/nvidia")
	if err := sysfs.Exists(driver); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no NVIDIA driver in %s: %w", driver, collector.ErrAbsent)
	} else if err != nil {
		return err
	}
	var m gpudirect.Machine
	var faults [4]error
	m.Peermem, faults[0] = s.peermem()
	if m.Peermem != nil {
		emit(collector.Sample{Metric: s.table.peermem, Value: collector.Bool(*m.Peermem)})
	}
	m.Kernel, faults[1] = parse(gpudirect.ParseKernel, s.procfs, "sys/kernel/osrelease")
	m.Driver, faults[2] = parse(gpudirect.ParseDriver, driver, "version")
	m.GPUs, m.GB10, faults[3] = s.gpus(filepath.Join(driver, "gpus"))
	m.GPUsKnown = m.GB10 || faults[3] == nil // a GPU that could not be read might be a GB10
	if m.GPUsKnown && m.GPUs > 0 {
		emit(collector.Sample{Metric: s.supported, Value: collector.Bool(!m.GB10)})
	}
	if possible, _, known := gpudirect.Possible(m.Kernel, m.Driver); known {
		emit(collector.Sample{Metric: s.dmabuf, Value: collector.Bool(possible && !m.GB10)})
	}
	if mode, reason := m.Mode(); mode != "" {
		emit(collector.Sample{Metric: s.info, Labels: []string{mode, reason}, Value: 1})
	}
	return errors.Join(faults[:]...)
}

// peermem reports whether a peer memory module is loaded; nil: unknown.
func (s *Source) peermem() (*bool, error) {
	modules := filepath.Join(s.sysfs, "module")
	for _, module := range gpudirect.Modules() {
		err := sysfs.Exists(filepath.Join(modules, module))
		if err == nil {
			return new(true), nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if err := sysfs.Exists(modules); err != nil { // unknown without sysfs
		return nil, err
	}
	return new(false), nil
}

func parse[T any](parse func(string) (T, error), elem ...string) (*T, error) {
	text, err := sysfs.ReadString(elem...)
	if err != nil {
		return nil, err
	}
	v, err := parse(text)
	if err != nil {
		return nil, sysfs.Invalid(filepath.Join(elem...), []byte(text), err.Error())
	}
	return &v, nil
}

// gpus counts the GPUs that could be read, each in its own lane, and reports whether one of them is a GB10.
func (s *Source) gpus(dir string) (count int, gb10 bool, err error) {
	entries, err := sysfs.List(dir)
	if err != nil {
		return 0, false, err
	}
	var addresses []string
	for _, e := range entries {
		addresses = append(addresses, e.Name)
	}
	slices.Sort(addresses)
	var faults []error
	for _, res := range s.lanes.Run(s.budget, addresses, func(address string) model {
		name, err := parse(parseModel, dir, address, "information")
		return model{name, err}
	}) {
		switch {
		case res.State != lane.Done:
			faults = append(faults, collector.LaneFault(res.Key, res.State, res.Err))
		case res.Value.err != nil:
			faults = append(faults, collector.NewFault(res.Key, res.Value.err))
		default:
			count++
			gb10 = gb10 || gpudirect.Unsupported(*res.Value.name)
		}
	}
	return count, gb10, errors.Join(faults...)
}

func parseModel(text string) (name string, err error) {
	name = gpudirect.Model(text)
	if name == "" {
		err = errors.New("not information about a GPU")
	}
	return name, err
}
