package check

import (
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/doctortest"
)

// TestNoFalseAlarm: what only looks like a fault is not a finding.
func TestNoFalseAlarm(t *testing.T) {
	routed := doctortest.File("kernel/paths/192.168.100.1", "eth0") + doctortest.File("kernel/paths/192.168.100.11",
		"eth1")
	for _, c := range []struct{ name, machine, change string }{
		{"one subnet, with all it needs", "rxe",
			doctortest.File("kernel/addresses/eth1", "192.168.100.11/24") + routed +
				doctortest.File("proc/sys/net/ipv4/conf/all/arp_ignore",
					"1") + doctortest.File("proc/sys/net/ipv4/conf/all/arp_announce", "2")},
		{"the same by arp_filter", "rxe", doctortest.File("kernel/addresses/eth1", "192.168.100.11/24") + routed +
			doctortest.File("proc/sys/net/ipv4/conf/all/arp_filter",
				"1") + doctortest.File("proc/sys/net/ipv4/conf/eth0/arp_announce",
			"2") + doctortest.File("proc/sys/net/ipv4/conf/eth1/arp_announce", "2")},
		{"a point-to-point subnet for each rail", "rxe",
			doctortest.File("kernel/addresses/eth0", "10.0.0.0/31") + doctortest.File("kernel/addresses/eth1",
				"10.0.0.2/31")},
		{"links that a boot shook", "hgx",
			doctortest.File(ens2+"carrier_down_count", "20") + doctortest.File("proc/uptime", "300.00 100.00")},
		{"a link that went down now and then in ten days", "hgx", doctortest.File(ens2+"carrier_down_count", "40")},
		{"an unused port that is taken down", "spark", doctortest.File("sys/class/net/enp1s0f1np1/flags",
			"0x1002") + "gone sys/class/net/enp1s0f1np1/carrier\n"},
		{"an unused port of InfiniBand without an interface", "spark",
			unusedIB + doctortest.File(unusedPort+"counters/port_rcv_packets", "0")},
		{"a VLAN beside the interface", "hgx",
			doctortest.File(mlx1+"gids/4",
				"0000:0000:0000:0000:0000:ffff:0a01:0101") + doctortest.File(mlx1+"gid_attrs/types/4",
				"RoCE v2") + doctortest.File(mlx1+"gid_attrs/ndevs/4", "vlan7") +
				doctortest.File("sys/devices/virtual/net/vlan7/lower_ens2np0",
					"-> ../ens2np0") + doctortest.File("sys/class/net/vlan7", "-> ../../devices/virtual/net/vlan7")},
		{"a storage adapter of another rate with another MTU", "hgx",
			doctortest.File(ens2+"mtu", "4200") + doctortest.File(mlx1+"rate", "200 Gb/sec (4X HDR)")},
		{"both cables of a Spark, all four halves in use", "spark", sparkWhole},
		{"an adapter of eight lanes in a slot of sixteen", "lag",
			doctortest.File("sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/max_link_width",
				"8") + doctortest.File("sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/current_link_width", "8")},
		{"InfiniBand", "hgx", doctortest.File(mlx1+"link_layer", "InfiniBand") + doctortest.File(ens2+"mtu",
			"2044") + "gone kernel/addresses/ens2np0\ngone " + mlx1 + "gids/3\n"},
		{"InfiniBand whose interface is down", "hgx",
			doctortest.File(mlx1+"link_layer", "InfiniBand") + doctortest.File(ens2+"flags", "0x1002")},
		{"a bond of IPoIB", "hgx", bondOfIPoIB},
		{"iWARP", "hgx", doctortest.File("sys/class/infiniband/mlx5_1/node_type",
			"4: RNIC") + "gone " + mlx1 + "gids/1\ngone " + mlx1 + "gids/2\ngone " + mlx1 + "gids/3\n"},
		{"an interface in a container's namespace", "rxe",
			"gone sys/class/net/eth1\ngone kernel/addresses/eth1\ngone sys/class/infiniband/rxe1/parent\ngone " +
				"sys/class/infiniband/rxe1/ports/1/gid_attrs/ndevs\n"},
		{"a GPU in another NUMA node of the same processor", "lag",
			gpuInNode1 + doctortest.File("sys/devices/system/node/node0/distance",
				"10 12") + doctortest.File("sys/devices/system/node/node1/distance", "12 10")},
		{"the emulated slot of a virtual machine", "hgx",
			doctortest.File("sys/devices/pci0000:37/0000:37:01.0/max_link_width",
				"1") + doctortest.File("sys/devices/pci0000:37/0000:37:01.0/max_link_speed", "2.5 GT/s PCIe")},
		{"a rail on a GPU-less socket", "hgx", "gone sys/bus/pci/devices/0000:bb:00.0\n"},
		{"a bond of interfaces that are not rails", "rxe", doctortest.File("sys/class/net/bonding_masters",
			"bond7") + doctortest.File("sys/devices/virtual/net/bond7/bonding/mode", "balance-rr 0") +
			doctortest.File("sys/devices/virtual/net/bond7/bonding/slaves",
				"eth8 eth9") + doctortest.File("sys/class/net/bond7", "-> ../../devices/virtual/net/bond7")},
		{"a Soft-RoCE device on a bond", "rxe", doctortest.File("sys/devices/virtual/infiniband/rxe1/parent",
			"bond0") + doctortest.File("sys/devices/virtual/infiniband/rxe1/ports/1/gid_attrs/ndevs/1", "bond0") +
			doctortest.File("sys/class/net/bonding_masters",
				"bond0") + doctortest.File("sys/devices/virtual/net/bond0/bonding/mode",
			"balance-rr 0") + doctortest.File("sys/devices/virtual/net/bond0/bonding/slaves", "eth1 eth2") +
			doctortest.File("sys/devices/virtual/net/bond0/mtu", "4200") + doctortest.File("sys/class/net/bond0",
			"-> ../../devices/virtual/net/bond0")},
		{"a state that cannot be read", "hgx", doctortest.File(mlx1+"state", "N/A")},
		{"an unknown state", "hgx", doctortest.File(mlx1+"state", "99999999999999999999")},
		{"the state of a half that cannot be read", "spark", doctortest.File(half+"state", "-1")},
		{"GIDs of a half that cannot be read", "spark", doctortest.File(half+"gids/3", "N/A")},
		{"an unknown bond mode", "lag", doctortest.File("sys/class/net/bond0/bonding/mode", "N/A")},
		{"an invalid aggregator", "lag",
			doctortest.File("sys/class/net/ens1f1np1/bonding_slave/ad_aggregator_id", "-1")},
		{"nothing but state and GIDs can be read", "rxe",
			"gone sys/class/net/eth1/flags\ngone sys/class/net/eth1/carrier\ngone sys/class/net/eth1/mtu\ngone " +
				"sys/class/net/eth1/carrier_down_count\ngone proc/sys/net\ngone kernel/addresses\ngone proc/uptime\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if list := judge(doctortest.Machine(t, c.machine, c.change), nil); len(list) > 0 {
				t.Errorf("%+v", list)
			}
		})
	}
}

