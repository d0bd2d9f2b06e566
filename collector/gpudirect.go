package collector

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// The rows of gpudirectTable.
const (
	gpudirectPeermem = iota
	gpudirectDMABuf
	gpudirectSupported
	gpudirectInfo
)

// Where the rules below are written.
const (
	refPeermem = "NVIDIA driver README, GPUDirect RDMA Peer Memory Client"
	refDMABuf  = "Linux 5.12 (ib_umem_dmabuf_get, drivers/infiniband/core/umem_dmabuf.c); NVIDIA driver README from 515 on, Open Linux Kernel Modules"
	refGB10    = "NVIDIA, DGX Spark GPUDirect RDMA, forums.developer.nvidia.com/t/348787"
)

func gpudirectTable() []Metric {
	return []Metric{
		gpudirectPeermem: {Name: "gpudirect_peermem_loaded", Kind: Gauge, Ref: refPeermem, From: []Origin{{Name: "module/nvidia_peermem"}, {Name: "module/nv_peer_mem"}},
			Help: "1 while the kernel module is loaded by which RDMA adapters reach GPU memory through peer memory, 0 while it is not."},
		gpudirectDMABuf: {Name: "gpudirect_dmabuf_possible", Kind: Gauge, Ref: refDMABuf, From: []Origin{{Name: "driver/nvidia/version"}, {Name: "sys/kernel/osrelease"}},
			Help: "1 where kernel (5.12) and NVIDIA driver (515, open kernel modules) are new enough for RDMA to GPU memory by dma-buf, 0 where one is not, and on a GB10; by version alone, a distribution may have the code earlier."},
		gpudirectSupported: {Name: "gpudirect_supported", Kind: Gauge, Ref: refGB10, From: []Origin{{Name: "driver/nvidia/gpus/*/information"}},
			Help: "0 where the GPU can by design not be reached by RDMA (GB10, DGX Spark), whatever is loaded, otherwise 1."},
		gpudirectInfo: {Name: "gpudirect_info", Kind: Gauge, Labels: []string{"mode", "reason"}, Ref: refPeermem + "; " + refDMABuf + "; " + refGB10, From: []Origin{{Name: "module/nvidia_peermem"}, {Name: "driver/nvidia/version"}, {Name: "driver/nvidia/gpus/*/information"}, {Name: "sys/kernel/osrelease"}},
			Help: "How RDMA can reach GPU memory here, always 1: mode is peermem, dmabuf, none or unsupported, peermem where both would do; with none and unsupported every transfer is copied through host memory."},
	}
}

// GPUDirect tells whether RDMA adapters can reach the memory of NVIDIA GPUs, by
// what the kernel and the driver say of themselves. It opens no GPU.
type GPUDirect struct {
	sysfs, procfs string
	budget        time.Duration
	rows          []Metric
	lanes         lane.Group[gpudirectFact]
}

var _ Source = (*GPUDirect)(nil)

// gpudirectFact is what one lane found out: one text, or what went wrong.
type gpudirectFact struct {
	text string
	err  error
}

// NewGPUDirect returns the source for what is below sysfs (/sys) and procfs
// (/proc). A read takes at most budget.
func NewGPUDirect(sysfs, procfs string, budget time.Duration) *GPUDirect {
	return &GPUDirect{sysfs: sysfs, procfs: procfs, budget: budget, rows: gpudirectTable()}
}

// Name returns "gpudirect".
func (g *GPUDirect) Name() string { return "gpudirect" }

// Metrics returns the rows.
func (g *GPUDirect) Metrics() []*Metric { return rowPointers(g.rows) }

// Read reads the few files; see [Source].
func (g *GPUDirect) Read(emit func(Sample)) error {
	driverDir := filepath.Join(g.procfs, "driver/nvidia")
	if err := exists(driverDir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("no NVIDIA driver in %s: %w", driverDir, ErrAbsent)
		}
		return NewFault("", err)
	}
	var faults []error
	peermem, peermemOK := g.peermem(&faults)
	if peermemOK {
		emit(Sample{Metric: &g.rows[gpudirectPeermem], Value: Bool(peermem)})
	}
	dmabuf, why, dmabufOK := g.dmabuf(driverDir, &faults)
	gpus, gb10, gpusOK := g.gpus(filepath.Join(driverDir, "gpus"), &faults)
	if gpusOK && gpus > 0 {
		emit(Sample{Metric: &g.rows[gpudirectSupported], Value: Bool(!gb10)})
	}
	if dmabufOK {
		emit(Sample{Metric: &g.rows[gpudirectDMABuf], Value: Bool(dmabuf && !gb10)})
	}
	mode, reason := "", gpudirect.Reason("") // not known
	switch {
	case !gpusOK:
	case gpus == 0:
		mode, reason = "none", gpudirect.NoGPU
	case gb10:
		mode, reason = "unsupported", gpudirect.GB10
	case peermemOK && peermem:
		mode, reason = "peermem", gpudirect.Peermem
	case !peermemOK || !dmabufOK:
	case dmabuf:
		mode, reason = "dmabuf", why
	default:
		mode, reason = "none", why
	}
	if mode != "" {
		emit(Sample{Metric: &g.rows[gpudirectInfo], Labels: []string{mode, string(reason)}, Value: 1})
	}
	return errors.Join(faults...)
}

