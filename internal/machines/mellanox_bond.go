package machines

import (
	"fmt"
	"path"
)

// lag adds a dual-port card whose functions are bonded: the RDMA device belongs to the first one. It returns the
// interfaces, which are not yet in the bond.
func lag(t *Tree, dir func(function int) string, m Model, device, bond string) []string {
	names := []string{bond + "m0", bond + "m1"}
	for i, name := range names {
		at := t.Function(dir(i), m.Function)
		t.Netdev(at, name, Netdev{Speed: m.Speed, DevPort: i})
		if i == 0 {
			d := m.RDMA
			d.Ports = []Port{{Netdev: bond, Rate: m.Rate}}
			t.RDMA(at, device, d)
		}
	}
	return names
}

func slotOf(bus int) func(int) string {
	return func(function int) string { return alone(bus, function) }
}

// bonds returns nodes with bonds and teams.
func bonds() []Machine {
	return []Machine{
		{Name: "lag-kernel-name", Source: "MrBr-github/lshca#16, #75",
			About: "two ports of one card in a bond: mlx5_bond_0 on the first function",
			Build: func(t *Tree) { t.Bond("bond0", lag(t, slotOf(0x1a), cx6dx(), "mlx5_bond_0", "bond0")...) },
			Truth: Truth{Rails: []string{"mlx5_bond_0/1 bond0 compute 100 port_rcv_data -"}}},

		{Name: "lag-renamed", Source: "rdma-core kernel-boot/rdma_rename.c",
			About: "the same, of a device that udev has renamed by its PCI address, as it knows no bonds",
			Build: func(t *Tree) { t.Bond("bond0", lag(t, slotOf(0x1a), cx7().as200(), "rocep26s0f0", "bond0")...) },
			Truth: Truth{Rails: []string{"rocep26s0f0/1 bond0 compute 200 port_rcv_data -"}}},

		{Name: "lag-guid-name", Source: "a public guide to NVMe over RDMA clients",
			About: "storage client with devices named by GUID: a LAG and a card with two ports of its own",
			Build: func(t *Tree) {
				t.Bond("bond0", lag(t, slotOf(0x98), cx6dx(), "rocex02005e0300000a01", "bond0")...)
				for i := range 2 {
					t.Add(Adapter{Model: cx6dx().card(2), At: alone(0x1a, i),
						Device: fmt.Sprintf("rocex02005e0300000b0%d", i),
						Netdev: fmt.Sprintf("enp26s0f%d", i)})
				}
			},
			Truth: Truth{Rails: []string{
				"rocex02005e0300000a01/1 bond0 compute 100 port_rcv_data -",
				"rocex02005e0300000b00/1 enp26s0f0 compute 100 port_rcv_data -",
				"rocex02005e0300000b01/1 enp26s0f1 compute 100 port_rcv_data -",
			}}},

		{Name: "lag-netlink-answers-member", Source: "mlx5_lag_get_roce_netdev (Linux); public rdma link captures",
			About: "a live LAG: RDMA netlink answers a member's interface, the GIDs are on the bond",
			Build: func(t *Tree) {
				t.Bond("bond0", lag(t, slotOf(0x1a), cx7().as200(), "mlx5_bond_0", "bond0")...)
				t.AnswerNetdev("mlx5_bond_0", 1, "bond0m1")
			},
			Truth: Truth{Rails: []string{"mlx5_bond_0/1 bond0 compute 200 port_rcv_data -"}}},

		{Name: "lag-hidden-interfaces", Source: "NVIDIA/nccl#551, deepseek-ai/DeepEP#150",
			About: "four LAG cards whose interfaces are in another network namespace: the siblings have a driver and " +
				"nothing else",
			Build: func(t *Tree) {
				for i := range 4 {
					for function := range 2 {
						dir := t.Function(alone(0x1a+i*32, function), cx7().Function)
						if function == 0 {
							d := cx7().RDMA
							d.Ports = []Port{{Rate: Rate200, GIDNetdev: fmt.Sprintf("bond%d", i)}}
							t.RDMA(dir, fmt.Sprintf("mlx5_bond_%d", i), d)
						}
					}
				}
			},
			Truth: Truth{Rails: each(4, "mlx5_bond_%d/1 - compute 200 port_rcv_data -")}},

		{Name: "lag-team", Source: "Mellanox/libvma#36, #935",
			About: "two ports of one card below a team, which has no bonding/",
			Build: func(t *Tree) {
				names := lag(t, slotOf(0x1a), cx5(), "mlx5_bond_0", "team1")
				t.Netdev("", "team1", Netdev{Speed: 200000, Lower: names})
				for i, name := range names {
					t.Link(path.Join("devices", alone(0x1a, i), "net", name, "master"), "class/net/team1")
				}
			},
			Truth: Truth{Rails: []string{"mlx5_bond_0/1 team1 compute 100 port_rcv_data -"}}},

		{Name: "lag-on-every-rail", Source: "deepseek-ai/DeepEP#150, #137",
			About: "H20: eight dual-port cards, each a LAG beside a GPU, and a ninth for the front end",
			Build: func(t *Tree) {
				for i := range 9 {
					bus, bond := 0x18+i*16, fmt.Sprintf("bond%d", i)
					where := slotOf(bus)
					if i > 0 {
						up := fmt.Sprintf("pci0000:%02x/0000:%02[1]x:01.0/0000:%02x:00.0", bus-3, bus-2)
						t.GPU(fmt.Sprintf("%s/0000:%02x:01.0/0000:%02x:00.0", up, bus-1, bus+1), Function{})
						where = func(f int) string {
							return fmt.Sprintf("%s/0000:%02x:00.0/0000:%02x:00.%d", up, bus-1,
								bus, f)
						}
					}
					t.Bond(bond, lag(t, where, cx7().as200(), "mlx5_bond_"+bond[4:], bond)...)
				}
			},
			Truth: Truth{Rails: append([]string{"mlx5_bond_0/1 bond0 other 200 port_rcv_data NODE"},
				each(9, "mlx5_bond_%[1]d/1 bond%[1]d compute 200 port_rcv_data PIX")[1:]...)}},

		{Name: "hgx-h100-bluefield-lag", Source: "leptonai/gpud sys-class-infiniband-h100.0",
			About: "HGX H100: eight NDR rails and a BlueField-3 whose two ports are bonded",
			Build: func(t *Tree) {
				for i, n := range []int{0, 1, 4, 5, 6, 7, 8, 9} {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7(), IB: true, Device: fmt.Sprintf("mlx5_%d", n),
						Netdev: fmt.Sprintf("ib%d", i)})
				}
				m := bf3().at("200 Gb/sec (2X NDR)", 200000).board("MT_0000000884")
				t.Bond("bond0", lag(t, slotOf(0xa1), m, "mlx5_bond_0", "bond0")...)
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 ib0 compute 400 port_rcv_data PIX",
				"mlx5_1/1 ib1 compute 400 port_rcv_data PIX",
				"mlx5_4/1 ib2 compute 400 port_rcv_data PIX",
				"mlx5_5/1 ib3 compute 400 port_rcv_data PIX",
				"mlx5_6/1 ib4 compute 400 port_rcv_data PIX",
				"mlx5_7/1 ib5 compute 400 port_rcv_data PIX",
				"mlx5_8/1 ib6 compute 400 port_rcv_data PIX",
				"mlx5_9/1 ib7 compute 400 port_rcv_data PIX",
				"mlx5_bond_0/1 bond0 other 200 port_rcv_data NODE",
			}}},

		{Name: "rxe-on-lag", Source: "drivers/infiniband/sw/rxe; MrBr-github/lshca#16",
			About: "a software device on the bond of a LAG",
			Build: func(t *Tree) {
				t.Bond("bond0", lag(t, slotOf(0x1a), cx4(), "mlx5_bond_0", "bond0")...)
				t.RDMA("", "rxe0", RDMA{Ports: []Port{{Netdev: "bond0", Rate: Rate100, Counters: RXECounters}}})
				t.File("class/infiniband/rxe0/parent", "bond0")
			},
			Truth: Truth{
				Rails:   []string{"mlx5_bond_0/1 bond0 compute 100 port_rcv_data -"},
				LeftOut: []string{"rxe0/1 software_of"},
			}},

		{Name: "bond-without-lag", Source: "kernel documentation of mlx5 (RoCE LAG needs both ports, and no VFs in " +
			"legacy mode)",
			About: "two ports of one card in a bond, but the driver made no LAG: both devices remain",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: cx6dx().card(1), At: alone(0x1a, i), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("enp26s0f%dnp%[1]d", i)})
				}
				t.Bond("bond0", "enp26s0f0np0", "enp26s0f1np1")
			},
			Truth: Truth{
				Rails:    each(2, "mlx5_%[1]d/1 enp26s0f%[1]dnp%[1]d compute 100 port_rcv_data -"),
				Findings: []string{"critical bond_no_lag bond bond0"},
			}},

		{Name: "bond-over-two-cards", Source: "MrBr-github/lshca#77, #76",
			About: "a bond over a ConnectX-6 Dx and a ConnectX-5: both devices remain, with the bond's GIDs",
			Build: func(t *Tree) {
				for i, m := range []Model{cx6dx().board("MT_0000000356"), cx5().board("MT_0000000080")} {
					t.Add(Adapter{Model: m, At: alone(0x1a+i*16, 0), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("eth%d", i), Edit: func(p *Port) { p.GIDNetdev = "bond0" }})
				}
				t.Bond("bond0", "eth0", "eth1")
			},
			Truth: Truth{
				Rails:    each(2, "mlx5_%[1]d/1 eth%[1]d compute 100 port_rcv_data -"),
				Findings: []string{"critical bond_no_lag bond bond0"},
			}},

		{Name: "hgx-h200-front-end-bond",
			Source: "public host notes; DGX BasePOD network overview",
			About: "HGX H200: eight RoCE rails; the front end is a bond over first ports of two cards, whose second " +
				"ports have no cables",
			Build: func(t *Tree) {
				for i := range 8 {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7(), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("rdma%d", i)})
				}
				for i := range 4 {
					t.Add(Adapter{Model: cx6dx().card(i / 2), At: alone(0xa1+i/2*16, i%2),
						Device: fmt.Sprintf("mlx5_%d", 8+i),
						Netdev: fmt.Sprintf("front%d", i), NeverUp: i%2 == 1})
				}
				t.Bond("bond0", "front0", "front2")
			},
			Truth: Truth{
				Rails: append(each(8, "mlx5_%[1]d/1 rdma%[1]d compute 400 port_rcv_data PIX"),
					"mlx5_8/1 front0 other 100 port_rcv_data NODE",
					"mlx5_9/1 front1 other unused port_rcv_data NODE",
					"mlx5_10/1 front2 other 100 port_rcv_data NODE",
					"mlx5_11/1 front3 other unused port_rcv_data NODE"),
			}},
	}
}
