package machines

import (
	"fmt"
	"path"
	"slices"
)

// mellanox returns hosts with adapters of Mellanox and NVIDIA.
func mellanox() []Machine {
	return slices.Concat(infiniBandNodes(), planesAndTrays(), roceNodes(), smallMellanox(), bonds(),
		virtualized(), mellanoxFaults())
}

// alone returns the path of a function in a slot below a separate host bridge.
func alone(bus, function int) string {
	return fmt.Sprintf("pci0000:%02x/0000:%02[1]x:01.0/0000:%02x:00.%d", bus-1, bus, function)
}

// beside adds a function and GPUs behind one PCIe switch; the GPUs have the buses after the function's. Their host
// bridge has no other devices; its bus and those of the switch are the three before.
func beside(t *Tree, bus, function, gpus int, a Adapter) string {
	up := fmt.Sprintf("pci0000:%02x/0000:%02[1]x:01.0/0000:%02x:00.0", bus-3, bus-2)
	gpu := Function{NUMA: a.NUMA}
	if a.AMD != "" {
		gpu = instinct(a.AMD)
		gpu.NUMA = a.NUMA
	}
	for i := range gpus {
		t.GPU(fmt.Sprintf("%s/0000:%02x:%02x.0/0000:%02x:00.0", up, bus-1, i+1, bus+1+i), gpu)
	}
	a.At = fmt.Sprintf("%s/0000:%02x:00.0/0000:%02x:00.%d", up, bus-1, bus, function)
	return t.Add(a)
}

// The following methods return the model with other properties.
func (m Model) numa(node int) Model     { m.NUMA = node; return m }
func (m Model) board(name string) Model { m.Board = name; return m }
func (m Model) at(rate string, speed int) Model {
	m.Rate, m.Speed = rate, speed
	return m
}

// card returns the model as part of adapter number: all functions of an adapter have one system image GUID.
func (m Model) card(number int) Model {
	m.SystemGUID = fmt.Sprintf("0200:5e00:00ca:%04x", number)
	return m
}

// link returns the model with another PCIe link, which is also its maximum.
func (m Model) link(gt string, width int) Model {
	m.GT, m.Width = gt, width
	return m
}

// lines formats a line for each number.
func lines(format string, numbers ...int) (list []string) {
	for _, n := range numbers {
		list = append(list, fmt.Sprintf(format, n))
	}
	return list
}

