package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
)

// fault is a machine with one change, and the one finding that it must yield.
type fault struct {
	name     string
	check    string
	severity finding.Severity
	machine  string
	change   string
	subject  string   // part of Finding.Subject
	read     string   // part of Finding.Evidence
	fix      []string // all commands, without the notes
}

const (
	mlx1 = "sys/class/infiniband/mlx5_1/ports/1/"
	ens2 = "sys/class/net/ens2np0/"
	gpu1 = "sys/devices/pci0000:37/0000:37:01.0/0000:3b:00.0/"
	half = "sys/class/infiniband/roceP2p1s0f0/ports/1/"
)

// oneEnslaved makes bond0, with an address, of eth1 and an interface that is not a rail.
func oneEnslaved(address string) string {
	return "gone kernel/addresses/eth1\n" + doctortest.File("sys/class/net/eth1/master",
		"-> ../../../../../virtual/net/bond0") + doctortest.File("sys/class/net/eth1/bonding_slave/mii_status", "up") +
		doctortest.File("sys/class/infiniband/rxe1/ports/1/gid_attrs/ndevs/1",
			"bond0") + doctortest.File("sys/class/net/bonding_masters",
		"bond0") + doctortest.File("sys/devices/virtual/net/bond0/bonding/mode", "active-backup 1") +
		doctortest.File("sys/devices/virtual/net/bond0/bonding/slaves",
			"eth1 eth7") + doctortest.File("sys/devices/virtual/net/bond0/ifindex",
		"9") + doctortest.File("sys/class/net/bond0",
		"-> ../../devices/virtual/net/bond0") + doctortest.File("kernel/addresses/bond0", address)
}

// enslaved makes bond0 of eth0 and eth1 as the kernel shows it: rxe0 and rxe1 have the GIDs of its address.
func enslaved(mode string) string {
	text := "gone kernel/addresses/eth0\ngone kernel/addresses/eth1\n"
	for i, netdev := range []string{"eth0", "eth1"} {
		gids := "sys/class/infiniband/rxe" + string(rune('0'+i)) + "/ports/1/"
		text += doctortest.File("sys/class/net/"+netdev+"/master",
			"-> ../../../../../virtual/net/bond0") +
			doctortest.File("sys/class/net/"+netdev+"/bonding_slave/mii_status", "up") +
			doctortest.File(gids+"gids/1",
				"0000:0000:0000:0000:0000:ffff:c0a8:6401") + doctortest.File(gids+"gid_attrs/ndevs/0",
			"bond0") + doctortest.File(gids+"gid_attrs/ndevs/1", "bond0")
	}
	return text + doctortest.File("sys/class/net/bonding_masters",
		"bond0") + doctortest.File("sys/devices/virtual/net/bond0/bonding/mode", mode) +
		doctortest.File("sys/devices/virtual/net/bond0/bonding/slaves",
			"eth0 eth1") + doctortest.File("sys/devices/virtual/net/bond0/ifindex", "9") +
		doctortest.File("sys/class/net/bond0",
			"-> ../../devices/virtual/net/bond0") + doctortest.File("kernel/addresses/bond0", "192.168.100.1/24")
}

// emptyBond has a bond without members, as the module creates it, with these flags.
func emptyBond(flags string) string {
	const dir = "sys/devices/virtual/net/bond7/"
	return doctortest.File("sys/class/net/bonding_masters", "bond7") + doctortest.File("sys/class/net/bond7",
		"-> ../../devices/virtual/net/bond7") + doctortest.File(dir+"bonding/mode", "balance-rr 0") +
		doctortest.File(dir+"bonding/slaves", "") + doctortest.File(dir+"flags", flags)
}

var dissolved = []string{"ip link delete dev bond0", "ip link set dev eth0 up", "ip link set dev eth1 up",
	"ip address add 192.168.100.1/24 dev eth0", "ip address add 192.168.101.1/24 dev eth1"}

