// Package gpudirect decides how RDMA adapters can access the memory of GPUs. For NVIDIA it reads no files.
package gpudirect

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Reasons of modes. This list is complete.
const (
	Peermem     = "peer memory module is loaded"
	DMABuf      = "kernel and open driver can do dma-buf"
	OldKernel   = "no peer memory module, and kernel older than 5.12"
	OldDriver   = "no peer memory module, and driver older than 515"
	Proprietary = "no peer memory module, and driver is not the open one"
	GB10        = "GB10 memory is not coherent for PCIe devices"
	NoGPU       = "driver has no GPU"
)

// Oldest versions with dma-buf: Linux 5.12 (drivers/infiniband/core/umem_dmabuf.c), open kernel modules of driver
// 515.
const (
	kernelMajor, kernelMinor = 5, 12
	driverMajor              = 515
)

// Kernel is a version of Linux.
type Kernel struct {
	Major, Minor int
	// Backports is set for kernels of RHEL and those built from it, which have drivers of later versions: an early
	// version says nothing.
	Backports bool
}

func (k Kernel) before(major, minor int) bool {
	return k.Major < major || k.Major == major && k.Minor < minor
}

// backports matches the release of a kernel of RHEL: "5.14.0-503.11.1.el9_5.x86_64".
var backports = regexp.MustCompile(`\.el\d`)

// ParseKernel parses /proc/sys/kernel/osrelease.
func ParseKernel(text string) (Kernel, error) {
	var major, minor uint16
	if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil {
		return Kernel{}, errors.New("not a kernel release")
	}
	return Kernel{int(major), int(minor), backports.MatchString(text)}, nil
}

// Driver is a version of the NVIDIA driver.
type Driver struct {
	Open    bool // the open kernel modules
	Major   int
	Version string // full version, for example 570.124.06
}

// The two kinds of driver print their version in a different order:
//
//	NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 ...
//	NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (...)
var driverVersion = regexp.MustCompile(`^NVRM version:(.*Kernel Module).*?\s((\d{1,4})\.[\d.]+)(?:\s|$)`)

// ParseDriver parses the first line of /proc/driver/nvidia/version.
func ParseDriver(text string) (Driver, error) {
	m := driverVersion.FindStringSubmatch(text)
	if m == nil {
		return Driver{}, errors.New("not an NVIDIA driver version")
	}
	major, _ := strconv.Atoi(m[3]) // cannot fail: digits
	return Driver{Open: strings.HasSuffix(m[1], "Open Kernel Module"), Major: major, Version: m[2]}, nil
}

// Modules returns the kernel modules for peer memory: the driver's own, and the older separate one.
func Modules() []string { return []string{"nvidia_peermem", "nv_peer_mem"} }

// Possible reports whether kernel and driver, nil if unknown, are new enough for dma-buf. ok reports whether that
// can be decided.
func Possible(k *Kernel, d *Driver) (possible bool, why string, ok bool) {
	switch {
	case k != nil && k.before(kernelMajor, kernelMinor):
		return false, OldKernel, true // NVIDIA requires that version
	case d != nil && d.Major < driverMajor:
		return false, OldDriver, true
	case d != nil && !d.Open:
		return false, Proprietary, true
	}
	return true, DMABuf, k != nil && d != nil
}

// Machine holds the properties that determine the mode.
type Machine struct {
	GPUs      int
	GPUsKnown bool    // all GPUs were read; an unread GPU might be a GB10
	GB10      bool    // one of them is a GB10
	Peermem   *bool   // a module of [Modules] is loaded; nil: unknown
	Kernel    *Kernel // nil: unknown; the same for Driver
	Driver    *Driver
}

// Mode returns how adapters access GPU memory, and why: peermem, dmabuf, none, unsupported; empty if unknown.
func (m Machine) Mode() (mode, reason string) {
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

// Model returns the model in /proc/driver/nvidia/gpus/*/information, "" if there is none.
func Model(text string) string {
	for line := range strings.Lines(text) {
		if model, found := strings.CutPrefix(line, "Model:"); found && strings.TrimSpace(model) != "" {
			return strings.TrimSpace(model)
		}
	}
	return ""
}

// Unsupported reports whether RDMA cannot, by design, access a GPU of this model: the GB10 of a DGX Spark.
func Unsupported(model string) bool { return strings.Contains(model, "GB10") }
