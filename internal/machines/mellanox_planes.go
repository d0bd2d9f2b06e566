package machines

import "fmt"

// planesAndTrays returns machines with several planes, and trays of GB200 and GB300.
func planesAndTrays() []Machine {
	return []Machine{
		{Name: "b300-multiplane", Source: "scitix/sichek#98",
			About: "B300: ConnectX-8 in RoCE with four planes, ports 3, 6, 9 and 12 of twelve; the others are " +
				"disabled for ever",
			Build: func(t *Tree) {
				for i := range 8 {
					a := Adapter{Model: cx8().board("NVD0000000072").numa(i / 4), Device: fmt.Sprintf("roce_r%d", i)}
					for n := range 12 {
						a.Ports = append(a.Ports, Port{Disabled: true, NoGIDs: true})
						if n%3 == 2 {
							a.Ports[n] = Port{Rate: Rate200, Netdev: fmt.Sprintf("eth_r%d_p%d", i, n/3)}
						}
					}
					multiPort(t, 0x18+i*16, a, 200000)
				}
			},
			Truth: Truth{
				Rails:   planes(8, "roce_r%[1]d/%[2]d eth_r%[1]d_p%[3]d compute 200 port_rcv_data PIX", 3, 6, 9, 12),
				LeftOut: planes(8, "roce_r%[1]d/%[2]d plane_unused", 1, 2, 4, 5, 7, 8, 10, 11),
			}},

		{Name: "xdr-smi", Source: "Linux 026a425990af, bca51197620a",
			About: "XDR adapters of four planes with sub-devices for subnet management, a port for each plane",
			Build: func(t *Tree) {
				for i := range 2 {
					m := cx8()
					m.GUID = fmt.Sprintf("0200:5e00:0011:%04x", i)
					dir := t.Add(Adapter{Model: m, At: alone(0x18+i*16, 0), IB: true, Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("ib%d", i)})
					for range 4 {
						m.Ports = append(m.Ports, Port{Rate: "200 Gb/sec (1X XDR)", InfiniBand: true, NoGIDs: true,
							Counters: NoCounters})
					}
					t.RDMA(dir, fmt.Sprintf("smi%d", i), m.RDMA)
				}
			},
			Truth: Truth{
				Rails:   each(2, "mlx5_%[1]d/1 ib%[1]d compute 800 port_rcv_data -"),
				LeftOut: planes(2, "smi%[1]d/%[2]d smi", 1, 2, 3, 4),
			}},

		{Name: "gb300-tray-xdr", Source: "public debug logs of a GB300 cluster, Linux 026a425990af",
			About: "GB300 tray: four ConnectX-8 named by decimal PCI domains, a BlueField-3, and a sub-device for " +
				"subnet management of which only the kernel knows that it is one",
			Build: func(t *Tree) {
				for i, domain := range []int{0, 2, 16, 18} {
					name := "ibp3s0"
					if domain > 0 {
						name = fmt.Sprintf("ibP%dp3s0", domain)
					}
					m := cx8().numa(i / 2)
					m.GUID = fmt.Sprintf("0200:5e00:0012:%04x", i)
					dir := t.Add(Adapter{Model: m, IB: true, Device: name, Netdev: name,
						At: fmt.Sprintf("pci%04x:00/%04[1]x:00:00.0/%04[1]x:03:00.0", domain)})
					t.GPU(fmt.Sprintf("pci%04x:00/%04[1]x:00:00.0/%04[1]x:01:00.0", 8+i%2+i/2*16),
						Function{NUMA: i / 2})
					if i == 0 {
						m.Ports = []Port{{InfiniBand: true, Rate: Rate800}}
						t.RDMA(dir, "sub0", m.RDMA)
						t.smi["sub0"] = true
					}
				}
				t.Add(Adapter{Model: bf3().numa(1), At: "pci0016:00/0016:00:00.0/0016:01:00.0", Device: "roceP22p1s0f0",
					Netdev: "enP22p1s0f0np0"})
			},
			Truth: Truth{
				Rails: []string{
					"ibP2p3s0/1 ibP2p3s0 compute 800 port_rcv_data NODE",
					"ibp3s0/1 ibp3s0 compute 800 port_rcv_data NODE",
					"ibP16p3s0/1 ibP16p3s0 compute 800 port_rcv_data NODE",
					"ibP18p3s0/1 ibP18p3s0 compute 800 port_rcv_data NODE",
					"roceP22p1s0f0/1 enP22p1s0f0np0 compute 400 port_rcv_data NODE",
				},
				LeftOut: []string{"sub0/1 smi"},
			}},

		{Name: "gb200-nvl72-tray", Source: "NVIDIA Mission Control, north-south network of GB200 (interface names)",
			About: "GB200 NVL72 tray: four NDR adapters and two dual-port BlueField-3, each in a PCI domain of its " +
				"own, as the GPUs",
			Build: func(t *Tree) {
				devices := []int{0, 1, 4, 5}
				for i, domain := range []int{0, 2, 16, 18} {
					t.Add(Adapter{Model: cx7().numa(i / 2), IB: true, Device: fmt.Sprintf("mlx5_%d", devices[i]),
						Netdev: fmt.Sprintf("ib%d", i),
						At:     fmt.Sprintf("pci%04x:00/%04[1]x:00:00.0/%04[1]x:03:00.0", domain)})
					t.GPU(fmt.Sprintf("pci%04x:00/%04[1]x:00:00.0/%04[1]x:01:00.0", 8+i%2+i/2*16),
						Function{NUMA: i / 2})
					t.Add(Adapter{Model: bf3().at(Rate200, 200000).board("MT_0000000884").numa(i / 2).card(i / 2),
						Device: fmt.Sprintf("mlx5_%d", 2+i%2+i/2*4),
						Netdev: fmt.Sprintf("enP%dp3s0f%dnp%[2]d", 6+i/2*16, i%2),
						At:     fmt.Sprintf("pci%04x:00/%04[1]x:00:00.0/%04[1]x:03:00.%d", 6+i/2*16, i%2)})
				}
			},
			Truth: Truth{Rails: []string{
				"mlx5_0/1 ib0 compute 400 port_rcv_data NODE",
				"mlx5_1/1 ib1 compute 400 port_rcv_data NODE",
				"mlx5_2/1 enP6p3s0f0np0 compute 200 port_rcv_data NODE",
				"mlx5_3/1 enP6p3s0f1np1 compute 200 port_rcv_data NODE",
				"mlx5_4/1 ib2 compute 400 port_rcv_data NODE",
				"mlx5_5/1 ib3 compute 400 port_rcv_data NODE",
				"mlx5_6/1 enP22p3s0f0np0 compute 200 port_rcv_data NODE",
				"mlx5_7/1 enP22p3s0f1np1 compute 200 port_rcv_data NODE",
			}}},
	}
}

// multiPort adds a device with the adapter's ports, and a GPU, behind one switch. A port that names an interface
// gets it.
func multiPort(t *Tree, bus int, a Adapter, speed int) {
	up := fmt.Sprintf("pci0000:%02x/0000:%02[1]x:01.0/0000:%02x:00.0", bus-3, bus-2)
	t.GPU(fmt.Sprintf("%s/0000:%02x:01.0/0000:%02x:00.0", up, bus-1, bus+1), Function{NUMA: a.NUMA})
	dir := t.Function(fmt.Sprintf("%s/0000:%02x:00.0/0000:%02x:00.0", up, bus-1, bus), a.Function)
	for i, p := range a.Ports {
		if p.Netdev != "" {
			t.Netdev(dir, p.Netdev, Netdev{Speed: speed, DevPort: i})
		}
	}
	t.RDMA(dir, a.Device, a.RDMA)
}

// planes formats a line for each port of each device: device number, port number and the port's index.
func planes(devices int, format string, ports ...int) (list []string) {
	for i := range devices {
		for k, port := range ports {
			list = append(list, fmt.Sprintf(format, i, port, k))
		}
	}
	return list
}