var faults = []fault{
	{"no RDMA in the kernel", "no_rails", finding.Critical, "hgx", "gone sys/class/infiniband\n", "node",
		"0000:3a:00.0 mlx5_core", []string{"modprobe mlx5_ib"}},
	{"no driver", "no_rails", finding.Critical, "rxe",
		"gone sys/class/infiniband\n" + doctortest.File("sys/bus/pci/devices/0000:05:00.0/class",
			"0x020000") + doctortest.File("sys/bus/pci/devices/0000:05:00.0/vendor", "0x15b3"),
		"node", "0000:05:00.0", []string{"modprobe mlx5_core"}},
	{"no adapter", "no_rails", finding.Info, "rxe", "gone sys/class/infiniband\n", "node",
		"no RDMA hardware on this node", nil},
	{"no device", "no_rails", finding.Info, "rxe", "gone sys/class/infiniband/rxe0\ngone sys/class/infiniband/rxe1\n",
		"node", "no RDMA hardware on this node", nil},
	{"a device without a port", "no_rails", finding.Critical, "rxe",
		"gone sys/class/infiniband/rxe1\ngone sys/class/infiniband/rxe0/ports\n", "node",
		"none of the devices in /sys/class/infiniband (rxe0) has a readable port", nil},
	{"virtual functions only", "no_rails", finding.Info, "lag",
		doctortest.File("sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/physfn", "-> ../0000:17:00.1"), "node",
		"mlx5_bond_0 port 1: virtual_function", nil},

	{"an adapter whose firmware did not start", "adapter_without_rdma", finding.Critical, "hgx", twoAdapters(""),
		"adapter 0000:ab:00.0", "made neither an RDMA device nor an interface; equal adapters that have one: 1", nil},
	{"an adapter without a driver", "adapter_without_rdma", finding.Critical, "hgx",
		twoAdapters("without a driver"), "adapter 0000:ab:00.0", "no driver is bound to it",
		[]string{"echo 0000:ab:00.0 > /sys/bus/pci/drivers_probe"}},
	{"a port that its driver does not know", "rate_disagrees", finding.Info, "hgx",
		doctortest.File(mlx51+"/infiniband/mlx5_1/ports/1/rate", "40 Gb/sec (4X QDR)") +
			doctortest.File("sys/class/net/ens2np0/speed", "400000"),
		"rail 1", "the port reports 40 Gb/s, its interface ens2np0 runs at 400 Gb/s", nil},
	{"no counter of bytes", "bytes_not_counted", finding.Info, "hgx",
		"gone " + mlx51 + "/infiniband/mlx5_1/ports/1/counters\n", "rail 1", "(driver mlx5_core)", nil},
	{"no counter of bytes of two rails", "bytes_not_counted", finding.Info, "hgx",
		"gone sys/class/infiniband/mlx5_0/ports/1/counters\ngone " + mlx1 + "counters\n", "rails 0 and 1",
		"(driver mlx5_core)", nil},

	{"taken down", "netdev_down", finding.Critical, "hgx",
		doctortest.File(ens2+"flags", "0x1002") + "gone " + ens2 + "carrier\n" + doctortest.File(mlx1+"state",
			"1: DOWN") + doctortest.File(mlx1+"phys_state", "3: Disabled"),
		"rail 1 (mlx5_1, ens2np0)", "ens2np0 is administratively down", []string{"ip link set dev ens2np0 up"}},
	{"cable pulled", "port_down", finding.Critical, "hgx", doctortest.File(ens2+"carrier", "0") + doctortest.File(mlx1+"state",
		"1: DOWN") + doctortest.File(mlx1+"phys_state", "2: Polling"), "rail 1", "ens2np0 has no carrier", nil},
	{"no cable, by the driver", "port_down", finding.Critical, "hgx", doctortest.File(ens2+"carrier", "0") +
		doctortest.File(mlx1+"state", "1: DOWN") + doctortest.File("kernel/nolink/ens2np0", "there is no cable"), "rail 1",
		"ens2np0 has no carrier, by its driver because there is no cable", nil},
	{"down with carrier", "port_down", finding.Critical, "hgx", doctortest.File(mlx1+"state", "1: DOWN"), "rail 1", `"1: DOWN"`,
		[]string{"ip link set dev ens2np0 down && ip link set dev ens2np0 up"}},
	{"no subnet manager", "port_down", finding.Critical, "hgx",
		doctortest.File(mlx1+"state", "2: INIT") + doctortest.File(mlx1+"link_layer", "InfiniBand"), "rail 1",
		`"2: INIT"`, nil},
	{"second port with a cable that died", "port_down", finding.Critical, "spark",
		doctortest.File("sys/class/net/enp1s0f1np1/carrier_up_count", "1"), "rail 1 (rocep1s0f1",
		"enp1s0f1np1 has no carrier", nil},
	{"the only cable pulled", "port_down", finding.Critical, "spark",
		doctortest.File("sys/class/infiniband/rocep1s0f0/ports/1/state",
			"1: DOWN") + doctortest.File("sys/class/net/enp1s0f0np0/carrier",
			"0") + doctortest.File("sys/class/net/enp1s0f0np0/carrier_up_count", "1") +
			"gone sys/class/infiniband/roceP2p1s0f0\ngone sys/class/infiniband/roceP2p1s0f1\n", "rail 0 (rocep1s0f0",
		"enp1s0f0np0 has no carrier", nil},
	{"InfiniBand without an interface that once had a cable", "port_down", finding.Critical, "spark",
		unusedIB + doctortest.File(unusedPort+"counters/port_rcv_packets", "7"), "rail 1 (rocep1s0f1", "", nil},
	{"InfiniBand without a subnet manager or an interface", "port_down", finding.Critical, "spark",
		unusedIB + doctortest.File(unusedPort+"counters/port_rcv_packets", "0") + doctortest.File(unusedPort+"state",
			"2: INIT"), "rail 1 (rocep1s0f1", "", nil},
	{"InfiniBand in a bond of IPoIB", "port_down", finding.Critical, "hgx",
		bondOfIPoIB + doctortest.File(mlx1+"state", "1: DOWN") + doctortest.File(ens2+"carrier",
			"0") + doctortest.File(ens2+"bonding_slave/mii_status", "down"), "rail 1", "", nil},
	{"flapping", "carrier_flapping", finding.Warning, "hgx", doctortest.File(ens2+"carrier_down_count", "41"), "rail 1",
		"went down 41 times", nil},

	{"MTU 1500 on one rail", "mtu_low", finding.Warning, "rxe", doctortest.File("sys/class/net/eth1/mtu", "1500"),
		"rail 1 (rxe1, eth1)", "MTU 1500, which gives RoCE 1024", []string{"ip link set dev eth1 mtu 4200"}},
	{"MTU 1500 among 9000", "mtu_low", finding.Warning, "hgx", doctortest.File(ens2+"mtu", "1500"), "rail 1", "gives RoCE 1024",
		[]string{"ip link set dev ens2np0 mtu 9000"}},
	{"MTU 4200 among 9000", "mtu_unlike", finding.Warning, "hgx", doctortest.File(ens2+"mtu", "4200"), "rail 1",
		"MTU 4200, other rails of 400 Gb/s have 9000", []string{"ip link set dev ens2np0 mtu 9000"}},
	{"MTU of an interface for management", "mtu_low", finding.Warning, "rxe",
		thirdRail + doctortest.File("sys/class/net/eth2/mtu", "1500") + doctortest.File("kernel/gateways/eth2",
			"0.0.0.0/0"), "rail 2", "eth2 has the default route", nil},
	{"MTU of a bond", "mtu_low", finding.Warning, "lag", doctortest.File("sys/class/net/bond0/mtu", "1500"),
		"rail 0 (mlx5_bond_0, bond0)", "MTU 1500", []string{"ip link set dev bond0 mtu 4200"}},

	{"GID table empty", "gid_missing", finding.Critical, "rxe",
		"gone kernel/addresses/eth1\ngone sys/class/infiniband/rxe1/ports/1/gids/0\ngone " +
			"sys/class/infiniband/rxe1/ports/1/gids/1\n",
		"rail 1", "the GID table of rxe1 is empty", []string{"ip address add 192.168.101.1/24 dev eth1"}},
	{"no RoCE v2", "gid_missing", finding.Critical, "hgx",
		doctortest.File(mlx1+"gid_attrs/types/1", "IB/RoCE v1") + doctortest.File(mlx1+"gid_attrs/types/3",
			"IB/RoCE v1"), "rail 1", "RoCE v1 GIDs only",
		[]string{"ip link set dev ens2np0 down && ip link set dev ens2np0 up"}},
	{"IPv6 only", "gid_missing", finding.Warning, "hgx",
		doctortest.File(mlx1+"gids/3", "fd00:0000:0000:0000:0000:0000:0000:0101") + doctortest.File(mlx1+"gids/2",
			"fd00:0000:0000:0000:0000:0000:0000:0101") + doctortest.File("kernel/addresses/ens2np0", "fd00::101/64"),
		"rail 1", "over IPv6 only (index 3: fd00::101)", []string{"ip address add 10.0.1.1/24 dev ens2np0"}},
	{"address removed", "gid_link_local", finding.Critical, "rxe",
		"gone kernel/addresses/eth1\n" + doctortest.File("sys/class/infiniband/rxe1/ports/1/gids/1",
			"0000:0000:0000:0000:0000:0000:0000:0000"),
		"rail 1", "link-local only (index 0: fe80::5054:ff:fe00:101)",
		[]string{"ip address add 192.168.101.1/24 dev eth1"}},
	{"address of the first removed", "gid_link_local", finding.Critical, "rxe",
		"gone kernel/addresses/eth0\n" + doctortest.File("sys/class/infiniband/rxe0/ports/1/gids/1",
			"0000:0000:0000:0000:0000:0000:0000:0000"),
		"rail 0", "link-local only", []string{"ip address add 192.168.100.1/24 dev eth0"}},
	{"IPv4 address that it gave itself", "gid_link_local", finding.Info, "rxe",
		"gone kernel/addresses/eth1\n" + doctortest.File("sys/class/infiniband/rxe1/ports/1/gids/1",
			"0000:0000:0000:0000:0000:ffff:a9fe:0105"),
		"rail 1", "link-local only (index 1: 169.254.1.5)", []string{"ip address add 192.168.101.1/24 dev eth1"}},
	{"its subnet is taken", "gid_link_local", finding.Critical, "rxe",
		"gone kernel/addresses/eth1\n" + doctortest.File("sys/class/infiniband/rxe1/ports/1/gids/1",
			"0000:0000:0000:0000:0000:0000:0000:0000") +
			doctortest.File("kernel/addresses/ctl0", "192.168.101.200/25"), "rail 1", "link-local only",
		[]string{"ip address add 192.168.102.1/24 dev eth1"}},
	{"on a bridge", "gid_misbound", finding.Critical, "rxe",
		"gone kernel/addresses/eth1\n" + doctortest.File("sys/class/infiniband/rxe1/ports/1/gid_attrs/ndevs/1",
			"br0") + doctortest.File("sys/devices/virtual/net/br0/bridge/stp_state", "0") +
			doctortest.File("sys/devices/virtual/net/br0/lower_eth1",
				"-> ../eth1") + doctortest.File("sys/class/net/br0",
			"-> ../../devices/virtual/net/br0") + doctortest.File("sys/class/net/eth1/master",
			"-> ../../../../../virtual/net/br0"),
		"rail 1", "GID 1 (192.168.101.1) belongs to br0",
		[]string{"ip link set dev eth1 nomaster", "ip link set dev eth1 up",
			"ip address add 192.168.101.1/24 dev eth1"}},
	{"in a bond with what is no rail", "gid_misbound", finding.Critical, "rxe", oneEnslaved("192.168.101.1/24"), "rail 1",
		"GID 1 (192.168.101.1) belongs to bond0",
		[]string{"ip link set dev eth1 nomaster", "ip link set dev eth1 up",
			"ip address del 192.168.101.1/24 dev bond0", "ip address add 192.168.101.1/24 dev eth1"}},
	{"in a bond that has an address of its own", "gid_misbound", finding.Critical, "rxe", oneEnslaved("10.9.9.9/16"), "rail 1",
		"belongs to bond0",
		[]string{"ip link set dev eth1 nomaster", "ip link set dev eth1 up",
			"ip address add 192.168.101.1/24 dev eth1"}},
	{"index moved", "gid_index_unlike", finding.Warning, "hgx",
		doctortest.File(mlx1+"gid_attrs/types/3", "IB/RoCE v1") + doctortest.File(mlx1+"gids/5",
			"0000:0000:0000:0000:0000:ffff:0a00:0101") +
			doctortest.File(mlx1+"gid_attrs/types/5", "RoCE v2") + doctortest.File(mlx1+"gid_attrs/ndevs/5", "ens2np0"),
		"rail 1", "has index 5, that of most other rails 3", nil},

	{"P2P half without an address", "half_unused", finding.Warning, "spark",
		"gone kernel/addresses/enP2p1s0f0np0\n" + doctortest.File(half+"gids/2",
			"0000:0000:0000:0000:0000:0000:0000:0000") + doctortest.File(half+"gids/3",
			"0000:0000:0000:0000:0000:0000:0000:0000"),
		"rail 2 (roceP2p1s0f0, enP2p1s0f0np0)", "the same physical port as rail 0 (rocep1s0f0, enp1s0f0np0)",
		[]string{"ip address add 192.168.103.10/24 dev enP2p1s0f0np0"}},
	{"P2P half as it came", "half_unused", finding.Warning, "spark",
		"gone kernel/addresses/enP2p1s0f0np0\n" + doctortest.File("sys/class/net/enP2p1s0f0np0/mtu",
			"1500") + doctortest.File(half+"gids/2",
			"0000:0000:0000:0000:0000:0000:0000:0000") + doctortest.File(half+"gids/3",
			"0000:0000:0000:0000:0000:0000:0000:0000"),
		"rail 2", "nothing uses it", []string{"ip address add 192.168.103.10/24 dev enP2p1s0f0np0",
			"ip link set dev enP2p1s0f0np0 mtu 9000"}},
	{"P2P half taken down", "half_unused", finding.Warning, "spark", doctortest.File("sys/class/net/enP2p1s0f0np0/flags",
		"0x1002") + "gone sys/class/net/enP2p1s0f0np0/carrier\n" + doctortest.File(half+"state", "1: DOWN"),
		"rail 2", "enP2p1s0f0np0 is administratively down", []string{"ip link set dev enP2p1s0f0np0 up"}},

	{"two rails in one subnet", "same_subnet", finding.Critical, "rxe",
		doctortest.File("kernel/addresses/eth1", "192.168.100.11/24") + doctortest.File("kernel/paths/192.168.100.1",
			"eth0") + doctortest.File("kernel/paths/192.168.100.11", "eth0"),
		"rails 0 and 1 (rxe0 and rxe1)", "packets from 192.168.100.11 leave by eth0", []string{
			"sysctl -w net/ipv4/conf/eth0/arp_ignore=1", "sysctl -w net/ipv4/conf/eth0/arp_announce=2",
			"sysctl -w net/ipv4/conf/eth1/arp_ignore=1", "sysctl -w net/ipv4/conf/eth1/arp_announce=2",
			"ip route replace 192.168.100.0/24 dev eth1 src 192.168.100.11 table 47911",
			"ip rule add from 192.168.100.11 lookup 47911"}},
	{"both halves of a Spark in one subnet", "same_subnet", finding.Critical, "spark",
		doctortest.File("kernel/addresses/enP2p1s0f0np0",
			"192.168.101.11/24") + doctortest.File("kernel/paths/192.168.101.10",
			"enp1s0f0np0") + doctortest.File("kernel/paths/192.168.101.11", "enP2p1s0f0np0") +
			doctortest.File("proc/sys/net/ipv4/conf/all/arp_announce",
				"2") + doctortest.File("proc/sys/net/ipv4/conf/enp1s0f0np0/arp_filter", "1"), "rails 0 and 2",
		"arp_ignore of enP2p1s0f0np0 is 0", []string{"sysctl -w net/ipv4/conf/enP2p1s0f0np0/arp_ignore=1"}},

	{"bond in a mode without RDMA", "bond_mode", finding.Critical, "rxe", enslaved("balance-rr 0"), "bond0", "mode balance-rr",
		dissolved},
	{"LAG in a mode without RDMA", "bond_mode", finding.Critical, "lag", doctortest.File("sys/class/net/bond0/bonding/mode",
		"balance-alb 6"), "bond0", "mode balance-alb", []string{
		"ip link set dev ens1f0np0 nomaster", "ip link set dev ens1f1np1 nomaster", "ip link set dev bond0 down",
		"ip link set dev bond0 type bond mode active-backup miimon 100",
		"ip link set dev ens1f0np0 down", "ip link set dev ens1f0np0 master bond0", "ip link set dev ens1f1np1 down",
		"ip link set dev ens1f1np1 master bond0", "ip link set dev bond0 up"}},
	{"bond over two rails", "bond_no_lag", finding.Critical, "rxe", enslaved("balance-xor 2"), "bond0",
		"rail 0 (rxe0, eth0) and rail 1 (rxe1, eth1) are members", dissolved},
	{"bond for management beside a rail", "bond_no_lag", finding.Warning, "rxe",
		enslaved("balance-xor 2") + thirdRail + doctortest.File("kernel/gateways/bond0", "0.0.0.0/0"), "bond0",
		"bond0 has the default route", nil},
	{"bond for management in a mode without RDMA", "bond_mode", finding.Warning, "rxe",
		enslaved("balance-alb 6") + thirdRail + doctortest.File("kernel/gateways/bond0", "0.0.0.0/0"), "bond0",
		"bond0 has the default route", nil},
	{"bond of all rails with the default route", "bond_no_lag", finding.Critical, "rxe",
		enslaved("balance-xor 2") + doctortest.File("kernel/gateways/bond0", "0.0.0.0/0"), "bond0", "are members",
		dissolved},
	{"bond for management of a port and another's", "gid_misbound", finding.Warning, "rxe",
		oneEnslaved("10.9.9.9/16") + doctortest.File("kernel/gateways/bond0", "0.0.0.0/0"), "rail 1",
		"bond0 has the default route", nil},
	{"bond without members", "bond_empty", finding.Warning, "rxe", emptyBond("0x1503"), "bond bond7",
		"bonding/slaves is empty", nil},
	{"member without carrier", "bond_member_down", finding.Critical, "lag",
		doctortest.File("sys/class/net/ens1f1np1/bonding_slave/mii_status",
			"down") + doctortest.File("sys/class/net/ens1f1np1/carrier", "0"), "interface ens1f1np1 (member of bond0)",
		"it has no carrier", nil},
	{"member taken down", "bond_member_down", finding.Critical, "lag",
		doctortest.File("sys/class/net/ens1f1np1/bonding_slave/mii_status",
			"down") + doctortest.File("sys/class/net/ens1f1np1/flags", "0x1802"), "interface ens1f1np1 (member of bond0)",
		"administratively down",
		[]string{"ip link set dev ens1f1np1 up"}},
	{"no LACP partner", "bond_lacp", finding.Critical, "lag",
		doctortest.File("sys/class/net/ens1f1np1/bonding_slave/ad_actor_oper_port_state", "77"), "bond0",
		"no LACP partner is heard on ens1f1np1", nil},
	{"a partner of zeros", "bond_lacp", finding.Critical, "lag",
		"gone sys/class/net/ens1f0np0/bonding_slave/ad_actor_oper_port_state\ngone " +
			"sys/class/net/ens1f1np1/bonding_slave/ad_actor_oper_port_state\n" +
			doctortest.File("sys/class/net/bond0/bonding/ad_partner_mac", "00:00:00:00:00:00"), "bond0",
		"no LACP partner is heard (/sys/class/net/bond0/bonding/ad_partner_mac", nil},
	{"two aggregators", "bond_lacp", finding.Critical, "lag",
		doctortest.File("sys/class/net/ens1f1np1/bonding_slave/ad_aggregator_id", "2"), "bond0",
		"the active aggregator is 1, and ens1f1np1 in 2", nil},

	{"link trained to half its lanes", "pcie_link_low", finding.Warning, "hgx",
		doctortest.File("sys/devices/pci0000:37/0000:37:01.0/0000:3a:00.0/current_link_width", "8"), "rail 1",
		"runs at 32 GT/s x8 (252.1 Gb/s), both ends support 32 GT/s x16",
		[]string{"setpci -s 0000:37:01.0 CAP_EXP+10.w=20:20"}},
	{"link trained to a quarter of its lanes", "pcie_link_low", finding.Critical, "hgx",
		doctortest.File("sys/devices/pci0000:37/0000:37:01.0/0000:3a:00.0/current_link_width", "4"), "rail 1",
		"runs at 32 GT/s x4 (126 Gb/s), both ends support 32 GT/s x16",
		[]string{"setpci -s 0000:37:01.0 CAP_EXP+10.w=20:20"}},
	{"half its lanes, in a slot that reports nothing", "pcie_link_low", finding.Warning, "hgx",
		doctortest.File("sys/devices/pci0000:37/0000:37:01.0/0000:3a:00.0/current_link_width",
			"8") + "gone sys/devices/pci0000:37/0000:37:01.0/max_link_width\n",
		"rail 1", "the slot's capability is unknown, the adapter supports 32 GT/s x16", nil},
	{"link slower than it can, and fast enough", "pcie_link_low", finding.Warning, "lag",
		doctortest.File("sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/current_link_speed", "8.0 GT/s PCIe"),
		"rail 0", "runs at 8 GT/s x16",
		[]string{"setpci -s 0000:16:02.0 CAP_EXP+10.w=20:20"}},
	{"x2 of a Spark's x4", "pcie_link_low", finding.Warning, "spark",
		doctortest.File("sys/devices/pci0002:00/0002:00:00.0/0002:01:00.0/current_link_width", "2"), "rail 2",
		"32 GT/s x2", []string{"setpci -s 0002:00:00.0 CAP_EXP+10.w=20:20"}},
	{"slot too narrow", "pcie_link_low", finding.Warning, "hgx",
		doctortest.File("sys/devices/pci0000:37/0000:37:01.0/max_link_width",
			"8") + doctortest.File("sys/devices/pci0000:37/0000:37:01.0/current_link_width", "8") +
			doctortest.File("sys/devices/pci0000:37/0000:37:01.0/0000:3a:00.0/current_link_width", "8"), "rail 1",
		"the slot of 0000:3a:00.0 supports 32 GT/s x8", nil},
	{"a GPU with half its lanes", "gpu_pcie_low", finding.Warning, "hgx", doctortest.File(gpu1+"max_link_width", "16") +
		doctortest.File(gpu1+"max_link_speed", "32.0 GT/s PCIe") + doctortest.File(gpu1+"current_link_width", "8") +
		doctortest.File(gpu1+"current_link_speed", "2.5 GT/s PCIe"), "gpu 0000:3b:00.0",
		"runs at 2.5 GT/s x8, both ends support 32 GT/s x16", nil},
	{"two ports on one narrow link", "pcie_shared", finding.Warning, "spark",
		doctortest.File("sys/class/infiniband/rocep1s0f1/ports/1/state",
			"4: ACTIVE") + doctortest.File("sys/class/infiniband/rocep1s0f1/ports/1/rate", "100 Gb/sec (4X EDR)") +
			doctortest.File("sys/class/infiniband/rocep1s0f0/ports/1/rate",
				"100 Gb/sec (4X EDR)") + doctortest.File("sys/class/infiniband/rocep1s0f1/ports/1/gids/3",
			"0000:0000:0000:0000:0000:ffff:c0a8:6f0a") +
			doctortest.File("sys/class/infiniband/rocep1s0f1/ports/1/gid_attrs/types/3",
				"RoCE v2") + doctortest.File("sys/class/infiniband/rocep1s0f1/ports/1/gid_attrs/ndevs/3",
			"enp1s0f1np1") + doctortest.File("sys/class/net/enp1s0f1np1/mtu", "9000") +
			"gone sys/class/infiniband/roceP2p1s0f0\ngone sys/class/infiniband/roceP2p1s0f1\n",
		"rails 0 and 1", "run at 200 Gb/s together", nil},
	{"GPUs far from all rails", "numa_far", finding.Warning, "lag", doctortest.File("sys/bus/pci/devices/0000:b1:00.0/class",
		"0x030200") + doctortest.File("sys/bus/pci/devices/0000:b1:00.0/vendor",
		"0x10de") + doctortest.File("sys/bus/pci/devices/0000:b1:00.0/numa_node", "1"),
		"gpu 0000:b1:00.0", "in NUMA node 1", nil},
	{"GPUs at a distance", "numa_far", finding.Warning, "lag",
		gpuInNode1 + doctortest.File("sys/devices/system/node/node0/distance",
			"10 32") + doctortest.File("sys/devices/system/node/node1/distance", "32 10"),
		"gpu 0000:b1:00.0", "the nearest is rail 0 (mlx5_bond_0, bond0) in node 0, at distance 32", nil},
}