// infiniBandNodes returns nodes with InfiniBand.
func infiniBandNodes() []Machine {
	return []Machine{
		{Name: "dgx-h100-ib", Source: "NVIDIA DGX H100 User Guide, table 6; NVIDIA/nccl#1303",
			About: "DGX H100: eight NDR adapters, each beside a GPU, and two storage cards of which the first port " +
				"has a cable",
			Build: func(t *Tree) {
				devices, buses := []int{0, 3, 4, 5, 6, 9, 10, 11}, []int{0x18, 0x40, 0x4f, 0x5e, 0x9a, 0xc0, 0xce, 0xdc}
				for i, n := range devices {
					beside(t, buses[i], 0, 1, Adapter{Model: cx7().numa(i / 4), IB: true,
						Device: fmt.Sprintf("mlx5_%d", n),
						Netdev: fmt.Sprintf("ibp%ds0", buses[i])})
				}
				for i := range 4 {
					bus := 0x29 + i/2*0x81
					t.Add(Adapter{Model: cx7().at(Rate200, 200000).board("MT_0000000437").numa(i / 2).card(i / 2),
						At: alone(bus, i%2), Device: fmt.Sprintf("mlx5_%d", 1+i%2+i/2*6),
						Netdev: fmt.Sprintf("enp%ds0f%dnp%[2]d", bus, i%2), NeverUp: i%2 == 1})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 ibp24s0 compute 400 port_rcv_data PIX",
				"mlx5_1/1 enp41s0f0np0 other 200 port_rcv_data NODE",
				"mlx5_2/1 enp41s0f1np1 other unused port_rcv_data NODE",
				"mlx5_3/1 ibp64s0 compute 400 port_rcv_data PIX",
				"mlx5_4/1 ibp79s0 compute 400 port_rcv_data PIX",
				"mlx5_5/1 ibp94s0 compute 400 port_rcv_data PIX",
				"mlx5_6/1 ibp154s0 compute 400 port_rcv_data PIX",
				"mlx5_7/1 enp170s0f0np0 other 200 port_rcv_data NODE",
				"mlx5_8/1 enp170s0f1np1 other unused port_rcv_data NODE",
				"mlx5_9/1 ibp192s0 compute 400 port_rcv_data PIX",
				"mlx5_10/1 ibp206s0 compute 400 port_rcv_data PIX",
				"mlx5_11/1 ibp220s0 compute 400 port_rcv_data PIX",
			}}},

		{Name: "dgx-a100", Source: "NVIDIA/nccl#1505, rapidsai/ucx-py#749",
			About: "DGX A100: two GPUs and two HDR adapters below one switch (PXB), two storage cards far from every " +
				"GPU",
			Build: func(t *Tree) {
				compute := []int{0, 1, 2, 3, 6, 7, 8, 9}
				for i, numa := range []int{3, 1, 7, 5} {
					bus := 0x20 * (i + 1)
					up := fmt.Sprintf("pci0000:%02x/0000:%02[1]x:01.0/0000:%02x:00.0", bus, bus+1)
					for k := range 2 {
						t.GPU(fmt.Sprintf("%s/0000:%02x:%02x.0/0000:%02x:00.0", up, bus+2, k+1, bus+3+k), Function{
							GT: "16.0", NUMA: numa})
						n := compute[2*i+k]
						t.Add(Adapter{Model: cx6().numa(numa), IB: true, Device: fmt.Sprintf("mlx5_%d", n),
							At: fmt.Sprintf("%s/0000:%02x:00.0/0000:%02x:00.0/0000:%02x:%02x.0/0000:%02x:00.0", up,
								bus+2, bus+8,
								bus+9, k, bus+10+k), Netdev: fmt.Sprintf("ibp%ds0", bus+10+k)})
					}
				}
				for i := range 4 {
					t.Add(Adapter{Model: cx6().board("MT_0000000224").numa(4 + i/2*2).card(i / 2), IB: true,
						NeverUp: i%2 == 1,
						At:      alone(0xb1+i/2*0x20, i%2), Device: fmt.Sprintf("mlx5_%d", 4+i%2+i/2*6),
						Netdev: fmt.Sprintf("ibp%ds0f%d", 0xb1+i/2*0x20, i%2)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 ibp42s0 compute 200 port_rcv_data PXB",
				"mlx5_1/1 ibp43s0 compute 200 port_rcv_data PXB",
				"mlx5_2/1 ibp74s0 compute 200 port_rcv_data PXB",
				"mlx5_3/1 ibp75s0 compute 200 port_rcv_data PXB",
				"mlx5_4/1 ibp177s0f0 other 200 port_rcv_data SYS",
				"mlx5_5/1 ibp177s0f1 other unused port_rcv_data SYS",
				"mlx5_6/1 ibp106s0 compute 200 port_rcv_data PXB",
				"mlx5_7/1 ibp107s0 compute 200 port_rcv_data PXB",
				"mlx5_8/1 ibp138s0 compute 200 port_rcv_data PXB",
				"mlx5_9/1 ibp139s0 compute 200 port_rcv_data PXB",
				"mlx5_10/1 ibp209s0f0 other 200 port_rcv_data SYS",
				"mlx5_11/1 ibp209s0f1 other unused port_rcv_data SYS",
			}}},

		{Name: "dgx-b200", Source: "prometheus/node_exporter#3434, siderolabs/extensions#893, DGX B200 User Guide",
			About: "DGX B200: eight adapters, four functions that manage the NVSwitches (two refuse their counters), " +
				"and BlueField-3 cards with one InfiniBand and one Ethernet port",
			Build: func(t *Tree) {
				for i := range 8 {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7().numa(i / 4), IB: true,
						Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("ibp%ds0", 0x18+i*16)})
				}
				switches(t, 0x05, 8, 0)
				for i := range 4 {
					a := Adapter{Model: bf3().board("MT_0000000884").numa(i / 2).card(i / 2), IB: i%2 == 0,
						At: alone(0xa1+i/2*16, i%2), Device: fmt.Sprintf("mlx5_%d", 12+i),
						Netdev: fmt.Sprintf("bf%d", i)}
					a.Model = a.at(Rate200, 200000)
					t.Add(a)
				}
			},
			Truth: Truth{
				Rails: []string{
					"mlx5_0/1 ibp24s0 compute 400 port_rcv_data PIX",
					"mlx5_1/1 ibp40s0 compute 400 port_rcv_data PIX",
					"mlx5_2/1 ibp56s0 compute 400 port_rcv_data PIX",
					"mlx5_3/1 ibp72s0 compute 400 port_rcv_data PIX",
					"mlx5_4/1 ibp88s0 compute 400 port_rcv_data PIX",
					"mlx5_5/1 ibp104s0 compute 400 port_rcv_data PIX",
					"mlx5_6/1 ibp120s0 compute 400 port_rcv_data PIX",
					"mlx5_7/1 ibp136s0 compute 400 port_rcv_data PIX",
					"mlx5_12/1 bf0 other 200 port_rcv_data NODE",
					"mlx5_13/1 bf1 other 200 port_rcv_data NODE",
					"mlx5_14/1 bf2 other 200 port_rcv_data NODE",
					"mlx5_15/1 bf3 other 200 port_rcv_data NODE",
				},
				LeftOut: lines("mlx5_%d/1 switch_management", 8, 9, 10, 11),
			}},

		{Name: "hgx-b300-ib", Source: "Mellanox/nic-configuration-operator#496",
			About: "HGX B300: eight ConnectX-8 in XDR; the NVSwitch functions have numbers in the middle; a " +
				"BlueField-3 in NIC mode, whose third function is no network function",
			Build: func(t *Tree) {
				buses := []int{0x0d, 0x35, 0x5b, 0x6e, 0x8d, 0xb6, 0xda, 0xec}
				for i, n := range []int{0, 1, 4, 5, 6, 11, 12, 13} {
					beside(t, buses[i], 0, 1, Adapter{Model: cx8().board("NVD0000000072"), IB: true,
						Device: fmt.Sprintf("mlx5_%d", n), Netdev: fmt.Sprintf("ibp%ds0", buses[i])})
				}
				for i := range 2 {
					t.Add(Adapter{Model: bf3().at(Rate200, 200000).board("MT_0000001188").card(1), At: alone(0x48, i),
						Device: fmt.Sprintf("mlx5_%d", 2+i), Netdev: fmt.Sprintf("enp72s0f%dnp%[1]d", i)})
				}
				t.Function(alone(0x48, 2), Function{Device: "0xc2d5", Class: "0x080100"})
				switches(t, 0xa3, 7, 0)
			},
			Truth: Truth{
				Rails: []string{
					"mlx5_0/1 ibp13s0 compute 800 port_rcv_data PIX",
					"mlx5_1/1 ibp53s0 compute 800 port_rcv_data PIX",
					"mlx5_2/1 enp72s0f0np0 other 200 port_rcv_data NODE",
					"mlx5_3/1 enp72s0f1np1 other 200 port_rcv_data NODE",
					"mlx5_4/1 ibp91s0 compute 800 port_rcv_data PIX",
					"mlx5_5/1 ibp110s0 compute 800 port_rcv_data PIX",
					"mlx5_6/1 ibp141s0 compute 800 port_rcv_data PIX",
					"mlx5_11/1 ibp182s0 compute 800 port_rcv_data PIX",
					"mlx5_12/1 ibp218s0 compute 800 port_rcv_data PIX",
					"mlx5_13/1 ibp236s0 compute 800 port_rcv_data PIX",
				},
				LeftOut: lines("mlx5_%d/1 switch_management", 7, 8, 9, 10),
			}},

		{Name: "hgx-b200-switches-first", Source: "prometheus/node_exporter#3265, prometheus/procfs#704",
			About: "HGX B200 whose numbering starts with the NVSwitch functions; no IPoIB",
			Build: func(t *Tree) {
				switches(t, 0x05, 0, 0)
				for i := range 8 {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7(), IB: true, Device: fmt.Sprintf("mlx5_%d", 4+i)})
				}
			},
			Truth: Truth{
				Rails:   lines("mlx5_%d/1 - compute 400 port_rcv_data PIX", 4, 5, 6, 7, 8, 9, 10, 11),
				LeftOut: lines("mlx5_%d/1 switch_management", 0, 1, 2, 3),
			}},

		{Name: "hgx-h100-ipoib-down", Source: "imbue-ai/cluster-health#4",
			About: "HGX H100: a pure InfiniBand network, so that nobody brings the IPoIB interfaces up; that is no " +
				"fault",
			Build: func(t *Tree) {
				for i, n := range []int{0, 3, 4, 5, 6, 9, 10, 11} {
					dir := beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7(), IB: true,
						Device: fmt.Sprintf("mlx5_%d", n)})
					t.Netdev(dir, fmt.Sprintf("ibp%ds0", 0x18+i*16), Netdev{MTU: 4092, InfiniBand: true, NeverUp: true,
						AdministrativeNo: true})
				}
				for i := range 4 {
					t.Add(Adapter{Model: cx6dx().card(i / 2), At: alone(0xa1+i/2*16, i%2), NeverUp: i%2 == 1,
						Device: fmt.Sprintf("mlx5_%d", 1+i%2+i/2*6),
						Netdev: fmt.Sprintf("enp%ds0f%dnp%[2]d", 0xa1+i/2*16, i%2)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 ibp24s0 compute 400 port_rcv_data PIX",
				"mlx5_1/1 enp161s0f0np0 other 100 port_rcv_data NODE",
				"mlx5_2/1 enp161s0f1np1 other unused port_rcv_data NODE",
				"mlx5_3/1 ibp40s0 compute 400 port_rcv_data PIX",
				"mlx5_4/1 ibp56s0 compute 400 port_rcv_data PIX",
				"mlx5_5/1 ibp72s0 compute 400 port_rcv_data PIX",
				"mlx5_6/1 ibp88s0 compute 400 port_rcv_data PIX",
				"mlx5_7/1 enp177s0f0np0 other 100 port_rcv_data NODE",
				"mlx5_8/1 enp177s0f1np1 other unused port_rcv_data NODE",
				"mlx5_9/1 ibp104s0 compute 400 port_rcv_data PIX",
				"mlx5_10/1 ibp120s0 compute 400 port_rcv_data PIX",
				"mlx5_11/1 ibp136s0 compute 400 port_rcv_data PIX",
			}}},

		{Name: "hgx-h100-ib-no-ipoib", Source: "coreweave/nccl-tests PR #17",
			About: "HGX H100: InfiniBand devices that are named as interfaces, and no IPoIB module",
			Build: func(t *Tree) {
				for i := range 8 {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7().numa(i / 4), IB: true,
						Device: fmt.Sprintf("ibp%d", i)})
				}
			},
			Truth: Truth{Rails: each(8, "ibp%d/1 - compute 400 port_rcv_data PIX")}},

		{Name: "v100-4ib-1eth", Source: "NVIDIA/nccl#302",
			About: "V100: two GPUs and one EDR adapter below each of four switches; an Ethernet adapter of 25 Gb/s " +
				"elsewhere",
			Build: func(t *Tree) {
				for i := range 4 {
					beside(t, 0x1a+i*32, 0, 2, Adapter{Model: cx5().numa(i / 2), IB: true,
						Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("ib%d", i)})
				}
				t.Add(Adapter{Model: cx4lx(), At: alone(0xb1, 0), Device: "mlx5_4", Netdev: "eno1"})
			},
			Truth: Truth{Rails: append(each(4, "mlx5_%[1]d/1 ib%[1]d compute 100 port_rcv_data PIX"),
				"mlx5_4/1 eno1 other 25 port_rcv_data NODE")}},

		{Name: "ipoib-children", Source: "jpetazzo/pipework PR #108, Mellanox/ipoib-cni PR #29",
			About: "CPU node with EDR: IPoIB interfaces of two more partitions beside the adapter's own",
			Build: func(t *Tree) {
				dir := t.Add(Adapter{Model: cx4(), At: alone(0x5e, 0), IB: true, Device: "mlx5_0", Netdev: "ib0"})
				for _, child := range []string{"ib0.8001", "ib0.8002"} {
					t.Netdev(dir, child, Netdev{MTU: 2044, InfiniBand: true, Speed: 100000,
						NoCarrier: child == "ib0.8002"})
					t.File(path.Join(dir, "net", child, "parent"), "ib0")
				}
			},
			Truth: Truth{Rails: []string{"mlx5_0/1 ib0 compute 100 port_rcv_data -"}}},

		{Name: "equal-cards-two-layers", Source: "Mellanox/docker-sriov-plugin#22",
			About: "two equal cards, one in InfiniBand and one in Ethernet",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: cx6(), At: alone(0x3b, 0), IB: true, Device: "mlx5_0", Netdev: "ib0"})
				t.Add(Adapter{Model: cx6(), At: alone(0xaf, 0), Device: "mlx5_1", Netdev: "eth4"})
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 ib0 compute 200 port_rcv_data -",
				"mlx5_1/1 eth4 compute 200 port_rcv_data -",
			}}},
	}
}

// switches adds the four functions that manage NVSwitches, with devices numbered from first. The first two are
// limited, and refuse reads of their counters.
func switches(t *Tree, bus, first, numa int) {
	m := cx7().link("8.0", 2).board("NVD0000000079").numa(numa).card(0xff)
	for i := range 4 {
		m.Counters = RefusedPMA
		if i >= 2 {
			m.Counters = MlxCounters
		}
		t.Add(Adapter{Model: m, At: alone(bus, i), IB: true, Device: fmt.Sprintf("mlx5_%d", first+i)})
	}
}
