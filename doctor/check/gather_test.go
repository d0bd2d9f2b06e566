package check

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

// TestHealthy: a healthy machine of any kind has no finding, and everything on it could be read.
func TestHealthy(t *testing.T) {
	rails := map[string]int{"hgx": 8, "spark": 4, "rxe": 2, "lag": 1}
	for name := range rails {
		f := doctortest.Machine(t, name, "")
		if len(f.Rails) != rails[name] || len(f.Unread) > 0 {
			t.Errorf("%s: %d rails, not read: %q", name, len(f.Rails), f.Unread)
		}
		if list := judge(f, nil); len(list) > 0 {
			t.Errorf("%s: %+v", name, list)
		}
		if list := judge(f, f); len(list) > 0 {
			t.Errorf("%s with its like: %+v", name, list)
		}
	}
}

// TestHung: a hung file costs the budget once and the facts that depend on it, and is reported by name.
func TestHung(t *testing.T) {
	// All healthy reads must finish within the budget, on a busy machine too.
	const budget = 2 * time.Second
	o := doctortest.Captured(t, "rxe", "")
	o.Budget = budget
	path := filepath.Join(o.Sysfs, "class/infiniband/rxe1/ports/1/state")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mount := t.TempDir()
	hung := hungfs.Mount(t, mount, map[string]string{"file": "4: ACTIVE\n"})
	if err := os.Symlink(filepath.Join(mount, "file"), path); err != nil {
		t.Fatal(err)
	}
	g := facts.New(o)
	for range 2 {
		before := time.Now()
		f := g.Gather(t.Context(), facts.All)
		if took := time.Since(before); took > 10*budget {
			t.Errorf("it took %v", took)
		}
		if len(f.Unread) != 1 || !strings.Contains(f.Unread[0], "rail 1 (rxe1/1)") || !strings.Contains(f.Unread[0],
			path) {
			t.Errorf("not read: %q", f.Unread)
		}
		if len(f.Rails) != 2 || !f.Rails[0].Active() || f.Rails[1].StateID != 0 || f.Rails[1].Device != "rxe1" {
			t.Errorf("%+v", f.Rails)
		}
		if list := judge(f, nil); len(list) > 0 {
			t.Errorf("what was not read is judged: %+v", list)
		}
	}
	hung.Release()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		f := g.Gather(t.Context(), facts.All)
		if len(f.Unread) == 0 && f.Rails[1].Active() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it answers again, and %q", f.Unread)
		}
	}
}

// TestUnread: a file that cannot be read is reported by name.
func TestUnread(t *testing.T) {
	f := doctortest.Machine(t, "rxe", doctortest.File("sys/class/net/eth1/carrier",
		"N/A")+"gone sys/class/net/eth1/mtu\n"+doctortest.File("sys/class/net/eth1/mtu/x", ""))
	if len(f.Unread) != 2 || !strings.Contains(f.Unread[0],
		`net/eth1/carrier: "N/A" is not`) || !strings.Contains(f.Unread[1], "eth1/mtu") {
		t.Errorf("%q", f.Unread)
	}
}

// TestRate: the rate of an inactive port is meaningless, and an invalid rate is reported.
func TestRate(t *testing.T) {
	port := "sys/class/infiniband/rxe1/ports/1/"
	f := doctortest.Machine(t, "rxe", doctortest.File(port+"rate", "fast"))
	if len(f.Unread) != 1 || !strings.Contains(f.Unread[0], port+"rate") || f.Rails[1].Rate != 0 {
		t.Errorf("%q, %v", f.Unread, f.Rails[1].Rate)
	}
	f = doctortest.Machine(t, "rxe", doctortest.File(port+"rate", "fast")+doctortest.File(port+"state", "1: DOWN"))
	if len(f.Unread) != 0 || f.Rails[1].Rate != 0 || f.Rails[0].Rate == 0 {
		t.Errorf("%q, %v", f.Unread, f.Rails)
	}
}

