// Package amdgpu reads AMD's GPUs from the files of the kernel drivers amdgpu and amdkfd in sysfs. Each read opens its
// file and closes it, so that nothing of railscope is open while the driver is unloaded. Any read may hang.
//
// Formats, units and modes were verified in drivers/gpu/drm/amd of Linux 6.11 (amdgpu, as freebsd/drm-kmod has it) and
// of AMD's driver for ROCm (DRM 3.63, 2026-01; amdgpu and amdkfd). All files can be read by everyone. docs/amd.md lists
// them.
package amdgpu

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// GPU is a PCI function that is a GPU of jobs and that amdgpu drives. Its partitions are no GPUs of their own.
type GPU struct {
	// Index follows the NVML indexes: AMD's GPUs are numbered in PCI order, after all GPUs of NVIDIA on PCI.
	Index      int
	PCIAddress string
	Display    bool // a display adapter: some of its counters are constants
	Integrated bool // graphics of a processor, without memory of its own

	dir        string // directory of the function
	sharesSlot bool   // other GPUs are functions of its slot, as in some guests
}

// WithoutIntegrated returns the GPUs to which adapters give data: those that have memory of their own, or, as an
// MI300A, are one with the processor.
func WithoutIntegrated(list []GPU) []GPU {
	return slices.DeleteFunc(slices.Clone(list), func(g GPU) bool { return g.Integrated })
}

// ScanEvery is the time after which the functions on PCI are read again, and the nodes of amdkfd.
const ScanEvery = 30 * time.Second

// Finder finds the GPUs. Safe for concurrent use.
type Finder struct {
	sysfs string

	mu      sync.Mutex // protects all following fields
	bound   []string   // names in the driver's directory
	missing time.Time  // when there was last no driver; zero after there was one
	scanned time.Time
	gpus    []GPU // those in bound
	nvidia  int
	index   map[string]int // by PCI address: a GPU keeps its index while this process runs
}

// NewFinder returns a finder of the GPUs below the mount point of sysfs.
func NewFinder(sysfs string) *Finder { return &Finder{sysfs: sysfs} }

// GPUs returns the GPUs, in order of their indexes. Where amdgpu never was, it looks for one directory each
// [ScanEvery].
func (f *Finder) GPUs(now time.Time) ([]GPU, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.missing.IsZero() && now.Sub(f.missing) < ScanEvery {
		return nil, nil
	}
	entries, err := sysfs.List(filepath.Join(f.sysfs, "bus/pci/drivers/amdgpu"))
	if err != nil {
		f.bound, f.gpus = nil, nil
		if errors.Is(err, unix.ENOENT) {
			err = nil
			if f.index == nil {
				f.missing = now
			}
		}
		return nil, err
	}
	var bound []string
	for _, e := range entries {
		if strings.Count(e.Name, ":") == 2 { // the others are bind, module, new_id and so on
			bound = append(bound, e.Name)
		}
	}
	slices.Sort(bound)
	if slices.Equal(bound, f.bound) && now.Sub(f.scanned) < ScanEvery {
		return f.gpus, nil
	}
	f.gpus = nil
	if len(bound) > 0 {
		err = f.scan(bound)
	}
	f.bound, f.scanned, f.missing = bound, now, time.Time{}
	return f.gpus, err
}

// scan reads the functions on PCI. The error is about functions that could not be identified.
func (f *Finder) scan(bound []string) error {
	all, err := rail.GPUs(f.sysfs)
	nvidia := 0
	for _, g := range all {
		if g.NVIDIA {
			nvidia++
		}
	}
	if f.index == nil || nvidia > f.nvidia { // a lower number would give one index to two GPUs
		f.nvidia, f.index = nvidia, map[string]int{}
	}
	for _, g := range all {
		if g.NVIDIA {
			continue
		}
		index, known := f.index[g.PCIAddress]
		if !known {
			index = f.nvidia + len(f.index)
			f.index[g.PCIAddress] = index
		}
		if slices.Contains(bound, g.PCIAddress) {
			dir := rail.Function(filepath.Join(f.sysfs, "bus/pci/devices", g.PCIAddress))
			slot, _, _ := strings.Cut(g.PCIAddress, ".")
			shares := slices.ContainsFunc(all, func(o rail.GPU) bool {
				return o.PCIAddress != g.PCIAddress && strings.HasPrefix(o.PCIAddress, slot+".")
			})
			f.gpus = append(f.gpus, GPU{index, g.PCIAddress, !g.Compute, g.Integrated, dir, shares})
		}
	}
	slices.SortFunc(f.gpus, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	return err
}

// Driver returns the version of amdgpu. Only AMD's driver for ROCm has one (MODULE_VERSION in amdgpu_drv.c); without
// one, the version is empty.
func (f *Finder) Driver() string {
	version, _ := sysfs.ReadString(f.sysfs, "module/amdgpu/version") // empty if the file does not exist
	return version
}
