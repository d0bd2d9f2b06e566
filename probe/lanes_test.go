package probe

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/result"
)

// TestLanes lists the TCP paths for the addresses of both ends.
func TestLanes(t *testing.T) {
	// Rails are "name=prefix prefix", other interfaces "netdev=prefix", for both nodes.
	parse := func(text string) (names []string, all [][]netip.Prefix) {
		for part := range strings.SplitSeq(text, "|") {
			if name, list, ok := strings.Cut(part, "="); ok {
				names, all = append(names, name), append(all, prefixes(list)[0])
			}
		}
		return names, all
	}
	many := "eth0=" // more addresses than a hello has, and lower ones than the rails'
	for i := range protocol.MaxAddresses {
		many += fmt.Sprintf(" 10.0.%d.1/32", i)
	}
	for _, tc := range []struct {
		why                            string
		own, ownMore, peers, peersMore string
		want                           string
	}{
		{"alike", "0=10.0.0.1/24|1=10.0.1.1/24", "", "0=10.0.0.2/24|1=10.0.1.2/24", "",
			"0 10.0.0.1-10.0.0.2, 1 10.0.1.1-10.0.1.2"},
		{"crossed", "0=10.0.0.1/24|1=10.0.1.1/24", "", "0=10.0.1.2/24|1=10.0.0.2/24", "",
			"0 10.0.0.1-10.0.0.2, 1 10.0.1.1-10.0.1.2"},
		{"our device is gone", "", "rail0=10.0.0.1/24", "0=10.0.0.2/24", "", "0 10.0.0.1-10.0.0.2"},
		{"a claim beside our rails", "0=10.0.0.1/24", "eth0=192.168.0.1/24", "0=192.168.0.7/24", "",
			"control -127.0.0.1"},
		{"a claim beside our rails, by an interface", "0=10.0.0.1/24", "eth0=192.168.0.1/24", "", "eth9=192.168.0.7/24",
			"control -127.0.0.1"},
		{"a claim anywhere", "0=10.0.0.1/24", "", "0=203.0.113.9/0", "", "control -127.0.0.1"},
		{"a claim to be us", "0=10.0.0.1/16|1=10.0.1.1/16", "", "0=10.0.1.1/16", "", "control -127.0.0.1"},
		{"a claim to be us, and the truth", "0=10.0.0.1/16|1=10.0.1.1/16", "", "0=10.0.1.1/16 10.0.0.2/16", "",
			"0 10.0.0.1-10.0.0.2"},
		{"a claim to be us, mapped", "0=10.0.0.1/24", "", "0=::ffff:10.0.0.1/120", "", "control -127.0.0.1"},
		{"a claim to be us, of many addresses", "0=10.9.0.1/16|1=10.9.1.1/16", many, "0=10.9.1.1/16", "",
			"control -127.0.0.1"},
		{"a claim to be this machine", "0=10.0.0.1/24", "", "0=127.0.0.1/8 ::1/128", "", "control -127.0.0.1"},
		{"their device is gone", "0=10.0.0.1/24", "", "", "eth0=10.0.0.2/24", "0 10.0.0.1-10.0.0.2"},
		{"one of theirs is gone", "0=10.0.0.1/24|1=10.0.1.1/24", "", "0=10.0.0.2/24", "eth1=10.0.1.2/24",
			"0 10.0.0.1-10.0.0.2, 1 10.0.1.1-10.0.1.2"},
		{"fewer there", "0=10.0.0.1/24|1=10.0.1.1/24", "", "0=10.0.0.2/24", "", "0 10.0.0.1-10.0.0.2"},
		{"no common subnet", "0=10.0.0.1/24", "", "0=10.9.0.2/24", "", "control -127.0.0.1"},
		{"no addresses", "0=", "", "0=", "", "control -127.0.0.1"},
		{"no rails at all", "", "", "", "", "control -127.0.0.1"},
		{"the same address on both", "0=10.0.0.1/24", "", "0=10.0.0.1/24", "", "control -127.0.0.1"},
		{"link-local only", "0=fe80::1/64", "", "0=fe80::2/64", "", "control -127.0.0.1"},
		{"IPv6", "0=fe80::1/64 fd00::1/64", "", "0=fe80::2/64 fd00::2/64", "", "0 fd00::1-fd00::2"},
		{"both families", "0=fd00::1/64 10.0.0.1/24", "", "0=10.0.0.2/24 fd00::2/64", "", "0 10.0.0.1-10.0.0.2"},
		{"one address of theirs for two of ours", "0=10.0.0.1/16|1=10.0.1.1/16", "", "0=10.0.0.2/16", "",
			"0 10.0.0.1-10.0.0.2"},
	} {
		direct := netip.MustParseAddr("127.0.0.1")
		r := round.Pairing{Client: &control.Client{}}
		r.Client.Remote.Store(&direct)
		more := map[string][]netip.Prefix{}
		names, list := parse(tc.own)
		for i, name := range names {
			o := node.LocalRail{Prefixes: list[i]}
			o.Name, o.Netdev = name, "rail"+name
			r.Rails, more[o.Netdev] = append(r.Rails, o), list[i]
		}
		names, list = parse(tc.ownMore)
		for i, name := range names {
			more[name] = list[i]
		}
		r.Node = &node.Node{Opts: node.Options{Addresses: func() (map[string][]netip.Prefix, error) {
			return more,
				nil
		}},
			Netdevs: map[string]bool{"rail0": true, "rail1": true}, Roles: map[string]string{}}
		names, list = parse(tc.peers)
		for i, name := range names {
			r.Remote.Rails = append(r.Remote.Rails, protocol.HelloRail{Name: name, Prefixes: list[i]})
		}
		for _, text := range []string{tc.peers, tc.peersMore} {
			_, list = parse(text)
			for _, ps := range list {
				for _, p := range ps {
					r.Remote.Addresses = append(r.Remote.Addresses, protocol.Address{Netdev: "eth", Prefix: p})
				}
			}
		}
		r.Pair()
		var got []string
		for _, l := range r.Routes() {
			local := ""
			if l.Local.IsValid() {
				local = l.Local.String()
			}
			got = append(got, fmt.Sprintf("%s %s-%s", l.Name, local, l.Remote))
		}
		if s := strings.Join(got, ", "); s != tc.want {
			t.Errorf("%s: %q, want %q", tc.why, s, tc.want)
		}
	}
}

