package machines

import (
	"fmt"
	"path"
)

// vf returns a virtual function of the physical function at an address.
func vf(of, rate string, speed int) Model {
	m := cxVF(rate, speed)
	m.Of = of
	return m
}

// subfunction adds a subfunction of the function at dir: an auxiliary device with an interface and an RDMA device.
func subfunction(t *Tree, dir string, number int, device, netdev string, m Model) {
	at := path.Join(dir, fmt.Sprintf("mlx5_core.sf.%d", number))
	t.File(path.Join(at, "sfnum"), number)
	t.File("bus/auxiliary/drivers_autoprobe", 1)
	t.Link(path.Join(at, "subsystem"), "bus/auxiliary")
	t.Link(path.Join("bus/auxiliary/devices", path.Base(at)), at)
	t.Netdev(at, netdev, Netdev{Speed: m.Speed})
	d := m.RDMA
	d.Ports = []Port{{Netdev: netdev, Rate: m.Rate}}
	t.RDMA(at, device, d)
}

// virtualized returns hosts with virtual functions, subfunctions and representors.
func virtualized() []Machine {
	return []Machine{
		{Name: "sriov-host-ib", Source: "openshift/sriov-network-operator#635, NVIDIA/nccl#687",
			About: "InfiniBand adapters with virtual functions beside the physical ones; they are DOWN until they " +
				"get a GUID",
			Build: func(t *Tree) {
				for i := range 2 {
					bus := 0x4b + i*0x42
					t.Add(Adapter{Model: cx6(), At: alone(bus, 0), IB: true, Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("ibp%ds0", bus)})
					for v := range 4 {
						t.Add(Adapter{Model: vf(fmt.Sprintf("0000:%02x:00.0", bus), Rate200, 200000), At: alone(bus,
							1+v), IB: true,
							Device: fmt.Sprintf("mlx5_%d", 2+i*4+v), Netdev: fmt.Sprintf("ibp%ds0v%d", bus, v),
							NeverUp: true})
					}
				}
			},
			Truth: Truth{
				Rails: []string{
					"mlx5_0/1 ibp75s0 compute 200 port_rcv_data -",
					"mlx5_1/1 ibp141s0 compute 200 port_rcv_data -",
				},
				LeftOut: lines("mlx5_%d/1 virtual_function", 2, 3, 4, 5, 6, 7, 8, 9),
			}},

		{Name: "sriov-host-a100-switch", Source: "NVIDIA/nccl#1405",
			About: "four A100 and a dual-port card with virtual functions that are up, all below one PCIe switch",
			Build: func(t *Tree) {
				for i := range 2 {
					dir := beside(t, 0x9a, i, 4, Adapter{Model: cx6dx().card(1), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("enp154s0f%dnp%[1]d", i)})
					t.Add(Adapter{Model: vf(fmt.Sprintf("0000:9a:00.%d", i), Rate100, 100000),
						At:     fmt.Sprintf("%s/0000:9a:00.%d", path.Dir(dir)[len("devices/"):], 2+i),
						Device: fmt.Sprintf("mlx5_%d", 2+i),
						Netdev: fmt.Sprintf("enp154s0f%dv0", i)})
				}
			},
			Truth: Truth{
				Rails:   each(2, "mlx5_%[1]d/1 enp154s0f%[1]dnp%[1]d compute 100 port_rcv_data PIX"),
				LeftOut: lines("mlx5_%d/1 virtual_function", 2, 3),
			}},

		{Name: "sriov-host-only-vfs-work", Source: "scitix/sichek PR #97",
			About: "the physical functions are disabled by intent, and pods use one virtual function of each",
			Build: func(t *Tree) {
				for i := range 4 {
					bus := 0x1a + i*32
					t.Add(Adapter{Model: cx7(), At: alone(bus, 0), Device: fmt.Sprintf("roce_r%d", i),
						Netdev: fmt.Sprintf("eth_r%d", i), NeverUp: true})
					t.Add(Adapter{Model: vf(fmt.Sprintf("0000:%02x:00.0", bus), Rate400, 400000), At: alone(bus, 1),
						Device: fmt.Sprintf("roce_vf_r%d", i), Netdev: fmt.Sprintf("vf_r%d", i)})
				}
			},
			Truth: Truth{
				Rails:   each(4, "roce_r%[1]d/1 eth_r%[1]d compute unused port_rcv_data -"),
				LeftOut: each(4, "roce_vf_r%d/1 virtual_function"),
			}},

		{Name: "switchdev-host", Source: "k8snetworkplumbingwg/sriov-network-operator#75, Mellanox/scalablefunctions#2",
			About: "switchdev: the physical function's device has its uplink and a port for each representor, none " +
				"with GIDs",
			Build: func(t *Tree) {
				for i := range 2 {
					bus := 0x1a + i*16
					m, dir := cx6dx(), t.Function(alone(bus, 0), cx6dx().Function)
					m.Ports = []Port{{Rate: Rate100, NoGIDs: true}}
					for v := range 4 {
						t.Netdev(dir, fmt.Sprintf("enp%dr%d", bus, v), Netdev{Speed: 100000, MTU: 1500,
							Name:     fmt.Sprintf("pf0vf%d", v),
							SwitchID: fmt.Sprintf("5e00000000%02x0002", i)})
						m.Ports = append(m.Ports, Port{Rate: Rate100, NoGIDs: true})
					}
					t.Netdev(dir, fmt.Sprintf("enp%dnp0", bus), Netdev{Speed: 100000, Name: "p0",
						SwitchID: fmt.Sprintf("5e00000000%02x0002", i)})
					t.RDMA(dir, fmt.Sprintf("mlx5_%d", i), m.RDMA)
					for v := range 4 {
						t.Add(Adapter{Model: vf(fmt.Sprintf("0000:%02x:00.0", bus), Rate100, 100000), At: alone(bus,
							1+v),
							Device: fmt.Sprintf("mlx5_%d", 2+i*4+v), Netdev: fmt.Sprintf("enp%dv%d", bus, v)})
					}
				}
			},
			// According to the source, missing GIDs are normal there.
			Truth: Truth{
				Rails: []string{
					"mlx5_0/1 enp26np0 compute 100 port_rcv_data -",
					"mlx5_1/1 enp42np0 compute 100 port_rcv_data -",
				},
				LeftOut: append(planes(2, "mlx5_%[1]d/%[2]d representor", 2, 3, 4, 5),
					lines("mlx5_%d/1 virtual_function", 2, 3, 4, 5, 6, 7, 8, 9)...),
			}},

		{Name: "bluefield2-arm", Source: "MrBr-github/lshca#57, #62; openucx/ucx PR #5965",
			About: "BlueField-2 in DPU mode, from its Arm side: ports 1, 2 and 67, and subfunctions",
			Build: func(t *Tree) {
				for i := range 2 {
					m, dir := bf2().board("MT_0000000539").numa(-1).card(1), t.Function(alone(0x03, i),
						bf2().numa(-1).Function)
					id := fmt.Sprintf("5e000000000%d0003", i)
					t.Netdev(dir, fmt.Sprintf("en3f%dpf%[1]dsf0", i), Netdev{Speed: 100000, MTU: 1500, SwitchID: id,
						Name: fmt.Sprintf("pf%dsf0", i)})
					t.Netdev(dir, fmt.Sprintf("pf%dhpf", i), Netdev{Speed: 100000, MTU: 1500, SwitchID: id,
						Name: fmt.Sprintf("pf%d", i)})
					t.Netdev(dir, fmt.Sprintf("p%d", i), Netdev{Speed: 100000, SwitchID: id,
						Name: fmt.Sprintf("p%d", i)})
					for _, n := range []int{1, 2, 67} {
						m.Ports = append(m.Ports, Port{Number: n, Rate: Rate100, NoGIDs: true})
					}
					t.RDMA(dir, fmt.Sprintf("mlx5_%d", i), m.RDMA)
					subfunction(t, dir, 2+i, fmt.Sprintf("mlx5_%d", 2+i), fmt.Sprintf("enp3s0f%ds0", i), cxVF(Rate100,
						100000))
				}
			},
			Truth: Truth{
				Rails: each(2, "mlx5_%[1]d/1 p%[1]d compute 100 port_rcv_data -"),
				LeftOut: append(planes(2, "mlx5_%[1]d/%[2]d representor", 2, 67),
					"mlx5_2/1 subfunction", "mlx5_3/1 subfunction"),
			}},

		{Name: "subfunctions-host", Source: "Mellanox/scalablefunctions",
			About: "a host with subfunctions for containers beside the rail",
			Build: func(t *Tree) {
				dir := t.Add(Adapter{Model: cx7(), At: alone(0x1a, 0), Device: "mlx5_0", Netdev: "enp26s0np0"})
				for i := range 3 {
					subfunction(t, dir, 2+i, fmt.Sprintf("mlx5_%d", 1+i), fmt.Sprintf("enp26s0s%d", 88+i), cx7())
				}
			},
			Truth: Truth{
				Rails:   []string{"mlx5_0/1 enp26s0np0 compute 400 port_rcv_data -"},
				LeftOut: lines("mlx5_%d/1 subfunction", 1, 2, 3),
			}},

		{Name: "kvm-host-vfio", Source: "scitix/sichek#115 (what is no lost adapter)",
			About: "a host that has given two of its four adapters to virtual machines: vfio-pci drives them",
			Build: func(t *Tree) {
				for i := range 4 {
					m := cx7()
					if i >= 2 {
						m.Driver = "vfio-pci"
						t.Function(alone(0x1a+i*16, 0), m.Function)
						continue
					}
					t.Add(Adapter{Model: m, At: alone(0x1a+i*16, 0), Device: fmt.Sprintf("mlx5_%d", i),
						Netdev: fmt.Sprintf("eth%d", i)})
				}
			},
			Truth: Truth{Rails: each(2, "mlx5_%[1]d/1 eth%[1]d compute 400 port_rcv_data -")}},
	}
}
