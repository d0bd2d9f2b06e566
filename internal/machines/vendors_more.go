package machines

import (
	"fmt"
	"path"
)

// alibaba adds an eRDMA function, whose interface is a virtio function that only the GID names.
func alibaba(t *Tree, m Model, at, virtio, device, netdev string) {
	t.Add(Adapter{Model: m, At: at, Device: device, Edit: withoutGIDs})
	macGID(t, device, 1, netdev)
	dir := t.Function(virtio, Function{Vendor: "0x1af4", Device: "0x1041", Driver: "virtio-pci", GT: "Unknown",
		NUMA: m.NUMA})
	t.Netdev(dir+"/virtio1", netdev, Netdev{Speed: -1})
}

func otherVendors() []Machine {
	return []Machine{
		{Name: "erdma-h20", Source: "deepseek-ai/DeepEP#759, stepfun-ai/StepMesh#32",
			About: "guest with eight H20 and two eRDMA functions, one for each socket, of PCI class 0x00ff00",
			Build: func(t *Tree) {
				hypervised(t, "Alibaba Cloud", "Alibaba Cloud ECS")
				for i := range 2 {
					m, bridge := erdma(), i*0x80
					m.Class, m.NUMA = "0x00ff00", i
					alibaba(t, m, fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:07.0", bridge),
						fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:06.0", bridge), fmt.Sprintf("erdma_%d", i),
						fmt.Sprintf("eth%d", i+1))
					for slot := 0x10; slot < 0x14; slot++ {
						t.GPU(fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:%02[2]x.0", bridge, slot),
							Function{Vendor: "0x10de",
								Device: "0x2329", Class: "0x030200", Driver: "nvidia", GT: "Unknown", NUMA: i})
					}
				}
			},
			Truth: Truth{Rails: []string{"erdma_0/1 eth1 compute 100 rx_bytes_cnt PHB",
				"erdma_1/1 eth2 compute 100 rx_bytes_cnt PHB"}}},

		{Name: "erdma-bare-metal", Source: "NVIDIA/nccl#2113",
			About: "host whose eRDMA function is an adapter's, below its own bridge; GPUs elsewhere",
			Build: func(t *Tree) {
				m := erdma()
				m.Class, m.GT, m.Width = "0x00ff00", "32.0", 8
				alibaba(t, m, "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:1a:00.0",
					pciPath(0x30, 1, 0x31, 0), "erdma_0", "eth0")
				for i := range 4 {
					t.GPU(switchPath(0x80, i), Function{Vendor: "0x10de", Device: "0x2bb3", Class: "0x030200",
						Driver: "nvidia"})
				}
			},
			Truth: Truth{Rails: []string{"erdma_0/1 eth0 compute 100 rx_bytes_cnt NODE"}}},

		{Name: "azure-mana", Source: "microsoft/azurelinux#17960, linux drivers/infiniband/hw/mana",
			About: "Azure guest: MANA's interface is the fast path of the synthetic one",
			Build: func(t *Tree) {
				hypervised(t, "Microsoft Corporation", "Virtual Machine")
				bus := "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/"
				t.Netdev("devices/"+bus+"02005e00-0001-1000-2000-000000000001", "eth0", Netdev{Speed: 200000})
				dir := t.Add(Adapter{Model: mana(),
					At:     bus + "02005e00-0002-1000-2000-000000000002/pci7870:00/7870:00:00.0",
					Device: "mana_0", Netdev: "enP30832s1"})
				t.Link(path.Join(dir, "net/enP30832s1/master"), "class/net/eth0")
			},
			Truth: Truth{Rails: []string{"mana_0/1 enP30832s1 other 200 rx_bytes -"}}},

		{Name: "kunpeng-hns", Source: "linux drivers/infiniband/hw/hns/hns_roce_main.c",
			About: "Kunpeng with the four 25GbE functions of its chip: no counters/, hw_counters of packets alone",
			Build: func(t *Tree) {
				m := hns()
				m.Rate, m.Speed = Rate25, 25000
				for i := range 4 {
					t.Add(Adapter{Model: m, At: pciPath(0x7c, 0, 0x7d, i), Device: fmt.Sprintf("hns_%d", i),
						Netdev: fmt.Sprintf("enp125s0f%d", i)})
				}
			},
			Truth: Truth{Rails: each(4, "hns_%[1]d/1 enp125s0f%[1]d compute 25 none -")}},

		{Name: "huawei-hrn", Source: "openucx/ucx#6806",
			About: "server with six ports of Huawei's 1822 and its own driver: no counters at all",
			Build: func(t *Tree) {
				m := Model{Function: Function{Vendor: "0x19e5", Device: "0x1822", Driver: "hinic", GT: "8.0"},
					RDMA: RDMA{Firmware: "3.5.0.1"}, Counters: NoCounters, Rate: Rate25, Speed: 25000}
				for i := 1; i <= 6; i++ {
					t.Add(Adapter{Model: m, At: pciPath(0x80+i*8, 0, 0x81+i*8, 0), Device: fmt.Sprintf("hrn0_%d", i),
						Netdev: fmt.Sprintf("ens%d", i)})
				}
			},
			Truth: Truth{Rails: []string{"hrn0_1/1 ens1 compute 25 none -", "hrn0_2/1 ens2 compute 25 none -",
				"hrn0_3/1 ens3 compute 25 none -", "hrn0_4/1 ens4 compute 25 none -", "hrn0_5/1 ens5 compute 25 none -",
				"hrn0_6/1 ens6 compute 25 none -"}}},

		{Name: "qedr", Source: "linux drivers/infiniband/hw/qedr/verbs.c",
			About: "FastLinQ with two ports: counters/ refuses, and there is no hw_counters/",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: qedr(), At: pciPath(0x40, 1, 0x41, i), Device: fmt.Sprintf("qedr%d", i),
						Netdev: fmt.Sprintf("enp65s0f%d", i)})
				}
			},
			Truth: Truth{Rails: each(2, "qedr%[1]d/1 enp65s0f%[1]d compute 25 none -")}},

		{Name: "cxgb4-two-ports", Source: "linux drivers/infiniband/hw/cxgb4/provider.c",
			About: "T6, one RDMA device for both ports: their interfaces differ in dev_port, and no GID names them",
			Build: func(t *Tree) {
				m := t6()
				m.Device, m.Board, m.Width = "0x6401", "1425.6401", 8
				dir := t.Function(pciPath(0x02, 2, 0x03, 4), m.Function)
				t.Netdev(dir, "enp3s0f4", Netdev{Speed: 25000})
				t.Netdev(dir, "enp3s0f4d1", Netdev{Speed: 25000, DevPort: 1})
				port := Port{Rate: Rate25, Counters: NoCounters, NoGIDs: true}
				m.Ports = []Port{port, port}
				t.RDMA(dir, "cxgb4_0", m.RDMA)
				for i := range 2 {
					macGID(t, "cxgb4_0", i+1, "")
				}
				t.Files("class/infiniband/cxgb4_0/hw_counters", "ip4InSegs", 1000, "ip4OutSegs", 1000,
					"ip4RetransSegs", 0,
					"ip4OutRsts", 0, "ip6InSegs", 0, "ip6OutSegs", 0, "ip6RetransSegs", 0, "ip6OutRsts", 0, "lifespan",
					10)
			},
			Truth: Truth{Rails: []string{"cxgb4_0/1 enp3s0f4 compute 25 none -",
				"cxgb4_0/2 enp3s0f4d1 compute 25 none -"}}},

		{Name: "vmware-pvrdma", Source: "vmware/ansible-vsphere-gos-validation#115",
			About: "ESXi guest: the RDMA function is the vmxnet3 interface's neighbour",
			Build: func(t *Tree) {
				hypervised(t, "VMware, Inc.", "VMware Virtual Platform")
				dir := t.Function(pciPath(0x00, 0x15, 0x03, 0), Function{Vendor: "0x15ad", Device: "0x07b0",
					Driver: "vmxnet3",
					GT:     "Unknown"})
				t.Netdev(dir, "ens160", Netdev{Speed: 10000})
				t.Add(Adapter{At: pciPath(0x00, 0x15, 0x03, 1), Device: "vmw_pvrdma0", Model: Model{
					Function: Function{Vendor: "0x15ad", Device: "0x0820", Class: "0x028000", Driver: "vmw_pvrdma",
						GT: "Unknown"},
					RDMA: RDMA{HCA: "VMW_PVRDMA-1.0.1.0-k", Board: "1", Firmware: "1.0.0"}, Counters: NoCounters,
					Rate: Rate10},
					Edit: func(p *Port) { p.GIDNetdev = "ens160" }})
			},
			Truth: Truth{Rails: []string{"vmw_pvrdma0/1 ens160 compute 10 none -"}}},

		{Name: "usnic-vic", Source: "open-mpi/ompi#7567, linux drivers/infiniband/hw/usnic/usnic_ib_verbs.c",
			About: "Cisco VIC with usNIC: its one GID has the prefix fe80 and the IPv4 address in it, as it must",
			Build: func(t *Tree) {
				m := Model{Function: Function{Vendor: "0x1137", Device: "0x0043", Driver: "enic", GT: "5.0"},
					RDMA: RDMA{Firmware: "4.1(3a)", NodeType: "6: usNIC UDP"}, Counters: NoCounters,
					Rate:  "10 Gb/sec (1X FDR10)",
					Speed: 10000}
				for i := range 2 {
					device := fmt.Sprintf("usnic_%d", i)
					t.Add(Adapter{Model: m, At: pciPath(0x08+i*16, 1, 0x0a+i*16, 0), Device: device,
						Netdev: fmt.Sprintf("enp%ds0", 10+i*16), Edit: withoutGIDs})
					dir := path.Join("class/infiniband", device, "ports/1")
					t.File(path.Join(dir, "gids/0"), fmt.Sprintf("fe80:0000:c612:%02x01:0200:5eff:fe00:%04x", i+64,
						i+1))
					t.File(path.Join(dir, "gid_attrs/types/0"), "IB/RoCE v1")
				}
			},
			Truth: Truth{Rails: []string{"usnic_0/1 enp10s0 compute 10 none -",
				"usnic_1/1 enp26s0 compute 10 none -"}}},

		{Name: "ocrdma", Source: "jgunthorpe/python-rdma#14, linux drivers/infiniband/hw/ocrdma",
			About: "Emulex OneConnect with two 10GbE ports, whose driver counts in counters/ alone",
			Build: func(t *Tree) {
				m := Model{Function: Function{Vendor: "0x10df", Device: "0x0720", Driver: "be2net", GT: "8.0",
					Width: 8},
					RDMA: RDMA{HCA: "OCe14102-N", Firmware: "11.2.1153.23"}, Counters: PMACounters, Rate: Rate10,
					Speed: 10000}
				for i := range 2 {
					t.Add(Adapter{Model: m, At: pciPath(0x00, 3, 0x04, i), Device: fmt.Sprintf("ocrdma%d", i),
						Netdev: fmt.Sprintf("enp4s0f%d", i)})
				}
			},
			Truth: Truth{Rails: each(2, "ocrdma%[1]d/1 enp4s0f%[1]d compute 10 port_rcv_data -")}},
	}
}