// unplug removes a device from a node's sysfs; its interface stays.
func (p *pairOfNodes) unplug(node, device string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.fabric.Sysfs(node), "class/infiniband", device)); err != nil {
		p.t.Fatal(err)
	}
}

// TestRailsGone: missing rails on either end.
func TestRailsGone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		node    string
		devices []string
		outcome result.Outcome
		reason  failure.Reason // reason of the round
	}{
		{"a", []string{"mlx5_0", "mlx5_1"}, result.Fallback, failure.NoDevice},
		{"b", []string{"mlx5_0", "mlx5_1"}, result.Fallback, failure.NoDevice},
		{"a", []string{"mlx5_1"}, result.Degraded, ""},
		{"b", []string{"mlx5_1"}, result.OK, ""},
	} {
		t.Run(fmt.Sprint(tc.node, tc.devices), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, nil)
			for _, d := range tc.devices {
				p.unplug(tc.node, d)
			}
			res := p.round()
			if res.Outcome != tc.outcome || !res.Verified {
				t.Fatalf("%s because of %q (%s), %v", res.Outcome, res.Reason, res.Detail, res.Failures)
			}
			switch {
			case tc.outcome == result.Fallback && (res.Reason != tc.reason || res.TCP[0].Streams != 1):
				t.Errorf("because of %q (%s), %+v", res.Reason, res.Detail, res.TCP)
			case tc.outcome == result.Degraded && tc.node == "a":
				if len(res.Rails) != 1 || len(res.Missing) != 1 {
					t.Errorf("rails %+v, missing %+v", res.Rails, res.Missing)
				}
			case tc.outcome == result.OK && (!res.Rails[1].Unpaired || len(res.Failures) > 0 || res.Imbalance != nil):
				t.Errorf("rail 1 %+v, failures %v, imbalance %v", res.Rails[1], res.Failures, res.Imbalance)
			}
		})
	}
}

