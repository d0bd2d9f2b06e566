package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"

	"github.com/google/go-cmp/cmp"
)

// otherRXE turns the machine into the one at the other end of its rails: with host part 2 in each subnet where this one
// has 1.
var otherRXE = doctortest.File("kernel/addresses/eth0", "192.168.100.2/24") + doctortest.File("kernel/addresses/eth1",
	"192.168.101.2/24")

// TestPeerFaults: each fault between two nodes yields its finding, and nothing else between them.
func TestPeerFaults(t *testing.T) {
	tested := map[string]bool{}
	rate := func(i, r string) string { return doctortest.File("sys/class/infiniband/rxe"+i+"/ports/1/rate", r) }
	for _, c := range []struct {
		fault
		there string
		node  string // node to run the commands on
	}{
		{fault{"a rail less there", unpaired, finding.Info, "rxe", "", "rail 1",
			"rail 1 is unpaired: peer has 1 rail, here 2", nil}, "gone sys/class/infiniband/rxe1\n", "here"},
		{fault{"a rail less here", unpaired, finding.Info, "rxe", "gone sys/class/infiniband/rxe1\n", "rail 1",
			"rail 1 is unpaired: here has 1 rail, peer 2", nil}, "", "peer"},
		{fault{"InfiniBand against Ethernet", "peer_link_layer", finding.Critical, "rxe", "", "rail 1 (rxe1, eth1; rxe1, eth1 of peer)",
			"Ethernet on here, InfiniBand on peer", nil},
			doctortest.File("sys/class/infiniband/rxe1/ports/1/link_layer", "InfiniBand"), "here"},
		{fault{"a slower peer", "peer_rate", finding.Warning, "rxe", "", "rail 1", "10 Gb/s on here, 2.5 Gb/s on peer", nil},
			rate("1", "2.5 Gb/sec (1X SDR)"), "peer"},
		{fault{"MTU larger there", "peer_mtu", finding.Warning, "rxe", "", "rail 1",
			"eth1 of here has MTU 4200, eth1 of peer has 9000", []string{"ip link set dev eth1 mtu 9000"}},
			doctortest.File("sys/class/net/eth1/mtu", "9000"), "here"},
		{fault{"MTU larger here", "peer_mtu", finding.Warning, "rxe", doctortest.File("sys/class/net/eth1/mtu", "9000"),
			"rail 1", "eth1 of here has MTU 9000", []string{"ip link set dev eth1 mtu 9000"}}, "", "peer"},
		{fault{"another subnet", "peer_subnet", finding.Critical, "rxe", "", "rail 1",
			"eth1 has 192.168.101.1/24, eth1 of peer has 192.168.111.2/24",
			[]string{"ip address add 192.168.111.1/24 dev eth1"}},
			doctortest.File("kernel/addresses/eth1", "192.168.111.2/24"), "here"},
		{fault{"another subnet, this node's place taken", "peer_subnet", finding.Critical, "rxe", "", "rail 1", "no common subnet",
			nil}, doctortest.File("kernel/addresses/eth1", "192.168.111.1/24"), "here"},
		{fault{"another subnet, of another length", "peer_subnet", finding.Critical, "rxe", "", "rail 1",
			"eth1 has 192.168.101.1/24, eth1 of peer has 10.9.1.2/16", nil},
			doctortest.File("kernel/addresses/eth1", "10.9.1.2/16"), "here"},
		{fault{"IPv4 against IPv6", "peer_gid", finding.Warning, "rxe", "", "rail 1", "GID 1 (fd00::2)",
			[]string{"ip address add 192.168.101.2/24 dev eth1"}},
			doctortest.File("sys/class/infiniband/rxe1/ports/1/gids/1", "fd00:0000:0000:0000:0000:0000:0000:0002") +
				doctortest.File("kernel/addresses/eth1", "fd00::2/64"), "peer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tested[c.check] = true
			c.read = strings.Replace(c.read, "on rxe,", "on here,", 1)
			here, there := doctortest.Machine(t, "rxe", c.change), doctortest.Machine(t, "rxe", otherRXE+c.there)
			here.Node, there.Node = "here", "peer"
			list := judge(here, there)
			compare(t, c.fault, list)
			if len(list) == 1 && list[0].Node != c.node {
				t.Errorf("commands for %q, want %q", list[0].Node, c.node)
			}
		})
	}
	for _, c := range railPeerChecks() {
		if !tested[c.ID] {
			t.Errorf("no fault for %s", c.ID)
		}
	}
}

