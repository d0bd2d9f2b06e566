package doctor

import (
	"context"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

var update = flag.Bool("update", false, "write the generated files anew")

// captured is what the kernel of a captured machine answers: the files below
// kernel/.
type captured struct{ root sysfstest.Root }

func (c captured) index(netdev string) int {
	n, err := sysfs.ReadUint(c.root.Sys("class/net", netdev, "ifindex"))
	if err != nil {
		panic(err) // the fixture is not whole
	}
	return int(n)
}

func (c captured) prefixes(dir string) map[int][]netip.Prefix {
	all := map[int][]netip.Prefix{}
	list, _ := os.ReadDir(filepath.Join(c.root.Dir, "kernel", dir)) // none: none
	for _, e := range list {
		data, err := os.ReadFile(filepath.Join(c.root.Dir, "kernel", dir, e.Name()))
		if err != nil {
			panic(err)
		}
		for text := range strings.FieldsSeq(string(data)) {
			all[c.index(e.Name())] = append(all[c.index(e.Name())], netip.MustParsePrefix(text))
		}
	}
	return all
}

func (c captured) Addresses() (map[int][]netip.Prefix, error) { return c.prefixes("addresses"), nil }

func (c captured) Gateways(index int) ([]netip.Prefix, error) {
	return c.prefixes("gateways")[index], nil
}

func (c captured) Path(from, _ netip.Addr) (int, error) {
	netdev, err := sysfs.ReadString(c.root.Dir, "kernel/paths", from.String())
	if err != nil {
		return 0, nil
	}
	return c.index(netdev), nil
}

// machine unpacks a healthy machine with one change: files that are written
// over its own, after lines "gone PATH" of what goes.
func machine(t *testing.T, name, change string) *Facts {
	t.Helper()
	root := sysfstest.Unpack(t, "testdata/"+name+".txtar")
	var files strings.Builder
	for line := range strings.Lines(change) {
		if path, gone := strings.CutPrefix(strings.TrimSpace(line), "gone "); gone {
			if _, err := os.Lstat(filepath.Join(root.Dir, path)); err != nil {
				t.Fatal(err) // it would change nothing
			}
			if err := os.RemoveAll(filepath.Join(root.Dir, path)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		files.WriteString(line)
	}
	sysfstest.Write(t, root.Dir, []byte(files.String()))
	g := New(Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir})
	g.kernel = captured{root}
	f := g.Gather(context.Background())
	f.Node = name
	return f
}

// judge makes the checks of rails, and those of pairs where there is a peer.
func judge(here, there *Facts) (list []Finding) {
	for _, c := range railChecks() {
		if there == nil {
			c.Run(here, func(f Finding) { f.Check = c.ID; list = append(list, f) })
		}
	}
	for _, c := range railPeerChecks() {
		if there != nil {
			c.Run(here, there, func(f Finding) { f.Check = c.ID; list = append(list, f) })
		}
	}
	return list
}

var machines = []string{"hgx", "spark", "rxe", "lag"}

// TestHealthy: a healthy machine, whatever its kind, has no finding, and all of
// it could be read.
func TestHealthy(t *testing.T) {
	rails := map[string]int{"hgx": 8, "spark": 4, "rxe": 2, "lag": 1}
	for _, name := range machines {
		f := machine(t, name, "")
		if len(f.Rails.Rails) != rails[name] || len(f.Unread) > 0 {
			t.Errorf("%s: %d rails, not read: %q", name, len(f.Rails.Rails), f.Unread)
		}
		if list := judge(f, nil); len(list) > 0 {
			t.Errorf("%s: %+v", name, list)
		}
		if list := judge(f, f); len(list) > 0 {
			t.Errorf("%s with its like: %+v", name, list)
		}
	}
}

// TestFactsTravel: facts are the same after the way to a peer.
func TestFactsTravel(t *testing.T) {
	for _, name := range machines {
		f := machine(t, name, "")
		got, err := ParseFacts(encode(t, f))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
			cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestGather: each fact is in its place.
func TestGather(t *testing.T) {
	yes := true
	one, zero := uint64(1), uint64(0)
	no := 0
	f := machine(t, "hgx", "")
	want := Rail{Name: "5", Device: "mlx5_5", Port: 1, Netdev: "ens6np0", LinkLayer: "Ethernet", Driver: "mlx5_core", PCIAddress: "0000:ba:00.0", NUMANode: 1,
		Board: "a088:c203:00ba:0100", PortKey: "a088:c203:00ba:0100 f0", StateID: 4, State: "4: ACTIVE", PhysState: "5: LinkUp", Rate: 50e9, GIDsRead: true,
		GIDs: []GID{
			{0, netip.MustParseAddr("fe80::a288:c2ff:feba:100"), rail.TypeRoCEv1, "ens6np0", true}, {1, netip.MustParseAddr("fe80::a288:c2ff:feba:100"), rail.TypeRoCEv2, "ens6np0", true},
			{2, netip.MustParseAddr("::ffff:10.0.5.1"), rail.TypeRoCEv1, "ens6np0", true}, {3, netip.MustParseAddr("::ffff:10.0.5.1"), rail.TypeRoCEv2, "ens6np0", true}},
		Link: &Link{"0000:ba:00.0", 32, 16, 32, 16}, Slot: &Link{"0000:b7:01.0", 32, 16, 32, 16}}
	addr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, f.Rails.Rails[5], addr); diff != "" {
		t.Error(diff)
	}
	netdev := Netdev{Name: "ens6np0", Index: 15, Up: &yes, Carrier: &yes, MTU: 9000, Slot: "0000:ba:00", Ups: &one, Downs: &zero,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.5.1/24")}, ARPIgnore: &no, ARPAnnounce: &no, ARPFilter: &no}
	if diff := cmp.Diff(netdev, f.Rails.netdev("ens6np0"), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if f.Rails.Uptime != 864000 || !f.Rails.RDMA || len(f.Rails.GPUs) != 8 || !slices.Contains(f.Rails.GPUs, GPU{"0000:bb:00.0", 1}) {
		t.Errorf("uptime %v, RDMA %v, GPUs %v", f.Rails.Uptime, f.Rails.RDMA, f.Rails.GPUs)
	}
	state := 61
	bond := []Bond{{Name: "bond0", Mode: "802.3ad", Aggregator: 1, Partner: "50:6b:4b:12:34:56", Members: []Member{{"ens1f0np0", "up", 1, &state}, {"ens1f1np1", "up", 1, &state}}}}
	if diff := cmp.Diff(bond, machine(t, "lag", "").Rails.Bonds); diff != "" {
		t.Error(diff)
	}
	if f := machine(t, "rxe", ""); !slices.Equal(f.Rails.Others, []netip.Prefix{netip.MustParsePrefix("192.168.200.1/24")}) {
		t.Errorf("other addresses: %v", f.Rails.Others)
	}
}

func encode(t *testing.T, f *Facts) []byte {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
