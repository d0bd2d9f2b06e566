package rail

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfstest"
)

// addresses compares addresses by value, not by their fields.
var addresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// gid makes an entry; an IPv4 address has the form of a GID table.
func gid(index int, addr, typ, netdev string) GID {
	a := netip.MustParseAddr(addr)
	return GID{Index: index, Addr: netip.AddrFrom16(a.As16()), Type: typ, Netdev: netdev}
}

func TestChooseGID(t *testing.T) {
	const (
		v1, v2        = TypeRoCEv1, TypeRoCEv2
		ll, ip4, ip6  = "fe80::a288:c2ff:fe18:100", "10.0.0.1", "2001:db8::1"
		own, vlan, up = "ens1np0", "ens1np0.100", "bond0"
	)
	table := func(list ...GID) []GID { return list }
	for _, tt := range []struct {
		name   string
		layer  string
		table  []GID
		index  int // -1 if none
		rank   GIDRank
		reason string
	}{
		{"as a ConnectX has it", "", table(gid(0, ll, v1, own), gid(1, ll, v2, own), gid(2, ip4, v1, own),
			gid(3, ip4, v2, own)), 3, OwnIPv4, "RoCE v2, IPv4, on the rail's own interface"},
		{"on a VLAN of its own", "", table(gid(1, ll, v2, own), gid(5, ip4, v2, vlan)), 5, OwnIPv4,
			"RoCE v2, IPv4, on the rail's own interface"},
		{"the lowest of several", "", table(gid(3, ip4, v2, own), gid(5, "10.0.0.2", v2, own)), 3, OwnIPv4,
			"RoCE v2, IPv4, on the rail's own interface"},
		{"its own before the bond's", "", table(gid(2, ip4, v2, up), gid(7, ip4, v2, own)), 7, OwnIPv4,
			"RoCE v2, IPv4, on the rail's own interface"},
		{"IPv6 of its own before IPv4 of the bond", "", table(gid(2, ip4, v2, up), gid(7, ip6, v2, own)), 7, OwnIPv6,
			"RoCE v2, IPv6: the interface has no IPv4 address"},
		{"a link-local IPv4 address is none", "", table(gid(2, "169.254.3.4", v2, own), gid(7, ip6, v2, own)), 7, OwnIPv6,
			"RoCE v2, IPv6: the interface has no IPv4 address"},
		{"enslaved", "", table(gid(0, ll, v2, own), gid(1, ip4, v1, up), gid(2, ip4, v2, up)), 2, OtherIPv4,
			"RoCE v2, IPv4, but on bond0, not on the rail's own interface"},
		{"IPv4, interface unknown", "", table(gid(2, ip4, v2, "")), 2, OtherIPv4,
			"RoCE v2, IPv4, but on an unknown interface, not on the rail's own interface"},
		{"link-local of its own", "", table(gid(0, ll, v1, own), gid(1, ll, v2, own)), 1, OwnLinkLocal,
			"RoCE v2, link-local only: give the interface an IPv4 address"},
		{"link-local IPv4 of its own", "", table(gid(1, "169.254.3.4", v2, own)), 1, OwnLinkLocalIPv4,
			"RoCE v2, IPv4, link-local: it reaches the other end of one cable"},
		{"link-local IPv4 after link-local IPv6", "", table(gid(1, ll, v2, own), gid(3, "169.254.3.4", v2, own)), 3,
			OwnLinkLocalIPv4, "RoCE v2, IPv4, link-local: it reaches the other end of one cable"},
		{"IPv6 of the bond", "", table(gid(1, ll, v2, up), gid(3, ip6, v2, up)), 3, OtherIPv6,
			"RoCE v2, IPv6, and on bond0, not on the rail's own interface"},
		{"link-local of the bond", "", table(gid(0, ll, v1, own), gid(1, ll, v2, up)), 1, OtherLinkLocal,
			"RoCE v2, link-local only, and on bond0, not on the rail's own interface"},
		{"v1 only", "", table(gid(0, ll, v1, own), gid(2, ip4, v1, own)), 0, OnlyRoCEv1,
			"RoCE v1 only: it cannot be routed, and most fabrics do not prioritise it"},
		{"empty", "", nil, -1, NoGID, "the GID table is empty: the interface is down, or the driver made no entries"},
		{"InfiniBand", "InfiniBand", table(gid(0, ll, "", ""), gid(1, ip6, "", "")), 0, OwnIPv4,
			"not Ethernet: the port's first GID"},
		{"EFA", "Unspecified", table(gid(0, ll, "", "")), 0, OwnIPv4, "not Ethernet: the port's first GID"},
		{"iWARP", IWARP, table(gid(0, ll, v1, own)), 0, OwnIPv4, "iWARP, which is RDMA over TCP: its GID is no address"},
		{"InfiniBand, empty", "InfiniBand", nil, -1, NoGID, "the GID table is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.layer == "" {
				tt.layer = "Ethernet"
			}
			want := Choice{Rank: tt.rank, Reason: tt.reason}
			for _, g := range tt.table {
				if g.Index == tt.index {
					want.GID = g
				}
			}
			got := ChooseGID(tt.table, tt.layer, func(n string) bool { return n == own || n == vlan })
			if diff := cmp.Diff(want, got, addresses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOwn(t *testing.T) {
	sys := t.TempDir()
	for _, dir := range []string{
		"eth0", "eth1",
		"eth0.100/lower_eth0", "macvlan0/lower_eth0", "eth1.100/lower_eth1",
		"bond0/lower_eth0", "bond0/lower_eth1", "bond0/bonding",
		"br0/lower_eth0", "br0/bridge",
		"bond0.100/lower_bond0",
	} {
		if err := os.MkdirAll(filepath.Join(sys, "class/net", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own := Own(sys, "eth0")
	got := map[string]bool{}
	for _, name := range []string{"eth0", "eth1", "eth0.100", "macvlan0", "eth1.100", "bond0", "br0", "bond0.100",
		"absent", ""} {
		got[name] = own(name)
	}
	want := map[string]bool{
		"eth0": true, "eth0.100": true, "macvlan0": true,
		"eth1": false, "eth1.100": false, "bond0": false, "br0": false, "bond0.100": false, "absent": false, "": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if Own(sys, "")("eth0") {
		t.Error("a rail without an interface owns eth0")
	}
	if !Own(sys, "bond0")("bond0") {
		t.Error("where the driver made one device of a bond, the bond is the rail's own")
	}
}

func TestMisbound(t *testing.T) {
	const v1, v2 = TypeRoCEv1, TypeRoCEv2
	type answer struct{ Misbound, OK bool }
	for _, tt := range []struct {
		name  string
		table []GID
		want  answer
	}{
		{"well", []GID{gid(1, "fe80::1", v2, "eth0"), gid(3, "10.0.0.1", v2, "eth0")}, answer{false, true}},
		{"all moved to the bond", []GID{gid(1, "10.0.0.1", v2, "bond0"), gid(2, "10.0.0.2", v2, "bond0")},
			answer{true, true}},
		{"one stayed, and has a twin on the bond",
			[]GID{gid(1, "10.0.0.1", v2, "bond0"), gid(2, "10.0.0.1", v2, "eth0")}, answer{false, true}},
		{"what stayed is not RoCE v2 over IPv4", []GID{gid(0, "fe80::1", v2, "eth0"), gid(1, "10.0.0.1", v1, "eth0"),
			gid(2, "10.0.0.1", v2, "bond0")}, answer{true, true}},
		{"IPv6 only", []GID{gid(1, "2001:db8::1", v2, "bond0")}, answer{false, false}},
		{"empty", nil, answer{false, false}},
	} {
		misbound, ok := Misbound(tt.table, func(n string) bool { return n == "eth0" })
		if diff := cmp.Diff(tt.want, answer{misbound, ok}); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// The original fault: two Soft-RoCE devices after a bond took their interfaces. Both ports stay ACTIVE, and rxe1
// sends over eth0.
func TestMisboundByBond(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/rxe-bonded.txtar")
	rails, err := NewFinder(root.Sys(), Options{}, nil, time10).Rails()
	if err != nil {
		t.Fatal(err)
	}
	type finding struct {
		Misbound, OK bool
		Index        int
		Reason       string
	}
	got := map[string]finding{}
	for _, r := range rails {
		gids := NewGIDTable(r.Dir, r.Port)
		table, errs := gids.Read()
		if len(errs) > 0 {
			t.Error(errs)
		}
		own := Own(root.Sys(), r.Netdev)
		misbound, ok := Misbound(table, own)
		c := ChooseGID(table, r.LinkLayer, own)
		got[r.Device] = finding{misbound, ok, c.GID.Index, c.Reason}
	}
	want := map[string]finding{
		"rxe0": {false, true, 0, "RoCE v2, IPv4, on the rail's own interface"},
		"rxe1": {true, true, 1, "RoCE v2, IPv4, but on bond0, not on the rail's own interface"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestUsableGIDs: entries that a connection could use, or would use by mistake, within the limit.
func TestUsableGIDs(t *testing.T) {
	const v1, v2, ll, ip4, ip6, eth, bond = TypeRoCEv1, TypeRoCEv2, "fe80::1", "10.0.0.1", "2001:db8::1",
		"eth0", "bond0"
	many := func(from, n int, typ, netdev string) (list []GID) {
		for i := range n {
			list = append(list,
				gid(from+i, netip.AddrFrom4([4]byte{10, 1, byte((from + i) >> 8), byte(from + i)}).String(), typ,
					netdev))
		}
		return list
	}
	for _, tt := range []struct {
		name, layer string
		table       []GID
		want        string
	}{
		{"none", "Ethernet", nil, ""},
		{"as a ConnectX has it", "Ethernet", []GID{gid(0, ll, v1, eth), gid(1, ll, v2, eth), gid(2, ip4, v1, eth),
			gid(3, ip4, v2, eth)}, "1 3"},
		{"misbound", "Ethernet", []GID{gid(0, ll, v1, eth), gid(1, ll, v2, eth), gid(3, ip4, v2, bond)}, "1 3"},
		{"RoCE v1 only", "Ethernet", []GID{gid(4, ll, v1, eth), gid(5, ip4, v1, eth)}, "4"},
		{"many of its own", "Ethernet", append([]GID{gid(0, ll, v2, eth)}, many(10, 200, v2, eth)...),
			"10 11 12 13 14 15 16 17"},
		{"the best of many", "Ethernet", append(many(0, 100, v1, eth), gid(100, ip6, v2, eth), gid(101, ip4, v2, eth)),
			"100 101"},
		{"misbound among many", "Ethernet", slices.Concat(many(0, 100, v2, eth), many(100, 100, v2, bond)),
			"0 1 2 3 4 5 100 101"},
		{"one misbound among many", "Ethernet", slices.Concat(many(0, 100, v2, eth), many(100, 1, v2, bond)),
			"0 1 2 3 4 5 6 100"},
		{"all misbound", "Ethernet", many(0, 100, v2, bond), "0 1 2 3 4 5 6 7"},
		{"InfiniBand", "InfiniBand", many(0, 100, "", ""), "0 1 2 3 4 5 6 7"},
	} {
		var got []string
		for _, g := range UsableGIDs(tt.table, tt.layer, func(netdev string) bool { return netdev == eth }, 8) {
			got = append(got, strconv.Itoa(g.Index))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %s", tt.name, got, tt.want)
		}
	}
}
