package machines

import (
	"fmt"
	"path"
	"slices"
)

// bare returns machines with software devices alone, with none, and with both kinds.
func bare() []Machine { return slices.Concat(software(), withoutRDMA()) }

// softRXE makes an rxe device, whose interface is named only by the file parent and the GIDs.
func softRXE(t *Tree, device, netdev, rate string) {
	t.RDMA("", device, RDMA{Firmware: "0.0.0", Ports: []Port{{Netdev: netdev, Rate: rate, Counters: RXECounters}}})
	t.File(path.Join("class/infiniband", device, "parent"), netdev)
}

// softSIW makes a siw device, which is a child of the interface's device and has no counters.
func softSIW(t *Tree, dir, device, netdev, rate string) {
	t.RDMA(dir, device, RDMA{NodeType: "4: RNIC", Ports: []Port{{Rate: rate, Counters: NoCounters, NoGIDs: true}}})
	macGID(t, device, 1, netdev)
}

// ethernet makes a function with an interface.
func ethernet(t *Tree, at, vendor, device, driver, netdev string, n Netdev) string {
	f := Function{Vendor: vendor, Device: device, Driver: driver, GT: "8.0", Width: 8}
	dir := t.Function(at, f)
	t.Netdev(dir, netdev, n)
	return dir
}

// virtio makes a paravirtual interface with unknown speed, and returns its device.
func virtio(t *Tree, netdev string) string {
	dir := t.Function("pci0000:00/0000:00:05.0", Function{Vendor: "0x1af4", Device: "0x1041", Driver: "virtio-pci",
		GT: "Unknown"}) + "/virtio2"
	t.Netdev(dir, netdev, Netdev{Speed: -1})
	return dir
}

const (
	softUnknown = "2.5 Gb/sec (1X SDR)" // ib_get_eth_speed() of an interface whose speed is unknown or at most 1 Gb/s
	soft10      = "10 Gb/sec (1X FDR10)"
	soft20      = "20 Gb/sec (4X DDR)"
)

