package machines

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const irdmaBytes = "ip4InOctets+ip6InOctets"

// x722 returns an X722 whose ports support iWARP.
func x722(device, rate string, speed int) Model {
	m := e810()
	m.Function = Function{Vendor: "0x8086", Device: device, Driver: "i40e", GT: "8.0", Width: 8}
	m.NodeType, m.Firmware, m.Rate, m.Speed = "4: RNIC", "0.2", rate, speed
	return m
}

func intel() []Machine {
	return []Machine{
		{Name: "e810-roce", Source: "NVIDIA/nccl#622",
			About: "E810 with RoCE, whose ports have LID 1 as if they were InfiniBand",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: e810(), At: pciPath(0x10, 1, 0x18, 0), Device: "rocep24s0", Netdev: "ens1"})
				t.File("class/infiniband/rocep24s0/ports/1/lid", "0x1")
				t.GPU(pciPath(0x10, 2, 0x19, 0), Function{})
			},
			Truth: Truth{Rails: []string{"rocep24s0/1 ens1 compute 100 " + irdmaBytes + " PHB"}}},

		{Name: "e810-one-cable", Source: "prometheus/procfs#605",
			About: "two-port E810 with one cable, irdma's kernel names",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: e810(), At: pciPath(0x10, 1, 0x18, i), Device: fmt.Sprintf("irdma%d", i),
						Netdev: fmt.Sprintf("ens1f%d", i), NeverUp: i == 1})
				}
				silent(t, "irdma1", "ens1f1", "ip4InOctets", "ip4OutOctets", "ip6InOctets", "ip6OutOctets", "ip4InPkts")
			},
			Truth: Truth{Rails: []string{"irdma0/1 ens1f0 compute 100 " + irdmaBytes + " -",
				"irdma1/1 ens1f1 compute unused " + irdmaBytes + " -"}}},

		{Name: "e810-iwarp", Source: "prometheus/procfs#605",
			About: "two-port E810 with irdma as iWARP: an RNIC, one GID of its MAC",
			Build: func(t *Tree) {
				m := e810()
				m.NodeType = "4: RNIC"
				for i := range 2 {
					device, netdev := fmt.Sprintf("iwp24s0f%d", i), fmt.Sprintf("ens1f%d", i)
					t.Add(Adapter{Model: m, At: pciPath(0x10, 1, 0x18, i), Device: device, Netdev: netdev,
						Edit: withoutGIDs})
					macGID(t, device, 1, netdev)
				}
			},
			Truth: Truth{Rails: each(2, "iwp24s0f%[1]d/1 ens1f%[1]d compute 100 "+irdmaBytes+" -")}},

		{Name: "e810-mtu-1500", Source: "NVIDIA/nccl#622 (the MTU is an interface's default)",
			About: "E810 node whose interface was left at MTU 1500",
			Build: func(t *Tree) {
				t.Add(Adapter{Model: e810(), At: pciPath(0x10, 1, 0x18, 0), Device: "rocep24s0", Netdev: "ens1",
					MTU: 1500})
			},
			Truth: Truth{Rails: []string{"rocep24s0/1 ens1 compute 100 " + irdmaBytes + " -"},
				Findings: []string{"warning mtu_low rail 0"}}},

		{Name: "x722-iwarp", Source: "linux drivers/infiniband/hw/irdma/i40iw_if.c",
			About: "X722 with two 10GbE ports as iWARP on a kernel that names no interface of an iWARP GID",
			Build: func(t *Tree) {
				for i := range 2 {
					device := fmt.Sprintf("iwp61s0f%d", i)
					t.Add(Adapter{Model: x722("0x37d0", "10 Gb/sec (1X FDR10)", 10000), At: pciPath(0x3a, 0, 0x3d, i),
						Device: device, Netdev: fmt.Sprintf("eno%d", i+1), Edit: withoutGIDs})
					macGID(t, device, 1, "")
				}
			},
			Truth: Truth{Rails: []string{"iwp61s0f0/1 eno1 compute 10 " + irdmaBytes + " -",
				"iwp61s0f1/1 eno2 compute 10 " + irdmaBytes + " -"}}},

		{Name: "i40iw-el7", Source: "prometheus/node_exporter#966",
			About: "old kernel: X722 with four 1GbE ports, one in use, counters/ saying N/A (no PMA); two Mellanox " +
				"cards for jobs",
			Build: func(t *Tree) {
				for i := range 4 {
					// i40iw reports 4X SDR at any speed of the interface.
					device, netdev := fmt.Sprintf("i40iw%d", i), fmt.Sprintf("eno%d", i+1)
					t.Add(Adapter{Model: x722("0x37d1", "10 Gb/sec (4X SDR)", 1000), Device: device, Netdev: netdev,
						At:      fmt.Sprintf("pci0000:05/0000:05:02.0/0000:07:00.0/0000:08:03.0/0000:09:00.%d", i),
						NeverUp: i > 0, Edit: withoutGIDs})
					macGID(t, device, 1, "")
					for name := range strings.FieldsSeq(pmaNames) {
						t.File(path.Join("class/infiniband", device, "ports/1/counters", name), "N/A (no PMA)")
					}
					if i > 0 {
						silent(t, device, netdev, "ip4InOctets", "ip4OutOctets", "ip6InOctets", "ip6OutOctets",
							"ip4InPkts")
					}
				}
				for i := range 2 {
					t.Add(Adapter{Model: cx4(), At: pciPath(0x80+i*16, 1, 0x81+i*16, 0), Device: fmt.Sprintf("mlx5_%d",
						i),
						Netdev: fmt.Sprintf("ens%d", i+1)})
				}
			},
			Truth: Truth{Rails: []string{"i40iw0/1 eno1 compute 1 " + irdmaBytes + " -",
				"i40iw1/1 eno2 compute unused " + irdmaBytes + " -",
				"i40iw2/1 eno3 compute unused " + irdmaBytes + " -",
				"i40iw3/1 eno4 compute unused " + irdmaBytes + " -", "mlx5_0/1 ens1 compute 100 port_rcv_data -",
				"mlx5_1/1 ens2 compute 100 port_rcv_data -"}}},

		{Name: "mlx5-e810-management", Source: "firedancer-io/firedancer#11071",
			About: "eight ConnectX-7 in InfiniBand, each behind a switch with a GPU; irdma loads by itself for the " +
				"management E810",
			Build: func(t *Tree) {
				for i := range 8 {
					t.Add(Adapter{Model: cx7(), At: fmt.Sprintf("0000:%02x:00.0", 0x08+i*16), IB: true,
						Device: fmt.Sprintf("mlx5_%d", i), Netdev: fmt.Sprintf("ib%d", i),
						GPU: fmt.Sprintf("0000:%02x:00.0", 0x09+i*16)})
				}
				for i := range 2 {
					t.Add(Adapter{Model: e810(), At: pciPath(0xe0, 1, 0xe1, i), Device: fmt.Sprintf("rocep225s0f%d", i),
						Netdev: fmt.Sprintf("enp225s0f%d", i)})
				}
			},
			Truth: Truth{Rails: slices.Concat(each(8, "mlx5_%[1]d/1 ib%[1]d compute 400 port_rcv_data PIX"),
				each(2, "rocep225s0f%[1]d/1 enp225s0f%[1]d other 100 "+irdmaBytes+" NODE"))}},

		{Name: "hfi1-one", Source: "prometheus/procfs testdata (hfi1_0)",
			About: "HPE's Omni-Path adapter: no hca_type, link layer InfiniBand",
			Build: func(t *Tree) {
				m := hfi()
				m.Board = "HPE 100Gb 1-port OP101 QSFP28 x16 PCIe Gen3 with Intel Omni-Path Adapter"
				m.Layer = "InfiniBand"
				a := Adapter{Model: m, At: pciPath(0x17, 0, 0x18, 0), Device: "hfi1_0",
					Edit: func(p *Port) { p.InfiniBand = true }}
				t.Netdev(t.Add(a), "ib0", Netdev{InfiniBand: true, MTU: 2044, Speed: -1})
			},
			Truth: Truth{Rails: []string{"hfi1_0/1 ib0 compute 100 port_rcv_data -"}}},

		{Name: "hfi1-two", Source: "ROCm/rocm-systems#11138",
			About: "two Omni-Path adapters, which the driver gives the system image GUID of the first; names of " +
				"counters with commas",
			Build: func(t *Tree) {
				m := hfi()
				m.SystemGUID = "0200:5e00:0100:0001"
				for i := range 2 {
					device := fmt.Sprintf("hfi1_%d", i)
					dir := t.Add(Adapter{Model: m, At: pciPath(0x17+i*64, 0, 0x18+i*64, 0), Device: device,
						Edit: func(p *Port) { p.InfiniBand = true }})
					t.Netdev(dir, fmt.Sprintf("ib%d", i), Netdev{InfiniBand: true, MTU: 2044, Speed: -1})
					t.Files(path.Join("class/infiniband", device, "ports/1/hw_counters"), "SwLinkUp,32", 1, "RxPkt", 18,
						"TxPkt", 17, "RcResend", 2079, "PktDrop", 134, "RcSeqNak", 0, "RcTimeOut", 0, "lifespan", 10)
				}
			},
			Truth: Truth{Rails: each(2, "hfi1_%[1]d/1 ib%[1]d compute 100 port_rcv_data -")}},
	}
}