// TestHidden: RDMA devices that cannot be listed are not reported as missing, and a wrong sysfs path is reported.
func TestHidden(t *testing.T) {
	root := sysfstest.Unpack(t, "../testdata/hgx.txtar")
	class := root.Sys("class/infiniband")
	if err := errors.Join(os.RemoveAll(class), os.Symlink(class, class)); err != nil {
		t.Fatal(err)
	}
	f := facts.New(facts.Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir,
		Rails: doctortest.Rails(root.Sys())}).Gather(t.Context(), facts.All)
	if list := judge(f, nil); len(list) > 0 || len(f.Unread) == 0 || !strings.Contains(f.Unread[0], class) {
		t.Errorf("%+v, not read: %q", list, f.Unread)
	}
	f = facts.New(facts.Options{Sysfs: "/no/such/sys", Procfs: root.Proc(), Rootfs: root.Dir,
		Rails: doctortest.Rails("/no/such/sys")}).Gather(t.Context(), facts.All)
	want := []string{"stat /no/such/sys/class: no such file or directory: --path.sysfs names where sysfs is mounted"}
	if !slices.Equal(f.Unread, want) {
		t.Errorf("not read: %q, want %q", f.Unread, want)
	}
}

// TestGIDUnread: a GID whose type or interface cannot be read is not judged.
func TestGIDUnread(t *testing.T) {
	for _, attr := range []string{"types", "ndevs"} {
		path := mlx1 + "gid_attrs/" + attr + "/3"
		f := doctortest.Machine(t, "hgx", "gone "+path+"\n"+doctortest.File(path+"/x", ""))
		if len(f.Unread) != 1 || !strings.Contains(f.Unread[0], path) {
			t.Errorf("%s: not read: %q", attr, f.Unread)
		}
		if list := judge(f, nil); len(list) > 0 {
			t.Errorf("%s: what was not read is judged: %+v", attr, list)
		}
	}
}

// TestPropose: a proposed address is valid, in a free subnet, at this node's place.
func TestPropose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		f := machineOfAddresses(rng)
		r := &f.Rails[rng.IntN(len(f.Rails))]
		p, like, ok := propose(f, r)
		if !ok {
			continue
		}
		base := f.Netdev(like.Netdev).IPv4()[0]
		if addressed(f, p.Overlaps) || p.Bits() != base.Bits() || !p.Addr().Is4() {
			t.Fatalf("%s for %s, after %s: %+v", p, r, base, f.Netdevs)
		}
		mask := uint32(1)<<(32-p.Bits()) - 1
		if a, b := p.Addr().As4(),
			base.Addr().As4(); (uint32(a[2])<<8|uint32(a[3]))&mask != (uint32(b[2])<<8|uint32(b[3]))&mask {
			t.Fatalf("%s has not the place of %s", p, base)
		}
	}
}

// machineOfAddresses is a node with some rails, most of them with an address.
func machineOfAddresses(rng *rand.Rand) *facts.Facts {
	f := &facts.Facts{}
	bits := 16 + rng.IntN(15)
	for i := range 1 + rng.IntN(6) {
		name := fmt.Sprintf("e%d", i)
		f.Rails = append(f.Rails, facts.Rail{Name: fmt.Sprint(i), Netdev: name})
		n := facts.Netdev{Name: name}
		if rng.IntN(3) > 0 {
			n.Addresses = append(n.Addresses,
				netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(rng.IntN(256)), byte(rng.IntN(3)), byte(rng.IntN(4)),
					byte(rng.IntN(256))}), bits))
		}
		f.Netdevs = append(f.Netdevs, n)
	}
	return f
}

// docs returns the tables of docs/doctor.md.
func docs() string {
	var b strings.Builder
	row := func(id, about string) { fmt.Fprintf(&b, "| `%s` | %s |\n", id, strings.ReplaceAll(about, "|", `\|`)) }
	b.WriteString("### Of one node\n\n| check | finds |\n|---|---|\n")
	for _, c := range Checks() {
		row(c.ID, c.About)
	}
	b.WriteString("\n### Of two nodes\n\n| check | finds |\n|---|---|\n")
	for _, c := range PeerChecks() {
		row(c.ID, c.About)
	}
	row(PeerUnanswered, "the peer does not answer, refuses, is too old, or speaks another version of facts")
	b.WriteString("\n### Of a round of the probe\n\n| check | finds |\n|---|---|\n")
	for _, c := range RoundChecks() {
		row(c.ID, c.About)
	}
	return b.String()
}