// thirdRail adds a third rail, rxe2 on eth2.
var thirdRail = func() string {
	dir, port := "sys/devices/virtual/infiniband/rxe2/", "sys/devices/virtual/infiniband/rxe2/ports/1/"
	return doctortest.File(dir+"node_type", "1: CA") + doctortest.File(dir+"parent",
		"eth2") + doctortest.File(port+"state", "4: ACTIVE") + doctortest.File(port+"phys_state",
		"5: LinkUp") + doctortest.File(port+"rate", "10 Gb/sec (4X)") + doctortest.File(port+"link_layer", "Ethernet") +
		doctortest.File(port+"gids/1",
			"0000:0000:0000:0000:0000:ffff:c0a8:6601") + doctortest.File(port+"gid_attrs/types/1",
		"RoCE v2") + doctortest.File(port+"gid_attrs/ndevs/1", "eth2") + doctortest.File("sys/class/infiniband/rxe2",
		"-> ../../devices/virtual/infiniband/rxe2") +
		doctortest.File("sys/class/net/eth2/ifindex", "12") + doctortest.File("sys/class/net/eth2/flags",
		"0x1003") + doctortest.File("sys/class/net/eth2/carrier", "1") + doctortest.File("sys/class/net/eth2/mtu",
		"4200") + doctortest.File("kernel/addresses/eth2", "192.168.102.1/24")
}()

