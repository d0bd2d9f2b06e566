package check

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/sysfstest"
	"github.com/railscope/railscope/internal/verbsabi/verbsabitest"
)

// healthyJob is a process whose variables name existing devices and force nothing.
func healthyJob(device, gid string) doctortest.Tree {
	return doctortest.Tree{
		"proc/1001/comm": "python\n", "proc/1001/ns/net": "-> net:[4026531840]",
		"proc/1001/environ": doctortest.Environ("HOME=/root", "NCCL_IB_DISABLE=0", "NCCL_NET=IB",
			"NCCL_SOCKET_IFNAME=eth0", "NCCL_IB_HCA="+device,
			"NCCL_IB_GID_INDEX="+gid, "UCX_TLS=rc,cuda,sm,self,tcp", "UCX_NET_DEVICES="+device+":1"),
		"proc/2/environ": "", "proc/2/comm": "kthreadd\n",
	}
}

// findingsText formats findings as text, for readable diffs.
func findingsText(list []finding.Finding) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%s %s: %s\n\twhere: %s\n\tfound: %s\n\twhy:   %s\n", f.Severity, f.Check, f.Subject, f.Where, f.Evidence, f.Why)
		for _, m := range f.Fix {
			fmt.Fprintf(&b, "\tfix:   %s\n", m)
		}
	}
	return b.String()
}

// longStatus is the status file of a process of a user in many groups on a machine with many processors: the relevant
// lines come after the first 4 KiB.
func longStatus() string {
	return "Name:\trailscope\nGroups:\t" + strings.Repeat("1000000000 ",
		4096) + "\nCapEff:\t0000000000000000\nCpus_allowed_list:\t" + strings.Repeat("1,3,", 4096) + "5\n"
}

const (
	libs      = "root/usr/lib/x86_64-linux-gnu/"
	nic0      = "sys/devices/pci0000:10/0000:10:01.0/0000:1a:00.0/"
	nic2      = "sys/devices/pci0000:40/0000:40:01.0/0000:4d:00.0/"
	limits    = "proc/4242/limits"
	peermem   = "sys/module/nvidia_peermem"
	nvVersion = "proc/driver/nvidia/version"
)

func locked(soft, hard string) string {
	return "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         " + soft + "             " + hard +
		"             bytes\n"
}

// only returns a function that fails for one path or interface.
func only[T any](at string, value T, err error, otherwise T) func(string) (T, error) {
	return func(name string) (T, error) {
		if strings.HasSuffix(name, at) {
			return value, err
		}
		return otherwise, nil
	}
}

func gpuJob(j facts.GPUJob) func(*facts.Options) {
	return func(o *facts.Options) { o.Jobs = func() ([]facts.GPUJob, bool) { return []facts.GPUJob{j}, true } }
}

const amdFunction = "sys/bus/pci/devices/0000:05:00.0/"

// withAMD puts an MI300X in place of NVIDIA's driver.
func withAMD(config, release string, more ...string) doctortest.Tree {
	tree := doctortest.Tree{"proc/driver/nvidia": "", peermem: "",
		"sys/bus/pci/drivers/amdgpu/0000:05:00.0/bound": "1\n",
		amdFunction + "vendor":                          "0x1002\n", amdFunction + "class": "0x120000\n",
		amdFunction + "mem_info_vram_total":         "206141652992\n",
		amdFunction + "mem_info_vis_vram_total":     "206141652992\n",
		"sys/kernel/mm/memory_peers/nv_mem/version": "1.0\n",
		"proc/sys/kernel/osrelease":                 release + "\n", "root/boot/config-" + release: config}
	for file := range slices.Chunk(more, 2) {
		tree[file[0]] = file[1]
	}
	return tree
}

// systemCase is a machine with one change.
type systemCase struct {
	name    string // begins with the check's ID
	fixture string
	change  doctortest.Tree
	with    func(*facts.Options)
}

