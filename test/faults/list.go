package faults

import "strings"

// Paths of the machines.
const (
	mlx1   = "sys/class/infiniband/mlx5_1/ports/1/" // rail 1 of hgx
	ens2   = "sys/class/net/ens2np0/"               // its interface
	slot1  = "sys/devices/pci0000:37/0000:37:01.0/" // its slot
	nic1   = slot1 + "0000:3a:00.0/"                // its PCI function
	cx7a   = "sys/bus/pci/devices/0000:aa:00.0/"    // two adapters beside those of hgx
	cx7b   = "sys/bus/pci/devices/0000:ab:00.0/"
	rxe1   = "sys/class/infiniband/rxe1/ports/1/"                // rail 1 of rxe
	eth1   = "sys/class/net/eth1/"                               // its interface
	half   = "sys/class/infiniband/roceP2p1s0f0/ports/1/"        // rail 2 of spark: the second half of rail 0
	bond0  = "sys/devices/virtual/net/bond0/"                    // rail 0 of lag
	port1  = "sys/class/infiniband/rocep1s0f1/ports/1/"          // rail 1 of spark
	member = "sys/class/net/ens1f1np1/"                          // one of its two members
	lagPCI = "sys/devices/pci0000:16/0000:16:02.0/"              // their slot
	nic2   = "sys/devices/pci0000:40/0000:40:01.0/0000:4d:00.0/" // rail 2 of system-hgx
	libs   = "root/usr/lib/x86_64-linux-gnu/"
	sw     = "sys/devices/pci0000:10/0000:10:01.0/"         // a rail and two GPUs of system-switch, below one switch
	amd    = sw + "0000:16:00.0/0000:17:01.0/0000:19:00.0/" // one of the four GPUs of system-amd
	limits = "proc/4242/limits = Limit  Soft Limit  Hard Limit  Units\\nMax locked memory         "
)

const (
	noGID  = "0000:0000:0000:0000:0000:0000:0000:0000"
	v6GID  = "fd00:0000:0000:0000:0000:0000:0000:0101"
	job    = "proc/1234/comm = python3; proc/1234/ns/net -> net:[4026531840]; proc/1234/environ = "
	noIPv4 = "gone kernel/addresses/eth1; " + rxe1 + "gids/1 = " + noGID
	// bonded makes bond0 from eth1 and an interface that is not a rail: the kernel adds the bond's addresses to
	// rxe1.
	bonded = "gone kernel/addresses/eth1; " + eth1 + "master -> ../../../../../virtual/net/bond0; " +
		eth1 + "bonding_slave/mii_status = up; " + rxe1 + "gid_attrs/ndevs/1 = bond0; " +
		"sys/class/net/bonding_masters = bond0; " + bond0 + "bonding/mode = active-backup 1; " + bond0 +
		"bonding/slaves = eth1 eth7; " + bond0 + "ifindex = 9; sys/class/net/bond0 -> " +
		"../../devices/virtual/net/bond0; kernel/addresses/bond0 = 192.168.101.1/24"
	// bothBonded makes bond0 from both rails; a mode must follow.
	bothBonded = bonded + "; gone kernel/addresses/eth0; sys/class/net/eth0/master -> " +
		"../../../../../virtual/net/bond0; sys/class/net/eth0/bonding_slave/mii_status = up; " +
		"sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0 = bond0; " +
		"sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1 = bond0; " + rxe1 + "gid_attrs/ndevs/0 = bond0; " +
		bond0 + "bonding/slaves = eth0 eth1; " + bond0 + "bonding/mode = "
	counted = mlx1 + "counters/port_xmit_packets = 1000; " + mlx1 + "hw_counters/packet_seq_err = 7"
	// received sets 1000 packets that rail 1 received; counted has sent packets and 7 errors.
	received = mlx1 + "counters/port_rcv_packets = 1000; " + mlx1 + "hw_counters/"
	more     = mlx1 + "counters/port_rcv_packets = 1001000; " + mlx1 + "hw_counters/"
	gpu1     = slot1 + "0000:3b:00.0/"
	// otherEnd turns rxe into the machine at the other end of its rails.
	otherEnd = "kernel/addresses/eth0 = 192.168.100.2/24; kernel/addresses/eth1 = 192.168.101.2/24"
	cnp      = "sys/kernel/debug/mlx5/0000:"
	tos      = "sys/kernel/config/rdma_cm/mlx5_"
	python   = "root/usr/local/lib/python3.12/dist-packages/"
	// twoNodes puts rails 0 and 1 of system-hgx in NUMA node 0, and rail 2 in node 1.
	twoNodes = "sys/devices/pci0000:10/0000:10:01.0/0000:1a:00.0/numa_node = 0; " + nic2 + "numa_node = 1; " +
		"sys/devices/pci0000:30/0000:30:01.0/0000:3c:00.0/numa_node = 0; " +
		"sys/devices/system/node/node0/cpulist = 0-3; sys/devices/system/node/node0/distance = 10 21; " +
		"sys/devices/system/node/node1/cpulist = 4-7; sys/devices/system/node/node1/distance = 21 10; "
	// pinned is a process; the processors on which it may run must follow.
	pinned = "proc/2001/comm = vllm; proc/2001/status = " +
		"Name:\\tvllm\\nTgid:\\t2001\\nPid:\\t2001\\nCpus_allowed_list:\\t"
	// ownClass lets each queue pair of system-hgx have its own traffic class.
	ownClass = "gone sys/devices/pci0000:10/0000:10:01.0/0000:1a:00.0/infiniband/mlx5_0/tc; " +
		"gone sys/devices/pci0000:30/0000:30:01.0/0000:3c:00.0/infiniband/mlx5_1/tc; " +
		"gone sys/devices/pci0000:40/0000:40:01.0/0000:4d:00.0/infiniband/mlx5_2/tc; "
	pauses = "kernel/statistics/ens2np0 = tx_prio3_pause_duration "
	prio0  = "kernel/statistics/ens2np0 = tx_prio0_bytes "
	lost   = "gone sys/class/infiniband/mlx5_1"
	xid    = "kernel/kmsg = "
)

