package machines

import (
	"fmt"
	"path"
	"slices"
)

// guests returns virtual machines and pods.
func guests() []Machine { return slices.Concat(azure(), otherGuests()) }

// hypervisor marks the machine as a guest.
func hypervisor(t *Tree, vendor, product string) {
	t.Files("class/dmi/id", "sys_vendor", vendor, "product_name", product)
	t.Proc("cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor")
}

// vmbus returns the path of a function that Hyper-V passes through: each has its own PCI domain and no bridge.
func vmbus(name string, domain, slot int) string {
	return fmt.Sprintf("LNXSYSTM:00/VMBUS:00/%s/pci%04x:00/%04[2]x:00:%02x.0", name, domain, slot)
}

// accelerated adds the fast path of the synthetic interface eth0: accelerated networking.
func accelerated(t *Tree, domain int, a Adapter) string {
	a.At, a.MTU = vmbus("an-0", domain, 2), 1500
	dir := t.Add(a)
	t.Netdev("devices/LNXSYSTM:00/VMBUS:00/nv", "eth0", Netdev{Speed: a.Speed, MTU: 1500})
	t.Link(path.Join(dir, "net", a.Netdev, "master"), "devices/LNXSYSTM:00/VMBUS:00/nv/net/eth0")
	t.Link(path.Join("devices/LNXSYSTM:00/VMBUS:00/nv/net/eth0", "lower_"+a.Netdev), path.Join(dir, "net", a.Netdev))
	return dir
}

// nd adds the rails and GPUs of an Azure ND machine.
func nd(t *Tree, n int, m Model, device, netdev string, gpu Function) {
	hypervisor(t, "Microsoft Corporation", "Virtual Machine")
	for i := range n {
		gpu.NUMA = i * 2 / n
		a := Adapter{Model: m.numa(gpu.NUMA), IB: true, MTU: 2044, Device: fmt.Sprintf(device, i),
			At: vmbus(fmt.Sprintf("ib-%d", i), 0x101+i, 0)}
		if netdev != "" {
			a.Netdev = fmt.Sprintf(netdev, i)
		}
		t.Add(a)
		t.GPU(vmbus(fmt.Sprintf("gpu-%d", i), 1+i, 0), gpu)
	}
}

// vf returns the model's virtual function, with another device ID.
func (m Model) vf(device, hca string) Model {
	m.Device, m.HCA, m.Firmware = device, hca, "20.36.1010"
	return m
}

