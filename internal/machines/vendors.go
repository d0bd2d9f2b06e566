package machines

import (
	"fmt"
	"path"
	"slices"
)

// vendors returns machines with adapters of vendors other than NVIDIA.
func vendors() []Machine {
	return slices.Concat(pensandoBroadcom(), partitionedAndMixed(), intel(), otherVendors(), amazon())
}

// pciPath returns the path of a function on a bus below a root port.
func pciPath(bridge, port, bus, function int) string {
	return fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:%02[2]x.0/0000:%02[3]x:00.%[4]d", bridge, port, bus, function)
}

// switchPath returns the path of the function behind the nth port of a switch, which is alone below its host bridge.
func switchPath(bridge, n int) string {
	return fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:01.0/0000:%02[2]x:00.0/0000:%02[3]x:%02[4]x.0/0000:%02[5]x:00.0",
		bridge, bridge+1, bridge+2, n, bridge+3+n)
}

// hypervised marks the machine as a guest, with this maker and product.
func hypervised(t *Tree, maker, product string) {
	t.Files("class/dmi/id", "sys_vendor", maker, "product_name", product)
	t.Proc("cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2 hypervisor lahf_lm")
}

// macGID writes the single GID of an iWARP port. Since Linux 6.6 it has an interface.
func macGID(t *Tree, device string, port int, netdev string) {
	dir := fmt.Sprintf("class/infiniband/%s/ports/%d", device, port)
	t.File(path.Join(dir, "gids/0"), fmt.Sprintf("0200:5e00:%04x:0000:0000:0000:0000:0000", 0x100+port))
	t.File(path.Join(dir, "gid_attrs/types/0"), "IB/RoCE v1")
	if netdev != "" {
		t.File(path.Join(dir, "gid_attrs/ndevs/0"), netdev)
	}
}

func withoutGIDs(p *Port) { p.NoGIDs = true }

// silent sets the counters of a port that never had a link to 0.
func silent(t *Tree, device, netdev string, names ...string) {
	for _, name := range names {
		t.File(path.Join("class/infiniband", device, "ports/1/hw_counters", name), 0)
	}
	t.Files(path.Join("class/net", netdev, "statistics"), "rx_bytes", 0, "tx_bytes", 0)
}

const ionicBytes = "rx_rdma_ucast_bytes+rx_rdma_mcast_bytes"

// instincts adds eight adapters, each behind a switch with an AMD GPU.
func instincts(t *Tree, gpu string, m Model, device, netdev string, down int) {
	for i := range 8 {
		t.Add(Adapter{Model: m, At: fmt.Sprintf("0000:%02x:00.0", 0x08+i*16), Device: fmt.Sprintf(device, i),
			Netdev: fmt.Sprintf(netdev, i), GPU: fmt.Sprintf("0000:%02x:00.0", 0x09+i*16), AMD: gpu, Down: i == down})
	}
}

// PCI device IDs of AMD's GPUs.
const (
	mi300x = "0x74a1"
	mi355x = "0x75a0"
	mi300a = "0x74a0"
)

// instinct returns an AMD GPU with this device ID.
func instinct(device string) Function {
	return Function{Vendor: "0x1002", Device: device, Class: "0x120000", Driver: "amdgpu"}
}

