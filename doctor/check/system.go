package check

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/terminal"
)

// enoughMemlock is what a small transfer locks, in bytes: queues and a buffer for each rail. Real jobs lock gigabytes.
const enoughMemlock = 64 << 20

func checkMemlock(f *facts.Facts, report reporter) {
	m := f.Memlock
	if len(f.Rails) == 0 || !m.Known || m.Exempt || m.Soft >= enoughMemlock {
		return
	}
	out := finding.Finding{
		Evidence: fmt.Sprintf("Max locked memory in /proc/self/limits is %s (soft), %s (hard), and CapEff in "+
			"/proc/self/status lacks CAP_IPC_LOCK", memlockText(m.Soft), memlockText(m.Hard)),
		Why: "RDMA locks memory: with so little, ibv_reg_mr and ibv_create_cq fail with ENOMEM, and most programs " +
			"use TCP.",
		Fix: []string{
			`printf '* - memlock unlimited\nroot - memlock unlimited\n' > /etc/security/limits.d/90-rdma.conf` +
				`  # then log in again`,
			"# a service: systemctl edit NAME, add [Service] LimitMEMLOCK=infinity, then systemctl restart NAME",
			"# a container: docker run --ulimit memlock=-1; in Kubernetes securityContext.capabilities.add: [IPC_LOCK]",
		}}
	if m.Hard >= enoughMemlock {
		out.Severity = warning
		out.Why = "RDMA locks memory. Most programs do not raise the soft limit, and fail with ENOMEM or use TCP."
		out.Fix = append([]string{"ulimit -S -l $(ulimit -H -l)  # in the shell that starts the job"}, out.Fix...)
	}
	report(out)
}

func memlockText(bytes uint64) string {
	if bytes == proc.Unlimited {
		return "unlimited"
	}
	return fmt.Sprintf("%d bytes", bytes)
}

func checkUverbsModule(f *facts.Facts, report reporter) {
	if len(f.Rails) == 0 || !f.Devices.Known || f.Devices.Class {
		return
	}
	report(finding.Finding{
		Evidence: "there are RDMA devices, but no /sys/class/infiniband_verbs: the module ib_uverbs is not loaded",
		Why: "Programs reach RDMA devices through ib_uverbs: without it libibverbs finds no device, and they " +
			"use TCP.",
		Fix: []string{"modprobe ib_uverbs",
			"echo ib_uverbs > /etc/modules-load.d/rdma.conf  # and at every boot"}})
}

// eachUverbs returns a check that reports one finding for all device nodes in a state; u is the first of them.
func eachUverbs(state string, find func(f *facts.Facts, u facts.Uverbs, nodes string) finding.Finding,
) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		var hit []facts.Uverbs
		var nodes []string
		for _, u := range f.Devices.Uverbs {
			if u.State == state {
				hit, nodes = append(hit, u), append(nodes, u.Node)
			}
		}
		rails := f.Where(func(r *facts.Rail) bool {
			return slices.ContainsFunc(hit, func(u facts.Uverbs) bool { return u.Device == r.Device })
		})
		if len(rails) > 0 && f.Devices.NodeDir {
			report.about(subjects(rails))(find(f, hit[0], listed(nodes)))
		}
	}
}

// containerFlags returns the options that give a container the rails' device nodes, or the whole directory.
func containerFlags(f *facts.Facts) string {
	if len(f.Devices.Nodes) == 0 {
		return "--device=/dev/infiniband"
	}
	return rdmadev.Flags(f.Devices.Nodes)
}

const kubernetesDevices = "in Kubernetes request the resource of an RDMA device plugin, for example " +
	"rdma/hca_shared_devices_a: 1"

func uverbsMissing(f *facts.Facts, u facts.Uverbs, nodes string) finding.Finding {
	return finding.Finding{
		Evidence: fmt.Sprintf("%s: no such file, but /sys/class/infiniband_verbs/%s exists", nodes,
			filepath.Base(u.Node)),
		Why: "Without this file libibverbs does not find the RDMA device, and programs use TCP.",
		Fix: []string{"udevadm trigger --action=add --subsystem-match=infiniband_verbs && udevadm settle",
			note("in a container: docker run %s; %s", containerFlags(f), kubernetesDevices)}}
}