// azure returns machines of Azure.
func azure() []Machine {
	return []Machine{
		{Name: "azure-nd-h100", Source: "Azure/azhpc-images topology/ndv5-topo.xml, azhpc-images#154",
			About: "Azure ND H100 v5: eight InfiniBand functions without visible switches, and accelerated " +
				"networking at 100",
			Build: func(t *Tree) {
				nd(t, 8, cxVF(Rate400, 400000), "mlx5_ib%d", "ib%d", Function{GT: "Unknown"})
				accelerated(t, 0x5b60, Adapter{Model: cxVF(Rate100, 100000).vf("0x101a", "MT4120"), Device: "mlx5_an0",
					Netdev: "enP23392s1"})
			},
			Truth: Truth{Rails: append([]string{"mlx5_an0/1 enP23392s1 other 100 port_rcv_data NODE"},
				each(8, "mlx5_ib%[1]d/1 ib%[1]d compute 400 port_rcv_data NODE")...)}},

		{Name: "azure-nd-a100", Source: "Azure/azurehpc nd96amsr_v4.conf, leptonai/gpud lspci.nn.a100",
			About: "Azure ND A100 v4: accelerated networking says 40 Gb/s, the driver's default; its interface is " +
				"one of 50",
			Build: func(t *Tree) {
				nd(t, 8, cxVF(Rate200, 200000).vf("0x101c", "MT4124"), "mlx5_ib%d", "ib%d", Function{GT: "Unknown"})
				accelerated(t, 0xc941, Adapter{Model: cxVF(Rate40, 50000).vf("0x1016", "MT4118"), Device: "mlx5_an0",
					Netdev: "enP51521s1"})
			},
			Truth: Truth{Rails: append([]string{"mlx5_an0/1 enP51521s1 other 50 port_rcv_data NODE"},
				each(8, "mlx5_ib%[1]d/1 ib%[1]d compute 200 port_rcv_data NODE")...)}},

		{Name: "azure-nd-mi300x", Source: "sgl-project/sglang#3622, kubernetes-sigs/dranet azure mi300x",
			About: "Azure ND MI300X v5: AMD GPUs, functions with a board of Microsoft, not renamed",
			Build: func(t *Tree) {
				nd(t, 8, cxVF(Rate400, 400000).board("MSF0000000047"), "mlx5_%d", "ib%d", Function{Vendor: "0x1002",
					Device: "0x74b5",
					Class:  "0x120000", Driver: "amdgpu", GT: "Unknown"})
			},
			Truth: Truth{Rails: each(8, "mlx5_%[1]d/1 ib%[1]d compute 400 port_rcv_data NODE")}},

		{Name: "azure-nd-gb300", Source: "kubernetes-sigs/dranet azure gb300",
			About: "Azure ND GB300 v6: four functions of 800 Gb/s without interfaces",
			Build: func(t *Tree) {
				nd(t, 4, cxVF(Rate800, 800000), "mlx5_%d", "", Function{Device: "0x31c2", GT: "Unknown"})
			},
			Truth: Truth{Rails: each(4, "mlx5_%d/1 - compute 800 port_rcv_data NODE")}},

		{Name: "azure-hb", Source: "Azure/azurehpc hb120rs_v3.conf, AccelNet_tuning",
			About: "Azure HB v3: no GPU, one InfiniBand function, and accelerated networking that says 40 Gb/s",
			Build: func(t *Tree) {
				hypervisor(t, "Microsoft Corporation", "Virtual Machine")
				t.Add(Adapter{Model: cxVF(Rate200, 200000).vf("0x101c", "MT4124"), IB: true, Device: "mlx5_ib0",
					Netdev: "ib0",
					MTU:    2044, At: vmbus("ib-0", 0x101, 0)})
				accelerated(t, 0xb170, Adapter{Model: cxVF(Rate40, 40000).vf("0x1016", "MT4118"), Device: "mlx5_an0",
					Netdev: "enP45424s1"})
			},
			Truth: Truth{Rails: []string{
				"mlx5_an0/1 enP45424s1 other 40 port_rcv_data -",
				"mlx5_ib0/1 ib0 compute 200 port_rcv_data -",
			}}},

		{Name: "azure-nc-a100", Source: "Azure/azhpc-images topology/ncv4-topo.xml",
			About: "Azure NC A100 v4: GPUs and no InfiniBand; accelerated networking is all there is",
			Build: func(t *Tree) {
				hypervisor(t, "Microsoft Corporation", "Virtual Machine")
				for i := range 4 {
					t.GPU(vmbus(fmt.Sprintf("gpu-%d", i), 1+i, 0), Function{GT: "Unknown"})
				}
				accelerated(t, 0x9a21, Adapter{Model: cxVF(Rate100, 100000).vf("0x101a", "MT4120"), Device: "mlx5_0",
					Netdev: "enP39457s1"})
			},
			Truth: Truth{Rails: []string{"mlx5_0/1 enP39457s1 other 100 port_rcv_data NODE"}}},

		{Name: "azure-d-cx3", Source: "prometheus/node_exporter#966, openlogic/AzureBuildCentOS#74",
			About: "general virtual machine: accelerated networking by ConnectX-3, whose counters say that there is " +
				"no PMA",
			Build: func(t *Tree) {
				hypervisor(t, "Microsoft Corporation", "Virtual Machine")
				m := cx3().vf("0x1004", "MT4100").link("Unknown", 8)
				m.Counters = NoCounters
				accelerated(t, 0xafb6, Adapter{Model: m, Device: "mlx4_0", Netdev: "enP44982s1"})
				for _, name := range []string{"port_rcv_data", "port_xmit_data", "port_rcv_errors", "link_downed",
					"VL15_dropped"} {
					t.File("class/infiniband/mlx4_0/ports/1/counters/"+name, "N/A (no PMA)")
				}
			},
			Truth: Truth{Rails: []string{"mlx4_0/1 enP44982s1 other 40 none -"}}},

		{Name: "azure-nc24rs-cx3", Source: "NVIDIA/nccl-tests#36",
			About: "four V100 and one FDR function of ConnectX-3",
			Build: func(t *Tree) {
				hypervisor(t, "Microsoft Corporation", "Virtual Machine")
				for i := range 4 {
					t.GPU(vmbus(fmt.Sprintf("gpu-%d", i), 1+i, 0), Function{GT: "Unknown"})
				}
				m := cx3().vf("0x1004", "MT4100").link("Unknown", 8).at(Rate56, 56000)
				t.Add(Adapter{Model: m, IB: true, Device: "mlx4_0", Netdev: "ib0", At: vmbus("ib-0", 0x101, 0)})
			},
			Truth: Truth{Rails: []string{"mlx4_0/1 ib0 compute 56 port_rcv_data NODE"}}},
	}
}

// flat returns the path of a function on a guest's root bus.
func flat(slot int) string { return fmt.Sprintf("pci0000:00/0000:00:%02x.0", slot) }

