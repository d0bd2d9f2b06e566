// Package gpudirect says how RDMA adapters can reach the memory of NVIDIA GPUs, from what kernel and driver report. It
// reads nothing: callers pass the texts.
package gpudirect

import (
	"errors"
	"strconv"
	"strings"
)

// Reason says why the way is what it is. This is the whole list.
type Reason string

// The reasons.
const (
	Peermem     Reason = "peer memory module is loaded"
	DMABuf      Reason = "kernel and open driver can do dma-buf"
	OldKernel   Reason = "no peer memory module, and kernel older than 5.12"
	OldDriver   Reason = "no peer memory module, and driver older than 515"
	Proprietary Reason = "no peer memory module, and driver is not the open one"
	GB10        Reason = "GB10 memory is not coherent for PCIe devices"
	NoGPU       Reason = "driver has no GPU"
)

// The oldest versions that can do dma-buf: Linux 5.12 (ib_umem_dmabuf_get in
// drivers/infiniband/core/umem_dmabuf.c), the open kernel modules of 515.
const (
	kernelMajor, kernelMinor = 5, 12
	driverMajor              = 515
)

// Kernel is a version of Linux.
type Kernel struct{ Major, Minor int }

// ParseKernel reads /proc/sys/kernel/osrelease.
func ParseKernel(text string) (k Kernel, err error) {
	major, rest, _ := strings.Cut(strings.TrimSpace(text), ".")
	minor, _, _ := strings.Cut(rest, ".")
	if i := strings.IndexFunc(minor, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		minor = minor[:i]
	}
	if k.Major, err = number(major); err == nil {
		k.Minor, err = number(minor)
	}
	if err != nil {
		return Kernel{}, errors.New("no kernel release")
	}
	return k, nil
}

// Driver is what /proc/driver/nvidia/version says.
type Driver struct {
	Open    bool // the open kernel modules
	Major   int
	Version string // whole, for example 570.124.06
}

// ParseDriver reads the first line of /proc/driver/nvidia/version. The two kinds
// of driver have it in different order:
//
//	NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 ...
//	NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (...)
func ParseDriver(text string) (d Driver, err error) {
	line, _, _ := strings.Cut(text, "\n")
	line, found := strings.CutPrefix(line, "NVRM version:")
	d.Open = strings.Contains(line, "Open Kernel Module")
	if found && strings.Contains(line, "Kernel Module") {
		for word := range strings.FieldsSeq(line) {
			major, rest, dotted := strings.Cut(word, ".")
			if n, err := number(major); err == nil && dotted && rest != "" && strings.Trim(rest, "0123456789.") == "" {
				d.Major, d.Version = n, word
				return d, nil
			}
		}
	}
	return Driver{}, errors.New("no NVIDIA driver version")
}

// number reads a part of a version.
func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16) // no sign, no space
	return int(n), err
}

// Modules are the kernel modules by which adapters reach GPU memory through peer
// memory: the driver's own, and the older one beside it.
func Modules() []string { return []string{"nvidia_peermem", "nv_peer_mem"} }

// Possible reports whether kernel and driver are new enough for dma-buf, and why
// or why not. Either may be nil where it is not known; ok is false where the
// other one does not decide alone.
func Possible(k *Kernel, d *Driver) (possible bool, why Reason, ok bool) {
	switch {
	case k != nil && (k.Major < kernelMajor || k.Major == kernelMajor && k.Minor < kernelMinor):
		return false, OldKernel, true
	case d != nil && d.Major < driverMajor:
		return false, OldDriver, true
	case d != nil && !d.Open:
		return false, Proprietary, true
	}
	return true, DMABuf, k != nil && d != nil
}

// Machine is what decides how adapters reach GPU memory.
type Machine struct {
	GPUs      int
	GPUsKnown bool    // all GPUs were read; one that was not might be a GB10
	GB10      bool    // one of them is
	Peermem   *bool   // a module of [Modules] is loaded; nil: not known
	Kernel    *Kernel // nil: not known, as Driver
	Driver    *Driver
}

// Mode returns how adapters reach GPU memory, and why: peermem, which is preferred, dmabuf, none or unsupported. It is
// empty where that is not known.
func (m Machine) Mode() (string, Reason) {
	possible, why, known := Possible(m.Kernel, m.Driver)
	switch {
	case m.GB10:
		return "unsupported", GB10
	case !m.GPUsKnown:
		return "", ""
	case m.GPUs == 0:
		return "none", NoGPU
	case m.Peermem != nil && *m.Peermem:
		return "peermem", Peermem
	case m.Peermem == nil || !known:
		return "", ""
	case possible:
		return "dmabuf", why
	}
	return "none", why
}

// Model returns the model in /proc/driver/nvidia/gpus/*/information, empty where
// the text says none.
func Model(text string) string {
	for line := range strings.Lines(text) {
		if model, found := strings.CutPrefix(line, "Model:"); found && strings.TrimSpace(model) != "" {
			return strings.TrimSpace(model)
		}
	}
	return ""
}

// Unsupported reports whether RDMA can by design not reach a GPU of this model:
// the GB10 of a DGX Spark.
func Unsupported(model string) bool { return strings.Contains(model, "GB10") }