const mlx51 = "sys/devices/pci0000:37/0000:37:01.0/0000:3a:00.0" // PCI path of mlx5_1

// twoAdapters has two equal adapters on PCI, the second without an RDMA device, and a change.
func twoAdapters(change string) string {
	var files string
	for _, address := range []string{"0000:aa:00.0", "0000:ab:00.0"} {
		dir := "sys/bus/pci/devices/" + address
		files += doctortest.File(dir+"/class", "0x020700") + doctortest.File(dir+"/vendor", "0x15b3") +
			doctortest.File(dir+"/device", "0x1021")
		if address == "0000:aa:00.0" || change == "" {
			files += doctortest.File(dir+"/driver", "-> ../../../../bus/pci/drivers/mlx5_core")
		}
	}
	return files + doctortest.File("sys/bus/pci/devices/0000:aa:00.0/infiniband/mlx5_99/fw_ver", "1")
}

// gpuInNode1 adds a GPU on another NUMA node than the rails of the machine "lag".
var gpuInNode1 = doctortest.File("sys/bus/pci/devices/0000:b1:00.0/class",
	"0x030200") + doctortest.File("sys/bus/pci/devices/0000:b1:00.0/vendor",
	"0x10de") + doctortest.File("sys/bus/pci/devices/0000:b1:00.0/numa_node", "1")