func uverbsDenied(_ *facts.Facts, u facts.Uverbs, nodes string) finding.Finding {
	return finding.Finding{
		Evidence: fmt.Sprintf("open %s: %s (%s)", nodes, u.Err, u.Mode),
		Why: "The kernel creates this file with mode 0666. It was changed: this user's programs cannot open the " +
			"device.",
		Fix: []string{`echo 'SUBSYSTEM=="infiniband_verbs", MODE="0666"' > /etc/udev/rules.d/90-rdma.rules && ` +
			`udevadm control --reload && udevadm trigger --action=add --subsystem-match=infiniband_verbs`,
			`# or, for one group only: GROUP="rdma", MODE="0660" in that rule, and usermod -aG rdma USER`}}
}

func uverbsRules(f *facts.Facts, u facts.Uverbs, nodes string) finding.Finding {
	return finding.Finding{
		Evidence: fmt.Sprintf("open %s: %s, although its permissions allow it (%s)", nodes, u.Err, u.Mode),
		Why: "Device rules of the control group refuse the device (a container that has only the file, or a service " +
			"with DevicePolicy), or the device belongs to another network namespace.",
		Fix: []string{
			note("a container: docker run %s, which creates file and rule; a volume of /dev/infiniband creates only "+
				"the file", containerFlags(f)),
			note("%s; a hostPath of /dev/infiniband is not enough", kubernetesDevices),
			"# a service: systemctl edit NAME, add [Service] DeviceAllow=char-infiniband_verbs rw, then systemctl " +
				"restart NAME",
			"rdma system show  # netns exclusive: rdma dev set DEVICE netns NAME moves the device to the job's " +
				"namespace"}}
}

func checkRDMACM(f *facts.Facts, report reporter) {
	d := f.Devices
	node := slices.ContainsFunc(d.Uverbs, func(u facts.Uverbs) bool { return u.State != facts.UverbsMissing })
	if onlyEFA(f) || !d.Known || !d.NodeDir || d.RDMACM || !node { // a missing node has its own finding
		return
	}
	report(finding.Finding{Evidence: "/dev/infiniband/rdma_cm: no such file",
		Why: "Programs that use librdmacm (UCX with rdmacm, perftest -R, NVMe over RDMA) fail. NCCL does not need it.",
		Fix: []string{"modprobe rdma_ucm", "echo rdma_ucm > /etc/modules-load.d/rdma-cm.conf  # and at every boot",
			"# in a container: docker run --device=/dev/infiniband/rdma_cm"}})
}

func checkLibibverbs(f *facts.Facts, report reporter) {
	if len(f.Rails) == 0 || !f.Verbs.Known || f.Verbs.Library != "" {
		return
	}
	report(finding.Finding{Evidence: "libibverbs.so.1 is in none of the directories that the dynamic linker searches",
		Why: "NCCL, UCX and every other RDMA program open it; without it they use TCP, mostly silently.",
		Fix: []string{"apt-get install -y rdma-core libibverbs1 ibverbs-providers",
			"# Fedora, RHEL, Rocky: dnf install rdma-core libibverbs"}})
}

func checkProvider(f *facts.Facts, report reporter) {
	if f.Verbs.Library == "" { // check libibverbs reports it
		return
	}
	for _, p := range f.Verbs.Providers {
		rails := f.Where(func(r *facts.Rail) bool { return r.Provider == p.Name })
		if len(rails) == 0 {
			continue
		}
		if p.Library != "" && p.Config != "" {
			checkABI(f, p, rails, report)
			continue
		}
		subject, where := subjects(rails)
		out := finding.Finding{Subject: subject, Where: where,
			Evidence: fmt.Sprintf("no lib%s-rdmav*.so beside %s", p.Name, f.Verbs.Library),
			Why:      "Without the provider for its driver, libibverbs does not find the device, and programs use TCP.",
			Fix: []string{"apt-get install -y --reinstall ibverbs-providers",
				"# Fedora, RHEL, Rocky: dnf reinstall libibverbs"}}
		if p.Library != "" {
			out.Evidence = fmt.Sprintf("%s exists, but no file in /etc/libibverbs.d has the line: driver %s", p.Library,
				p.Name)
			out.Fix = []string{sh("mkdir -p /etc/libibverbs.d && echo %s > %s", "driver "+p.Name,
				"/etc/libibverbs.d/"+p.Name+".driver")}
		}
		report(out)
	}
}