// otherGuests returns guests other than Azure's, and pods.
func otherGuests() []Machine {
	return []Machine{
		{Name: "kvm-four-vfs-of-two-ports", Source: "NVIDIA/nccl#1303, nccl-tests#256",
			About: "KVM guest: two functions of each port of one adapter, each at a root port of its own",
			Build: func(t *Tree) {
				hypervisor(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				for i := range 4 {
					root := fmt.Sprintf("pci0000:00/0000:00:02.%d", 4+i)
					t.Function(root, Function{Vendor: "0x1b36", Device: "0x000c", Class: "0x060400", Driver: "pcieport",
						GT:   "16.0",
						NUMA: -1})
					t.Add(Adapter{Model: cxVF(Rate200, 200000).numa(-1).card(i / 2), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("eth%d", i), At: fmt.Sprintf("%s/0000:%02x:00.0", root, 0x0d+i)})
				}
			},
			Truth: Truth{Rails: each(4, "mlx5_%[1]d/1 eth%[1]d compute 200 port_rcv_data -")}},

		{Name: "kvm-flat", Source: "NVIDIA/nccl#811",
			About: "KVM guest with an InfiniBand function and eight A100 at one flat bus",
			Build: func(t *Tree) {
				hypervisor(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				t.Add(Adapter{Model: cxVF(Rate200, 200000).vf("0x101c", "MT4124").numa(-1), IB: true, Device: "mlx5_0",
					Netdev: "ib0", At: flat(9)})
				for i := range 8 {
					t.GPU(flat(10+i), Function{GT: "Unknown", NUMA: -1})
				}
			},
			Truth: Truth{Rails: []string{"mlx5_0/1 ib0 compute 200 port_rcv_data PHB"}}},

		{Name: "cloud-hypervisor-rciep", Source: "Mellanox/nccl-rdma-sharp-plugins PR #145, cloud-hypervisor#8141",
			About: "H100 guest whose InfiniBand functions are root complex integrated endpoints: they have no link " +
				"at all",
			Build: func(t *Tree) {
				hypervisor(t, "Cloud Hypervisor", "cloud-hypervisor")
				for i := range 8 {
					dir := t.Add(Adapter{Model: cxVF(Rate400, 400000).numa(-1), IB: true,
						Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("ib%d", i), At: flat(8 + i)})
					for _, file := range []string{"current_link_speed", "current_link_width", "max_link_speed",
						"max_link_width"} {
						t.Remove(path.Join(dir, file))
					}
					t.GPU(flat(16+i), Function{GT: "Unknown", NUMA: -1})
				}
			},
			Truth: Truth{Rails: each(8, "mlx5_%[1]d/1 ib%[1]d compute 400 port_rcv_data PHB")}},

		{Name: "kvm-functions-of-one-slot",
			Source: "Mellanox/nccl-rdma-sharp-plugins PR #145 (bus and slot say nothing)",
			About:  "guest whose four rails are the functions of one virtual slot at a virtual bridge",
			Build: func(t *Tree) {
				hypervisor(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				for i := range 4 {
					t.Add(Adapter{Model: cxVF(Rate400, 400000).numa(-1).link("32.0", 16), IB: true,
						Device: fmt.Sprintf("mlx5_%d", i), Netdev: fmt.Sprintf("ib%d", i),
						At: fmt.Sprintf("pci0000:00/0000:00:02.0/0000:01:00.%d", i)})
				}
			},
			Truth: Truth{Rails: each(4, "mlx5_%[1]d/1 ib%[1]d compute 400 port_rcv_data -")}},

		{Name: "vm-h200-odd-upstream", Source: "NVIDIA/nccl-tests#256",
			About: "H200 guest: the virtual switches say 2.5 GT/s and one lane to the root, which is not true",
			Build: func(t *Tree) {
				hypervisor(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				for i := range 4 {
					bus := 0x18 + i*16
					t.Function(fmt.Sprintf("pci0000:%02x/0000:%02[1]x:01.0/0000:%02x:00.0", bus-3, bus-2), Function{
						Vendor: "0x104c", Device: "0x8232", Class: "0x060400", Driver: "pcieport", GT: "2.5", Width: 1})
					beside(t, bus, 0, 1, Adapter{Model: cxVF(Rate400, 400000).link("32.0", 16),
						Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("eth%d", i)})
				}
			},
			Truth: Truth{Rails: each(4, "mlx5_%[1]d/1 eth%[1]d compute 400 port_rcv_data PIX")}},

		{Name: "vm-nebius", Source: "nebius/ml-cookbook PR #43 (deepep/README.md)",
			About: "H200 guest with eight InfiniBand rails, and a RoCE function of the provider's virtual network",
			Build: func(t *Tree) {
				hypervisor(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				for i := range 8 {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cxVF(Rate400, 400000), IB: true,
						Device: fmt.Sprintf("mlx5_%d", i)})
				}
				t.Add(Adapter{Model: cxVF(Rate100, 100000), At: alone(0xa1, 0), Device: "mlx5_12", Netdev: "eth0"})
			},
			Truth: Truth{Rails: append(each(8, "mlx5_%d/1 - compute 400 port_rcv_data PIX"),
				"mlx5_12/1 eth0 other 100 port_rcv_data NODE")}},

		{Name: "vm-flat-link-layer-names", Source: "Linux a925b5e309c9 (mlx5 auxiliary devices); NVIDIA/nccl#811",
			About: "guest with three adapters at the root bus, named after their link layers",
			Build: func(t *Tree) {
				hypervisor(t, "QEMU", "Standard PC (i440FX + PIIX, 1996)")
				for i, m := range []Model{cx5(), cx6(), cx6dx()} {
					name := []string{"ibp0s9", "ibp0s10", "rdmap0s11"}[i]
					t.Add(Adapter{Model: m.numa(-1).link("Unknown", 16), IB: i < 2, Device: name, At: flat(9 + i),
						Netdev: fmt.Sprintf("net%d", i)})
				}
			},
			Truth: Truth{Rails: []string{
				"ibp0s9/1 net0 compute 100 port_rcv_data -",
				"ibp0s10/1 net1 compute 200 port_rcv_data -",
				"rdmap0s11/1 net2 compute 100 port_rcv_data -",
			}}},

		{Name: "gke-a3-ultra", Source: "kubernetes-sigs/dranet demo_gke_rdma",
			About: "GKE A3 Ultra: eight RoCE functions at an MTU of 8896, which is right there",
			Build: func(t *Tree) { a3Ultra(t, func(int) bool { return true }) },
			Truth: Truth{Rails: each(8, "mlx5_%[1]d/1 gpu%[1]drdma0 compute 400 port_rcv_data PIX")}},

		{Name: "gke-a3-ultra-pod", Source: "kubernetes-sigs/dranet demo_gke_rdma",
			About: "a pod there in shared mode: it sees all eight devices, and the interface of one",
			Build: func(t *Tree) { a3Ultra(t, func(i int) bool { return i == 3 }) },
			Truth: Truth{Rails: slices.Concat(each(3, "mlx5_%d/1 - compute 400 port_rcv_data PIX"),
				[]string{"mlx5_3/1 gpu3rdma0 compute 400 port_rcv_data PIX"},
				each(8, "mlx5_%d/1 - compute 400 port_rcv_data PIX")[4:])}},

		{Name: "pod-sriov", Source: "NVIDIA/nccl#1422, k8snetworkplumbingwg/sriov-network-operator",
			About: "a pod with two virtual functions; it sees the physical functions' PCI directories, but not their " +
				"devices",
			Build: func(t *Tree) {
				for i := range 2 {
					bus := 0x1a + i*16
					t.Function(alone(bus, 0), cx7().Function)
					t.Add(Adapter{Model: vf(fmt.Sprintf("0000:%02x:00.0", bus), Rate400, 400000), At: alone(bus, 3),
						Device: fmt.Sprintf("mlx5_%d", 7+i*8), Netdev: fmt.Sprintf("net%d", 1+i)})
				}
			},
			Truth: Truth{LeftOut: []string{"mlx5_7/1 virtual_function", "mlx5_15/1 virtual_function"}}},

		{Name: "pod-ib-one-of-four", Source: "Mellanox/k8s-rdma-shared-dev-plugin#93",
			About: "a pod that sees four InfiniBand cards of its host in sysfs, and the IPoIB interface of one",
			Build: func(t *Tree) {
				for i := range 4 {
					a := Adapter{Model: cx6(), At: alone(0x1a+i*16, 0), IB: true, Device: fmt.Sprintf("mlx5_%d", i)}
					if i == 1 {
						a.Netdev = "ibs1"
					}
					t.Add(a)
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 - compute 200 port_rcv_data -",
				"mlx5_1/1 ibs1 compute 200 port_rcv_data -",
				"mlx5_2/1 - compute 200 port_rcv_data -",
				"mlx5_3/1 - compute 200 port_rcv_data -",
			}}},
	}
}

// a3Ultra adds the rails of a GKE A3 Ultra; the interfaces of some are visible.
func a3Ultra(t *Tree, visible func(int) bool) {
	hypervisor(t, "Google", "Google Compute Engine")
	for i := range 8 {
		name := fmt.Sprintf("gpu%drdma0", i)
		a := Adapter{Model: cxVF(Rate400, 400000).numa(i / 4), Device: fmt.Sprintf("mlx5_%d", i), MTU: 8896,
			Edit: func(p *Port) { p.GIDNetdev = name }}
		if visible(i) {
			a.Netdev = name
		}
		beside(t, 0x18+i*16, 0, 1, a)
	}
}