// showAMD adds what amdgpu and amdkfd show of a GPU. Formats are those of Linux 6.11 (drivers/gpu/drm/amd/amdgpu and
// pm/amdgpu_pm.c), and of amdkfd/kfd_topology.c in AMD's driver. The sizes of memory are those of rocm-smi on an MI300X
// and of a MI350X in ROCm/rocm-systems#10274. The BAR covers all
// of it.
func showAMD(t *Tree, dir string, f Function) {
	t.Link(path.Join("bus/pci/drivers/amdgpu", path.Base(dir)), dir)
	vram := uint64(206141652992)
	switch f.Device {
	case mi355x:
		vram = 309220868096
	case mi300a:
		vram = 0
	}
	compute, memory, nodes := "SPX", "NPS1", max(f.Partitions, 1)
	if nodes == 8 {
		compute, memory = "CPX", "NPS4"
	}
	bdf := path.Base(dir)
	var domain, bus, device int
	_, err := fmt.Sscanf(bdf, "%x:%x:%x", &domain, &bus, &device)
	t.must(err)
	unique := uint64(0x8af7052596830000) + uint64(t.kfdNodes)
	t.Files(dir, "mem_info_vram_total", vram, "mem_info_vis_vram_total", vram, "mem_info_vram_used",
		min(vram, 297000960), "mem_info_gtt_used", 12000000, "gpu_busy_percent", 0, "mem_busy_percent", 0,
		"pcie_replay_count", 0, "current_compute_partition", compute,
		"current_memory_partition", memory, "unique_id", fmt.Sprintf("%016x", unique), "power/runtime_status", "active")
	if f.GT != "Unknown" { // a virtual function has no access to the board
		t.Files(dir, "ras/umc_err_count", "ue: 0\nce: 0\nde: 0", "product_name", "AMD Instinct",
			"hwmon/hwmon1/temp2_input",
			43000, "hwmon/hwmon1/temp2_label", "junction", "hwmon/hwmon1/power1_input", 173000000,
			"hwmon/hwmon1/freq1_input", 132000000, "hwmon/hwmon1/freq2_input", 900000000,
			"xgmi_hive_info/xgmi_hive_id", uint64(10245786123456789012), "iommu_group/type", "identity")
	}
	for i := range nodes {
		node := path.Join("class/kfd/kfd/topology/nodes", fmt.Sprint(t.kfdNodes))
		t.kfdNodes++
		t.Files(node, "gpu_id", 21947+t.kfdNodes, "properties", fmt.Sprintf("cpu_cores_count 0\nsimd_count %d\n"+
			"gfx_target_version 90402\nvendor_id 4098\nlocation_id %d\ndomain %d\ndrm_render_minor %d\nunique_id %d",
			1216/nodes, bus<<8|device<<3|i, domain, 128+t.kfdNodes, unique))
	}
}

// partitionedAndMixed returns machines of which some GPUs are from AMD, or divided.
func partitionedAndMixed() []Machine {
	return []Machine{
		{Name: "mi300x-cpx", Source: "ROCm/k8s-device-plugin#184",
			About: "MI300X in CPX and NPS4: eight GPUs, which ROCm presents as 64, each behind a switch with a Thor2",
			Build: func(t *Tree) {
				for i := range 8 {
					at := fmt.Sprintf("pci0000:%02x/0000:%02[1]x:01.0/0000:%02x:00.0", 0x10*(i+1), 0x10*(i+1)+1)
					gpu := instinct(mi300x)
					gpu.Partitions = 8
					t.GPU(fmt.Sprintf("%s/0000:%02x:00.0/0000:%02x:00.0", at, 0x10*(i+1)+2, 0x10*(i+1)+3), gpu)
					t.Add(Adapter{Model: thor2(), At: fmt.Sprintf("%s/0000:%02x:01.0/0000:%02x:00.0", at, 0x10*(i+1)+2,
						0x10*(i+1)+4), Device: fmt.Sprintf("bnxt_re%d", i), Netdev: fmt.Sprintf("ens%dnp0", i)})
				}
			},
			Truth: Truth{Rails: each(8, "bnxt_re%[1]d/1 ens%[1]dnp0 compute 400 rx_bytes PIX")}},

		{Name: "mixed-gpus", Source: "akash-network/support#142, transformerlab/transformerlab-app#2383 (GPUs of " +
			"both vendors)",
			About: "two GPUs of NVIDIA and two MI300X, each behind a switch with a ConnectX-7, and the graphics of " +
				"the processor, which are no GPU of jobs",
			Build: func(t *Tree) {
				for i, amd := range []string{"", mi300x, "", mi300x} {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7(), AMD: amd, Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("rdma%d", i)})
				}
				dir := t.Function(pciPath(0x00, 8, 0x0c, 0), Function{Vendor: "0x1002", Device: "0x164e",
					Class: "0x030000", Driver: "amdgpu", GT: "16.0"})
				t.Link(path.Join("bus/pci/drivers/amdgpu", path.Base(dir)), dir)
				t.Files(dir, "mem_info_vram_total", 536870912, "mem_info_vram_used", 20000000, "mem_info_gtt_used",
					30000000, "gpu_busy_percent", 3)
			},
			Truth: Truth{Rails: each(4, "mlx5_%[1]d/1 rdma%[1]d compute 400 port_rcv_data PIX")}},
	}
}