// checkABI finds rails whose driver has another version of the interface to programs than the provider supports.
func checkABI(f *facts.Facts, p facts.Provider, rails []*facts.Rail, report reporter) {
	if p.ABI == nil {
		return
	}
	refused := map[uint64][]*facts.Rail{} // by version
	for _, r := range rails {
		i := slices.IndexFunc(f.Devices.Uverbs, func(u facts.Uverbs) bool { return u.Device == r.Device })
		if i < 0 || f.Devices.Uverbs[i].ABI == nil {
			continue
		}
		if v := *f.Devices.Uverbs[i].ABI; v < uint64(p.ABI.Min) || v > uint64(p.ABI.Max) {
			refused[v] = append(refused[v], r)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(refused)) {
		subject, where := subjects(refused[v])
		report(finding.Finding{Subject: subject, Where: where,
			Evidence: fmt.Sprintf("the driver's interface to programs has version %d "+
				"(/sys/class/infiniband_verbs/*/abi_version), %s supports %d to %d", v, p.Library, p.ABI.Min,
				p.ABI.Max),
			Why: "libibverbs skips the device (\"does not support the kernel ABI\"): it exists, but no program can " +
				"use it, and programs use TCP.",
			Fix: []string{note("install lib%s of the release that the kernel driver is from: ibverbs-providers "+
				"(Fedora, RHEL, Rocky: libibverbs) for a driver of the kernel, else the library of the vendor's "+
				"driver; in a container, install it in the image", p.Name)}})
	}
}

func checkGPUDirect(f *facts.Facts, report reporter) {
	g := f.GPUDirect
	if len(f.Rails) == 0 || g.Mode != "none" || g.GPUs == 0 {
		return
	}
	why := "Every transfer is copied through host memory, at a fraction of the rate and at the cost of the CPU."
	if g.AMD {
		report(finding.Finding{Subject: thisNode, Where: terminal.Count(g.GPUs, "GPU") + " of AMD", Why: why,
			Evidence: fmt.Sprintf("%s (kernel %s)", g.Reason, g.Kernel), Fix: amdDirectFix(g.Reason)})
		return
	}
	report(finding.Finding{Subject: thisNode, Where: fmt.Sprintf("%s (%s)", terminal.Count(g.GPUs, "GPU"), g.Model),
		Evidence: fmt.Sprintf("%s: driver %s in /proc/driver/nvidia/version, kernel %s in "+
			"/proc/sys/kernel/osrelease, no nvidia_peermem in /sys/module", g.Reason, g.Driver, g.Kernel),
		Why: why,
		Fix: []string{"modprobe nvidia_peermem && echo nvidia_peermem > /etc/modules-load.d/nvidia-peermem.conf",
			"# if that fails with Unknown symbol or Invalid argument, this kernel's ib_core has no peer memory: " +
				"install the open kernel modules (nvidia-driver-BRANCH-open, 515 or later) on Linux 5.12 or later, " +
				"for dma-buf"}})
}

// amdDirectFix returns the fix for a reason of package gpudirect.
func amdDirectFix(reason string) []string {
	switch reason {
	case gpudirect.SmallBAR:
		return []string{"grep -H . /sys/bus/pci/drivers/amdgpu/*:*/mem_info_vis_vram_total",
			note("turn on Above 4G Decoding and Resizable BAR in the BIOS")}
	case gpudirect.OldKernel, gpudirect.NoExport:
		return []string{note("install Linux 6.4 or later, or AMD's driver (amdgpu-dkms) on Linux 5.12 or later")}
	}
	return []string{"grep -E 'PCI_P2PDMA|DMABUF_MOVE_NOTIFY' /boot/config-$(uname -r)",
		note("install a kernel with CONFIG_PCI_P2PDMA=y and CONFIG_DMABUF_MOVE_NOTIFY=y; or RDMA drivers with peer " +
			"memory (DOCA-OFED, Broadcom's netxtreme-peer-mem), and then load amdgpu again. ionic needs the kernel: " +
			"it has no peer memory")}
}

func checkPeermemLegacy(f *facts.Facts, report reporter) {
	g := f.GPUDirect
	major, _, _ := strings.Cut(g.Driver, ".")
	own := rail.NaturalCompare(major, "470") >= 0 // NVIDIA driver README, GPUDirect RDMA Peer Memory Client
	const legacyModule = "nv_peer_mem"
	if len(f.Rails) == 0 || g.Module != legacyModule || g.Mode != "peermem" || !own {
		return
	}
	report(finding.Finding{Subject: "module " + legacyModule,
		Evidence: fmt.Sprintf("/sys/module/%s exists and nvidia_peermem does not, with driver %s", legacyModule,
			g.Driver),
		Why: "The driver has its own module since 470. The older one is unmaintained and breaks with a later kernel.",
		Fix: []string{"rmmod nv_peer_mem && apt-get remove -y nvidia-peer-memory-dkms nvidia-peer-memory; modprobe " +
			"nvidia_peermem", "# Fedora, RHEL, Rocky: rmmod nv_peer_mem; dnf remove nvidia-peer-memory; modprobe " +
			"nvidia_peermem"}})
}
