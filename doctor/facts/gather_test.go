package facts_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
)

// TestFactsTravel: facts survive a round trip through JSON.
func TestFactsTravel(t *testing.T) {
	for _, name := range []string{"hgx", "spark", "rxe", "lag"} {
		f := doctortest.Machine(t, name, "")
		got, err := facts.Parse(encode(t, f))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
			cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestGather compares all facts of a machine.
func TestGather(t *testing.T) {
	yes := true
	one, zero := uint64(1), uint64(0)
	no := 0
	f := doctortest.Machine(t, "hgx", "")
	gid := func(index int, addr, kind string) facts.GID {
		return facts.GID{GID: rail.GID{Index: index, Addr: netip.MustParseAddr(addr), Type: kind, Netdev: "ens6np0"},
			Own: true}
	}
	want := facts.Rail{Name: "5", Device: "mlx5_5", Port: 1, Role: rail.Compute, Netdev: "ens6np0", LinkLayer: "Ethernet",
		Driver: "mlx5_core", PCIAddress: "0000:ba:00.0", NUMANode: 1,
		Board: "a088:c203:00ba:0100", PortKey: "a088:c203:00ba:0100 f0", StateID: 4, State: "4: ACTIVE",
		PhysState: "5: LinkUp", Rate: 50e9, GIDsRead: true, Kind: "mlx5_core MT4129 MT_0000000838", Provider: "mlx5",
		GIDs: []facts.GID{gid(0, "fe80::a288:c2ff:feba:100", rail.TypeRoCEv1),
			gid(1, "fe80::a288:c2ff:feba:100", rail.TypeRoCEv2), gid(2, "::ffff:10.0.5.1", rail.TypeRoCEv1),
			gid(3, "::ffff:10.0.5.1", rail.TypeRoCEv2)},
		Link: &facts.Link{Address: "0000:ba:00.0", Speed: 32, Width: 16, MaxSpeed: 32, MaxWidth: 16},
		Slot: &facts.Link{Address: "0000:b7:01.0", MaxSpeed: 32, MaxWidth: 16}}
	addr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, f.Rails[5], addr); diff != "" {
		t.Error(diff)
	}
	netdev := facts.Netdev{Name: "ens6np0", Index: 15, Up: &yes, Carrier: &yes, MTU: 9000, Slot: "0000:ba:00",
		Ups: &one, Downs: &zero,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.5.1/24")}, ARPIgnore: &no, ARPAnnounce: &no,
		ARPFilter: &no}
	if diff := cmp.Diff(netdev, f.Netdev("ens6np0"),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if f.Uptime != 864000 || !f.RDMA || len(f.GPUs) != 8 || !slices.Contains(f.GPUs,
		facts.GPU{Address: "0000:bb:00.0", NUMANode: 1}) {
		t.Errorf("uptime %v, RDMA %v, GPUs %v", f.Uptime, f.RDMA, f.GPUs)
	}
	state := 61
	bond := []facts.Bond{{Name: "bond0", Mode: "802.3ad", Aggregator: 1, Partner: "50:6b:4b:12:34:56",
		Members: []facts.Member{{Name: "ens1f0np0", Status: "up", Aggregator: 1, ActorState: &state},
			{Name: "ens1f1np1", Status: "up", Aggregator: 1, ActorState: &state}}}}
	if diff := cmp.Diff(bond, doctortest.Machine(t, "lag", "").Bonds); diff != "" {
		t.Error(diff)
	}
	if f := doctortest.Machine(t, "rxe", ""); !slices.Equal(f.Others,
		[]netip.Prefix{netip.MustParsePrefix("192.168.200.1/24")}) {
		t.Errorf("other addresses: %v", f.Others)
	}
}

func encode(t *testing.T, f *facts.Facts) []byte {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestParse: invalid facts are refused, with the reason.
func TestParse(t *testing.T) {
	for _, c := range []struct{ name, data, says string }{
		{"nothing", "", "invalid facts"},
		{"something else", "<html>", "invalid facts"},
		{"another form", `{"version":1,"rails":7}`, "the peer speaks version 1, this node 3"},
		{"no form", `{}`, "speaks version 0"},
		{"numbers for names", `{"version":3,"rails":{"rails":[{"name":1}]}}`, "invalid facts"},
		{"more rails than a node has", `{"version":3,"rails":{"rails":[` + strings.Repeat("{},", 256) + `{}]}}`,
			"257 rails"},
		{"more members than a bond has", `{"version":3,"rails":{"bonds":[{"members":[` + strings.Repeat("{},", 64) + `{}]}]}}`,
			"65 members"},
		{"more addresses than an interface has",
			`{"version":3,"rails":{"netdevs":[{"name":"eth0","addresses":[` + strings.Repeat(`"10.0.0.1/8",`,
				256) + `"10.0.0.1/8"]}]}}`, "257 addresses"},
		{"more routes than are asked for",
			`{"version":3,"rails":{"netdevs":[{"gateways":[` + strings.Repeat(`"10.0.0.1/8",`,
				256) + `"10.0.0.1/8"]}]}}`, "257 gateways"},
		{"deeper than anything", `{"version":3,"rails":{"rails":` + strings.Repeat("[", 400000) + strings.Repeat("]",
			400000) + `}}`, "invalid facts"},
		{"more GIDs than a table has", `{"version":3,"rails":{"rails":[{"gids":[` + strings.Repeat("{},",
			4096) + `{}]}]}}`, "4097 gids"},
	} {
		f, err := facts.Parse([]byte(c.data))
		if f != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if errors.Is(err, facts.ErrVersion) != strings.Contains(c.says, "speaks version") {
			t.Errorf("%s: is it ErrVersion? %v", c.name, err)
		}
	}
}

// TestParseFactsPlain: names from a peer are safe to print, also in JSON, and rails of one name still match.
func TestParseFactsPlain(t *testing.T) {
	f := doctortest.Machine(t, "rxe", "")
	evil := "\x1b[2J\u202e\u009b31m\n" + strings.Repeat("x", 2*facts.MaxPeerText)
	f.Node, f.Unread = evil, append(slices.Repeat([]string{"x"}, facts.MaxUnread), evil)
	f.Unread[0] = evil
	f.Rails[0].Name, f.Rails[1].Name, f.Rails[1].State = "östlich", evil, evil
	f.Rails[1].GIDs[0].Addr = f.Rails[1].GIDs[0].Addr.WithZone(evil)
	f.Netdevs[0].Master = evil
	f.Others = []netip.Prefix{netip.MustParsePrefix("fd00::1/64")}
	got, err := facts.Parse(encode(t, f))
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Rails; r[0].Name != "östlich" || len(r[1].Name) > facts.MaxPeerText || r[1].GIDs[0].Addr.Zone() != "" ||
		!slices.Equal(got.Others, f.Others) || len(got.Unread) != facts.MaxUnread {
		t.Errorf("%q, %d bytes, zone %q, %v, %d not read", r[0].Name, len(r[1].Name), r[1].GIDs[0].Addr.Zone(),
			got.Others, len(got.Unread))
	}
	for _, text := range []string{got.Node, got.Unread[0], got.Rails[1].Name, got.Rails[1].State,
		got.Netdevs[0].Master} {
		if text != terminal.Plain(text) || text == "" {
			t.Errorf("%q", text)
		}
	}
	if got, err := facts.Parse([]byte(`{"version":3}`)); err != nil || got.Node != "peer" {
		t.Errorf("%+v %v", got, err)
	}
}
