package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// GPUDirectFacts is how adapters reach the memory of NVIDIA GPUs.
type GPUDirectFacts struct {
	GPUs   int    `json:"gpus"`   // that the NVIDIA driver has
	Model  string `json:"model"`  // of the first
	Module string `json:"module"` // the peer memory module that is loaded; empty for none
	Mode   string `json:"mode"`   // peermem, dmabuf, none or unsupported; empty when not known
	Reason string `json:"reason"`
	Driver string `json:"driver"` // version
	Kernel string `json:"kernel"`
}

// legacyModule is peer memory from before the driver had its own, in 470
// (NVIDIA driver README, GPUDirect RDMA Peer Memory Client).
const (
	legacyModule   = "nv_peer_mem"
	ownSinceDriver = 470
)

// readGPUDirect reads what the source gpudirect reads, and opens no GPU either.
func (s *system) readGPUDirect(ctx context.Context) part {
	var g GPUDirectFacts
	dir := filepath.Join(s.o.Procfs, "driver/nvidia")
	if !isDir(dir) {
		return part{put: func(*SystemFacts) {}}
	}
	for _, module := range gpudirect.Modules() {
		if g.Module == "" && isDir(filepath.Join(s.o.Sysfs, "module", module)) {
			g.Module = module
		}
	}
	unsupported, unread := s.readGPUs(ctx, filepath.Join(dir, "gpus"), &g)
	osrelease, _ := sysfs.ReadString(s.o.Procfs, "sys/kernel/osrelease")
	version, _ := sysfs.ReadString(dir, "version")
	var kernel *gpudirect.Kernel
	var driver *gpudirect.Driver
	if k, err := gpudirect.ParseKernel(osrelease); err == nil {
		kernel, g.Kernel = &k, clean(osrelease)
	}
	if d, err := gpudirect.ParseDriver(version); err == nil {
		driver, g.Driver = &d, clean(d.Version)
	}
	possible, why, ok := gpudirect.Possible(kernel, driver)
	switch {
	case unsupported:
		g.Mode, g.Reason = "unsupported", string(gpudirect.GB10)
	case len(unread) > 0: // the GPU that could not be read might be a GB10
	case g.GPUs == 0:
		g.Mode, g.Reason = "none", string(gpudirect.NoGPU)
	case g.Module != "":
		g.Mode, g.Reason = "peermem", string(gpudirect.Peermem)
	case !ok:
		unread = append(unread, fmt.Sprintf("GPUDirect: neither %s nor the kernel's release says whether dma-buf is possible; compare with nvidia-smi", filepath.Join(dir, "version")))
	case possible:
		g.Mode, g.Reason = "dmabuf", string(why)
	default:
		g.Mode, g.Reason = "none", string(why)
	}
	return part{put: func(f *SystemFacts) { f.GPUDirect = g }, unread: unread}
}

// readGPUs counts the GPUs, each in a lane of its own: a wedged one holds its
// file.
func (s *system) readGPUs(ctx context.Context, dir string, g *GPUDirectFacts) (unsupported bool, unread []string) {
	entries, err := sysfs.List(dir)
	if err != nil {
		return false, []string{fmt.Sprintf("GPUDirect: %v; is the NVIDIA driver loaded? look at nvidia-smi", err)}
	}
	var addresses []string
	for _, e := range entries[:min(len(entries), maxPorts)] {
		addresses = append(addresses, e.Name)
	}
	for _, res := range s.lanes.gpus.Run(remaining(ctx), addresses, func(address string) string {
		text, _ := sysfs.ReadString(dir, address, "information")
		return gpudirect.Model(text)
	}) {
		if res.State != lane.Done || res.Value == "" {
			unread = append(unread, fmt.Sprintf("GPUDirect: %s says no model; look at nvidia-smi and dmesg", filepath.Join(dir, res.Key, "information")))
			continue
		}
		g.GPUs++
		if g.Model == "" {
			g.Model = clean(res.Value)
		}
		unsupported = unsupported || gpudirect.Unsupported(res.Value)
	}
	return unsupported, unread
}

func checkGPUDirect(f *Facts, found func(Finding)) {
	g := f.System.GPUDirect
	if len(f.System.Ports) == 0 || g.Mode != "none" || g.GPUs == 0 {
		return
	}
	found(Finding{
		Severity: Warning, Subject: fmt.Sprintf("%d GPUs (%s)", g.GPUs, g.Model),
		Read: fmt.Sprintf("%s: driver %s in /proc/driver/nvidia/version, kernel %s in /proc/sys/kernel/osrelease, no nvidia_peermem in /sys/module", g.Reason, g.Driver, g.Kernel),
		Why:  "adapters cannot reach the GPUs' memory: every transfer is copied through host memory, at a fraction of the rate and with the CPU's help",
		Mend: []string{
			"modprobe nvidia_peermem && echo nvidia_peermem > /etc/modules-load.d/nvidia-peermem.conf",
			"# where that says Unknown symbol or Invalid argument, this kernel's ib_core has no peer memory: install the open kernel modules (nvidia-driver-BRANCH-open, 515 or later) on Linux 5.12 or later, for dma-buf",
		},
	})
}

func checkPeermemLegacy(f *Facts, found func(Finding)) {
	g := f.System.GPUDirect
	major, _, _ := strings.Cut(g.Driver, ".")
	if len(f.System.Ports) == 0 || g.Module != legacyModule || g.Mode != "peermem" || compareVersions(major, fmt.Sprint(ownSinceDriver)) < 0 {
		return
	}
	found(Finding{
		Severity: Warning, Subject: legacyModule,
		Read: fmt.Sprintf("/sys/module/%s, and no nvidia_peermem, with driver %s", legacyModule, g.Driver),
		Why:  "the driver has brought nvidia_peermem of its own since 470; the older module is built apart from it, is no longer maintained, and stops with a kernel or driver to come",
		Mend: []string{"rmmod nv_peer_mem && apt-get remove -y nvidia-peer-memory-dkms nvidia-peer-memory; modprobe nvidia_peermem"},
	})
}
