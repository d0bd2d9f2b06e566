// Package gpudirect is the source that reports whether RDMA adapters can access the memory of GPUs.
package gpudirect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source reads files of the kernel and the drivers. It opens no GPU.
type Source struct {
	*table
	sysfs, procfs string
	budget        time.Duration
	lanes         lane.Group[model]
	finder        *amdgpu.Finder
	amdLanes      lane.Lanes[amdgpu.GPU, visible]
	reader        *gpudirect.Reader
}

type model struct {
	name *string
	err  error
}

// visible is whether a GPU of AMD has a small BAR.
type visible struct {
	small bool
	err   error
}

// New returns the source for sysfs (/sys), procfs (/proc) and the host's root, which has boot and lib. A read takes at
// most budget.
func New(sysfs, procfs, rootfs string, budget time.Duration) *Source {
	return &Source{sysfs: sysfs, procfs: procfs, budget: budget, table: newTable(), finder: amdgpu.NewFinder(sysfs),
		reader: gpudirect.NewReader(sysfs, procfs, rootfs)}
}

// state is what is known of the GPUs of one vendor; nil or empty: unknown.
type state struct {
	peermem, dmabuf, supported *bool
	mode, reason               string
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	all, err := s.nvidia()
	amd, amdErr := s.amd()
	switch {
	case amd == nil && all == nil && amdErr != nil && errors.Is(err, collector.ErrAbsent):
		return amdErr
	case amd == nil && all == nil:
		return errors.Join(err, amdErr)
	case all == nil:
		all, err = amd, amdErr
	case amd != nil || amdErr != nil:
		err = errors.Join(err, amdErr)
	}
	if amd != nil && all != amd {
		all = all.with(amd)
	}
	for _, row := range []struct {
		metric *collector.Metric
		value  *bool
	}{{s.table.peermem, all.peermem}, {s.supported, all.supported}, {s.dmabuf, all.dmabuf}} {
		if row.value != nil {
			emit(collector.Sample{Metric: row.metric, Value: collector.Bool(*row.value)})
		}
	}
	if all.mode != "" {
		emit(collector.Sample{Metric: s.info, Labels: []string{all.mode, all.reason}, Value: 1})
	}
	return err
}

// with returns the state of a node with GPUs of both vendors: what is true of all of them.
func (s *state) with(t *state) *state {
	both := func(a, b *bool) *bool {
		if a != nil && !*a || b == nil {
			return a
		}
		return b
	}
	all := &state{peermem: both(s.peermem, t.peermem), dmabuf: both(s.dmabuf, t.dmabuf),
		supported: both(s.supported, t.supported)}
	all.mode, all.reason = gpudirect.Worst(s.mode, s.reason, t.mode, t.reason)
	return all
}

// nvidia returns nil without NVIDIA's driver.
func (s *Source) nvidia() (*state, error) {
	driver := filepath.Join(s.procfs, "driver/nvidia")
	if err := sysfs.Exists(driver); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no NVIDIA driver in %s, and no GPU of amdgpu: %w", driver, collector.ErrAbsent)
	} else if err != nil {
		return nil, err
	}
	var m gpudirect.Machine
	var faults [4]error
	m.Peermem, faults[0] = s.peermem()
	m.Kernel, faults[1] = parse(gpudirect.ParseKernel, s.procfs, "sys/kernel/osrelease")
	m.Driver, faults[2] = parse(gpudirect.ParseDriver, driver, "version")
	m.GPUs, m.GB10, faults[3] = s.gpus(filepath.Join(driver, "gpus"))
	m.GPUsKnown = m.GB10 || faults[3] == nil // a GPU that could not be read might be a GB10
	st := &state{peermem: m.Peermem}
	if m.GPUsKnown && m.GPUs > 0 {
		st.supported = new(!m.GB10)
	}
	if possible, _, known := gpudirect.Possible(m.Kernel, m.Driver); known {
		st.dmabuf = new(possible && !m.GB10)
	}
	st.mode, st.reason = m.Mode()
	return st, errors.Join(faults[:]...)
}

// amd returns nil without a GPU of amdgpu.
func (s *Source) amd() (*state, error) {
	gpus, err := s.finder.GPUs(time.Now())
	gpus = amdgpu.WithoutIntegrated(gpus)
	if len(gpus) == 0 {
		return nil, err
	}
	m, readErr := s.reader.Read(time.Now())
	faults := []error{err, readErr}
	for _, res := range s.amdLanes.Run(s.budget, gpus, func(g amdgpu.GPU) visible {
		small, err := gpudirect.IsSmallBAR(g)
		return visible{small, err}
	}) {
		switch {
		case res.State != lane.Done:
			faults = append(faults, collector.LaneFault(res.Key.PCIAddress, res.State, res.Err))
		case res.Value.err != nil:
			faults = append(faults, collector.NewFault(res.Key.PCIAddress, res.Value.err))
		default:
			m.GPUs++
			m.SmallBAR = m.SmallBAR || res.Value.small
		}
	}
	m.GPUsKnown = err == nil && m.GPUs == len(gpus)
	st := &state{peermem: m.Client, supported: new(true)}
	if possible, _, known := m.Possible(); known {
		st.dmabuf = &possible
	}
	st.mode, st.reason = m.Mode()
	return st, errors.Join(faults...)
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