func software() []Machine {
	return []Machine{
		{Name: "siw-alone", Source: "linux-rdma/rdma-core#569",
			About: "Soft-iWARP on an Ethernet port that has no RDMA",
			Build: func(t *Tree) {
				dir := ethernet(t, pciPath(0x00, 1, 0x04, 0), "0x8086", "0x1563", "ixgbe", "eno1", Netdev{Speed: 10000})
				softSIW(t, dir, "siw0", "", soft10)
			},
			Truth: Truth{Rails: []string{"siw0/1 eno1 compute 10 netdev -"}}},

		{Name: "siw-virtio", Source: "linux drivers/infiniband/sw/siw/siw_main.c",
			About: "guest with Soft-iWARP on virtio",
			Build: func(t *Tree) {
				hypervised(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				softSIW(t, virtio(t, "ens5"), "siw0", "", softUnknown)
			},
			Truth: Truth{Rails: []string{"siw0/1 ens5 compute 2.5 netdev -"}}},

		{Name: "siw-beside-mlx5", Source: "linux drivers/infiniband/sw/siw/siw_main.c",
			About: "Soft-iWARP on the interface of a ConnectX-6 Dx: a second RDMA device of the same function",
			Build: func(t *Tree) {
				dir := t.Add(Adapter{Model: cx6dx(), At: pciPath(0x10, 1, 0x1a, 0), Device: "mlx5_0", Netdev: "eth0"})
				softSIW(t, dir, "siw0", "", Rate100)
			},
			Truth: Truth{Rails: []string{"mlx5_0/1 eth0 compute 100 port_rcv_data -"},
				LeftOut: []string{"siw0/1 software_of"}}},

		{Name: "siw-vlan-of-mlx5",
			Source: "linux drivers/infiniband/sw/siw/siw_main.c, drivers/infiniband/core/cache.c since 6.6",
			About:  "Soft-iWARP on a VLAN of a ConnectX-6 Dx: no parent, the GID's interface alone shows it",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: cx6dx(), At: pciPath(0x10, 1, 0x1a, 0), Device: "mlx5_0", Netdev: "ens1"})
				t.Netdev("", "ens1.100", Netdev{Speed: 100000, Lower: []string{"ens1"}})
				softSIW(t, "", "siw0", "ens1.100", Rate100)
			},
			Truth: Truth{Rails: []string{"mlx5_0/1 ens1 compute 100 port_rcv_data -"},
				LeftOut: []string{"siw0/1 software_of"}}},

		{Name: "rxe-virtio", Source: "openucx/ucx#9207",
			About: "guest with rxe on virtio, whose rate is that of an unknown speed",
			Build: func(t *Tree) {
				hypervised(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				virtio(t, "eth0")
				softRXE(t, "rxe0", "eth0", softUnknown)
			},
			Truth: Truth{Rails: []string{"rxe0/1 eth0 compute 2.5 netdev -"}}},

		{Name: "rxe-1000base-t", Source: "SoftRoCE/rxe-dev#52",
			About: "guest with rxe on 1000BASE-T, whose reported rate is wrong",
			Build: func(t *Tree) {
				hypervised(t, "QEMU", "Standard PC (i440FX + PIIX, 1996)")
				ethernet(t, "pci0000:00/0000:00:03.0", "0x8086", "0x100e", "e1000", "eth0", Netdev{Speed: 1000})
				softRXE(t, "rxe0", "eth0", softUnknown)
			},
			Truth: Truth{Rails: []string{"rxe0/1 eth0 compute 1 netdev -"}}},

		{Name: "rxe-bond", Source: "spdk/spdk#1184", About: "rxe on a bond of two 10GbE ports that have no RDMA",
			Build: func(t *Tree) {
				for i := range 2 {
					ethernet(t, pciPath(0x00, 1, 0x04, i), "0x8086", "0x1563", "ixgbe", fmt.Sprintf("eno%d", i+1),
						Netdev{Speed: 10000})
				}
				t.Bond("bond1", "eno1", "eno2")
				t.File("class/net/bond1/speed", 20000)
				softRXE(t, "rxe0", "bond1", soft20)
			},
			Truth: Truth{Rails: []string{"rxe0/1 bond1 compute 20 netdev -"}}},

		{Name: "rxe-vlan", Source: "linux drivers/infiniband/sw/rxe before it refused VLANs",
			About: "rxe on a VLAN of an i40e port that has no RDMA",
			Build: func(t *Tree) {
				ethernet(t, pciPath(0x10, 1, 0x1a, 0), "0x8086", "0x1583", "i40e", "ens1", Netdev{Speed: 40000})
				t.Netdev("", "ens1.100", Netdev{Speed: 40000, Lower: []string{"ens1"}})
				softRXE(t, "rxe0", "ens1.100", "40 Gb/sec (4X FDR10)")
			},
			Truth: Truth{Rails: []string{"rxe0/1 ens1.100 compute 40 netdev -"}}},

		{Name: "rxe-vlan-of-mlx5", Source: "linux drivers/infiniband/sw/rxe before it refused VLANs",
			About: "rxe on a VLAN of a ConnectX-6 Dx",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: cx6dx(), At: pciPath(0x10, 1, 0x1a, 0), Device: "mlx5_0", Netdev: "ens1"})
				t.Netdev("", "ens1.100", Netdev{Speed: 100000, Lower: []string{"ens1"}})
				softRXE(t, "rxe0", "ens1.100", Rate100)
			},
			Truth: Truth{Rails: []string{"mlx5_0/1 ens1 compute 100 port_rcv_data -"},
				LeftOut: []string{"rxe0/1 software_of"}}},

		{Name: "rxe-on-spdk-bond", Source: "spdk/spdk#1184, linux drivers/net/ethernet/mellanox/mlx5/core/lag",
			About: "rxe on the bond of a ConnectX-6 Dx's two ports, which are one RDMA device",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: cx6dx(), At: pciPath(0x10, 1, 0x1a, 0), Device: "mlx5_bond_0", Netdev: "ens1f0np0",
					Edit: func(p *Port) { p.GIDNetdev = "bond0" }})
				t.Netdev(t.Function(pciPath(0x10, 1, 0x1a, 1), cx6dx().Function), "ens1f1np1", Netdev{Speed: 100000})
				t.Bond("bond0", "ens1f0np0", "ens1f1np1")
				t.File("class/net/bond0/speed", 200000)
				softRXE(t, "rxe0", "bond0", Rate200)
			},
			Truth: Truth{Rails: []string{"mlx5_bond_0/1 bond0 compute 100 port_rcv_data -"},
				LeftOut: []string{"rxe0/1 software_of"}}},
	}
}

