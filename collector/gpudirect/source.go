// Package gpudirect is the source that says whether RDMA adapters can reach the memory of NVIDIA GPUs.
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

// Source reads what the kernel and the driver say of themselves. It opens no GPU.
type Source struct {
	sysfs, procfs string
	budget        time.Duration
	table         *table
	lanes         lane.Group[model]
}

var _ collector.Source = (*Source)(nil)

// model is what reading the model of a GPU found.
type model struct {
	name string
	err  error
}

// New returns the source for what is below sysfs (/sys) and procfs (/proc). A read takes at most budget.
func New(sysfs, procfs string, budget time.Duration) *Source {
	return &Source{sysfs: sysfs, procfs: procfs, budget: budget, table: newTable()}
}

// Name returns "gpudirect".
func (s *Source) Name() string { return "gpudirect" }

// Metrics returns the rows.
func (s *Source) Metrics() []*collector.Metric { return s.table.Metrics() }

// Read reads the few files; see [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	driver := filepath.Join(s.procfs, "driver/nvidia")
	if err := sysfs.Exists(driver); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("no NVIDIA driver in %s: %w", driver, collector.ErrAbsent)
		}
		return collector.NewFault("", err)
	}
	var faults []error
	peermem := s.peermem(&faults)
	if peermem != nil {
		emit(collector.Sample{Metric: s.table.peermem, Value: collector.Bool(*peermem)})
	}
	m := gpudirect.Machine{Peermem: peermem}
	m.Kernel = parsed(&faults, gpudirect.ParseKernel, s.procfs, "sys/kernel/osrelease")
	m.Driver = parsed(&faults, gpudirect.ParseDriver, driver, "version")
	m.GPUs, m.GB10, m.GPUsKnown = s.gpus(filepath.Join(driver, "gpus"), &faults)
	if m.GPUsKnown && m.GPUs > 0 {
		emit(collector.Sample{Metric: s.table.supported, Value: collector.Bool(!m.GB10)})
	}
	if possible, _, known := gpudirect.Possible(m.Kernel, m.Driver); known {
		emit(collector.Sample{Metric: s.table.dmabuf, Value: collector.Bool(possible && !m.GB10)})
	}
	mode, reason := m.Mode()
	if mode != "" {
		emit(collector.Sample{Metric: s.table.info, Labels: []string{mode, string(reason)}, Value: 1})
	}
	return errors.Join(faults...)
}

// peermem reports whether a peer memory module is loaded; nil: not known.
func (s *Source) peermem(faults *[]error) *bool {
	modules := filepath.Join(s.sysfs, "module")
	for _, module := range gpudirect.Modules() {
		err := sysfs.Exists(filepath.Join(modules, module))
		if err == nil {
			return new(true)
		}
		if !errors.Is(err, os.ErrNotExist) {
			*faults = append(*faults, collector.NewFault("", err))
			return nil
		}
	}
	if err := sysfs.Exists(modules); err != nil { // without sysfs a module is neither loaded nor absent
		*faults = append(*faults, collector.NewFault("", err))
		return nil
	}
	return new(false)
}

// parsed reads a file and parses it; nil, with a fault, where it cannot.
func parsed[T any](faults *[]error, parse func(string) (T, error), elem ...string) *T {
	text, err := sysfs.ReadString(elem...)
	if err == nil {
		var v T
		if v, err = parse(text); err == nil {
			return &v
		}
		err = invalid(filepath.Join(elem...), text, err.Error())
	}
	*faults = append(*faults, collector.NewFault("", err))
	return nil
}

// gpus returns how many GPUs the driver has, and whether a GB10 is among them.
// Each is read in a lane of its own: a wedged GPU holds its own file.
func (s *Source) gpus(dir string, faults *[]error) (count int, gb10, ok bool) {
	entries, err := sysfs.List(dir)
	if err != nil {
		*faults = append(*faults, collector.NewFault("", err))
		return 0, false, false
	}
	var addresses []string
	for _, e := range entries {
		addresses = append(addresses, e.Name)
	}
	slices.Sort(addresses)
	ok = true
	for _, res := range s.lanes.Run(s.budget, addresses, func(address string) model {
		return readModel(filepath.Join(dir, address, "information"))
	}) {
		switch {
		case res.State != lane.Done:
			*faults = append(*faults, collector.LaneFault(res.Key, res.State, res.Err))
		case res.Value.err != nil:
			*faults = append(*faults, collector.NewFault(res.Key, res.Value.err))
		default:
			count++
			gb10 = gb10 || gpudirect.Unsupported(res.Value.name)
			continue
		}
		ok = false // it might be a GB10
	}
	return count, gb10, ok || gb10
}

// readModel reads the model in /proc/driver/nvidia/gpus/*/information.
func readModel(path string) (m model) {
	text, err := sysfs.ReadString(path)
	if err != nil {
		return model{err: err}
	}
	if m.name = gpudirect.Model(text); m.name == "" {
		m.err = invalid(path, text, "no information on a GPU")
	}
	return m
}

// invalid is the error of a file whose text is not what belongs there.
func invalid(path, text, what string) error {
	if text == "" {
		return &sysfs.Error{Path: path, Reason: sysfs.ReasonEmpty, Err: errors.New("the file is empty")}
	}
	return &sysfs.Error{Path: path, Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%.40q is %s", text, what)}
}