// peermem reports whether a peer memory module is loaded.
func (g *GPUDirect) peermem(faults *[]error) (loaded, ok bool) {
	for _, module := range gpudirect.Modules() {
		err := exists(filepath.Join(g.sysfs, "module", module))
		if err == nil {
			return true, true
		}
		if !errors.Is(err, os.ErrNotExist) {
			*faults = append(*faults, NewFault("", err))
			return false, false
		}
	}
	// Where sysfs is not there at all, no module is neither loaded nor absent.
	if err := exists(filepath.Join(g.sysfs, "module")); err != nil {
		*faults = append(*faults, NewFault("", err))
		return false, false
	}
	return false, true
}

// dmabuf reports whether kernel and driver are new enough for dma-buf, and why.
func (g *GPUDirect) dmabuf(driverDir string, faults *[]error) (possible bool, why gpudirect.Reason, ok bool) {
	kernel, kernelErr := parsed(gpudirect.ParseKernel, g.procfs, "sys/kernel/osrelease")
	driver, driverErr := parsed(gpudirect.ParseDriver, driverDir, "version")
	for _, err := range [...]error{kernelErr, driverErr} {
		if err != nil {
			*faults = append(*faults, NewFault("", err))
		}
	}
	return gpudirect.Possible(kernel, driver)
}

// parsed reads a file and makes of it what parse does; nil where it cannot.
func parsed[T any](parse func(string) (T, error), elem ...string) (*T, error) {
	text, err := sysfs.ReadString(elem...)
	if err != nil {
		return nil, err
	}
	v, err := parse(text)
	if err != nil {
		return nil, badText(filepath.Join(elem...), text, err.Error())
	}
	return &v, nil
}

// gpus returns how many GPUs the driver has, and whether a GB10 is among them.
// Each is read in a lane of its own: a wedged GPU holds its own file.
func (g *GPUDirect) gpus(dir string, faults *[]error) (count int, gb10, ok bool) {
	entries, err := sysfs.List(dir)
	if err != nil {
		*faults = append(*faults, NewFault("", err))
		return 0, false, false
	}
	var addresses []string
	for _, e := range entries {
		addresses = append(addresses, e.Name)
	}
	slices.Sort(addresses)
	ok = true
	results := g.lanes.Run(g.budget, addresses, func(address string) gpudirectFact {
		model, err := gpuModel(filepath.Join(dir, address, "information"))
		return gpudirectFact{model, err}
	})
	for _, res := range results {
		switch {
		case res.State == lane.Died:
			*faults = append(*faults, &Fault{Device: res.Key, Reason: "panic", Err: res.Err})
		case res.State != lane.Done:
			*faults = append(*faults, &Fault{Device: res.Key, Reason: sysfs.ReasonTimeout, Err: res.Err})
		case res.Value.err != nil:
			*faults = append(*faults, NewFault(res.Key, res.Value.err))
		default:
			count++
			gb10 = gb10 || gpudirect.Unsupported(res.Value.text)
			continue
		}
		ok = false // it might be a GB10
	}
	return count, gb10, ok || gb10
}

// gpuModel returns the model in /proc/driver/nvidia/gpus/*/information.
func gpuModel(path string) (string, error) {
	text, err := sysfs.ReadString(path)
	if err != nil {
		return "", err
	}
	if model := gpudirect.Model(text); model != "" {
		return model, nil
	}
	return "", badText(path, text, "no information on a GPU")
}

// badText is the error of a file whose text is not what belongs there.
func badText(path, text, what string) error {
	if text == "" {
		return &sysfs.Error{Path: path, Reason: sysfs.ReasonEmpty, Err: errors.New("the file is empty")}
	}
	return &sysfs.Error{Path: path, Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%.40q is %s", text, what)}
}

// exists returns nil where path leads to something.
func exists(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return sysfs.Fail(path, err)
	}
	return nil
}

// rowPointers returns the rows of a table as [Source.Metrics] wants them.
func rowPointers(rows []Metric) []*Metric {
	list := make([]*Metric, len(rows))
	for i := range rows {
		list[i] = &rows[i]
	}
	return list
}
