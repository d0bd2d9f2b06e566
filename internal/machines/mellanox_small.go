package machines

import "fmt"

// connectX3 adds a dual-port ConnectX-3: one function, and one device with two ports.
func connectX3(t *Tree, bus int, ports [2]Port, speeds [2]int) {
	m := cx3()
	dir := t.Function(alone(bus, 0), m.Function)
	for i, p := range ports {
		t.Netdev(dir, p.Netdev, Netdev{Speed: speeds[i], DevPort: i, InfiniBand: p.InfiniBand, NeverUp: p.Disabled})
		p.Counters = PMACounters
		m.Ports = append(m.Ports, p)
	}
	t.RDMA(dir, "mlx4_0", m.RDMA)
}

// smallMellanox returns small nodes and old adapters.
func smallMellanox() []Machine {
	return []Machine{
		{Name: "cx3-vpi", Source: "canonical/lxd PR #6060",
			About: "ConnectX-3: one device with an InfiniBand port and an Ethernet port that has no cable",
			Build: func(t *Tree) {
				connectX3(t, 0x82, [2]Port{{Netdev: "ib0", InfiniBand: true, Rate: Rate56},
					{Netdev: "enp130s0d1", Disabled: true}}, [2]int{56000, 0})
			},
			Truth: Truth{Rails: []string{
				"mlx4_0/1 ib0 compute 56 port_rcv_data -",
				"mlx4_0/2 enp130s0d1 compute unused port_rcv_data -",
			}}},

		{Name: "cx3-second-port", Source: "linux-rdma/rdma-core PR #847",
			About: "ConnectX-3 with two InfiniBand ports, of which only the second has a cable",
			Build: func(t *Tree) {
				connectX3(t, 0x82, [2]Port{{Netdev: "ib0", InfiniBand: true, Disabled: true},
					{Netdev: "ib1", InfiniBand: true, Rate: Rate56}}, [2]int{0, 56000})
			},
			Truth: Truth{Rails: []string{
				"mlx4_0/1 ib0 compute unused port_rcv_data -",
				"mlx4_0/2 ib1 compute 56 port_rcv_data -",
			}}},

		{Name: "cx3-two-ethernet-ports", Source: "tensorflow/tensorflow#22077",
			About: "ConnectX-3 with two ports of 40 Gb/s, which is their real rate, on eight Gen3 lanes, beside a " +
				"ConnectX-5",
			Build: func(t *Tree) {
				connectX3(t, 0x82, [2]Port{{Netdev: "eth2", Rate: Rate40}, {Netdev: "eth3", Rate: Rate40}},
					[2]int{40000, 40000})
				vlan(t, "eth2", 10)
				t.Add(Adapter{Model: cx5(), At: alone(0x1a, 0), Device: "mlx5_0", Netdev: "eth4"})
			},
			Truth: Truth{
				Rails: []string{
					"mlx4_0/1 eth2 compute 31.51 port_rcv_data -",
					"mlx4_0/2 eth3 compute 31.51 port_rcv_data -",
					"mlx5_0/1 eth4 compute 100 port_rcv_data -",
				},
				Findings: []string{"warning pcie_shared rails 0 and 1"},
			}},

		{Name: "cx3-at-one-lane", Source: "geerlingguy/raspberry-pi-pcie-devices#143",
			About: "ConnectX-3 EN of 10 Gb/s at a Raspberry Pi's only lane, of Gen2",
			Build: func(t *Tree) {
				t.Function("pci0000:00/0000:00:00.0", Function{Vendor: "0x14e4", Device: "0x2711", Class: "0x060400",
					Driver: "pcieport", GT: "5.0", Width: 1})
				m := cx3().as10()
				m.GT, m.MaxGT, m.Width, m.MaxWidth = "5.0", "8.0", 1, 4
				t.Add(Adapter{Model: m, At: "pci0000:00/0000:00:00.0/0000:01:00.0", Device: "mlx4_0", Netdev: "enp1s0"})
			},
			Truth: Truth{
				Rails:    []string{"mlx4_0/1 enp1s0 compute 4 port_rcv_data -"},
				Findings: []string{"warning pcie_link_low rail 0"},
			}},

		{Name: "workstation-cx4lx", Source: "MrBr-github/lshca#16 (the card MCX4121A)",
			About: "workstation: ConnectX-4 Lx with one cable; two GPUs at other root ports of the same host bridge",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: cx4lx().card(1), At: fmt.Sprintf("pci0000:00/0000:00:03.0/0000:03:00.%d", i),
						Device: fmt.Sprintf("mlx5_%d", i), Netdev: fmt.Sprintf("enp3s0f%dnp%[1]d", i), NeverUp: i == 1})
					t.GPU(fmt.Sprintf("pci0000:00/0000:00:%02x.0/0000:%02x:00.0", 1+i, 1+i), Function{GT: "16.0"})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 enp3s0f0np0 compute 25 port_rcv_data PHB",
				"mlx5_1/1 enp3s0f1np1 compute unused port_rcv_data PHB",
			}}},

		{Name: "hpc-two-layers-one-slot", Source: "openucx/ucx#9520",
			About: "HPC node: two dual-port ConnectX-5 at Gen3, one in InfiniBand, one in RoCE; a slot carries one " +
				"port's rate",
			Build: func(t *Tree) {
				for i := range 4 {
					t.Add(Adapter{Model: cx5().card(i / 2), At: alone(0x5e+i/2*0x7a, i%2), IB: i < 2,
						Device: fmt.Sprintf("mlx5_%d", i), Netdev: fmt.Sprintf("net%d", i)})
				}
			},
			Truth: Truth{
				Rails:    each(4, "mlx5_%[1]d/1 net%[1]d compute 63.02 port_rcv_data -"),
				Findings: []string{"warning pcie_shared rails 0 and 1", "warning pcie_shared rails 2 and 3"},
			}},

		{Name: "storage-node-mtu-1500", Source: "deepseek-ai/3FS PR #283",
			About: "storage node with interfaces named p1p1 and p1p2, which are no uplinks of a DPU, at MTU 1500",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: cx6dx().card(1), At: alone(0x86, i), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("p1p%d", 1+i), MTU: 1500})
				}
			},
			Truth: Truth{
				Rails: []string{
					"mlx5_0/1 p1p1 compute 100 port_rcv_data -",
					"mlx5_1/1 p1p2 compute 100 port_rcv_data -",
				},
				Findings: []string{"warning mtu_low rail 0", "warning mtu_low rail 1"},
			}},
	}
}
