package machines

import "fmt"

// efaRails returns the rails of EFA devices on these buses, in slot 0.
func efaRails(buses []int, gbps int, distance string) (lines []string) {
	for _, bus := range buses {
		lines = append(lines, fmt.Sprintf("rdmap%ds0/1 - compute %d rx_bytes %s", bus, gbps, distance))
	}
	return lines
}

// efaBuses returns the buses of EFA devices, for a number of devices per switch. The first switch begins at bus 79.
func efaBuses(switches, each int) (buses []int) {
	for s := range switches {
		for i := range each {
			buses = append(buses, 79+s*17+i)
		}
	}
	return buses
}

// efaSwitches creates switches with EFA devices first and other functions after them.
func efaSwitches(t *Tree, m Model, switches, nics, others int, other func(at string)) {
	for s := range switches {
		bridge := 76 + s*17
		for i := range nics {
			t.Add(Adapter{Model: m, At: switchPath(bridge, i), Device: fmt.Sprintf("rdmap%ds0", bridge+3+i)})
		}
		for i := range others {
			other(switchPath(bridge, nics+i))
		}
	}
}

func efaOf(device, rate string) Model {
	m := efa()
	m.Device, m.Rate = device, rate
	return m
}

// ec2 creates an EC2 instance with its plain interface.
func ec2(t *Tree, product string) {
	hypervised(t, "Amazon EC2", product)
	ena := t.Function("pci0000:00/0000:00:05.0", Function{Vendor: "0x1d0f", Device: "0xec20", Driver: "ena",
		GT: "Unknown"})
	t.Netdev(ena, "ens5", Netdev{Speed: -1, MTU: 9001})
}