// TestRailsExcluded: devices that the configuration excludes exist, so no kernel module is reported as missing.
func TestRailsExcluded(t *testing.T) {
	root := sysfstest.Unpack(t, "../testdata/lag.txtar")
	finder := rail.NewFinder(root.Sys(), rail.Options{Include: regexp.MustCompile("^rxe")}, nil, 10*time.Second)
	f := facts.New(facts.Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir, Rails: finder.Snapshot}).
		Gather(t.Context(), facts.All)
	list := judge(f, nil)
	if len(list) != 1 || list[0].Check != "no_rails" || !strings.Contains(list[0].Evidence,
		"mlx5_bond_0 port 1: excluded; rails.include: ^rxe matches none") || len(list[0].Fix) != 1 || !strings.Contains(list[0].Fix[0], "rails.include") {
		t.Errorf("%+v", list)
	}
}

// TestPatternUnmatched: a pattern that matches no port is reported once for each key.
func TestPatternUnmatched(t *testing.T) {
	root := sysfstest.Unpack(t, "../testdata/hgx.txtar")
	for pattern, want := range map[string]string{"^mlx4_": `configuration rails.exclude: "^mlx4_" matches no RDMA port of this node`,
		"^mlx5_1/2$": `configuration rails.exclude: "^mlx5_1/2$" matches no RDMA port of this node`, "^mlx5_1/1$": "", "^mlx5_1$": ""} {
		finder := rail.NewFinder(root.Sys(), rail.Options{Exclude: regexp.MustCompile(pattern)}, nil, 10*time.Second)
		f := facts.New(facts.Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir, Rails: finder.Snapshot}).
			Gather(t.Context(), facts.All)
		var got string
		for _, one := range judge(f, nil) {
			if one.Check == "pattern_unmatched" {
				got += one.Subject + ": " + one.Evidence
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// TestFaults: each fault yields its finding and no other, and each check has a fault here.
func TestFaults(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			tested[c.check] = true
			compare(t, c, judge(doctortest.Machine(t, c.machine, c.change), nil))
		})
	}
	tested["pattern_unmatched"] = true // TestPatternUnmatched covers it
	for _, c := range lost {
		tested[c.check] = true // TestLost covers it
	}
	for _, c := range railChecks() {
		if !tested[c.ID] {
			t.Errorf("no fault for %s", c.ID)
		}
	}
}

