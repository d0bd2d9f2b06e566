package machines

import "fmt"

// half modifies the healthy defaults of one of a Spark's functions.
type half struct {
	cable bool
	width int // lanes of its root port; 0: four
	mtu   int
	edit  func(*Port)
}

// spark adds a GB10's four functions: rocep1s0f0, rocep1s0f1, and their second halves roceP2p1s0f0 and
// roceP2p1s0f1.
func spark(t *Tree, halves ...half) {
	for i, h := range halves {
		domain, infix := i/2*2, ""
		if domain > 0 {
			infix = "P2"
		}
		width := 4
		if h.width > 0 {
			width = h.width
		}
		root := fmt.Sprintf("pci%04x:00/%04[1]x:00:00.0", domain)
		if i%2 == 0 {
			t.Function(root, Function{Vendor: "0x10de", Device: "0x22ce", Class: "0x060400", Driver: "pcieport",
				Width: width})
		}
		m := cx7().as200().board("NVD0000000087").card(0x10)
		m.GUID = fmt.Sprintf("0200:5e00:00ca:%04x", 0x10+i%2+i/2*4)
		m.Width, m.MaxWidth = width, 4
		t.Add(Adapter{Model: m, At: fmt.Sprintf("%s/%04x:01:00.%d", root, domain, i%2), NeverUp: !h.cable, MTU: h.mtu,
			Edit:   h.edit,
			Device: fmt.Sprintf("roce%sp1s0f%d", infix, i%2), Netdev: fmt.Sprintf("en%sp1s0f%dnp%[2]d", infix, i%2)})
	}
	root := "pci000f:00/000f:00:00.0"
	t.Function(root, Function{Vendor: "0x10de", Device: "0x22d1", Class: "0x060400", Driver: "pcieport"})
	t.GPU(root+"/000f:01:00.0", Function{Vendor: "0x10de", Device: "0x2e12", Class: "0x030200", Driver: "nvidia"})
}

// sparkRails returns the lines of the four functions with their capacities.
func sparkRails(f0, f1, p2f0, p2f1 string) []string {
	return []string{
		"rocep1s0f0/1 enp1s0f0np0 compute " + f0 + " port_rcv_data NODE",
		"rocep1s0f1/1 enp1s0f1np1 compute " + f1 + " port_rcv_data NODE",
		"roceP2p1s0f0/1 enP2p1s0f0np0 compute " + p2f0 + " port_rcv_data NODE",
		"roceP2p1s0f1/1 enP2p1s0f1np1 compute " + p2f1 + " port_rcv_data NODE",
	}
}