func pensandoBroadcom() []Machine {
	return []Machine{
		{Name: "mi355x-pollara", Source: "ROCm/omnistat#301",
			About: "MI355X: eight Pollara 400, each behind a switch with a GPU",
			Build: func(t *Tree) { instincts(t, mi355x, pollara(), "ionic_%d", "benic%dp1", -1) },
			Truth: Truth{Rails: each(8, "ionic_%[1]d/1 benic%[1]dp1 compute 400 "+ionicBytes+" PIX")}},

		{Name: "mi355x-pollara-link-lost", Source: "ROCm/rocm-systems#3654",
			About: "MI355X of which one Pollara lost its link",
			Build: func(t *Tree) { instincts(t, mi355x, pollara(), "ionic_%d", "benic%dp1", 5) },
			Truth: Truth{
				Rails: slices.Concat(each(5, "ionic_%[1]d/1 benic%[1]dp1 compute 400 "+ionicBytes+" PIX"),
					[]string{"ionic_5/1 benic5p1 compute - " + ionicBytes + " PIX",
						"ionic_6/1 benic6p1 compute 400 " + ionicBytes + " PIX",
						"ionic_7/1 benic7p1 compute 400 " + ionicBytes + " PIX"}),
				Findings: []string{"critical port_down rail 5"}}},

		{Name: "ionic-no-cable", Source: "ROCm/rocm-systems#3654",
			About: "test bench with one Pensando adapter without a cable: polling, as its interface is up",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: pollara(), At: "0000:e5:00.0", Device: "rocep229s0", Netdev: "enp229s0", MTU: 1500,
					NeverUp: true, Edit: func(p *Port) { p.Disabled, p.Down = false, true }})
				silent(t, "rocep229s0", "enp229s0", "rx_rdma_ucast_bytes", "rx_rdma_ucast_pkts", "rx_rdma_mcast_bytes",
					"rx_rdma_mcast_pkts", "tx_rdma_ucast_bytes", "tx_rdma_ucast_pkts", "tx_rdma_mcast_bytes",
					"tx_rdma_mcast_pkts")
			},
			Truth: Truth{Rails: []string{"rocep229s0/1 enp229s0 compute unused " + ionicBytes + " -"}}},

		{Name: "mi300x-thor2", Source: "ROCm/mori#291",
			About: "MI300X: eight Thor2 for jobs, and a two-port Thor for the rest, which is a root port's own",
			Build: func(t *Tree) {
				instincts(t, mi300x, thor2(), "bnxt_re%d", "ens%dnp0", -1)
				for i := range 2 {
					t.Add(Adapter{Model: thor(), At: pciPath(0xe0, 1, 0xe1, i), Device: fmt.Sprintf("bnxt_re%d", 8+i),
						Netdev: fmt.Sprintf("eno%dnp%d", i+1, i)})
				}
			},
			Truth: Truth{Rails: slices.Concat(each(8, "bnxt_re%[1]d/1 ens%[1]dnp0 compute 400 rx_bytes PIX"),
				[]string{"bnxt_re8/1 eno1np0 other 100 rx_bytes NODE", "bnxt_re9/1 eno2np1 other 100 rx_bytes NODE"})}},

		{Name: "mi300x-mlx5-bnxt", Source: "ROCm/RIXL#34",
			About: "MI300X: eight ConnectX-7 for jobs, and a two-port Broadcom card with one cable for the rest",
			Build: func(t *Tree) {
				instincts(t, mi300x, cx7(), "mlx5_%d", "rdma%d", -1)
				for i := range 2 {
					t.Add(Adapter{Model: thor(), At: pciPath(0xe0, 1, 0xe1, i), Device: fmt.Sprintf("bnxt_re%d", i),
						Netdev: fmt.Sprintf("eno%dnp%d", i+1, i), NeverUp: i == 1})
				}
				silent(t, "bnxt_re1", "eno2np1", "rx_bytes", "tx_bytes", "rx_pkts", "tx_pkts")
			},
			Truth: Truth{Rails: slices.Concat([]string{"bnxt_re0/1 eno1np0 other 100 rx_bytes NODE",
				"bnxt_re1/1 eno2np1 other unused rx_bytes NODE"},
				each(8, "mlx5_%[1]d/1 rdma%[1]d compute 400 port_rcv_data PIX"))}},

		{Name: "bnxt-counters-refuse", Source: "prometheus/procfs#675",
			About: "two Thor2 whose counters/ is there, but every file of it refuses",
			Build: func(t *Tree) {
				m := thor2()
				m.Counters = BnxtAndPMA
				for i := range 2 {
					t.Add(Adapter{Model: m, At: fmt.Sprintf("0000:%da:00.0", i+1), Device: fmt.Sprintf("bnxt_re%d", i),
						Netdev: fmt.Sprintf("eth%d", i)})
				}
			},
			Truth: Truth{Rails: each(2, "bnxt_re%[1]d/1 eth%[1]d compute 400 rx_bytes -")}},

		{Name: "bnxt-own-pma", Source: "Broadcom's own bnxt_re (bnxt_re_assign_pma_port_counters)",
			About: "Thor2 with the vendor's driver, which answers in counters/ and gives hw_counters the names of mlx5",
			Build: func(t *Tree) {
				m := thor2()
				m.Counters = PMACounters
				t.Add(Adapter{Model: m, At: "0000:1a:00.0", Device: "bnxt_re0", Netdev: "eth0"})
				t.Files("class/infiniband/bnxt_re0/ports/1/hw_counters", "rx_bytes", 76000, "tx_bytes", 72000,
					"rx_pkts", 17,
					"tx_pkts", 16, "out_of_sequence", 0, "packet_seq_err", 0, "local_ack_timeout_err", 0,
					"np_cnp_sent", 0,
					"rp_cnp_handled", 0, "lifespan", 10)
			},
			Truth: Truth{Rails: []string{"bnxt_re0/1 eth0 compute 400 port_rcv_data -"}}},

		{Name: "bnxt-one-cable", Source: "openucx/ucx#11048",
			About: "GPU node with a two-port Thor of which one has a cable; the GPU shares its host bridge alone",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: thor(), At: pciPath(0xc0, 1, 0xc2, i), Device: fmt.Sprintf("bnxt_re%d", i),
						Netdev: fmt.Sprintf("enp194s0f%[1]dnp%[1]d", i), NeverUp: i == 1})
				}
				silent(t, "bnxt_re1", "enp194s0f1np1", "rx_bytes", "tx_bytes", "rx_pkts", "tx_pkts")
				t.GPU(pciPath(0xc0, 3, 0xc4, 0), Function{})
			},
			Truth: Truth{Rails: []string{"bnxt_re0/1 enp194s0f0np0 compute 100 rx_bytes PHB",
				"bnxt_re1/1 enp194s0f1np1 compute unused rx_bytes PHB"}}},

		{Name: "bnxt-virtual-functions", Source: "linux-rdma/rdma-core#1342",
			About: "host with a Thor that has two virtual functions, each with an RDMA device here",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: thor(), At: pciPath(0x40, 1, 0x41, 0), Device: "bnxt_re0", Netdev: "enp65s0np0"})
				m := thor()
				m.Device, m.GT, m.Of = "0x1806", "Unknown", "0000:41:00.0"
				for i := range 2 {
					t.Add(Adapter{Model: m, At: pciPath(0x40, 1, 0x41, i+1), Device: fmt.Sprintf("bnxt_re%d", i+1),
						Netdev: fmt.Sprintf("enp65s0v%d", i)})
				}
			},
			Truth: Truth{Rails: []string{"bnxt_re0/1 enp65s0np0 compute 100 rx_bytes -"},
				LeftOut: []string{"bnxt_re1/1 virtual_function", "bnxt_re2/1 virtual_function"}}},

		{Name: "bnxt-probe-failed", Source: "linux drivers/infiniband/hw/bnxt_re/main.c (bnxt_re_probe)",
			About: "four Thor2, for one of which bnxt_re did not start: its interface works on",
			Build: func(t *Tree) {
				for i, device := range []string{"bnxt_re0", "bnxt_re1", "", "bnxt_re2"} {
					at := pciPath(0x10+i*16, 1, 0x11+i*16, 0)
					if device == "" {
						t.Netdev(t.Function(at, thor2().Function), "ens2np0", Netdev{})
						continue
					}
					t.Add(Adapter{Model: thor2(), At: at, Device: device, Netdev: fmt.Sprintf("ens%dnp0", i)})
				}
			},
			Truth: Truth{Rails: []string{"bnxt_re0/1 ens0np0 compute 400 rx_bytes -",
				"bnxt_re1/1 ens1np0 compute 400 rx_bytes -", "bnxt_re2/1 ens3np0 compute 400 rx_bytes -"},
				Findings: []string{"critical adapter_without_rdma adapter 0000:31:00.0"}}},
	}
}