func amazon() []Machine {
	gpu := func(t *Tree) func(string) { return func(at string) { t.GPU(at, Function{}) } }
	return []Machine{
		{Name: "ec2-p4d", Source: "aws/aws-ofi-nccl#64",
			About: "p4d.24xlarge: four EFA, each on a root bus with two A100 and no switch to be seen",
			Build: func(t *Tree) {
				ec2(t, "p4d.24xlarge")
				for i, bus := range []int{0x10, 0x20, 0x90, 0xa0} {
					m := efaOf("0xefa0", Rate100)
					m.NUMA = i / 2
					t.Add(Adapter{Model: m, At: fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:1b.0", bus),
						Device: fmt.Sprintf("rdmap%ds27", bus)})
					for slot := 0x1c; slot < 0x1e; slot++ {
						t.GPU(fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:%02[2]x.0", bus, slot),
							Function{Vendor: "0x10de",
								Device: "0x20b0", Class: "0x030200", Driver: "nvidia", GT: "Unknown", NUMA: i / 2})
					}
				}
			},
			Truth: Truth{Rails: []string{"rdmap16s27/1 - compute 100 rx_bytes PHB",
				"rdmap32s27/1 - compute 100 rx_bytes PHB",
				"rdmap144s27/1 - compute 100 rx_bytes PHB", "rdmap160s27/1 - compute 100 rx_bytes PHB"}}},

		{Name: "ec2-p5", Source: "aws/aws-ofi-nccl topology/p5.48xl-topo.xml",
			About: "p5.48xlarge: eight switches, each with four EFA and an H100",
			Build: func(t *Tree) {
				ec2(t, "p5.48xlarge")
				m := efaOf("0xefa1", Rate100)
				m.GT, m.Width = "16.0", 8
				efaSwitches(t, m, 8, 4, 1, gpu(t))
			},
			Truth: Truth{Rails: efaRails(efaBuses(8, 4), 100, "PIX")}},

		{Name: "ec2-p5en", Source: "stas00/ml-engineering#102",
			About: "p5en.48xlarge: 16 EFA of 200 Gb/s, two for each H200",
			Build: func(t *Tree) {
				ec2(t, "p5en.48xlarge")
				efaSwitches(t, efaOf("0xefa3", Rate200), 8, 2, 1, gpu(t))
			},
			Truth: Truth{Rails: efaRails(efaBuses(8, 2), 200, "PIX")}},

		{Name: "ec2-p6-b200", Source: "aws/sagemaker-hyperpod-cli#282",
			About: "p6-b200.48xlarge: eight EFA, and two InfiniBand functions of ConnectX that manage the NVSwitches",
			Build: func(t *Tree) {
				ec2(t, "p6-b200.48xlarge")
				efaSwitches(t, efaOf("0xefa3", Rate400), 4, 2, 2, gpu(t))
				m := cx7()
				m.GT, m.Width, m.Counters, m.Board = "8.0", 2, RefusedPMA, "NVD0000000054"
				for i := range 2 {
					t.Add(Adapter{Model: m, At: pciPath(0x02+i*16, 1, 0x03+i, 0), IB: true,
						Device: fmt.Sprintf("ibp%ds0f0", 3+i)})
				}
			},
			Truth: Truth{Rails: efaRails(efaBuses(4, 2), 400, "PIX"),
				LeftOut: []string{"ibp3s0f0/1 switch_management", "ibp4s0f0/1 switch_management"}}},

		{Name: "ec2-g5", Source: "aws/aws-ofi-nccl topology/g5.48xl-topo.xml",
			About: "g5.48xlarge: eight A10G and one EFA, all flat on bus 0",
			Build: func(t *Tree) {
				ec2(t, "g5.48xlarge")
				t.Add(Adapter{Model: efa(), At: "pci0000:00/0000:00:06.0", Device: "rdmap0s6"})
				for slot := 0x16; slot < 0x1e; slot++ {
					t.GPU(fmt.Sprintf("pci0000:00/0000:00:%02x.0", slot), Function{Vendor: "0x10de", Device: "0x2237",
						Class: "0x030200", Driver: "nvidia", GT: "Unknown"})
				}
			},
			Truth: Truth{Rails: []string{"rdmap0s6/1 - compute 100 rx_bytes PHB"}}},

		{Name: "ec2-trn2", Source: "ai-dynamo/nixl#1994",
			About: "trn2.48xlarge: eight switches, each with two EFA and two Neuron devices, which are no GPUs",
			Build: func(t *Tree) {
				ec2(t, "trn2.48xlarge")
				efaSwitches(t, efaOf("0xefa2", Rate200), 8, 2, 2, func(at string) {
					t.Function(at, Function{Vendor: "0x1d0f", Device: "0x7364", Class: "0x088000", Driver: "neuron",
						GT: "Unknown"})
				})
			},
			Truth: Truth{Rails: efaRails(efaBuses(8, 2), 200, "-")}},

		{Name: "ec2-dl1", Source: "docs.habana.ai Scale_Out_via_Host_NIC",
			About: "Gaudi that scale out over four EFA of the host: accelerators that are no GPUs",
			Build: func(t *Tree) {
				ec2(t, "dl1.24xlarge")
				for i, bus := range []int{0x10, 0x20, 0x90, 0xa0} {
					m := efaOf("0xefa0", Rate100)
					m.NUMA = i / 2
					t.Add(Adapter{Model: m, At: fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:1b.0", bus),
						Device: fmt.Sprintf("rdmap%ds27", bus)})
					for slot := 0x1d; slot < 0x1f; slot++ {
						t.Function(fmt.Sprintf("pci0000:%02[1]x/0000:%02[1]x:%02[2]x.0", bus, slot),
							Function{Vendor: "0x1da3",
								Device: "0x1000", Class: "0x120000", Driver: "habanalabs", GT: "Unknown", NUMA: i / 2})
					}
				}
			},
			Truth: Truth{Rails: []string{"rdmap16s27/1 - compute 100 rx_bytes -",
				"rdmap32s27/1 - compute 100 rx_bytes -",
				"rdmap144s27/1 - compute 100 rx_bytes -", "rdmap160s27/1 - compute 100 rx_bytes -"}}},

		{Name: "ec2-p3dn-el7",
			Source: "prometheus/node_exporter#966, linux drivers/infiniband/core/sysfs.c before 5.13",
			About:  "p3dn.24xlarge on an old kernel: one EFA by its kernel name, counters/ saying N/A (no PMA)",
			Build: func(t *Tree) {
				ec2(t, "p3dn.24xlarge")
				m := efaOf("0xefa0", Rate100)
				m.Counters = EFAWithoutPMA
				t.Add(Adapter{Model: m, At: "pci0000:00/0000:00:06.0", Device: "efa_0"})
				for slot := 0x16; slot < 0x1e; slot++ {
					t.GPU(fmt.Sprintf("pci0000:00/0000:00:%02x.0", slot), Function{Vendor: "0x10de", Device: "0x1db5",
						Class: "0x030200", Driver: "nvidia", GT: "Unknown"})
				}
			},
			Truth: Truth{Rails: []string{"efa_0/1 - compute 100 rx_bytes PHB"}}},
	}
}