// sparks returns DGX Spark and its siblings.
func sparks() []Machine {
	up, none := half{cable: true}, half{}
	slow := half{cable: true, mtu: 1500}
	playbook := half{cable: true, edit: func(p *Port) { p.LinkLocal = true }}
	bare := half{cable: true, edit: func(p *Port) { p.OnlyFE80 = true }}
	return []Machine{
		{Name: "spark-one-cable", Source: "NVIDIA/dgx-spark-playbooks connect-two-sparks",
			About: "one cable in the second cage: two rails of one port",
			Build: func(t *Tree) { spark(t, none, up, none, up) },
			Truth: Truth{Rails: sparkRails("unused", "100", "unused", "100")}},

		{Name: "spark-dell-first-cage",
			Source: "geerlingguy/sbc-reviews#92; Sparks at a CRS804",
			About:  "Dell Pro Max with GB10: one cable in the first cage, which is as right",
			Build:  func(t *Tree) { spark(t, up, none, up, none) },
			Truth:  Truth{Rails: sparkRails("100", "unused", "100", "unused")}},

		{Name: "spark-ring", Source: "NVIDIA/dgx-spark-playbooks connect-three-sparks",
			About: "both cages in use: four rails, and each PCIe link carries two of them",
			Build: func(t *Tree) { spark(t, up, up, up, up) },
			Truth: Truth{Rails: sparkRails("63.02", "63.02", "63.02", "63.02")}},

		{Name: "spark-no-cable", Source: "NVIDIA/dgx-spark-playbooks (a Spark as delivered)", About: "a Spark alone",
			Build: func(t *Tree) { spark(t, none, none, none, none) },
			Truth: Truth{Rails: sparkRails("unused", "unused", "unused", "unused")}},

		{Name: "spark-default-mtu", Source: "NVIDIA/dgx-spark-playbooks#102, PR #103",
			About: "one cable, and the MTU as delivered",
			Build: func(t *Tree) { spark(t, none, slow, none, slow) },
			Truth: Truth{Rails: sparkRails("unused", "100", "unused", "100"),
				Findings: []string{"warning mtu_low rail 1", "warning mtu_low rail 3"}}},

		{Name: "spark-playbook-addresses",
			Source: "NVIDIA/dgx-spark-playbooks connect-two-sparks (netplan, link-local)",
			About:  "both halves have addresses of 169.254.0.0/16, which work",
			Build:  func(t *Tree) { spark(t, none, playbook, none, playbook) },
			Truth:  Truth{Rails: sparkRails("unused", "100", "unused", "100")}},

		{Name: "spark-playbook-one-half",
			Source: "NVIDIA/dgx-spark-playbooks#102; eugr/spark-vllm-docker docs/NETWORKING.md",
			About:  "169.254.0.0/16 on one half, no address on the other",
			Build:  func(t *Tree) { spark(t, none, playbook, none, bare) },
			Truth: Truth{Rails: sparkRails("unused", "100", "unused", "100"),
				Findings: []string{"warning half_unused rail 3"}}},

		{Name: "spark-first-half-without-address", Source: "NVIDIA/dgx-spark-playbooks#102",
			About: "an address on the half of the second PCI domain alone",
			Build: func(t *Tree) { spark(t, bare, none, up, none) },
			Truth: Truth{Rails: sparkRails("100", "unused", "100", "unused"),
				Findings: []string{"warning half_unused rail 0"}}},

		{Name: "spark-gx10-poor-cable", Source: "plurigrid asi skill gx10-cluster",
			About: "ASUS GX10 with a cable that is not approved: one half of the port has no link",
			Build: func(t *Tree) { spark(t, up, none, none, none) },
			Truth: Truth{Rails: sparkRails("126", "unused", "-", "unused"),
				Findings: []string{"warning half_unused rail 2"}}},

		{Name: "spark-gx10-two-lanes", Source: "a public forum report of an ASUS GX10, dgx-spark-playbooks#108, " +
			"tonyd2wild/DeepSeek-v4-Flash-Vision-Exp PR #35",
			About: "ASUS GX10 with a BIOS that gives the second controller two lanes",
			Build: func(t *Tree) {
				two := half{cable: true, width: 2}
				spark(t, up, none, two, half{width: 2})
			},
			Truth: Truth{Rails: sparkRails("100", "unused", "63.02", "unused"),
				Findings: []string{"warning pcie_link_low rail 2"}}},

		{Name: "station-gb300-two-ports", Source: "NVIDIA/dgx-spark-playbooks station-connect-two-stations",
			About: "DGX Station GB300: ConnectX-8 with two ports of 400 Gb/s, the GPU in another PCI domain, and a " +
				"display GPU",
			Build: func(t *Tree) {
				for i := range 2 {
					t.Add(Adapter{Model: cx8().as400().card(1),
						At:     fmt.Sprintf("pci0000:00/0000:00:00.0/0000:03:00.%d", i),
						Device: fmt.Sprintf("mlx5_%d", i), Netdev: fmt.Sprintf("enp3s0f%dnp%[1]d", i)})
				}
				t.GPU("pci0008:00/0008:00:00.0/0008:06:00.0", Function{})
				t.GPU("pci0009:00/0009:00:00.0/0009:01:00.0", Function{Vendor: "0x10de", Device: "0x2bb1",
					Class:  "0x030000",
					Driver: "nvidia"})
			},
			Truth: Truth{Rails: each(2, "mlx5_%[1]d/1 enp3s0f%[1]dnp%[1]d compute 400 port_rcv_data NODE")}},
	}
}
