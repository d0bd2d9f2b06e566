//go:build lab

package lab

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// announcer sends a frame of LLDP over an interface every half second: chassis, port swp1, TTL of 4 s, name.
const announcer = `
my ($netdev, $system) = @ARGV;
$SIG{TERM} = sub { exit 0 };
open(my $file, "/sys/class/net/$netdev/ifindex"); my $index = <$file> + 0;
socket(my $socket, 17, 2, 0) or die "socket: $!";
sub tlv { my ($kind, $value) = @_; pack("n", $kind << 9 | length $value) . $value }
my $frame = tlv(1, "\x07$netdev") . tlv(2, "\x05swp1") . tlv(3, pack("n", 4)) . tlv(5, $system) . tlv(0, "");
my $to = pack("SnlSCCa8", 17, 0x88cc, $index, 0, 0, 6, "\x01\x80\xc2\x00\x00\x0e");
while (1) { send($socket, $frame, 0, $to); select(undef, undef, undef, 0.5) }`

// plugInto lets node 2 play the switches that rails 0, 1, … of node 1 are plugged into.
func plugInto(t *testing.T, switches ...string) {
	t.Helper()
	for i, name := range switches {
		p := node(2).Start(t, "perl", "-e", announcer, "eth"+strconv.Itoa(i), name)
		t.Cleanup(func() { p.Stop(t) })
	}
}

// TestNeighbors: rails and members of bonds show what they are plugged into, and so do cables that were changed.
func TestNeighbors(t *testing.T) {
	leaf := func(rail, name string) string { return fmt.Sprintf(`rail_leaf_info{rail="%s",leaf="%s"}`, rail, name) }
	freshRails(t, 2)
	e := serve(t, 1, "--source.lldp")
	e.shows(t, want{`source_success{source="lldp"}`: 1, `rail_leaf_info`: gone, `rail_neighbor_info`: gone})
	t.Run("rails", func(t *testing.T) {
		plugInto(t, "leaf-a", "leaf-b")
		e.shows(t, want{leaf("0", "leaf-a"): 1, leaf("1", "leaf-b"): 1,
			`rail_neighbor_info{rail="0",netdev="eth0",neighbor="leaf-a",neighbor_port="swp1"}`: 1})
	})
	t.Run("silent", func(t *testing.T) { // the switches died, and the cables are still in them
		e.shows(t, want{leaf("0", "leaf-a"): 1, leaf("1", "leaf-b"): 1})
	})
	t.Run("another switch", func(t *testing.T) {
		for _, up := range []bool{false, true} {
			node(1).Cable(t, 0, up)
			e.shows(t, want{`netdev_carrier{netdev="eth0"}`: map[bool]float64{true: 1}[up]})
		}
		plugInto(t, "leaf-c")
		e.shows(t, want{leaf("0", "leaf-c"): 1, leaf("0", "leaf-a"): gone, leaf("1", "leaf-b"): 1})
	})
	t.Run("bond", func(t *testing.T) {
		freshRails(t, 2)
		for _, n := range []node{1, 2} {
			bond(t, n, "balance-xor", "xmit_hash_policy", "layer3+4")
		}
		node(1).Shell(t, "rdma link delete rxe0; rdma link delete rxe1; rdma link add rxe0 type rxe netdev bond0")
		plugInto(t, "leaf-a", "leaf-b")
		m := e.shows(t, want{`rail_leaf_info{leaf="leaf-a+leaf-b"}`: 1,
			`rail_neighbor_info{netdev="eth0",neighbor="leaf-a"}`: 1, `rail_neighbor_info{netdev="eth1",neighbor="leaf-b"}`: 1})
		if len(m.find(`rail_neighbor_info{netdev="bond0"}`)) > 0 {
			t.Error("frames of members are the bond's")
		}
	})
	helper := strings.Fields(node(1).Run(t, "pgrep", "-f", "lldp-helper$"))
	if len(helper) != 1 {
		t.Fatalf("helper processes: %q", helper)
	}
	status := node(1).Run(t, "grep", "-E", "^(Cap(Prm|Eff|Amb)|NoNewPrivs|Seccomp):", "/proc/"+helper[0]+"/status")
	const none = "0000000000000000"
	if got := strings.Join(strings.Fields(status), " "); got != "CapPrm: "+none+" CapEff: "+none+" CapAmb: "+none+
		" NoNewPrivs: 1 Seccomp: 2" {
		t.Errorf("the helper's status: %s", got)
	}
}
