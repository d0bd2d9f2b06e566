package machines

import "fmt"

// four adds four equal adapters, modified by edit.
func four(t *Tree, m Model, ib bool, edit func(i int, a *Adapter)) {
	for i := range 4 {
		a := Adapter{Model: m, At: alone(0x1a+i*16, 0), IB: ib, Device: fmt.Sprintf("mlx5_%d", i),
			Netdev: fmt.Sprintf("eth%d", i)}
		edit(i, &a)
		if a.Device == "" {
			if a.IB {
				a.Class = "0x020700"
			}
			t.Function(a.At, a.Function)
			continue
		}
		t.Add(a)
	}
}

// mellanoxFaults returns nodes with one fault each.
func mellanoxFaults() []Machine {
	three := []string{
		"mlx5_0/1 eth0 compute 400 port_rcv_data -",
		"mlx5_1/1 eth1 compute 400 port_rcv_data -",
		"mlx5_3/1 eth3 compute 400 port_rcv_data -",
	}
	rails := func(third string) []string {
		return []string{three[0], three[1], "mlx5_2/1 eth2 compute " + third + " port_rcv_data -", three[2]}
	}
	return []Machine{
		{Name: "adapter-died-before-boot", Source: "scitix/sichek#115",
			About: "the firmware of one of four adapters did not start: its driver is bound, and nothing is below it",
			Build: func(t *Tree) {
				four(t, cx7(), true, func(i int, a *Adapter) {
					if i == 2 {
						a.Device = ""
					}
				})
			},
			Truth: Truth{Rails: three, Findings: []string{"critical adapter_without_rdma adapter 0000:3a:00.0"}}},

		{Name: "adapter-without-driver", Source: "scitix/sichek#118",
			About: "the driver's probe failed at boot for one of four adapters, so that it has none",
			Build: func(t *Tree) {
				four(t, cx7(), false, func(i int, a *Adapter) {
					if i == 2 {
						a.Device, a.Driver = "", ""
					}
				})
			},
			Truth: Truth{Rails: three, Findings: []string{"critical adapter_without_rdma adapter 0000:3a:00.0"}}},

		{Name: "mlx5-ib-missing", Source: "public debug logs of a GB300 cluster",
			About: "the module mlx5_ib is in a package that nobody installed: interfaces, but no RDMA device",
			Build: func(t *Tree) {
				for i := range 4 {
					dir := t.Function(alone(0x1a+i*16, 0), cx8().Function)
					t.Netdev(dir, fmt.Sprintf("eth%d", i), Netdev{})
				}
			},
			Truth: Truth{Findings: []string{"critical no_rails node"}}},

		{Name: "rail-never-up", Source: "NVIDIA/NVSentinel#1529",
			About: "eight equal rails, one of which never had a link: no cable, a fault",
			Build: func(t *Tree) {
				for i := range 8 {
					beside(t, 0x18+i*16, 0, 1, Adapter{Model: cx7(), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev:  fmt.Sprintf("rdma%d", i),
						NeverUp: i == 5})
				}
			},
			Truth: Truth{
				Rails: append(append(each(5, "mlx5_%[1]d/1 rdma%[1]d compute 400 port_rcv_data PIX"),
					"mlx5_5/1 rdma5 compute - port_rcv_data PIX"),
					"mlx5_6/1 rdma6 compute 400 port_rcv_data PIX",
					"mlx5_7/1 rdma7 compute 400 port_rcv_data PIX"),
				Findings: []string{"critical port_down rail 5"},
			}},

		{Name: "rail-lost-its-link", Source: "leptonai/gpud component_production_scenarios_test.go",
			About: "one of four rails is DOWN, and was up",
			Build: func(t *Tree) {
				four(t, cx7(), true, func(i int, a *Adapter) { a.Down = i == 2 })
			},
			Truth: Truth{Rails: rails("-"), Findings: []string{"critical port_down rail 2"}}},

		{Name: "rail-without-gids", Source: "Mellanox/k8s-rdma-sriov-dev-plugin#30",
			About: "one of four RoCE rails has no GID",
			Build: func(t *Tree) {
				four(t, cx7(), false, func(i int, a *Adapter) { a.Edit = func(p *Port) { p.EmptyGIDs = i == 2 } })
			},
			Truth: Truth{Rails: rails("400"), Findings: []string{"critical gid_missing rail 2"}}},

		{Name: "rail-without-address", Source: "NVIDIA/nccl-tests#185",
			About: "one of four RoCE rails has GIDs of fe80:: alone",
			Build: func(t *Tree) {
				four(t, cx7(), false, func(i int, a *Adapter) { a.Edit = func(p *Port) { p.OnlyFE80 = i == 2 } })
			},
			Truth: Truth{Rails: rails("400"), Findings: []string{"critical gid_link_local rail 2"}}},

		{Name: "rail-with-another-mtu", Source: "NVIDIA/nccl-tests#191 (the MTU of one RoCE rail counts)",
			About: "one of four RoCE rails has an MTU of 4500, which is enough for 4096 bytes, but not that of the " +
				"others",
			Build: func(t *Tree) {
				four(t, cx7(), false, func(i int, a *Adapter) {
					if i == 2 {
						a.MTU = 4500
					}
				})
			},
			Truth: Truth{Rails: rails("400"), Findings: []string{"warning mtu_unlike rail 2"}}},

		{Name: "pcie-degraded", Source: "NVIDIA/l2fwd-nv#6 (link below the port's need)",
			About: "one of four adapters trained at 8 GT/s and eight lanes, where it and its bridge can 32 and sixteen",
			Build: func(t *Tree) {
				four(t, cx7(), true, func(i int, a *Adapter) {
					if i == 2 {
						a.GT, a.MaxGT, a.Width, a.MaxWidth = "8.0", "32.0", 8, 16
					}
				})
			},
			Truth: Truth{Rails: rails("63.02"), Findings: []string{"critical pcie_link_low rail 2"}}},

		{Name: "pcie-half-width-enough", Source: "NVIDIA/l2fwd-nv#6 (link width below what both ends can)",
			About: "a port of 200 Gb/s at half of its lanes, which still carry it",
			Build: func(t *Tree) {
				four(t, cx7(), false, func(i int, a *Adapter) {
					if i == 2 {
						a.Model = a.as200()
						a.Width, a.MaxWidth = 8, 16
					}
				})
			},
			Truth: Truth{Rails: rails("200"), Findings: []string{"warning pcie_link_low rail 2"}}},
	}
}