// Shape stands for the rate of a rail in a lab script.
const Shape = "SHAPE"

// OneShaper sends node 1's traffic over both rails through one shaper.
const OneShaper = `modprobe -a ifb act_mirred cls_matchall
ip link add ifb0 type ifb
ip link set ifb0 mtu 16000 up
tc qdisc add dev ifb0 root tbf rate SHAPE burst 64kb limit 8mb
for i in 0 1; do
	tc qdisc add dev eth$i clsact
	tc filter add dev eth$i egress matchall action mirred egress redirect dev ifb0
done`

// List returns the matrix.
func List() []Fault {
	return []Fault{
		// No fault.
		{Name: "a healthy HGX", Machine: "hgx", Later: true},
		{Name: "a healthy DGX Spark, whose second port never had a cable", Machine: "spark", Later: true},
		{Name: "a healthy bond", Machine: "lag", Later: true},
		{Name: "a healthy system", Machine: "system-hgx",
			Change: job + `NCCL_IB_DISABLE=0\0NCCL_NET=IB\0NCCL_IB_HCA=mlx5_0\0UCX_TLS=rc,cuda,sm,self,tcp\0`},
		{Name: "a healthy system of a Spark", Machine: "system-spark"},
		{Name: "a healthy system of the lab", Machine: "system-rxe"},
		{Name: "a healthy switch of PCIe", Machine: "system-switch"},
		{Name: "a healthy node with GPUs of AMD", Machine: "system-amd"},
		{Name: "a healthy pair", Machine: "rxe", Fabric: "nothing", Lab: Lab{Asks: true}},
		{Name: "a healthy pair, by hand", Lab: Lab{Bench: true}},
		{Name: "a rail whose address is on a VLAN", Machine: "rxe",
			Change: "gone kernel/addresses/eth1; " + rxe1 + "gid_attrs/ndevs/1 = eth1.100; " +
				"sys/devices/virtual/net/eth1.100/ifindex = 20; sys/devices/virtual/net/eth1.100/lower_eth1 -> " +
				"../eth1; sys/class/net/eth1.100 -> ../../devices/virtual/net/eth1.100; kernel/addresses/eth1.100 = " +
				"192.168.101.1/24"},
		{Name: "counters that go backwards", Machine: "hgx", Before: counted, Later: true,
			Change: mlx1 + "counters/port_xmit_packets = 0; " + mlx1 + "hw_counters/packet_seq_err = 0"},
		{Name: "congestion control at work", Machine: "hgx", Later: true, Before: congestion("0"),
			Change: congestion("1000000")},
		{Name: "a few retransmissions when a job is killed", Machine: "hgx", Before: counted, Later: true,
			Change: mlx1 + "counters/port_xmit_packets = 1000000000; " + mlx1 + "hw_counters/packet_seq_err = 900"},

		// Ports and links.
		{Name: "a cable", Want: "critical port_down, rail 1", Machine: "hgx", Lab: Lab{Cable: true},
			Change: ens2 + "carrier = 0; " + mlx1 + "state = 1: DOWN; " + mlx1 + "phys_state = 2: Polling"},
		{Name: "a cable, while it runs", Want: "critical port_down, rail 1", Machine: "hgx", Later: true,
			Change: ens2 + "carrier = 0; " + mlx1 + "state = 1: DOWN; " + mlx1 + "phys_state = 2: Polling; " + mlx1 +
				"rate = 10 Gb/sec (4X SDR)"},
		{Name: "a port that is down with carrier", Want: "critical port_down, rail 1", Machine: "hgx",
			Change: mlx1 + "state = 1: DOWN"},
		{Name: "an InfiniBand port without a subnet manager", Want: "critical port_down, rail 1", Machine: "hgx",
			Change: mlx1 + "state = 2: INIT; " + mlx1 + "link_layer = InfiniBand"},
		{Name: "an InfiniBand port that stays ARMED", Want: "critical port_down, rail 1", Machine: "hgx",
			Change: mlx1 + "state = 3: ARMED; " + mlx1 + "link_layer = InfiniBand"},
		{Name: "a port that stays ACTIVE_DEFER", Want: "critical port_down, rail 1", Machine: "hgx",
			Change: mlx1 + "state = 5: ACTIVE_DEFER"},
		{Name: "a cable that died in a Spark's second port", Want: "critical port_down, rail 1", Machine: "spark",
			Change: "sys/class/net/enp1s0f1np1/carrier_up_count = 1"},
		{Name: "an interface taken down", Want: "critical netdev_down, rail 1", Machine: "hgx",
			Change: ens2 + "flags = 0x1002; gone " + ens2 + "carrier; " + mlx1 + "state = 1: DOWN; " + mlx1 +
				"phys_state = 3: Disabled", Lab: Lab{Shell: "ip link set eth1 down", CI: true}},
		{Name: "five flaps", Want: "warning link_flapping, rail 1", Machine: "hgx", Later: true,
			Before: ens2 + "carrier_changes = 2", Change: ens2 + "carrier_changes = 12", Lab: Lab{Later: true,
				Shell: `for i in 1 2 3 4 5; do ip link set eth1 down; sleep 1; ip link set eth1 up; sleep 1; done`}},
		{Name: "a link that flaps for days", Want: "warning carrier_flapping, rail 1", Machine: "hgx",
			Change: ens2 + "carrier_down_count = 41"},
		{Name: "a rate that was lost", Want: "critical rate_lost, rail 1", Machine: "hgx", Later: true,
			Change: mlx1 + "rate = 100 Gb/sec (4X EDR)"},
		{Name: "half the lanes of a port", Want: "critical rate_lost, rail 1", Machine: "hgx", Later: true,
			Change: mlx1 + "rate = 200 Gb/sec (2X NDR)"},
		{Name: "a rate below the configured one", Want: "critical rate_lost, rail 0", Machine: "lag",
			Config: "expect: {rate: 400Gb/s}\n"},

		// Missing devices.
		{Name: "a rail deleted", Want: "critical rail_missing, rail 1", Machine: "hgx", Later: true, Change: lost,
			Lab: Lab{Shell: "rdma link delete rxe1", Later: true}},
		{Name: "two rails deleted", Want: "critical rail_missing, rail 1", Machine: "hgx", Later: true,
			Beside: []string{"critical rail_missing, rail 2"}, Change: lost + "; gone sys/class/infiniband/mlx5_2"},
		{Name: "all rails deleted", Want: "critical no_rails, node", Machine: "rxe", Later: true,
			Change: "gone sys/class/infiniband/rxe0; gone sys/class/infiniband/rxe1"},
		{Name: "a rail that was never there", Want: "critical rail_missing, node", Machine: "hgx",
			Config: "expect: {rails: 9}\n"},
		{Name: "one of two PCIe functions", Want: "critical rail_missing, rail 2", Machine: "spark", Later: true,
			Beside: []string{"warning pcie_link_low, rail 0"}, // only the other function's slot is too narrow
			Change: "gone sys/class/infiniband/roceP2p1s0f0"},
		{Name: "no RDMA in the kernel", Want: "critical no_rails, node", Machine: "hgx",
			Change: "gone sys/class/infiniband"},
		{Name: "an adapter that never worked", Want: "critical adapter_without_rdma, adapter 0000:ab:00.0",
			Machine: "hgx",
			Change: cx7a + "class = 0x020700; " + cx7a + "vendor = 0x15b3; " + cx7a + "device = 0x1021; " + cx7a +
				"driver -> ../../../../bus/pci/drivers/mlx5_core; " + cx7a + "infiniband/mlx5_99/fw_ver = 1; " + cx7b +
				"class = 0x020700; " + cx7b + "vendor = 0x15b3; " + cx7b + "device = 0x1021; " + cx7b +
				"driver -> ../../../../bus/pci/drivers/mlx5_core"},
		{Name: "a rate that the driver does not know", Want: "info rate_disagrees, rail 1", Machine: "hgx",
			Change: mlx1 + "rate = 40 Gb/sec (4X QDR); " + ens2 + "speed = 400000"},
		{Name: "bytes that nothing counts", Want: "info bytes_not_counted, rail 1", Machine: "hgx",
			Change: "gone " + mlx1 + "counters"},
		{Name: "a pattern that matches nothing", Want: "warning pattern_unmatched, configuration rails.exclude",
			Machine: "hgx", Config: "rails: {exclude: ^mlx4_}\n"},
		{Name: "a laptop", Want: "info no_rails, node", Machine: "system-laptop"},
		{Name: "a GPU fell off the bus", Want: "critical gpu_missing, node", Machine: "hgx", Later: true,
			Change: "gone sys/bus/pci/devices/0000:3b:00.0"},
		{Name: "fewer GPUs than configured", Want: "critical gpu_missing, node", Machine: "lag",
			Config: "expect: {gpus: 8}\n"},

		// MTU.
		{Name: "MTU 1500", Want: "warning mtu_low, rail 1", Machine: "rxe", Change: eth1 + "mtu = 1500",
			Lab: Lab{Shell: "ip link set eth1 mtu 1500"}},
		{Name: "a MTU that was lost", Want: "warning mtu_lost, rail 1", Machine: "hgx", Later: true,
			Change: ens2 + "mtu = 1500"},
		{Name: "a MTU below the siblings'", Want: "warning mtu_unlike, rail 1", Machine: "hgx",
			Change: ens2 + "mtu = 4200"},

		// GIDs and addresses.
		{Name: "an address removed", Want: "critical gid_link_local, rail 1", Machine: "rxe", Change: noIPv4,
			Lab: Lab{Shell: "ip address del 192.168.101.1/24 dev eth1"}},
		{Name: "an address that an interface gave itself", Want: "info gid_link_local, rail 1", Machine: "rxe",
			Change: "gone kernel/addresses/eth1; " + rxe1 + "gids/1 = 0000:0000:0000:0000:0000:ffff:a9fe:0105"},
		{Name: "an empty GID table", Want: "critical gid_missing, rail 1", Machine: "rxe",
			Change: noIPv4 + "; " + rxe1 + "gids/0 = " + noGID},
		{Name: "RoCE v1 only", Want: "critical gid_missing, rail 1", Machine: "hgx",
			Change: mlx1 + "gid_attrs/types/1 = IB/RoCE v1; " + mlx1 + "gid_attrs/types/3 = IB/RoCE v1"},
		{Name: "IPv6 only", Want: "warning gid_missing, rail 1", Machine: "hgx", Change: mlx1 + "gids/3 = " + v6GID +
			"; " + mlx1 + "gids/2 = " + v6GID + "; kernel/addresses/ens2np0 = fd00::101/64"},
		{Name: "a GID index that moved", Want: "warning gid_index_unlike, rail 1", Machine: "hgx", Change: mlx1 +
			"gid_attrs/types/3 = IB/RoCE v1; " + mlx1 + "gids/5 = 0000:0000:0000:0000:0000:ffff:0a00:0101; " + mlx1 +
			"gid_attrs/types/5 = RoCE v2; " + mlx1 + "gid_attrs/ndevs/5 = ens2np0"},
		{Name: "the GIDs of a bond", Want: "critical gid_misbound, rail 1", Machine: "rxe", Change: bonded},
		{Name: "the GIDs of a bridge", Want: "critical gid_misbound, rail 1", Machine: "rxe",
			Change: "gone kernel/addresses/eth1; " + rxe1 + "gid_attrs/ndevs/1 = br0; " +
				"sys/devices/virtual/net/br0/bridge/stp_state = 0; sys/devices/virtual/net/br0/lower_eth1 -> " +
				"../eth1; sys/class/net/br0 -> ../../devices/virtual/net/br0; " + eth1 + "master -> " +
				"../../../../../virtual/net/br0"},
		{Name: "one subnet", Want: "critical same_subnet, rails 0 and 1", Machine: "rxe",
			Change: "kernel/addresses/eth1 = 192.168.100.11/24; kernel/paths/192.168.100.1 = eth0; " +
				"kernel/paths/192.168.100.11 = eth0", Lab: Lab{
				Shell: "ip address flush dev eth1 scope global; ip address add 192.168.100.11/24 dev eth1"}},
		{Name: "an unused half of a Spark's port", Want: "warning half_unused, rail 2", Machine: "spark",
			Change: "gone kernel/addresses/enP2p1s0f0np0; " + half + "gids/2 = " + noGID + "; " + half + "gids/3 = " +
				noGID},

		// Bonds.
		{Name: "a bond in a mode without RDMA", Want: "critical bond_mode, bond bond0", Machine: "rxe",
			Change: bothBonded + "balance-rr 0"},
		{Name: "a bond without one RDMA device", Want: "critical bond_no_lag, bond bond0", Machine: "rxe",
			Change: bothBonded + "balance-xor 2"},
		{Name: "a member of a bond without carrier", Want: "critical bond_member_down, interface ens1f1np1",
			Machine: "lag", Change: member + "bonding_slave/mii_status = down; " + member + "carrier = 0"},
		{Name: "a bond whose members are all down", Want: "critical bond_member_down, interface ens1f1np1",
			Machine: "lag", Beside: []string{"critical bond_member_down, interface ens1f0np0",
				"critical port_down, rail 0"},
			Change: member + "bonding_slave/mii_status = down; " + member + "carrier = 0; " +
				"sys/class/net/ens1f0np0/bonding_slave/mii_status = down; sys/class/net/ens1f0np0/carrier = 0; " +
				"sys/class/infiniband/mlx5_bond_0/ports/1/state = 1: DOWN; " + bond0 + "carrier = 0"},
		{Name: "a bond without a LACP partner", Want: "critical bond_lacp, bond bond0", Machine: "lag",
			Change: member + "bonding_slave/ad_actor_oper_port_state = 77"},
		{Name: "a bond in two aggregators", Want: "critical bond_lacp, bond bond0", Machine: "lag",
			Change: member + "bonding_slave/ad_aggregator_id = 2"},
		{Name: "a bond without members", Want: "warning bond_empty, bond bond7", Machine: "rxe",
			Change: "sys/class/net/bonding_masters = bond7; sys/class/net/bond7 -> ../../devices/virtual/net/bond7; " +
				"sys/devices/virtual/net/bond7/bonding/mode = balance-rr 0; " +
				"sys/devices/virtual/net/bond7/bonding/slaves = ; sys/devices/virtual/net/bond7/flags = 0x1503"},

		// PCIe and GPUs.
		{Name: "PCIe trained to half its lanes", Want: "warning pcie_link_low, rail 1", Machine: "hgx",
			Change: nic1 + "current_link_width = 8"},
		{Name: "PCIe lost half its lanes", Want: "warning pcie_lost, rail 1", Machine: "hgx", Later: true,
			Change: nic1 + "current_link_width = 8"},
		{Name: "PCIe lost a generation", Want: "warning pcie_lost, rail 0", Machine: "lag", Later: true,
			Change: lagPCI + "0000:17:00.0/current_link_speed = 8.0 GT/s PCIe"},
		{Name: "a slot that is too narrow", Want: "warning pcie_link_low, rail 1", Machine: "hgx", Change: slot1 +
			"max_link_width = 8; " + slot1 + "current_link_width = 8; " + nic1 + "current_link_width = 8"},
		{Name: "a GPU with half its lanes", Want: "warning gpu_pcie_low, gpu 0000:3b:00.0", Machine: "hgx",
			Change: gpu1 + "max_link_width = 16; " + gpu1 + "max_link_speed = 32.0 GT/s PCIe; " + gpu1 +
				"current_link_width = 8; " + gpu1 + "current_link_speed = 2.5 GT/s PCIe"},
		{Name: "an idle GPU with a slow link", Machine: "hgx", Change: gpu1 + "max_link_width = 16; " + gpu1 +
			"max_link_speed = 32.0 GT/s PCIe; " + gpu1 + "current_link_width = 16; " + gpu1 +
			"current_link_speed = 2.5 GT/s PCIe"},
		{Name: "two ports on one narrow link", Want: "warning pcie_shared, rails 0 and 1", Machine: "spark",
			Change: "gone sys/class/infiniband/roceP2p1s0f0; gone sys/class/infiniband/roceP2p1s0f1; " +
				"sys/class/infiniband/rocep1s0f0/ports/1/rate = 100 Gb/sec (4X EDR); " + port1 + "state = 4: ACTIVE; " +
				port1 +
				"rate = 100 Gb/sec (4X EDR); " + port1 + "gids/3 = 0000:0000:0000:0000:0000:ffff:c0a8:6f0a; " + port1 +
				"gid_attrs/types/3 = RoCE v2; " + port1 + "gid_attrs/ndevs/3 = enp1s0f1np1; " +
				"sys/class/net/enp1s0f1np1/mtu = 9000; sys/class/net/enp1s0f1np1/carrier = 1; " +
				"sys/class/net/enp1s0f1np1/carrier_up_count = 1; kernel/addresses/enp1s0f1np1 = 192.168.111.10/24"},
		{Name: "a GPU in another NUMA node than its rail", Want: "warning numa_far, gpu 0000:b1:00.0", Machine: "lag",
			Change: "sys/bus/pci/devices/0000:b1:00.0/class = 0x030200; sys/bus/pci/devices/0000:b1:00.0/vendor = " +
				"0x10de; sys/bus/pci/devices/0000:b1:00.0/numa_node = 1"},
		{Name: "ACS between a rail and its GPUs", Want: "warning acs_enabled, rail 0", Machine: "system-switch",
			Change: sw + "config = pci 0x2910 0x5d; " + sw + "0000:16:00.0/config = pci 0x2910 0; " + sw +
				"0000:16:00.0/0000:17:00.0/config = pci 0x2910 0x5d; " + sw +
				"0000:16:00.0/0000:17:01.0/config = pci 0x2910 0x5d; " + sw +
				"0000:16:00.0/0000:17:02.0/config = pci 0x2910 0x5d; " + sw +
				"0000:16:00.0/0000:17:02.0/0000:1a:00.0/config = pci 0x2910 0x5d"},
		{Name: "relaxed ordering off", Want: "info relaxed_ordering_off, rail 0", Machine: "system-switch",
			Change: sw + "0000:16:00.0/0000:17:02.0/0000:1a:00.0/config = pci 0x2900 0"},
		{Name: "a GPU of AMD in another partition mode", Want: "warning gpu_partition_unlike, gpu 0000:19:00.0",
			Machine: "system-amd", Change: amd + "current_compute_partition = CPX"},
		{Name: "a GPU of AMD without xGMI", Want: "warning gpu_xgmi_lost, gpu 0000:19:00.0", Machine: "system-amd",
			Change: "gone " + amd + "xgmi_hive_info; gone " + amd + "xgmi_num_links"},
		{Name: "an IOMMU that translates", Want: "warning iommu_translates, node", Machine: "system-amd",
			Change: "sys/kernel/iommu_groups/24/type = DMA-FQ"},
		{Name: "no GPUDirect", Want: "warning gpudirect, node", Machine: "system-hgx",
			Change: "gone sys/module/nvidia_peermem; proc/sys/kernel/osrelease = 5.4.0-200-generic"},
		{Name: "an old module of GPUDirect", Want: "warning peermem_legacy, module nv_peer_mem", Machine: "system-hgx",
			Change: "gone sys/module/nvidia_peermem; sys/module/nv_peer_mem/version = 1.3-0"},

		// System settings of this process.
		{Name: "too little locked memory", Want: "critical memlock, node", Machine: "system-hgx",
			Change: limits + "65536             65536             bytes"},
		{Name: "no ib_uverbs", Want: "critical uverbs_module, node", Machine: "system-hgx",
			Change: "kernel/live = 1; gone sys/class/infiniband_verbs; gone root/dev/infiniband/uverbs0; " +
				"gone root/dev/infiniband/uverbs1; gone root/dev/infiniband/uverbs2"},
		{Name: "a device node is missing", Want: "critical uverbs_missing, rail 1", Machine: "system-hgx",
			Change: "gone root/dev/infiniband/uverbs1"},
		{Name: "the permissions of a device node", Want: "critical uverbs_permission, rail 2", Machine: "system-hgx",
			Change: "kernel/open/uverbs2 = permission denied"},
		{Name: "a cgroup without RDMA devices", Want: "critical uverbs_device_rules, rail 2", Machine: "system-hgx",
			Change: "kernel/open/uverbs2 = operation not permitted"},
		{Name: "no rdma_cm", Want: "warning rdma_cm, node", Machine: "system-rxe",
			Change: "gone root/dev/infiniband/rdma_cm"},
		{Name: "no libibverbs", Want: "critical libibverbs, node", Machine: "system-hgx",
			Change: "gone " + libs + "libibverbs.so.1; gone " + libs + "libibverbs.so.1.14.2410.0"},
		{Name: "no provider", Want: "critical provider, rails 0, 1 and 2", Machine: "system-hgx",
			Change: "gone " + libs + "libibverbs/libmlx5-rdmav34.so"},

		// Congestion control.
		{Name: "no PFC on one rail", Want: "warning pfc, rail 2", Machine: "system-hgx",
			Change: "kernel/pfc/enp77s0np0 = 0"},
		{Name: "global pause on one rail", Want: "warning pfc, rail 1", Machine: "system-hgx",
			Change: "kernel/pause/enp60s0np0 = 1 1"},
		{Name: "another trust on one rail", Want: "warning pfc, rail 2", Machine: "system-hgx",
			Change: nic2 + "net/enp77s0np0/qos/trust = pcp"},
		{Name: "no DCQCN on one rail", Want: "warning dcqcn, rail 2", Machine: "system-hgx",
			Change: nic2 + "net/enp77s0np0/ecn/roce_rp/enable/3 = 0"},
		{Name: "another traffic class on one rail", Want: "warning traffic_class, rail 1", Machine: "system-hgx",
			Change: "sys/kernel/config/rdma_cm/mlx5_1/ports/1/default_roce_tos = 0"},

		// Jobs.
		{Name: "NCCL_IB_DISABLE", Want: "critical nccl_ib_disable, process python3", Machine: "system-hgx",
			Change: job + `NCCL_IB_DISABLE=1\0`},
		{Name: "NCCL_IB_DISABLE for all jobs", Want: "critical nccl_ib_disable, file /etc/nccl.conf",
			Machine: "system-rxe", Change: `root/etc/nccl.conf = NCCL_IB_DISABLE=1`},
		{Name: "NCCL_NET=Socket", Want: "critical nccl_net, process python3", Machine: "system-hgx",
			Change: job + `NCCL_NET=socket\0`},
		{Name: "NCCL_IB_HCA names nothing", Want: "critical nccl_ib_hca, process python3", Machine: "system-hgx",
			Change: job + `NCCL_IB_HCA=mlx5_bond_0\0`},
		{Name: "NCCL_IB_GID_INDEX of RoCE v1", Want: "warning nccl_ib_gid_index, process python3",
			Machine: "system-hgx", Change: job + `NCCL_IB_GID_INDEX=2\0`},
		{Name: "UCX_TLS=tcp", Want: "critical ucx_tls, process python3", Machine: "system-hgx",
			Change: job + `UCX_TLS=tcp,cuda_copy,cuda_ipc\0`},
		{Name: "UCX_NET_DEVICES names nothing", Want: "critical ucx_net_devices, process python3",
			Machine: "system-hgx", Change: job + `UCX_NET_DEVICES=mlx5_9:1\0`},
		{Name: "a job in a class without PFC", Want: "warning class_mismatch, process python3", Machine: "system-hgx",
			Change: ownClass + "kernel/dscp/enp26s0np0 = 26 3; kernel/dscp/enp60s0np0 = 26 3; " +
				"kernel/dscp/enp77s0np0 = 26 3; " + job + `NCCL_IB_TC=0\0`},
		{Name: "a job whose class the device replaces", Machine: "system-hgx",
			Change: "kernel/dscp/enp26s0np0 = 26 3; kernel/dscp/enp60s0np0 = 26 3; kernel/dscp/enp77s0np0 = 26 3; " +
				job + `NCCL_IB_TC=0\0`},
		{Name: "an invalid address of etcd for NIXL", Want: "warning nixl_etcd, process python3", Machine: "system-hgx",
			Change: job + `NIXL_ETCD_ENDPOINTS=http://etcd-0\0`},

		// Faults that a running railscope finds.
		{Name: "1 % loss", Want: "warning lossy_rail, rail 1", Machine: "hgx", Before: counted, Later: true,
			Change: mlx1 + "counters/port_xmit_packets = 1001000; " + mlx1 + "hw_counters/packet_seq_err = 10007"},
		{Name: "0.1 % loss", Want: "warning lossy_rail, rail 1", Machine: "hgx", Before: counted, Later: true,
			Change: mlx1 + "counters/port_xmit_packets = 1001000; " + mlx1 + "hw_counters/packet_seq_err = 1007"},
		{Name: "packets out of sequence", Want: "warning out_of_sequence, rail 1", Machine: "hgx", Later: true,
			Before: received + "out_of_sequence = 7", Change: more + "out_of_sequence = 10007"},
		{Name: "no receive buffers", Want: "warning receive_discards, rail 1", Machine: "hgx", Later: true,
			Before: received + "out_of_buffer = 7", Change: more + "out_of_buffer = 10007"},
		{Name: "a peer that is not ready", Want: "warning rnr_naks, rail 1", Machine: "hgx", Later: true,
			Before: counted + "; " + mlx1 + "hw_counters/rnr_nak_retry_err = 7",
			Change: mlx1 + "counters/port_xmit_packets = 1001000; " + mlx1 + "hw_counters/rnr_nak_retry_err = 10007"},
		{Name: "queue pairs that failed", Want: "info queue_pairs_failed, rail 1", Machine: "hgx", Later: true,
			Before: mlx1 + "hw_counters/req_transport_retries_exceeded = 7",
			Change: mlx1 + "hw_counters/req_transport_retries_exceeded = 9"},
		{Name: "symbol errors", Want: "warning link_errors, rail 1", Machine: "hgx", Later: true,
			Before: mlx1 + "counters/symbol_error = 7", Change: mlx1 + "counters/symbol_error = 47"},
		{Name: "a link that recovers again and again", Want: "warning link_errors, rail 1", Machine: "hgx", Later: true,
			Before: mlx1 + "counters/link_error_recovery = 1", Change: mlx1 + "counters/link_error_recovery = 5"},
		{Name: "symbol errors of a link that was pulled", Machine: "hgx", Later: true,
			Before: ens2 + "carrier_changes = 2; " + mlx1 + "counters/symbol_error = 7",
			Change: ens2 + "carrier_changes = 4; " + mlx1 + "counters/symbol_error = 47"},
		{Name: "RDMA on a priority without PFC", Want: "warning rdma_on_lossy_priority, rail 1", Machine: "hgx",
			Later:  true,
			Before: mlx1 + "counters/port_xmit_data = 1000; " + prio0 + "4000",
			Change: mlx1 + "counters/port_xmit_data = 250001000; " + prio0 + "1000004000"},
		{Name: "a pause storm", Want: "critical pfc_storm, rail 1", Machine: "hgx", Later: true,
			Before: pauses + "7", Change: pauses + "1000000007"},
		{Name: "an adapter above its critical temperature", Want: "warning temperature_critical, rail 1",
			Machine: "hgx",
			Change: nic1 + "hwmon/hwmon0/temp1_input = 120000; " + nic1 + "hwmon/hwmon0/temp1_crit = 105000; " + nic1 +
				"hwmon/hwmon0/name = mlx5"},
		{Name: "a GPU reports Xid 79", Want: "critical hardware_event, gpu 0000:1b:00.0", Machine: "hgx", Later: true,
			Change: xid + `4,2001,6000001,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has ` +
				`fallen off the bus.`},
		{Name: "the firmware of an adapter died", Want: "critical hardware_event, rail 1", Machine: "hgx", Later: true,
			Change: xid +
				`3,2002,6000002,-;mlx5_core 0000:3a:00.0: poll_health:825:(pid 0): device's health compromised - ` +
				`reached miss count\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3a:00.0`},
		{Name: "a command of an adapter timed out", Want: "warning hardware_event, rail 1", Machine: "hgx", Later: true,
			Change: xid +
				`4,2003,6000003,-;mlx5_core 0000:3a:00.0: wait_func:1152:(pid 4711): ENABLE_HCA(0x104) timeout. ` +
				`Will cause a leak of a command resource\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3a:00.0`},
		{Name: "uneven traffic", Want: "warning traffic_uneven, node", Machine: "hgx", Later: true,
			Change: "kernel/sampled = imbalance 0.4"},
		{Name: "a rail that lags", Want: "warning rail_lags, rail 0", Machine: "hgx", Later: true,
			Change: "kernel/sampled = lag 4e9 4.6e10"},
		{Name: "traffic that fell back to TCP", Want: "warning rdma_idle_tcp_busy, node", Machine: "hgx", Later: true,
			Change: "kernel/sampled = rdma_idle_tcp_busy"},
		{Name: "traffic on a single rail", Want: "warning single_rail, node", Machine: "hgx", Later: true,
			Change: "kernel/sampled = single_rail"},
		{Name: "a job on 1 of 3 rails", Want: "warning job_uses_few_rails, job slurm-42", Machine: "system-hgx",
			Change: "kernel/qps = mlx5_0 1001; kernel/gpus = 0 1001\\n1 1001; proc/1001/comm = a.out; " +
				"proc/1001/stat = 1001 (a.out) S 1 1001 1001 0 0 1 2 3 4 5 6 7 8 9 20 0 1 0 1000 22" +
				strings.Repeat(" 0", 29) + "; " +
				`proc/1001/status = Name:\ta.out\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t1001\nPid:\t1001\n` +
				`PPid:\t1\n; ` +
				"proc/1001/cgroup = 0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"},
		{Name: "NCCL by sockets", Want: "critical nccl_fallback, job train", Machine: "hgx",
			Change: `log/train.log = node-0:172:190 [0] NCCL INFO NET/IB : No device found.\n` +
				`node-0:172:190 [0] NCCL INFO NET/Socket : Using [0]eth0:192.168.29.67<0>\n` +
				`node-0:172:190 [0] NCCL INFO Using network Socket\n`},
		{Name: "a configuration that was refused", Want: "warning config_refused, configuration", Machine: "hgx",
			Later: true, Change: "railscope.yml = rails: {names"},
		{Name: "a file that is no state", Want: "warning source_failed, source rdma", Machine: "hgx",
			Change: mlx1 + "state = maybe"},

		// Faults that doctor finds if run by hand.
		{Name: "a rail that UCX does not list", Want: "warning ucx_no_transport, rail 1", Machine: "system-hgx",
			ByHand: true, Change: "kernel/ucx = mlx5_0 mlx5_2"},
		{Name: "a process far from its rail", Want: "warning process_numa_far, process vllm", Machine: "system-hgx",
			ByHand: true, Change: twoNodes + "kernel/qps = mlx5_2 2001; " + pinned + "0-1"},
		{Name: "a process near its rail", Machine: "system-hgx", ByHand: true,
			Change: twoNodes + "kernel/qps = mlx5_2 2001; " + pinned + "4-5"},

		// Faults that doctor finds between two nodes.
		{Name: "two alike nodes", Machine: "rxe", Far: otherEnd},
		{Name: "two alike systems", Machine: "system-hgx", Far: "gone proc/4242/uid_map"},
		{Name: "a peer with fewer rails", Want: "info unpaired, rail 1", Machine: "rxe",
			Far: otherEnd + "; gone sys/class/infiniband/rxe1"},
		{Name: "a peer with InfiniBand", Want: "critical peer_link_layer, rail 1", Machine: "rxe",
			Far: otherEnd + "; " + rxe1 + "link_layer = InfiniBand"},
		{Name: "a slower peer", Want: "warning peer_rate, rail 1", Machine: "rxe",
			Far: otherEnd + "; " + rxe1 + "rate = 2.5 Gb/sec (1X SDR)"},
		{Name: "a peer with a larger MTU", Want: "warning peer_mtu, rail 1", Machine: "rxe",
			Beside: []string{"warning peer_mtu, rail 0"},
			Far:    otherEnd + "; " + eth1 + "mtu = 9000; sys/class/net/eth0/mtu = 9000"},
		{Name: "a peer in another subnet", Want: "critical peer_subnet, rail 1", Machine: "rxe",
			Far: otherEnd + "; kernel/addresses/eth1 = 192.168.111.2/24"},
		{Name: "a peer with PFC for another priority", Want: "warning peer_pfc, rails 0, 1 and 2",
			Machine: "system-hgx",
			Far:     "kernel/pfc/enp26s0np0 = 24; kernel/pfc/enp60s0np0 = 24; kernel/pfc/enp77s0np0 = 24"},
		{Name: "a peer with other DCQCN", Want: "warning peer_dcqcn, rails 0, 1 and 2", Machine: "system-hgx",
			Far: cnp + "1a:00.0/cc_params/np_cnp_dscp = 26; " + cnp + "3c:00.0/cc_params/np_cnp_dscp = 26; " + cnp +
				"4d:00.0/cc_params/np_cnp_dscp = 26"},
		{Name: "a peer with another traffic class", Want: "warning peer_traffic_class, rails 0, 1 and 2",
			Machine: "system-hgx", Far: tos + "0/ports/1/default_roce_tos = 0; " + tos + "1/ports/1/default_roce_tos " +
				"= 0; " +
				tos + "2/ports/1/default_roce_tos = 0"},
		{Name: "a peer with another UCX", Want: "warning peer_ucx, peer " + Peer, Machine: "system-hgx",
			Far: "root/opt/hpcx/ucx/lib/pkgconfig/ucx.pc = Version: 1.16.0"},
		{Name: "a peer with another NCCL", Want: "warning peer_nccl, peer " + Peer, Machine: "system-hgx",
			Far: "gone " + libs + "libnccl.so.2.26.2; " + libs + "libnccl.so.2.9.9 = x; gone " + python +
				"nvidia_nccl_cu12-2.26.2.dist-info"},
		{Name: "a peer with another RCCL", Want: "warning peer_rccl, peer " + Peer, Machine: "system-amd",
			Far: "gone root/opt/rocm/lib/librccl.so.1.0.70200; root/opt/rocm/lib/librccl.so.1.0.70202 = x"},
		{Name: "a peer with another NIXL", Want: "warning peer_nixl, peer " + Peer, Machine: "system-hgx",
			Far: "gone " + python + "nixl-0.4.1.dist-info; " + python + "nixl_cu12-0.7.0.dist-info/METADATA = x"},
		{Name: "a peer with another rdma-core", Want: "warning peer_rdma_core, peer " + Peer, Machine: "system-hgx",
			Far: "gone " + libs + "libibverbs.so.1; gone " + libs + "libibverbs.so.1.14.2410.0; " + libs +
				"libibverbs.so.1 -> libibverbs.so.1.14.50.0; " + libs + "libibverbs.so.1.14.50.0 = x"},
		{Name: "a peer with other firmware", Want: "warning peer_firmware, peer " + Peer, Machine: "system-hgx",
			Far: nic2 + "infiniband/mlx5_2/fw_ver = 28.45.4028"},
		{Name: "a peer with another driver of the adapter", Want: "warning peer_nic_driver, peer " + Peer,
			Machine: "system-hgx", Far: "sys/module/mlx5_core/version = 23.10-2.1.3"},
		{Name: "a peer with another NVIDIA driver", Want: "warning peer_nvidia_driver, peer " + Peer,
			Machine: "system-hgx",
			Far: "proc/driver/nvidia/version = NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  " +
				"Release Build  (x)"},
		{Name: "a peer with another kernel", Want: "warning peer_kernel, peer " + Peer, Machine: "system-hgx",
			Far: "proc/sys/kernel/osrelease = 6.8.0-31-generic"},

		// Faults that rounds with a peer find.
		{Name: "a rail that carries 60 % of what it did", Want: "warning goodput_degraded, rail 1", Later: true,
			Rounds: 11, Fabric: "a 1 rate 120e6"},
		{Name: "1 % of packets lost", Want: "warning lossy_rail, rail 1", Fabric: "a 0 loses 0; a 1 loses 0.01",
			Lab: Lab{
				Bench: true, CI: true, Shell: "tc qdisc replace dev eth1 root netem rate SHAPE loss 1%",
				Not: []string{"shared_bottleneck", "imbalance", "latency_uneven"}}},
		{Name: "one shaper for both rails", Want: "warning shared_bottleneck, peer " + Peer,
			Fabric: "a 0 wire 1; a 1 wire 1",
			Lab:    Lab{Bench: true, Shell: OneShaper, Not: []string{"imbalance", "lossy_rail"}}},
		{Name: "2 ms more", Want: "warning latency_uneven, rail 1", Lab: Lab{Bench: true,
			Shell: "tc qdisc replace dev eth1 root netem rate SHAPE delay 2ms",
			Not:   []string{"shared_bottleneck", "lossy_rail"}}},
		{Name: "4 ms more", Want: "warning latency_uneven, rail 1", Fabric: "a 1 latency 4", Lab: Lab{Bench: true,
			Shell: "tc qdisc replace dev eth1 root netem rate SHAPE delay 4ms 1ms",
			Not:   []string{"shared_bottleneck"}}},
		{Name: "the peer's worker killed", Want: "warning peer_worker, peer " + Peer, Fabric: "b killed"},
		{Name: "our worker killed again and again", Want: "warning probe_failed, peer " + Peer, Fabric: "a killed"},
		{Name: "one rail dead, one alive", Want: "warning rail_failed, rail 1", Fabric: "b 1 blocked",
			Lab: Lab{Asks: true, Peer: "tc qdisc replace dev eth1 root netem loss 100%"}},
		{Name: "a switch with a smaller MTU", Want: "warning rail_failed, rail 1", Fabric: "a 1 drops 3000"},
		{Name: "the peer's cable", Want: "warning rail_failed, rail 1", Fabric: "b 1 down"},
		{Name: "our cable", Want: "critical port_down, rail 1", Fabric: "a 1 down"},
		{Name: "all rails blocked", Want: "critical fallback, peer " + Peer, Fabric: "b 0 blocked; b 1 blocked"},
		{Name: "the peer's address gone", Want: "warning peer_gid, rail 1", Fabric: "b 1 local", Lab: Lab{Asks: true,
			Peer: "ip address del 192.168.101.2/24 dev eth1"}},
		{Name: "our address gone", Want: "critical gid_link_local, rail 1", Fabric: "a 1 local"},
		{Name: "the peer's rail in a bond", Want: "critical gid_misbound, peer " + Peer, Fabric: "b 1 bonded"},
		{Name: "the peer's rail deleted", Want: "critical rail_missing, peer " + Peer, Later: true,
			Fabric: "b 1 deleted"},
		{Name: "a peer that never had the rail", Want: "info unpaired, rail 1", Fabric: "b 1 deleted"},
		{Name: "our rail deleted", Want: "critical rail_missing, rail 1", Later: true, Fabric: "a 1 deleted"},
		{Name: "the peer's devices gone", Want: "critical fallback, peer " + Peer, Fabric: "b 0 deleted; b 1 deleted",
			Lab: Lab{Asks: true, Peer: "for i in 0 1; do rdma link delete rxe$i; done"}},
		{Name: "the peer's devices gone, while it runs", Want: "critical fallback, peer " + Peer, Later: true,
			Fabric: "b 0 deleted; b 1 deleted"},
		{Name: "the peer stopped", Want: "warning probe_failed, peer " + Peer, Fabric: "b stopped"},
		{Name: "bytes that arrive changed", Want: "critical data_mismatch, peer " + Peer, Fabric: "a 0 corrupts"},
		{Name: "a rail with 60 % of its sibling", Want: "warning imbalance, rail 1", Fabric: "a 1 rate 120e6"},
		{Name: "a slow rail", Want: "critical goodput_below_expected, rail 1", Fabric: "a 1 rate 50e6"},
		{Name: "rails slower than TCP", Want: "info slower_than_tcp, peer " + Peer,
			Fabric: "a 0 rate 100e6; a 1 rate 100e6"},
		{Name: "a small MTU at the peer", Want: "info path_mtu_small, rail 1", Fabric: "b 1 mtu 3",
			Lab: Lab{Asks: true, Peer: "ip link set eth1 mtu 1500"}},
		{Name: "others' traffic below busy_above", Want: "info other_traffic, rail 1",
			Fabric: "a 0 loses 0; a 1 foreign 60e6"},
	}
}