// TestDocs: the tables of docs/doctor.md match the checks, and the table of docs/probe.md matches the cures.
func TestDocs(t *testing.T) {
	for _, tc := range []struct{ path, name, text string }{{"../../docs/doctor.md", "checks", docs()},
		{"../../docs/probe.md", "reasons", CuresText()}} {
		from, to := "<!-- "+tc.name+" -->\n", "<!-- end of "+tc.name+" -->\n"
		data, err := os.ReadFile(tc.path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, ok := strings.Cut(string(data), from)
		_, tail, ok2 := strings.Cut(rest, to)
		if !ok || !ok2 {
			t.Fatalf("%s has no %q and %q", tc.path, from, to)
		}
		golden(t, tc.path, head+from+tc.text+to+tail)
	}
}

// TestChecksComplete: IDs are unique among the checks of nodes, of pairs and of rounds, and each check has a
// description.
func TestChecksComplete(t *testing.T) {
	seen := map[string]bool{}
	add := func(id, about string) {
		if seen[id] || id == "" || about == "" || strings.ToLower(id) != id || strings.ContainsAny(id, " -") {
			t.Errorf("check %q: %q", id, about)
		}
		seen[id] = true
	}
	for _, c := range Checks() {
		add(c.ID, c.About)
	}
	clear(seen) // a pair may have the same fault as a node
	for _, c := range PeerChecks() {
		add(c.ID, c.About)
	}
	clear(seen) // and a round that of an examination
	for _, c := range RoundChecks() {
		add(c.ID, c.About)
	}
}

// TestNode: all checks of a node are made, or those that are wanted.
func TestNode(t *testing.T) {
	f := doctortest.Machine(t, "hgx", doctortest.File(mlx1+"state", "1: DOWN"))
	down := func(list []finding.Finding) bool {
		return slices.ContainsFunc(list, func(f finding.Finding) bool { return f.Check == "port_down" })
	}
	if !down(Node(f, nil)) || !down(Node(f, func(c Check) bool { return c.ID == "port_down" })) ||
		down(Node(f, func(c Check) bool { return c.ID != "port_down" })) {
		t.Errorf("%+v", Node(f, nil))
	}
}

// TestSeverities: a running railscope has no findings of checks that need the facts of two nodes.
func TestSeverities(t *testing.T) {
	list := Severities()
	for id, want := range map[string]bool{"port_down": true, "data_mismatch": true, unpaired: true, "peer_subnet": false} {
		if got := len(list[id]) > 0; got != want {
			t.Errorf("%s: %v", id, list[id])
		}
	}
}

// TestFixText: a fix names what the operator has: the rail's interface, or its device without one.
func TestFixText(t *testing.T) {
	for netdev, want := range map[string]string{"eth1": "ethtool -S eth1", "": "ethtool -S mlx5_1"} {
		f := &facts.Facts{Live: &facts.Live{Over: 10 * time.Minute, Increases: []facts.Increase{
			{Row: "port_global_pause_seconds_total", Labels: []string{"1", "x", "receive"}, By: 60}}}}
		f.Rails = []facts.Rail{{Name: "1", Device: "mlx5_1", Netdev: netdev}}
		list := Node(f, func(c Check) bool { return c.ID == "pfc_pause" })
		if len(list) != 1 || !strings.Contains(strings.Join(list[0].Fix, "\n"), want) {
			t.Errorf("interface %q: no %q in %+v", netdev, want, list)
		}
	}
	apart := doctortest.File("sys/class/net/ens1f1np1/bonding_slave/ad_aggregator_id", "2")
	list := judge(doctortest.Machine(t, "lag", apart), nil)
	if len(list) != 1 || strings.Contains(strings.Join(list[0].Fix, "\n"), "active-backup") {
		t.Errorf("members that hear LACP get the advice to do without: %+v", list)
	}
	whole, half := (&pcieLink{need: 50e9, rate: 50e9}).part(), (&pcieLink{need: 25e9, rate: 50e9}).part()
	if whole != "" ||
		half != ", of which this link should carry 200 Gb/s" {
		t.Errorf("a link's part of a port: %q of all, %q of a half", whole, half)
	}
}

// TestUnpairedByName: rails without addresses are paired by name.
func TestUnpairedByName(t *testing.T) {
	here, there := &facts.Facts{Node: "here"}, &facts.Facts{Node: "there"}
	here.Rails, there.Rails = []facts.Rail{{Name: "0"}, {Name: "1"}}, []facts.Rail{{Name: "1"}}
	for _, c := range PeerChecks() {
		if list := c.Find(here, there); c.ID == unpaired && (len(list) != 1 || list[0].Subject != "rail 0") {
			t.Errorf("%+v", list)
		}
	}
}