func compare(t *testing.T, c fault, list []finding.Finding) {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d findings, want one of %s: %+v", len(list), c.check, list)
	}
	f := list[0]
	subject := fmt.Sprintf("%s (%s)", f.Subject, f.Where)
	if f.Check != c.check || f.Severity != c.severity || !strings.Contains(subject, c.subject) ||
		!strings.Contains(f.Evidence, c.read) {
		t.Errorf("%s %s, %q, %q; want %s %s, %q, %q", f.Severity, f.Check, subject, f.Evidence, c.severity, c.check,
			c.subject, c.read)
	}
	if f.Why == "" || len(f.Fix) == 0 {
		t.Errorf("why %q, fix %q", f.Why, f.Fix)
	}
	commands := slices.DeleteFunc(slices.Clone(f.Fix), func(s string) bool { return strings.HasPrefix(s, "#") })
	if diff := cmp.Diff(c.fix, commands, cmp.Transformer("", func(l []string) string {
		return strings.Join(l, "\n")
	})); diff != "" {
		t.Error(diff)
	}
	cut := strings.Contains(strings.Join(commands, "\n"), " down") || strings.Contains(strings.Join(commands, "\n"),
		"nomaster") || strings.Contains(strings.Join(commands, "\n"), "link delete")
	if cut && !strings.HasPrefix(f.Fix[0], "#") {
		t.Errorf("it cuts a connection, and does not say so first: %q", f.Fix)
	}
	if c.machine == "spark" && strings.Contains(strings.Join(f.Fix, "\n"), "address del") {
		t.Errorf("it takes an address from a half of the adapter: %q", f.Fix)
	}
}