func withoutRDMA() []Machine {
	return []Machine{
		{Name: "cpu-virtio", Source: "sonic-net and others: any guest",
			About: "guest without GPUs, with one virtio interface",
			Build: func(t *Tree) {
				hypervised(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				virtio(t, "eth0")
			}},

		{Name: "gpus-virtio", Source: "oracle-quickstart/oci-hpc-oke#13",
			About: "guest with eight H100, sold without a cluster network",
			Build: func(t *Tree) {
				hypervised(t, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
				virtio(t, "eth0")
				for i := range 8 {
					t.GPU(fmt.Sprintf("pci0000:00/0000:00:%02x.0", 0x10+i), Function{Vendor: "0x10de", Device: "0x2330",
						Class: "0x030200", Driver: "nvidia", GT: "Unknown"})
				}
			}},

		{Name: "cpu-igb", Source: "Mellanox/k8s-rdma-shared-dev-plugin#113 (its I350)",
			About: "server with two of four 1GbE ports in use",
			Build: func(t *Tree) {
				for i := range 4 {
					ethernet(t, pciPath(0x20, 1, 0x22, i), "0x8086", "0x1521", "igb", fmt.Sprintf("eno%d", i+1),
						Netdev{Speed: 1000, MTU: 1500, NeverUp: i > 1})
				}
			}},

		{Name: "gpus-x710", Source: "Mellanox/k8s-rdma-shared-dev-plugin#103 (its X710)",
			About: "GPU server with an X710: i40e as of the X722, but without RDMA",
			Build: func(t *Tree) {
				for i := range 2 {
					ethernet(t, pciPath(0x5d, 0, 0x5e, i), "0x8086", "0x1572", "i40e", fmt.Sprintf("ens1f%d", i),
						Netdev{Speed: 10000})
				}
				t.GPU(switchPath(0x80, 0), Function{})
				t.GPU(switchPath(0x80, 1), Function{})
			}},

		{Name: "e810-without-irdma", Source: "Mellanox/k8s-rdma-shared-dev-plugin#113",
			About: "GPU server with an E810, where irdma is not loaded",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Netdev(t.Function(pciPath(0xb0, 1, 0xb5, i), e810().Function), fmt.Sprintf("ens1f%d", i),
						Netdev{Speed: 100000})
				}
				t.GPU(switchPath(0x80, 0), Function{})
			},
			Truth: Truth{Findings: []string{"critical no_rails node"}}},

		{Name: "slingshot", Source: "open-mpi/hwloc#764",
			About: "Cray EX255a: four Slingshot interfaces of class cxi, no RDMA device",
			Build: func(t *Tree) {
				for i := range 4 {
					dir := t.Function(pciPath(0x10+i*16, 1, 0x11+i*16, 0), Function{Vendor: "0x17db", Device: "0x0501",
						Driver: "cxi_ss1", GT: "16.0"})
					t.Netdev(dir, fmt.Sprintf("hsn%d", i), Netdev{Speed: 200000})
					cxi := path.Join(dir, "cxi", fmt.Sprintf("cxi%d", i))
					t.Files(cxi, "dev", fmt.Sprintf("240:%d", i))
					t.Link(path.Join("class/cxi", fmt.Sprintf("cxi%d", i)), cxi)
					t.GPU(pciPath(0x18+i*16, 1, 0x19+i*16, 0), Function{Vendor: "0x1002", Device: mi300a,
						Class:  "0x038000",
						Driver: "amdgpu"})
				}
			}},

		{Name: "ascend-910b", Source: "vllm-project/vllm-ascend#16847",
			About: "eight Ascend 910B, whose RoCE ports are inside the NPUs; the host has 25GbE",
			Build: func(t *Tree) {
				for i := range 8 {
					t.Function(pciPath(0x80+i*8, 0, 0x81+i*8, 0), Function{Vendor: "0x19e5", Device: "0xd802",
						Class:  "0x120000",
						Driver: "devdrv_device_driver"})
				}
				for i := range 2 {
					ethernet(t, pciPath(0x7c, 0, 0x7d, i), "0x19e5", "0xa221", "hns3", fmt.Sprintf("enp125s0f%d", i),
						Netdev{Speed: 25000, MTU: 1500})
				}
			}},

		{Name: "gaudi-hls1", Source: "HabanaAI/Setup_and_Install#1",
			About: "eight Gaudi, whose ports are plain interfaces of the accelerators, and no RDMA device; the host " +
				"has X550",
			Build: func(t *Tree) {
				for i := range 8 {
					dir := t.Function(switchPath(0x10+i*16, 0), Function{Vendor: "0x1da3", Device: "0x1000",
						Class:  "0x120000",
						Driver: "habanalabs", GT: "16.0"})
					for port := range 10 {
						t.Netdev(dir, fmt.Sprintf("acc%dp%d", i, port), Netdev{Speed: 100000, DevPort: port})
					}
				}
				ethernet(t, pciPath(0x00, 1, 0x04, 0), "0x8086", "0x1563", "ixgbe", "eno1", Netdev{Speed: 10000,
					MTU: 1500})
			}},

		{Name: "netvsc-alone", Source: "Azure/azhpc-images#154 (without its adapters)",
			About: "Azure guest with its synthetic interface alone",
			Build: func(t *Tree) {
				hypervised(t, "Microsoft Corporation", "Virtual Machine")
				t.Netdev("devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/02005e00-0001-1000-2000-000000000001",
					"eth0",
					Netdev{Speed: 50000, MTU: 1500})
			}},
	}
}