// congestion returns the congestion control counters of rail 1.
func congestion(n string) string {
	return mlx1 + "counters/port_rcv_packets = " + n + "; " + mlx1 + "counters/port_xmit_packets = " + n + "; " +
		mlx1 + "hw_counters/np_ecn_marked_roce_packets = " + n + "; " + mlx1 + "hw_counters/np_cnp_sent = " + n + "; " +
		mlx1 + "hw_counters/rp_cnp_handled = " + n
}

// Exempt returns the checks without a row, with the reason.
func Exempt() map[string]string {
	return map[string]string{
		"pfc_pause":         "needs a share of the time, which a quick test does not control: TestLive of doctor/check",
		"host_bottleneck":   "needs probe.extras, and a host that is slower than its rail: TestRound of doctor/check",
		"gpu_memory_staged": "needs probe.extras and GPUs: TestRound of doctor/check, TestExtraGPU of probe",
		"lossy_path":        "needs probe.extras: TestRound of doctor/check, TestExtraPaths of probe and of the lab",
		"scaling_high":      "info, and needs adapters that start slowly: TestRound of doctor/check",
		"counter_mismatch":  "info, and needs a driver that miscounts: the fake fabric counts what it carries",
		"step_failed":       "info, and without an effect on the round",
		"version_mismatch": "info, and the workers of the fake fabric are one program; peer_* compares versions of " +
			"nodes",
		"peer": "needs a peer that refuses or does not answer: TestDoctorPeer of cmd/railscope",
	}
}
