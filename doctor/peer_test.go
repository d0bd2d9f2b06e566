package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/terminal"
)

// otherRXE makes of the machine the one at the other end of its rails: with 2
// for a place in each subnet where this one has 1.
var otherRXE = file("kernel/addresses/eth0", "192.168.100.2/24") + file("kernel/addresses/eth1", "192.168.101.2/24")

// TestPeerFaults: each fault between two nodes yields its finding, and nothing
// else between them.
func TestPeerFaults(t *testing.T) {
	tested := map[string]bool{}
	rate := func(i, r string) string { return file("sys/class/infiniband/rxe"+i+"/ports/1/rate", r) }
	for _, c := range []struct {
		fault
		there string
		node  string // where the commands belong
	}{
		{fault{"a rail less", "peer_rails", Warning, "rxe", "", "rxe and rxe", "2 rails on rxe, 1 on peer", nil}, "gone sys/class/infiniband/rxe1\n", "here"},
		{fault{"InfiniBand against Ethernet", "peer_link_layer", Fault, "rxe", "", "rail 1 (rxe1, eth1)", "Ethernet on here, InfiniBand on peer", nil}, file("sys/class/infiniband/rxe1/ports/1/link_layer", "InfiniBand"), "here"},
		{fault{"a slower peer", "peer_rate", Warning, "rxe", "", "rail 1", "10 Gb/s on here, 2.5 Gb/s on peer", nil}, rate("1", "2.5 Gb/sec (1X SDR)"), "peer"},
		{fault{"MTU larger there", "peer_mtu", Warning, "rxe", "", "rail 1", "eth1 of here has MTU 4200, eth1 of peer has 9000", []string{"ip link set dev eth1 mtu 9000"}}, file("sys/class/net/eth1/mtu", "9000"), "here"},
		{fault{"MTU larger here", "peer_mtu", Warning, "rxe", file("sys/class/net/eth1/mtu", "9000"), "rail 1", "eth1 of here has MTU 9000", []string{"ip link set dev eth1 mtu 9000"}}, "", "peer"},
		{fault{"another subnet", "peer_subnet", Fault, "rxe", "", "rail 1", "eth1 has 192.168.101.1/24, eth1 of peer has 192.168.111.2/24", []string{"ip address add 192.168.111.1/24 dev eth1"}}, file("kernel/addresses/eth1", "192.168.111.2/24"), "here"},
		{fault{"another subnet, this node's place taken", "peer_subnet", Fault, "rxe", "", "rail 1", "no common subnet", nil}, file("kernel/addresses/eth1", "192.168.111.1/24"), "here"},
		{fault{"IPv4 against IPv6", "peer_gid", Fault, "rxe", "", "rail 1", "GID 1 (fd00::2)", []string{"ip address add 192.168.101.2/24 dev eth1"}}, file("sys/class/infiniband/rxe1/ports/1/gids/1", "fd00:0000:0000:0000:0000:0000:0000:0002") +
			file("kernel/addresses/eth1", "fd00::2/64"), "peer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tested[c.check] = true
			c.subject = strings.Replace(c.subject, "rxe and rxe", "here and peer", 1)
			c.read = strings.Replace(c.read, "on rxe,", "on here,", 1)
			here, there := machine(t, "rxe", c.change), machine(t, "rxe", otherRXE+c.there)
			here.Node, there.Node = "here", "peer"
			list := judge(here, there)
			compare(t, c.fault, list)
			if len(list) == 1 && orElse(list[0].Node, "here") != c.node {
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

// TestPeerNoFalseAlarm: what is another check's, or none's.
func TestPeerNoFalseAlarm(t *testing.T) {
	gateway := file("kernel/gateways/eth0", "0.0.0.0/0") + file("kernel/gateways/eth1", "192.168.0.0/16")
	for _, c := range []struct{ name, here, there string }{
		{"alike", "", ""},
		{"an MTU that is low there", "", file("sys/class/net/eth1/mtu", "1500")},
		{"a port that is down there", "", file("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN") + file("sys/class/net/eth1/mtu", "9000")},
		{"no address there", "", file("kernel/addresses/eth1", "") + file("sys/class/infiniband/rxe1/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000")},
		{"routed rails", gateway, gateway + file("kernel/addresses/eth1", "192.168.111.2/24") + file("kernel/addresses/eth0", "192.168.110.2/24")},
	} {
		here, there := machine(t, "rxe", c.here), machine(t, "rxe", otherRXE+c.there)
		if list := judge(here, there); len(list) > 0 {
			t.Errorf("%s: %+v", c.name, list)
		}
	}
}

// TestPeerCrossed: rails that meet under other names are no fault, and the names
// are what to change.
func TestPeerCrossed(t *testing.T) {
	here, there := machine(t, "rxe", ""), machine(t, "rxe", file("kernel/addresses/eth0", "192.168.101.2/24")+file("kernel/addresses/eth1", "192.168.100.2/24"))
	list := judge(here, there)
	if len(list) != 2 || list[0].Severity != Warning || list[0].Check != "peer_subnet" || !strings.Contains(list[0].Mend[0], "rxe0/1 here and rxe1/1 there") {
		t.Errorf("%+v", list)
	}
}

// TestParseFacts: what no railscope of this form tells is refused, and how is
// said.
func TestParseFacts(t *testing.T) {
	for _, c := range []struct{ name, data, says string }{
		{"nothing", "", "not railscope's"},
		{"something else", "<html>", "not railscope's"},
		{"another form", `{"version":2,"rails":7}`, "form 2, this one form 1"},
		{"no form", `{}`, "form 0"},
		{"numbers for names", `{"version":1,"rails":{"rails":[{"name":1}]}}`, "not railscope's"},
		{"more rails than a node has", `{"version":1,"rails":{"rails":[` + strings.Repeat("{},", 256) + `{}]}}`, "257 rails"},
		{"more members than there are interfaces", `{"version":1,"rails":{"bonds":[{"members":[` + strings.Repeat("{},", 1024) + `{}]}]}}`, "1025 members of bonds"},
		{"more addresses than an interface has", `{"version":1,"rails":{"netdevs":[{"name":"eth0","addresses":[` + strings.Repeat(`"10.0.0.1/8",`, 256) + `"10.0.0.1/8"]}]}}`, `257 addresses or routes of "eth0"`},
		{"more routes than are asked for", `{"version":1,"rails":{"netdevs":[{"gateways":[` + strings.Repeat(`"10.0.0.1/8",`, 256) + `"10.0.0.1/8"]}]}}`, "257 addresses or routes"},
		{"deeper than anything", `{"version":1,"rails":{"rails":` + strings.Repeat("[", 400000) + strings.Repeat("]", 400000) + `}}`, "not railscope's"},
		{"more GIDs than a table has", `{"version":1,"rails":{"rails":[{"gids":[` + strings.Repeat("{},", 4096) + `{}]}]}}`, "4097 GIDs"},
	} {
		f, err := ParseFacts([]byte(c.data))
		if f != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if errors.Is(err, ErrVersion) != strings.Contains(c.says, "form ") {
			t.Errorf("%s: is it ErrVersion? %v", c.name, err)
		}
	}
}

// TestParseFactsPlain: what a peer calls its rails steers nothing that prints
// findings, JSON neither, and rails of one name still meet.
func TestParseFactsPlain(t *testing.T) {
	f := machine(t, "rxe", "")
	evil := "\x1b[2J\u202e\u009b31m\n" + strings.Repeat("x", 2*maxPeerText)
	f.Node, f.Unread = evil, append(slices.Repeat([]string{"x"}, maxUnread), evil)
	f.Unread[0] = evil
	f.Rails.Rails[0].Name, f.Rails.Rails[1].Name, f.Rails.Rails[1].State = "östlich", evil, evil
	f.Rails.Rails[1].GIDs[0].Addr = f.Rails.Rails[1].GIDs[0].Addr.WithZone(evil)
	f.Rails.Netdevs[0].Master = evil
	f.Rails.Others = []netip.Prefix{netip.MustParsePrefix("fd00::1/64")}
	got, err := ParseFacts(encode(t, f))
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Rails.Rails; r[0].Name != "östlich" || len(r[1].Name) > maxPeerText || r[1].GIDs[0].Addr.Zone() != "" || !slices.Equal(got.Rails.Others, f.Rails.Others) || len(got.Unread) != maxUnread {
		t.Errorf("%q, %d bytes, zone %q, %v, %d not read", r[0].Name, len(r[1].Name), r[1].GIDs[0].Addr.Zone(), got.Rails.Others, len(got.Unread))
	}
	for _, text := range []string{got.Node, got.Unread[0], got.Rails.Rails[1].Name, got.Rails.Rails[1].State, got.Rails.Netdevs[0].Master} {
		if text != terminal.Plain(text) || text == "" {
			t.Errorf("%q", text)
		}
	}
	if got, err := ParseFacts([]byte(`{"version":1}`)); err != nil || got.Node != "peer" {
		t.Errorf("%+v %v", got, err)
	}
}

// TestConclusions: of what a peer concluded about its jobs only what makes sense
// is repeated, and each once.
func TestConclusions(t *testing.T) {
	f := machine(t, "rxe", "")
	f.System.Jobs.Conclusions = []JobConclusion{
		{"nccl_net", Fault, 3, 0}, {"nccl_net", Fault, 4, 0}, {"nccl_net", Warning, 0, 1}, {"ucx_tls", "terrible", 1, 0},
		{"ucx_tls", Fault, -1, 2}, {"ucx_tls", Fault, 0, 0}, {"ucx_net_devices", Fault, 1, 2}, {"port_down", Fault, 1, 1}, {"\x1b[2J", Fault, 1, 1},
	}
	got, err := ParseFacts(encode(t, f))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, found := range runSystem(got) {
		if found.Subject == "NCCL_NET" || found.Subject == "UCX_TLS" || found.Subject == "UCX_NET_DEVICES" {
			said = append(said, fmt.Sprintf("%s %s %s", found.Severity, found.Check, found.Read))
		}
	}
	want := []string{
		"fault nccl_net the node itself found it wrong in 3 processes; values and processes are not reported to peers",
		"warning nccl_net the node itself found it wrong in 1 configuration file; values and processes are not reported to peers",
		"fault ucx_net_devices the node itself found it wrong in 1 process and 2 configuration files; values and processes are not reported to peers",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error(diff)
	}
}