// TestPeerNoFalseAlarm: differences that another check reports, or that are no fault.
func TestPeerNoFalseAlarm(t *testing.T) {
	gateway := doctortest.File("kernel/gateways/eth0", "0.0.0.0/0") + doctortest.File("kernel/gateways/eth1",
		"192.168.0.0/16")
	for _, c := range []struct{ name, here, there string }{
		{"alike", "", ""},
		{"an MTU that is low there", "", doctortest.File("sys/class/net/eth1/mtu", "1500")},
		{"a port that is down there", "", doctortest.File("sys/class/infiniband/rxe1/ports/1/state",
			"1: DOWN") + doctortest.File("sys/class/net/eth1/mtu", "9000")},
		{"no address there", "",
			doctortest.File("kernel/addresses/eth1", "") + doctortest.File("sys/class/infiniband/rxe1/ports/1/gids/1",
				"0000:0000:0000:0000:0000:0000:0000:0000")},
		{"routed rails", gateway, gateway + doctortest.File("kernel/addresses/eth1",
			"192.168.111.2/24") + doctortest.File("kernel/addresses/eth0", "192.168.110.2/24")},
	} {
		here, there := doctortest.Machine(t, "rxe", c.here), doctortest.Machine(t, "rxe", otherRXE+c.there)
		if list := judge(here, there); len(list) > 0 {
			t.Errorf("%s: %+v", c.name, list)
		}
	}
}

// TestPeerCrossed: rails that are cabled to rails with other names are a warning, and the fix is to rename them.
func TestPeerCrossed(t *testing.T) {
	here, there := doctortest.Machine(t, "rxe", ""),
		doctortest.Machine(t, "rxe",
			doctortest.File("kernel/addresses/eth0", "192.168.101.2/24")+doctortest.File("kernel/addresses/eth1",
				"192.168.100.2/24"))
	list := judge(here, there)
	if len(list) != 2 || list[0].Severity != finding.Warning || list[0].Check != "peer_subnet" ||
		!strings.Contains(list[0].Fix[0], "rxe0/1 here and rxe1/1 there") {
		t.Errorf("%+v", list)
	}
}

// TestConclusions: a peer's valid conclusions about its jobs are reported once each.
func TestConclusions(t *testing.T) {
	f := doctortest.Machine(t, "rxe", "")
	f.Jobs.Conclusions = []facts.Conclusion{
		{Check: "nccl_net", Severity: "critical", Processes: 3, Files: 0},
		{Check: "nccl_net", Severity: "critical", Processes: 4, Files: 0},
		{Check: "nccl_net", Severity: "warning", Processes: 0, Files: 1},
		{Check: "ucx_tls", Severity: "terrible", Processes: 1, Files: 0},
		{Check: "ucx_tls", Severity: "critical", Processes: -1, Files: 2},
		{Check: "ucx_tls", Severity: "critical", Processes: 0, Files: 0}, {Check: "ucx_net_devices", Severity: "critical",
			Processes: 1, Files: 2}, {Check: "port_down", Severity: "critical", Processes: 1, Files: 1},
		{Check: "\x1b[2J", Severity: "critical", Processes: 1, Files: 1},
	}
	got := travelled(t, f)
	var said []string
	for _, found := range runSystem(got) {
		if strings.Contains(found.Evidence, "the node itself") {
			said = append(said, fmt.Sprintf("%s %s %s", found.Severity, found.Check, found.Evidence))
		}
	}
	want := []string{
		"critical nccl_net NCCL_NET: the node itself found it wrong in 3 processes; values and processes are not reported to peers",
		"warning nccl_net NCCL_NET: the node itself found it wrong in 1 configuration file; values and processes are not " +
			"reported to peers",
		"critical ucx_net_devices UCX_NET_DEVICES: the node itself found it wrong in 1 process and 2 configuration files; values and " +
			"processes are not reported to peers",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error(diff)
	}
}

// TestRing: of two nodes of a ring, the rails that lead to the third one have no partner, which is an information.
func TestRing(t *testing.T) {
	there := func(first, second string) *facts.Facts {
		return doctortest.Machine(t, "rxe", doctortest.File("kernel/addresses/eth0", first)+
			doctortest.File("kernel/addresses/eth1", second))
	}
	here := doctortest.Machine(t, "rxe", "")
	next := there("192.168.150.2/24", "192.168.100.2/24")
	if ours, theirs := surplus(here, next), surplus(next, here); !slices.Equal(ours, []string{"1"}) ||
		!slices.Equal(theirs, []string{"0"}) {
		t.Errorf("ours %q, theirs %q", ours, theirs)
	}
	if list := surplus(here, there("192.168.100.2/24", "192.168.150.2/24")); list != nil {
		t.Errorf("a wrong address: %q", list)
	}
	var list []finding.Finding
	checkPeerUnpaired(here, next, collect(&list, finding.Finding{Check: unpaired, Severity: finding.Info}))
	if len(list) != 2 || !strings.Contains(list[0].Evidence, "no subnet in common") {
		t.Errorf("%+v", list)
	}
}