// bondOfIPoIB turns two rails into InfiniBand and bonds their interfaces: failover for IP, which RDMA ignores.
var bondOfIPoIB = func() string {
	var b strings.Builder
	for i, netdev := range []string{"ens1np0", "ens2np0"} {
		port := "sys/class/infiniband/mlx5_" + string(rune('0'+i)) + "/ports/1/"
		b.WriteString("gone kernel/addresses/" + netdev + "\ngone " + port + "gid_attrs\n" +
			doctortest.File(port+"link_layer", "InfiniBand") + doctortest.File("sys/class/net/"+netdev+"/master",
			"-> ../../../../../virtual/net/bond0") +
			doctortest.File("sys/class/net/"+netdev+"/bonding_slave/mii_status", "up"))
	}
	return b.String() + doctortest.File("sys/class/net/bonding_masters",
		"bond0") + doctortest.File("sys/devices/virtual/net/bond0/bonding/mode", "active-backup 1") +
		doctortest.File("sys/devices/virtual/net/bond0/bonding/slaves",
			"ens1np0 ens2np0") + doctortest.File("sys/class/net/bond0", "-> ../../devices/virtual/net/bond0") +
		doctortest.File("sys/class/net/bond0/ifindex", "99") + doctortest.File("kernel/addresses/bond0", "10.0.1.1/24")
}()

// unusedIB turns a Spark's second port into InfiniBand without an interface.
const (
	unusedPort = "sys/class/infiniband/rocep1s0f1/ports/1/"
	unusedIB   = "gone sys/class/net/enp1s0f1np1\n-- " + unusedPort + "link_layer --\nInfiniBand\n"
)

// sparkWhole is a Spark with both cables and an address on every half.
var sparkWhole = func() string {
	var b strings.Builder
	for i, f := range []string{"rocep1s0f1 enp1s0f1np1", "roceP2p1s0f1 enP2p1s0f1np1"} {
		device, netdev, _ := strings.Cut(f, " ")
		port := "sys/class/infiniband/" + device + "/ports/1/"
		third := "7" + string(rune('0'+i))
		b.WriteString(doctortest.File(port+"state", "4: ACTIVE") + doctortest.File(port+"rate",
			"200 Gb/sec (4X HDR)") + doctortest.File(port+"gids/2",
			"0000:0000:0000:0000:0000:ffff:c0a8:"+third+"0a") + doctortest.File(port+"gid_attrs/types/2",
			"IB/RoCE v1") +
			doctortest.File(port+"gid_attrs/ndevs/2", netdev) + doctortest.File(port+"gids/3",
			"0000:0000:0000:0000:0000:ffff:c0a8:"+third+"0a") + doctortest.File(port+"gid_attrs/types/3",
			"RoCE v2") + doctortest.File(port+"gid_attrs/ndevs/3", netdev) +
			doctortest.File("sys/class/net/"+netdev+"/mtu",
				"9000") + doctortest.File("sys/class/net/"+netdev+"/carrier",
			"1") + doctortest.File("sys/class/net/"+netdev+"/carrier_up_count", "1") +
			doctortest.File("kernel/addresses/"+netdev, "192.168.11"+string(rune('2'+i))+".10/24"))
	}
	return b.String()
}()