// TestGIDChanges: when the table changes between rounds, the next round chooses again. When it changes between
// choice and use, the rail fails with a reason.
func TestGIDChanges(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	one := func(index int) {
		t.Helper()
		res := p.round()
		if res.Outcome != result.OK || res.Rails[0].GIDIndex != index || res.Rails[0].GID != address4("a", 0) {
			t.Errorf("%s because of %q (%s), GID %d %s", res.Outcome, res.Reason, res.Detail, res.Rails[0].GIDIndex,
				res.Rails[0].GID)
		}
	}
	one(3)
	table := fakeverbs.RoCE(address4("a", 0))
	p.fabric.SetGIDs("a", "mlx5_0", append([]fakeverbs.GID{{}, {}}, table...))
	one(5)
	p.fabric.SetGIDs("a", "mlx5_0", table)
	one(3)

	// The rails have been read before queue pairs are created.
	opts := p.opts
	var once bool
	res := Bench(t.Context(), p.a, opts, p.peer, func(g result.Progress) {
		if g.Stage == failure.StageConnect && !once {
			once = true
			p.fabric.SetGIDs("a", "mlx5_0", append([]fakeverbs.GID{{}, {}}, table...))
		}
	})
	if res.Outcome != result.Fallback || res.Reason != failure.GIDChanged ||
		res.Failures[0].Stage != failure.StageOpen ||
		!strings.Contains(res.Detail, "chooses again") {
		t.Errorf("%s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
	}
	p.clean()
	one(5)
}

// TestGIDInPeersSubnet: of several addresses, the one in the peer's subnet is used.
func TestGIDInPeersSubnet(t *testing.T) {
	n := &node.Node{Opts: node.Options{Sysfs: t.TempDir()}}
	gid := func(i int, addr string) rail.GID {
		return rail.GID{Index: i, Type: rail.TypeRoCEv2, Netdev: "eth0",
			Addr: netip.AddrFrom16(netip.MustParseAddr(addr).As16())}
	}
	r := node.LocalRail{Prefixes: prefixes("10.0.0.1/24 10.5.0.1/24")[0]}
	r.LinkLayer, r.Netdev = "Ethernet", "eth0"
	r.Status.GIDs = []rail.GID{gid(3, "10.0.0.1"), gid(5, "10.5.0.1")}
	for peer, want := range map[string]int{"10.0.0.2/24": 3, "10.5.0.2/24": 5, "10.9.0.2/24": 3, "": 3} {
		if c := n.GID(r, prefixes(peer)[0]); !c.OK() || c.GID.Index != want {
			t.Errorf("for %q: %+v, want %d", peer, c, want)
		}
	}
}

// TestPathMTU: the path MTU is the smaller of both ends.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	for node, other := range map[string]string{"a": "b", "b": "a"} {
		p := newPair(t, 1, func(n string, _ int, d *fakeverbs.Device) {
			if n == node {
				d.ActiveMTU, d.NetdevMTU = 1024, 1500
			}
		})
		if res := p.round(); res.Outcome != result.OK || res.Rails[0].PathMTU != 1024 ||
			*res.Rails[0].CounterMismatch > 0.01 {
			t.Errorf("%s smaller than %s: %s because of %q, MTU %d, mismatch %v", node, other, res.Outcome, res.Reason,
				res.Rails[0].PathMTU, res.Rails[0].CounterMismatch)
		}
	}
}

// TestMaxMTU: after a round, both ends know the maximum MTU of opened ports, whatever their current MTU.
func TestMaxMTU(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, func(node string, i int, d *fakeverbs.Device) {
		d.ActiveMTU, d.NetdevMTU = 1024, 1500
		d.MaxMTU = 4096
		if node == "b" {
			d.MaxMTU, d.Port = 2048, 2
		}
		d.Down = i == 1
	})
	at := func() [4]int {
		return [4]int{p.a.MaxMTU("mlx5_0", 1), p.b.MaxMTU("mlx5_0", 2), p.b.MaxMTU("mlx5_0", 1),
			p.a.MaxMTU("mlx5_1", 1)}
	}
	if got := at(); got != [4]int{} {
		t.Errorf("before a round: %v", got)
	}
	if res := p.round(); res.Outcome != result.Degraded { // rail 1 is down
		t.Fatalf("%s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
	}
	if got, want := at(), [4]int{4096, 2048}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestCrossedCables: if names and subnets disagree, rails are paired by subnet.
func TestCrossedCables(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, func(node string, i int, d *fakeverbs.Device) {
		if node == "b" {
			d.GIDs = fakeverbs.RoCE(address4("b", 1-i))
		}
	})
	p.b.Opts.Addresses = func() (map[string][]netip.Prefix, error) {
		return map[string][]netip.Prefix{"fabric0": prefixes(address4("b", 1) + "/24")[0],
			"fabric1": prefixes(address4("b", 0) + "/24")[0]}, nil
	}
	res := p.round()
	if res.Outcome != result.OK || res.Rails[0].PeerRail != "1" || res.Rails[1].PeerRail != "0" || len(res.Failures) > 0 {
		t.Errorf("%s because of %q (%s): %s-%s, %v", res.Outcome, res.Reason, res.Detail, res.Rails[0].PeerRail,
			res.Rails[1].PeerRail, res.Failures)
	}
}

// TestVersionsDiffer: different versions are reported, and the round continues.
func TestVersionsDiffer(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, func(node string, i int, d *fakeverbs.Device) {
		if node == "b" && i == 1 {
			d.Firmware = "28.40.1000"
		}
	})
	p.b.Opts.Version = "1.3.0"
	res := p.round()
	if want := "[{railscope 1.2.3 1.3.0} {firmware 28.39.1002 (rail 1) 28.40.1000}]"; res.Outcome != result.OK ||
		fmt.Sprint(res.Mismatches) != want {
		t.Errorf("%s, %v, want %s", res.Outcome, res.Mismatches, want)
	}
}

// TestFallbackByControl: if no two addresses share a subnet, TCP uses the path of the control channel.
func TestFallbackByControl(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, func(_ string, _ int, d *fakeverbs.Device) { d.Down = true })
	p.a.Opts.Addresses = func() (map[string][]netip.Prefix, error) { return nil, nil }
	res := p.round()
	if res.Outcome != result.Fallback || res.Reason != failure.PortDown || len(res.TCP) != 1 || !res.Verified {
		t.Errorf("%s because of %q (%s), %+v", res.Outcome, res.Reason, res.Detail, res.TCP)
	}
}