// TestSystemChecks gives each check a machine with its fault and expects exactly that finding.
func TestSystemChecks(t *testing.T) {
	refuse := func(at string, errno error) func(*facts.Options) {
		return func(o *facts.Options) {
			o.Kernel.OpenDevice = func(path string) error {
				if strings.HasSuffix(path, at) {
					return errno
				}
				return nil
			}
		}
	}
	cases := []systemCase{
		{name: "memlock", fixture: hgx, change: doctortest.Tree{limits: locked("65536", "65536")}},
		{name: "memlock with a long status", fixture: hgx, change: doctortest.Tree{limits: locked("65536", "65536"),
			"proc/4242/status": longStatus()}},
		{name: "memlock soft", fixture: hgx, change: doctortest.Tree{limits: locked("8388608", "unlimited")}},
		{name: "memlock in a user namespace", fixture: rxe,
			change: doctortest.Tree{"proc/4242/uid_map": "0 100000 65536\n"}},
		{name: "uverbs_module", fixture: hgx, change: doctortest.Tree{"sys/class/infiniband_verbs": "",
			"root/dev/infiniband/uverbs0": "", "root/dev/infiniband/uverbs1": "", "root/dev/infiniband/uverbs2": ""},
			with: func(o *facts.Options) { o.Kernel.Live = true }},
		{name: "uverbs_missing", fixture: hgx, change: doctortest.Tree{"root/dev/infiniband/uverbs1": ""}},
		{name: "uverbs_missing in a container", fixture: hgx, change: doctortest.Tree{"root/dev/infiniband": "",
			"root/dev/null": "x"}},
		{name: "uverbs_permission", fixture: hgx, with: refuse("", unix.EACCES)},
		{name: "uverbs_device_rules", fixture: hgx, with: refuse("uverbs2", unix.EPERM)},
		{name: "uverbs_device_rules with exact devices", fixture: hgx, with: func(o *facts.Options) {
			refuse("uverbs2", unix.EPERM)(o)
			nodes := map[string]string{"mlx5_0": "uverbs0", "mlx5_1": "uverbs1", "mlx5_2": "uverbs2"}
			o.Kernel.RDMA = rdmadev.Finder{Sysfs: o.Sysfs, CharDevices: func(device string) []string {
				return []string{"/dev/infiniband/" + nodes[device], "/dev/infiniband/umad0", "/dev/infiniband/rdma_cm"}
			}}
		}},
		{name: "rdma_cm", fixture: rxe, change: doctortest.Tree{"root/dev/infiniband/rdma_cm": ""}},
		{name: "libibverbs", fixture: hgx, change: doctortest.Tree{libs + "libibverbs.so.1": "",
			libs + "libibverbs.so.1.14.2410.0": ""}},
		{name: "provider", fixture: hgx, change: doctortest.Tree{libs + "libibverbs/libmlx5-rdmav34.so": ""}},
		{name: "provider not named", fixture: rxe, change: doctortest.Tree{"root/etc/libibverbs.d/rxe.driver": ""}},
		{name: "ucx_no_transport", fixture: hgx, with: ucxInfo("mlx5_0", "mlx5_2")},
		{name: "ucx_no_transport at all", fixture: hgx, with: ucxInfo()},
		{name: "gpudirect", fixture: hgx,
			change: doctortest.Tree{peermem: "",
				nvVersion: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"}},
		{name: "gpudirect old kernel", fixture: hgx,
			change: doctortest.Tree{peermem: "", "proc/sys/kernel/osrelease": "5.4.0-200-generic\n"}},
		{name: "gpudirect of AMD", fixture: hgx, change: withAMD("CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n",
			"6.12.0-talos")},
		{name: "gpudirect of AMD with an old kernel", fixture: hgx, change: withAMD("CONFIG_PCI=y\n", "5.15.0")},
		{name: "gpudirect of AMD with a small BAR", fixture: hgx, change: withAMD("CONFIG_PCI=y\n", "6.12.0-talos",
			amdFunction+"mem_info_vis_vram_total", "268435456\n")},
		{name: "peermem_legacy", fixture: hgx,
			change: doctortest.Tree{peermem: "", "sys/module/nv_peer_mem/version": "1.3-0\n"}},
		{name: "peermem_legacy of the first driver with its own", fixture: hgx,
			change: doctortest.Tree{peermem: "", "sys/module/nv_peer_mem/version": "1.3-0\n",
				nvVersion: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021\n"}},
		{name: "job_uses_few_rails", fixture: hgx, with: gpuJob(facts.GPUJob{Name: "team-a/train-0", Comm: "python3",
			GPUs: 8, Rails: []string{"0", "1"}, EnvironmentRead: true,
			Variables: []string{"NCCL_IB_HCA", "NCCL_NET_GDR_LEVEL", "UCX_MAX_RMA_RAILS", "UCX_NET_DEVICES"}})},
		{name: "job_uses_few_rails without variables", fixture: hgx, with: gpuJob(facts.GPUJob{Name: "slurm-42",
			Comm: "a.out", GPUs: 2, Rails: []string{"2"}, EnvironmentRead: true})},
		{name: "job_uses_few_rails environment unread", fixture: hgx, with: gpuJob(facts.GPUJob{Name: "b\x1bad",
			Comm: "a.out", GPUs: 3, Rails: []string{"2", "not there"}})},
		{name: "acs_enabled", fixture: pcieSwitch, change: spaces(0x2910, 0x5d)},
		{name: "acs_enabled at one GPU", fixture: pcieSwitch, change: doctortest.Tree{
			switchPort + "17:00.0/config": doctortest.ConfigSpace(0, 0x04)}},
		{name: "acs_enabled with AMD", fixture: amdNode, change: doctortest.Tree{
			switchPort + "17:03.0/config": doctortest.ConfigSpace(0, 0x5d)}},
		{name: "gpu_partition_unlike", fixture: amdNode, change: doctortest.Tree{
			amdGPU + "current_compute_partition": "CPX\n", amdGPU + "current_memory_partition": "NPS4\n"}},
		{name: "gpu_partition_unlike in memory", fixture: amdNode, change: doctortest.Tree{
			amdGPU + "current_memory_partition": "NPS2\n"}},
		{name: "gpu_xgmi_lost", fixture: amdNode, change: doctortest.Tree{amdGPU + "xgmi_hive_info": "",
			amdGPU + "xgmi_num_links": ""}},
		{name: "gpu_xgmi_lost another hive", fixture: amdNode, change: doctortest.Tree{amdGPU + "xgmi_hive_info": "-> hive7",
			amdGPU + "hive7/xgmi_hive_id": "7\n", amdGPU + "xgmi_num_links": "00 \n"}},
		{name: "gpu_xgmi_lost one link", fixture: amdNode, change: doctortest.Tree{
			amdGPU + "xgmi_num_links": "01 00 00 01 \n"}},
		{name: "iommu_translates", fixture: amdNode, change: doctortest.Tree{
			"sys/kernel/iommu_groups/20/type": "DMA-FQ\n", "sys/kernel/iommu_groups/24/type": "DMA\n"}},
		{name: "relaxed_ordering_off", fixture: pcieSwitch, change: spaces(0x2900, 0)},
		{name: "pfc", fixture: hgx, with: func(o *facts.Options) {
			o.Kernel.DCB = only("enp77s0np0", facts.DCB{}, nil, facts.DCB{PFC: 1 << 3})
		}},
		{name: "pfc dscp", fixture: hgx, with: func(o *facts.Options) {
			table := map[uint8]uint8{26: 3}
			o.Kernel.DCB = only("enp77s0np0", facts.DCB{PFC: 8}, nil, facts.DCB{PFC: 8, DSCP: table})
		}},
		{name: "class_mismatch", fixture: hgx, change: ownClass("NCCL_IB_TC=0"), with: sorting},
		{name: "class_mismatch of UCX", fixture: hgx, change: ownClass("UCX_IB_TRAFFIC_CLASS=0x0"), with: sorting},
		{name: "pfc pause", fixture: hgx, with: func(o *facts.Options) {
			o.Kernel.Pause = func(netdev string) (bool, bool, error) {
				return netdev == "enp60s0np0", netdev == "enp60s0np0", nil
			}
		}},
		{name: "pfc trust", fixture: hgx, change: doctortest.Tree{nic2 + "net/enp77s0np0/qos/trust": "pcp\n"}},
		{name: "dcqcn", fixture: hgx, change: doctortest.Tree{nic2 + "net/enp77s0np0/ecn/roce_rp/enable/3": "0\n"}},
		{name: "dcqcn CNP priority", fixture: hgx,
			change: doctortest.Tree{"sys/kernel/debug/mlx5/0000:1a:00.0/cc_params/np_cnp_prio": "0\n"}},
		{name: "traffic_class", fixture: hgx,
			change: doctortest.Tree{nic0 + "infiniband/mlx5_0/tc/1/traffic_class": "\n"}},
		{name: "traffic_class of rdma_cm", fixture: hgx,
			change: doctortest.Tree{"sys/kernel/config/rdma_cm/mlx5_1/ports/1/default_roce_tos": "0\n"}},
		{name: "nccl_ib_disable", fixture: hgx, change: doctortest.Job("A=b", "NCCL_IB_DISABLE=1")},
		{name: "nccl_ib_disable in a file", fixture: rxe,
			change: doctortest.Tree{"root/etc/nccl.conf": "# NCCL_NET=Socket\nNCCL_IB_DISABLE=1\n"}},
		{name: "nccl_ib_disable in RCCL's file", fixture: rxe,
			change: doctortest.Tree{"root/etc/rccl.conf": "NCCL_IB_DISABLE=1\n"}},
		{name: "nccl_ib_disable with RCCL's plugin", fixture: hgx,
			change: doctortest.Job("NCCL_NET=RCCL-ANP", "NCCL_IB_DISABLE=1")},
		{name: "nccl_net", fixture: hgx, change: doctortest.Job("NCCL_NET=socket")},
		{name: "nccl_ib_hca", fixture: hgx, change: doctortest.Job("NCCL_IB_HCA=mlx5_bond_0")},
		{name: "nccl_ib_hca one of two", fixture: hgx, change: doctortest.Job("NCCL_IB_HCA==mlx5_0:1,mlx5_3:1")},
		{name: "nccl_ib_hca excludes all", fixture: hgx, change: doctortest.Job("NCCL_IB_HCA=^mlx5")},
		{name: "nccl_ib_gid_index", fixture: rxe, change: doctortest.Job("NCCL_IB_GID_INDEX=3")},
		{name: "nccl_ib_gid_index RoCE v1", fixture: hgx, change: doctortest.Job("NCCL_IB_GID_INDEX=2",
			"NCCL_IB_HCA=mlx5_1")},
		{name: "nccl_ib_gid_index link-local", fixture: rxe, change: doctortest.Job("NCCL_IB_GID_INDEX=0")},
		{name: "ucx_tls", fixture: hgx, change: doctortest.Job("UCX_TLS=tcp,cuda_copy,cuda_ipc")},
		{name: "ucx_tls datagrams", fixture: hgx, change: doctortest.Job("UCX_TLS=ud,sm,self")},
		{name: "ucx_tls one node", fixture: hgx, change: doctortest.Job("UCX_TLS=sm,self")},
		{name: "ucx_tls without InfiniBand", fixture: hgx, change: doctortest.Job("UCX_TLS=^ib")},
		{name: "ucx_net_devices", fixture: rxe, change: doctortest.Job("UCX_NET_DEVICES=lo")},
		{name: "ucx_net_devices by an interface", fixture: hgx,
			change: doctortest.Job("UCX_NET_DEVICES=enp26s0np0,enp77s0np0"), with: func(o *facts.Options) {
				devices := map[string]string{"enp26s0np0": "mlx5_0", "enp77s0np0": "mlx5_2"}
				o.Kernel.RDMA = rdmadev.Finder{Sysfs: o.Sysfs,
					DeviceOf: func(netdev string) (string, error) { return devices[netdev], nil }}
			}},
		{name: "ucx_net_devices absent", fixture: hgx, change: doctortest.Job("UCX_NET_DEVICES=mlx5_9:1")},
		{name: "ucx_net_devices one of two", fixture: hgx, change: doctortest.Job("UCX_NET_DEVICES=mlx5_0:1,mlx5_9:1")},
	}
	cases = append(append(cases, nixlCases()...), holderCases()...)
	got := txtar.Archive{Comment: []byte("What TestSystemChecks and TestSystemPeerChecks find, written by go test " +
		"./doctor/check -update.\n")}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			device, gid := "mlx5_0", "3"
			if tt.fixture == rxe {
				device, gid = "rxe0", "1"
			}
			s := doctortest.System(t, tt.fixture, healthyJob(device, gid), tt.change)
			if tt.with != nil {
				tt.with(&s)
			}
			list := runSystem(systemFacts(t, s))
			id, _, _ := strings.Cut(tt.name, " ")
			if len(list) != 1 || list[0].Check != id {
				t.Errorf("want one finding of %s, got:\n%s", id, findingsText(list))
			}
			got.Files = append(got.Files, txtar.File{Name: tt.name, Data: []byte(findingsText(list))})
		})
	}
	peerCases(t, &got)
	covered(t, got.Files)
	owner := regexp.MustCompile(`mode \d+, owner \d+, group \d+`) // the owner is the user who runs the tests
	golden(t, findings, owner.ReplaceAllString(string(txtar.Format(&got)), "mode 0600, owner 0, group 0"))
}

// covered requires a case for each row of both tables.
func covered(t *testing.T, cases []txtar.File) {
	t.Helper()
	has := map[string]bool{}
	for _, f := range cases {
		id, _, _ := strings.Cut(f.Name, " ")
		has[id] = true
	}
	for _, c := range systemChecks() {
		if !has[c.ID] || c.About == "" {
			t.Errorf("check %s has no case, or no description", c.ID)
		}
	}
	for _, c := range systemPeerChecks() {
		if !has[c.ID] || c.About == "" {
			t.Errorf("peer check %s has no case, or no description", c.ID)
		}
	}
}

// peerCases gives each check of a pair two machines with exactly one difference.
func peerCases(t *testing.T, got *txtar.Archive) {
	for _, tt := range []struct {
		name   string
		both   doctortest.Tree // on both machines, which otherwise have NVIDIA's software
		change doctortest.Tree // change on the peer
		with   func(*facts.Options)
	}{
		{name: "peer_pfc", with: func(o *facts.Options) {
			o.Kernel.DCB = func(string) (facts.DCB, error) { return facts.DCB{PFC: 1<<3 | 1<<4}, nil }
		}},
		{name: "peer_dcqcn", change: doctortest.Tree{
			"sys/kernel/debug/mlx5/0000:1a:00.0/cc_params/np_cnp_dscp": "26",
			"sys/kernel/debug/mlx5/0000:3c:00.0/cc_params/np_cnp_dscp": "26",
			"sys/kernel/debug/mlx5/0000:4d:00.0/cc_params/np_cnp_dscp": "26"}},
		{name: "peer_traffic_class", change: doctortest.Tree{
			"sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos": "0",
			"sys/kernel/config/rdma_cm/mlx5_1/ports/1/default_roce_tos": "0",
			"sys/kernel/config/rdma_cm/mlx5_2/ports/1/default_roce_tos": "0"}},
		{name: "peer_ucx", change: doctortest.Tree{"root/opt/hpcx/ucx/lib/pkgconfig/ucx.pc": "Version: 1.16.0\n"}},
		{name: "peer_nccl", change: doctortest.Tree{libs + "libnccl.so.2.26.2": "", libs + "libnccl.so.2.9.9": "x",
			"root/usr/local/lib/python3.12/dist-packages/nvidia_nccl_cu12-2.26.2.dist-info": ""}},
		{name: "peer_nccl one more",
			change: doctortest.Tree{
				"root/opt/conda/lib/python3.12/site-packages/nvidia_nccl_cu12-2.21.5.dist-info/METADATA": "x"}},
		{name: "peer_rccl", both: doctortest.Tree{"root/opt/rocm/lib/librccl.so.1.0.70200": "x"}, change: doctortest.Tree{
			"root/opt/rocm/lib/librccl.so.1.0.70200": "", "root/opt/rocm/lib/librccl.so.1.0.70202": "x"}},
		{name: "peer_nixl", change: doctortest.Tree{
			"root/usr/local/lib/python3.12/dist-packages/nixl-0.4.1.dist-info":               "",
			"root/usr/local/lib/python3.12/dist-packages/nixl_cu12-0.7.0.dist-info/METADATA": "x"}},
		{name: "peer_rdma_core", change: doctortest.Tree{libs + "libibverbs.so.1": "-> libibverbs.so.1.14.50.0",
			libs + "libibverbs.so.1.14.2410.0": "", libs + "libibverbs.so.1.14.50.0": "x"}},
		{name: "peer_firmware", change: doctortest.Tree{nic2 + "infiniband/mlx5_2/fw_ver": "28.45.4028\n"}},
		{name: "peer_nic_driver", change: doctortest.Tree{"sys/module/mlx5_core/version": "23.10-2.1.3\n"}},
		{name: "peer_nvidia_driver",
			change: doctortest.Tree{
				nvVersion: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x)\n"}},
		{name: "peer_kernel", change: doctortest.Tree{"proc/sys/kernel/osrelease": "6.8.0-31-generic\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			here, peer := doctortest.System(t, hgx, tt.both), doctortest.System(t, hgx, tt.both, tt.change)
			if tt.with != nil {
				tt.with(&peer)
			}
			list := runSystemPeer(systemFacts(t, here), systemFacts(t, peer))
			id, _, _ := strings.Cut(tt.name, " ")
			if len(list) != 1 || list[0].Check != id {
				t.Errorf("want one finding of %s, got:\n%s", id, findingsText(list))
			}
			got.Files = append(got.Files, txtar.File{Name: tt.name, Data: []byte(findingsText(list))})
		})
	}
}

// TestGraphics: graphics of a processor beside rails are no GPU whose memory adapters must reach.
func TestGraphics(t *testing.T) {
	tree := withAMD("CONFIG_PCI=y\n", "5.15.0", amdFunction+"gpu_busy_percent", "3\n")
	find := func(class string) string {
		tree[amdFunction+"class"] = class
		return findingsText(runSystem(systemFacts(t, doctortest.System(t, hgx, healthyJob("mlx5_0", "3"), tree))))
	}
	if text := find("0x030000\n"); strings.Contains(text, "gpudirect") {
		t.Error(text)
	}
	if text := find("0x120000\n"); !strings.Contains(text, "gpudirect") {
		t.Errorf("an accelerator: %q", text)
	}
}

// TestSystemHealthy: healthy machines have no finding.
func TestSystemHealthy(t *testing.T) {
	for fixture, job := range map[string]doctortest.Tree{
		hgx: healthyJob("mlx5_0", "3"), amdNode: healthyJob("mlx5_0", "3"), spark: healthyJob("rocep1s0f0", "3"),
		rxe:    healthyJob("rxe0", "1"),
		laptop: {"proc/1234/comm": "sh\n", "proc/1234/environ": doctortest.Environ("NCCL_IB_DISABLE=1", "UCX_TLS=tcp")},
	} {
		t.Run(fixture, func(t *testing.T) {
			s := doctortest.System(t, fixture, job)
			f := systemFacts(t, s)
			if list := runSystem(f); len(list) > 0 {
				t.Error(findingsText(list))
			}
			if list := runSystemPeer(f, systemFacts(t, doctortest.System(t, fixture, job))); len(list) > 0 {
				t.Error(findingsText(list))
			}
			if len(f.Rails) > 0 &&
				(len(f.Jobs.Envs) != 1 || len(f.Versions) == 0 || !f.Memlock.Known || !f.Verbs.Known) {
				t.Errorf("not all was read: %+v", f.System)
			}
		})
	}
}

// TestSystemBareTree: in a tree without libraries, devices and limits they are unknown, which is not a fault.
func TestSystemBareTree(t *testing.T) {
	root := sysfstest.Unpack(t, "../testdata/"+hgx+".txtar")
	for _, gone := range []string{"root", "sys/class/infiniband_verbs", "proc"} {
		if err := os.RemoveAll(filepath.Join(root.Dir, gone)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(root.Proc(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, rootfs := range []string{"", filepath.Join(root.Dir, "root")} {
		f := facts.New(facts.Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: rootfs,
			Rails: doctortest.Rails(root.Sys())}).Gather(t.Context(), facts.All)
		if len(f.Unread) > 0 || len(f.Rails) != 3 {
			t.Errorf("%d rails, not read: %q", len(f.Rails), f.Unread)
		}
		if list := runSystem(f); len(list) > 0 {
			t.Error(findingsText(list))
		}
	}
}

// TestSystemUnread: a file that cannot be read is reported with a fix, and the rest is read.
func TestSystemUnread(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change doctortest.Tree
		with   func(*facts.Options)
		want   []string
	}{
		{"invalid limits", doctortest.Tree{limits: locked("many", "many")}, nil,
			[]string{"limits on locked memory: read ROOT/proc/4242/limits"}},
		{"no limits", doctortest.Tree{limits: "Limit\n"}, nil, []string{"limits on locked memory"}},
		{"capabilities that cannot be read", doctortest.Tree{"proc/4242/status": "", limits: locked("65536", "65536")},
			nil, []string{"limits on locked memory: read ROOT/proc/4242/status: no such file"}},
		{"a device being reset", nil, func(o *facts.Options) {
			o.Kernel.OpenDevice = func(string) error { return unix.EIO }
		}, []string{"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", "/dev/infiniband/uverbs2"}},
		{"PFC fails on one rail", nil, func(o *facts.Options) {
			o.Kernel.DCB = only("enp26s0np0", facts.DCB{}, errors.New("no answer"), facts.DCB{PFC: 8})
		}, []string{"PFC and DCQCN of mlx5_0/1: no answer; compare with: dcb"}},
		{"no DCB at all", nil, func(o *facts.Options) {
			o.Kernel.DCB = func(string) (facts.DCB, error) { return facts.DCB{}, unix.EOPNOTSUPP }
		}, nil},
		{"a GPU without information", doctortest.Tree{"proc/driver/nvidia/gpus/0000:18:00.0/information": "\n"}, nil,
			[]string{"GPUDirect: ROOT/proc/driver/nvidia/gpus/0000:18:00.0/information has no model"}},
		{"a driver without a version", doctortest.Tree{nvVersion: "\x7fELF\n", peermem: ""}, nil,
			[]string{"GPUDirect: neither"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := doctortest.System(t, hgx, tt.change)
			if tt.with != nil {
				tt.with(&s)
			}
			f := facts.New(s).Gather(t.Context(), facts.All)
			unread := f.Unread
			if len(unread) != len(tt.want) {
				t.Fatalf("%q, want %q", unread, tt.want)
			}
			for i, want := range tt.want {
				want = strings.ReplaceAll(want, "ROOT", filepath.Dir(s.Rootfs))
				if !strings.HasPrefix(unread[i],
					want) {
					// The limits are read through /proc/self.
					if !strings.HasPrefix(strings.ReplaceAll(unread[i], "proc/self", "proc/4242"), want) {
						t.Errorf("%q, want %q", unread[i], want)
					}
				}
				if !strings.Contains(unread[i], ";") {
					t.Errorf("%q lacks what to do", unread[i])
				}
			}
			if list := runSystem(f); len(list) > 0 {
				t.Error(findingsText(list))
			}
			if len(f.Rails) != 3 || len(f.Versions) == 0 {
				t.Errorf("the rest was not read: %+v", f)
			}
		})
	}
}

// TestProviderABI: a provider that does not support the version of the device's driver is a finding; one of which this
// is unknown is none.
func TestProviderABI(t *testing.T) {
	const provider, version = libs + "libibverbs/libmlx5-rdmav34.so", "sys/class/infiniband_verbs/uverbs0/abi_version"
	library := func(lowest, highest uint32) string {
		return string(verbsabitest.Library(elf.EM_X86_64, "mlx5", lowest, highest, false))
	}
	for name, tt := range map[string]struct {
		change doctortest.Tree
		want   string
	}{
		"supported":        {doctortest.Tree{provider: library(1, 1)}, ""},
		"one of a range":   {doctortest.Tree{provider: library(1, 4), version: "4\n"}, ""},
		"too new":          {doctortest.Tree{provider: library(1, 1), version: "4\n"}, "version 4 "},
		"too old":          {doctortest.Tree{provider: library(2, 4)}, "version 1 "},
		"unknown versions": {doctortest.Tree{version: "4\n"}, ""},
		"unknown version":  {doctortest.Tree{provider: library(2, 4), version: ""}, ""},
	} {
		list := runSystem(systemFacts(t, doctortest.System(t, amdNode, tt.change)))
		if tt.want == "" && len(list) > 0 || tt.want != "" && (len(list) != 1 || list[0].Check != "provider" ||
			!strings.Contains(list[0].Evidence, tt.want)) {
			t.Errorf("%s: %s", name, findingsText(list))
		}
	}
}

// ownClass starts a job, and lets each queue pair have its own traffic class.
func ownClass(variable string) doctortest.Tree {
	tree := doctortest.Job(variable)
	for nic, device := range map[string]string{nic0: "mlx5_0", nic2: "mlx5_2",
		"sys/devices/pci0000:30/0000:30:01.0/0000:3c:00.0/": "mlx5_1"} {
		tree[nic+"infiniband/"+device+"/tc"] = ""
	}
	return tree
}

// sorting sorts DSCP 24 to 31 into priority 3, which has PFC.
func sorting(o *facts.Options) {
	o.Kernel.DCB = func(string) (facts.DCB, error) {
		d := facts.DCB{PFC: 8, DSCP: map[uint8]uint8{}}
		for dscp := range uint8(64) {
			d.DSCP[dscp] = dscp / 8
		}
		return d, nil
	}
}
