package machines

import "fmt"

// Matching pairs of port rate and interface speed.
func (m Model) as10() Model  { return m.at(Rate10, 10000) }
func (m Model) as50() Model  { return m.at(Rate50, 50000) }
func (m Model) as200() Model { return m.at(Rate200, 200000) }
func (m Model) as400() Model { return m.at(Rate400, 400000) }

// roceNodes returns nodes with RoCE.
func roceNodes() []Machine {
	return []Machine{
		{Name: "hgx-h100-roce", Source: "deepseek-ai/DeepEP#38",
			About: "HGX H100 with eight RoCE adapters on two NUMA nodes",
			Build: func(t *Tree) {
				for i := range 8 {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7().numa(i / 4), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("enp%ds0np0", 0x18+i*16)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 enp24s0np0 compute 400 port_rcv_data PIX",
				"mlx5_1/1 enp40s0np0 compute 400 port_rcv_data PIX",
				"mlx5_2/1 enp56s0np0 compute 400 port_rcv_data PIX",
				"mlx5_3/1 enp72s0np0 compute 400 port_rcv_data PIX",
				"mlx5_4/1 enp88s0np0 compute 400 port_rcv_data PIX",
				"mlx5_5/1 enp104s0np0 compute 400 port_rcv_data PIX",
				"mlx5_6/1 enp120s0np0 compute 400 port_rcv_data PIX",
				"mlx5_7/1 enp136s0np0 compute 400 port_rcv_data PIX",
			}}},

		{Name: "oci-a100-16-ports", Source: "oracle-quickstart/oci-hpc nccl-conf/templates/bm.gpu4.8",
			About: "OCI BM.GPU4.8: sixteen ports of dual-port ConnectX-5 Ex, each card beside a GPU; the front end " +
				"in the middle",
			Build: func(t *Tree) {
				ex := cx5().link("16.0", 16)
				ex.Device, ex.HCA = "0x1019", "MT4121"
				for i := range 16 {
					n := i
					if i >= 4 {
						n += 2
					}
					beside(t, 0x18+i/2*16, i%2, 1, Adapter{Model: ex.numa(i / 8).card(i / 2),
						Device: fmt.Sprintf("mlx5_%d", n),
						Netdev: fmt.Sprintf("rdma%d", i)})
				}
				for i := range 2 {
					t.Add(Adapter{Model: cx5().as50().board("MT_0000000012").card(20), At: alone(0xa5, i),
						Device: fmt.Sprintf("mlx5_%d", 4+i), Netdev: fmt.Sprintf("enp165s0f%d", i), NeverUp: i == 1})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 rdma0 compute 100 port_rcv_data PIX",
				"mlx5_1/1 rdma1 compute 100 port_rcv_data PIX",
				"mlx5_2/1 rdma2 compute 100 port_rcv_data PIX",
				"mlx5_3/1 rdma3 compute 100 port_rcv_data PIX",
				"mlx5_4/1 enp165s0f0 other 50 port_rcv_data NODE",
				"mlx5_5/1 enp165s0f1 other unused port_rcv_data NODE",
				"mlx5_6/1 rdma4 compute 100 port_rcv_data PIX",
				"mlx5_7/1 rdma5 compute 100 port_rcv_data PIX",
				"mlx5_8/1 rdma6 compute 100 port_rcv_data PIX",
				"mlx5_9/1 rdma7 compute 100 port_rcv_data PIX",
				"mlx5_10/1 rdma8 compute 100 port_rcv_data PIX",
				"mlx5_11/1 rdma9 compute 100 port_rcv_data PIX",
				"mlx5_12/1 rdma10 compute 100 port_rcv_data PIX",
				"mlx5_13/1 rdma11 compute 100 port_rcv_data PIX",
				"mlx5_14/1 rdma12 compute 100 port_rcv_data PIX",
				"mlx5_15/1 rdma13 compute 100 port_rcv_data PIX",
				"mlx5_16/1 rdma14 compute 100 port_rcv_data PIX",
				"mlx5_17/1 rdma15 compute 100 port_rcv_data PIX",
			}}},

		{Name: "oci-h100-slow-upstream",
			Source: "oracle-quickstart/oci-hpc templates/h100, samples/gpu/H100-topology.xml",
			About: "OCI BM.GPU.H100.8: sixteen ports of 200 Gb/s; the switches' upstream ports say 5 GT/s, and all " +
				"is well",
			Build: func(t *Tree) {
				for i, n := range []int{0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17} {
					bus := 0x18 + i/2*16
					if i%2 == 0 {
						t.Function(fmt.Sprintf("pci0000:%02x/0000:%02[1]x:01.0/0000:%02x:00.0", bus-3, bus-2), Function{
							Vendor: "0x1000", Device: "0xc030", Class: "0x060400", Driver: "pcieport", GT: "5.0",
							MaxGT: "32.0"})
					}
					beside(t, bus, i%2, 1, Adapter{Model: cx7().as200().card(i / 2), Device: fmt.Sprintf("mlx5_%d", n),
						Netdev: fmt.Sprintf("rdma%d", i)})
				}
				for i := range 2 {
					t.Add(Adapter{Model: cx6dx(), At: alone(0xa1+i*16, 0), Device: fmt.Sprintf("mlx5_%d", 2+i*9),
						Netdev: fmt.Sprintf("eth%d", i)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 rdma0 compute 200 port_rcv_data PIX",
				"mlx5_1/1 rdma1 compute 200 port_rcv_data PIX",
				"mlx5_2/1 eth0 other 100 port_rcv_data NODE",
				"mlx5_3/1 rdma2 compute 200 port_rcv_data PIX",
				"mlx5_4/1 rdma3 compute 200 port_rcv_data PIX",
				"mlx5_5/1 rdma4 compute 200 port_rcv_data PIX",
				"mlx5_6/1 rdma5 compute 200 port_rcv_data PIX",
				"mlx5_7/1 rdma6 compute 200 port_rcv_data PIX",
				"mlx5_8/1 rdma7 compute 200 port_rcv_data PIX",
				"mlx5_9/1 rdma8 compute 200 port_rcv_data PIX",
				"mlx5_10/1 rdma9 compute 200 port_rcv_data PIX",
				"mlx5_11/1 eth1 other 100 port_rcv_data NODE",
				"mlx5_12/1 rdma10 compute 200 port_rcv_data PIX",
				"mlx5_13/1 rdma11 compute 200 port_rcv_data PIX",
				"mlx5_14/1 rdma12 compute 200 port_rcv_data PIX",
				"mlx5_15/1 rdma13 compute 200 port_rcv_data PIX",
				"mlx5_16/1 rdma14 compute 200 port_rcv_data PIX",
				"mlx5_17/1 rdma15 compute 200 port_rcv_data PIX",
			}}},

		{Name: "oci-mi300x", Source: "oracle-quickstart/oci-hpc check_gpu_setup.py (BM.GPU.MI300X.8)",
			About: "MI300X: AMD's GPUs with adapters of NVIDIA; a front-end port on each socket",
			Build: func(t *Tree) {
				for i, n := range []int{0, 2, 3, 4, 5, 7, 8, 9} {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7().numa(i / 4), AMD: mi300x,
						Device: fmt.Sprintf("mlx5_%d", n),
						Netdev: fmt.Sprintf("rdma%d", i)})
				}
				for i := range 2 {
					t.Add(Adapter{Model: cx6dx().numa(i), At: alone(0xa1+i*16, 0),
						Device: fmt.Sprintf("mlx5_%d", 1+i*5),
						Netdev: fmt.Sprintf("eth%d", i)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 rdma0 compute 400 port_rcv_data PIX",
				"mlx5_1/1 eth0 other 100 port_rcv_data NODE",
				"mlx5_2/1 rdma1 compute 400 port_rcv_data PIX",
				"mlx5_3/1 rdma2 compute 400 port_rcv_data PIX",
				"mlx5_4/1 rdma3 compute 400 port_rcv_data PIX",
				"mlx5_5/1 rdma4 compute 400 port_rcv_data PIX",
				"mlx5_6/1 eth1 other 100 port_rcv_data NODE",
				"mlx5_7/1 rdma5 compute 400 port_rcv_data PIX",
				"mlx5_8/1 rdma6 compute 400 port_rcv_data PIX",
				"mlx5_9/1 rdma7 compute 400 port_rcv_data PIX",
			}}},

		{Name: "bluefield3-nic-mode", Source: "deepseek-ai/DeepEP#17, fastfetch-cli/fastfetch#1658",
			About: "H20: four BlueField-3 in NIC mode, one for two GPUs, each with a management function that is no " +
				"network function; a front-end port",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: cx6().as200(), At: alone(0x0a, 0), Device: "mlx5_0", Netdev: "eth0"})
				for i := range 4 {
					dir := beside(t, 0x1a+i*32, 0, 2, Adapter{Model: bf3().board("MT_0000000884").numa(i / 2),
						Device: fmt.Sprintf("mlx5_%d", 1+i), Netdev: fmt.Sprintf("eth%d", 1+i)})
					t.Function(dir[len("devices/"):len(dir)-1]+"1", Function{Device: "0xc2d5", Class: "0x080100",
						NUMA: i / 2})
				}
			},
			Truth: Truth{Rails: append([]string{"mlx5_0/1 eth0 other 200 port_rcv_data NODE"},
				"mlx5_1/1 eth1 compute 400 port_rcv_data PIX",
				"mlx5_2/1 eth2 compute 400 port_rcv_data PIX",
				"mlx5_3/1 eth3 compute 400 port_rcv_data PIX",
				"mlx5_4/1 eth4 compute 400 port_rcv_data PIX")}},

		{Name: "h20-no-cables-but-one", Source: "sgl-project/sglang#6823",
			About: "H20: a dual-port ConnectX-6 Dx without any cable, whose ports say 40 Gb/s, beside the rails",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: cx6dx().card(1), At: alone(0x0a, i), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("enp10s0f%dnp%[1]d", i), NeverUp: true})
				}
				for i := range 4 {
					beside(t, 0x1a+i*32, 0, 2, Adapter{Model: cx7(), Device: fmt.Sprintf("mlx5_%d", 2+i),
						Netdev: fmt.Sprintf("rdma%d", i)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 enp10s0f0np0 other unused port_rcv_data NODE",
				"mlx5_1/1 enp10s0f1np1 other unused port_rcv_data NODE",
				"mlx5_2/1 rdma0 compute 400 port_rcv_data PIX",
				"mlx5_3/1 rdma1 compute 400 port_rcv_data PIX",
				"mlx5_4/1 rdma2 compute 400 port_rcv_data PIX",
				"mlx5_5/1 rdma3 compute 400 port_rcv_data PIX",
			}}},

		{Name: "no-cables-at-all", Source: "deepseek-ai/DeepEP#60",
			About: "GPU server before its cabling: no port was ever up",
			Build: func(t *Tree) {
				for i := range 4 {
					beside(t, 0x1a+i*32, 0, 2, Adapter{Model: cx7(), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("rdma%d", i), NeverUp: true})
				}
			},
			Truth: Truth{Rails: each(4, "mlx5_%[1]d/1 rdma%[1]d compute unused port_rcv_data PIX")}},

		{Name: "dual-port-one-cable", Source: "CloudLab tutorial on RoCE nodes",
			About: "two dual-port cards with one cable each",
			Build: func(t *Tree) {
				for i := range 4 {
					t.Add(Adapter{Model: cx4lx().card(i / 2), At: alone(0x1a+i/2*32, i%2),
						Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("enp%ds0f%d", 0x1a+i/2*32, i%2), NeverUp: i%2 == 1})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 enp26s0f0 compute 25 port_rcv_data -",
				"mlx5_1/1 enp26s0f1 compute unused port_rcv_data -",
				"mlx5_2/1 enp58s0f0 compute 25 port_rcv_data -",
				"mlx5_3/1 enp58s0f1 compute unused port_rcv_data -",
			}}},

		{Name: "second-ports-without-rdma",
			Source: "NVIDIA/gpu-operator#2511, devlink enable_rdma (kernel documentation)",
			About:  "first ports in InfiniBand; the second ports are Ethernet interfaces without an RDMA device",
			Build: func(t *Tree) {
				for i := range 4 {
					bus := 0x1a + i*32
					t.Add(Adapter{Model: cx6().card(i), At: alone(bus, 0), IB: true, Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("ib%d", i)})
					dir := t.Function(alone(bus, 1), cx6().Function)
					t.Netdev(dir, fmt.Sprintf("eth%d", i), Netdev{Speed: 200000, MTU: 1500, DevPort: 1})
				}
			},
			Truth: Truth{Rails: each(4, "mlx5_%[1]d/1 ib%[1]d compute 200 port_rcv_data -")}},

		{Name: "socket-direct-cx6", Source: "community.mellanox.com DOC-3076 (Socket Direct)",
			About: "Socket Direct: one port of 200 Gb/s behind two slots, one at each socket",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: cx6().link("8.0", 16).card(1).numa(i), At: alone(0x18+i*0x97, 0),
						Device: fmt.Sprintf("mlx5_%d", i), Netdev: fmt.Sprintf("enp%ds0np0", 0x18+i*0x97)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 enp24s0np0 compute 100 port_rcv_data -",
				"mlx5_1/1 enp175s0np0 compute 100 port_rcv_data -",
			}}},

		{Name: "multi-host-x4", Source: "docs.nvidia.com ConnectX-5 Multi-Host, introduction",
			About: "one adapter for four hosts: four lanes for this one, by design",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: cx5().as50().link("8.0", 4), At: alone(0x18, 0), Device: "mlx5_0", Netdev: "eth0"})
			},
			Truth: Truth{Rails: []string{"mlx5_0/1 eth0 compute 31.51 port_rcv_data -"}}},

		{Name: "rate-is-driver-default", Source: "mlx5_ib translate_eth_ext_proto_oper; MrBr-github/lshca#79",
			About: "ACTIVE RoCE ports whose rate is the driver's default, as it does not know the link mode",
			Build: func(t *Tree) {
				for i, m := range []Model{cx7().at(Rate40, 400000), cx7().at("2.5 Gb/sec (1X SDR)", 100000),
					cx7().at("10 Gb/sec (4X SDR)", 400000), cx7()} {
					t.Add(Adapter{Model: m, At: alone(0x1a+i*16, 0), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("eth%d", i)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 eth0 compute 400 port_rcv_data -",
				"mlx5_1/1 eth1 compute 100 port_rcv_data -",
				"mlx5_2/1 eth2 compute 400 port_rcv_data -",
				"mlx5_3/1 eth3 compute 400 port_rcv_data -",
			}}},

		{Name: "vlan-over-roce", Source: "tensorflow/tensorflow#22077",
			About: "jobs use an address of a VLAN; the port and its interface are the same",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: cx6dx(), At: alone(0x1a, 0), Device: "mlx5_0", Netdev: "eth4"})
				vlan(t, "eth4", 100)
				at := "class/infiniband/mlx5_0/ports/1"
				t.Files(at, "gids/4", "0000:0000:0000:0000:0000:ffff:c633:6401", "gid_attrs/types/4", "RoCE v2",
					"gid_attrs/ndevs/4", "eth4.100")
			},
			Truth: Truth{Rails: []string{"mlx5_0/1 eth4 compute 100 port_rcv_data -"}}},

		{Name: "rxe-beside-mlx5", Source: "SoftRoCE/rxe-dev#52; drivers/infiniband/sw/rxe",
			About: "software devices on the interface of a hardware rail, and on a VLAN of it",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: cx6dx(), At: alone(0x1a, 0), Device: "mlx5_0", Netdev: "eth4"})
				vlan(t, "eth4", 100)
				for i, netdev := range []string{"eth4", "eth4.100"} {
					name := fmt.Sprintf("rxe%d", i)
					t.RDMA("", name, RDMA{Ports: []Port{{Netdev: netdev, Rate: Rate100, Counters: RXECounters}}})
					t.File("class/infiniband/"+name+"/parent", netdev)
				}
			},
			Truth: Truth{
				Rails:   []string{"mlx5_0/1 eth4 compute 100 port_rcv_data -"},
				LeftOut: each(2, "rxe%d/1 software_of"),
			}},
	}
}

// vlan makes a VLAN on an interface.
func vlan(t *Tree, netdev string, id int) {
	name := fmt.Sprintf("%s.%d", netdev, id)
	t.Netdev("", name, Netdev{Speed: 100000, Lower: []string{netdev}})
	t.Proc("net/vlan/config", fmt.Sprintf("VLAN Dev name    | VLAN ID\n"+
		"Name-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n%s       | %d  | %s", name, id, netdev))
}
