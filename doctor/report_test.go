package doctor

import (
	"bytes"
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
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/sysfstest"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) {
	hungfs.Main()
	testenv.Setup()
	os.Exit(m.Run())
}

// golden compares with a file, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./doctor -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./doctor -update writes it anew):\n%s", path, diff)
	}
}

// report is what is printed of findings, whatever other checks say.
func report(here, there *Facts, list []Finding) Report {
	r := Report{Findings: []Finding{}, Checks: 25, Seconds: 0.31}
	for _, f := range []*Facts{here, there} {
		if f != nil {
			n := Report{}
			n.look(f)
			r.Nodes = append(r.Nodes, n.Nodes...)
		}
	}
	for _, f := range list {
		r.add(f, f.Check, here.Node)
	}
	return r
}

// TestText holds what people read.
func TestText(t *testing.T) {
	broken := machine(t, "rxe", file("sys/class/net/eth0/mtu", "1500")+file("sys/class/net/eth1/flags", "0x1002")+file("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	there := machine(t, "rxe", otherRXE+file("kernel/addresses/eth0", "192.168.110.2/24"))
	broken.Node, there.Node = "node1", "node2"
	broken.Unread = []string{"read /sys/class/net/eth1/speed: permission denied: run it as root"}
	healthy := machine(t, "hgx", "")
	failed := report(healthy, nil, nil)
	failed.AddPeerFailure("spark-02:10092", errors.New("peer_unreachable: connection refused"), "# start railscope there")
	for name, r := range map[string]Report{
		"healthy": report(healthy, nil, nil),
		"broken":  report(broken, nil, judge(broken, nil)),
		"pair":    report(broken, there, append(judge(broken, nil), judge(broken, there)...)),
		"alone":   failed,
	} {
		var text, colour, js bytes.Buffer
		if err := errors.Join(r.WriteText(&text, Page{}), r.WriteText(&colour, Page{Color: true}), r.WriteJSON(&js)); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/"+name+".txt", text.String())
		golden(t, "testdata/"+name+".json", js.String())
		plainer := strings.NewReplacer(terminal.Red, "", terminal.Green, "", terminal.Yellow, "", terminal.Bold, "", terminal.Dim, "", terminal.Reset, "").Replace(colour.String())
		if plainer != text.String() || plainer == colour.String() {
			t.Errorf("%s: with colours it says something else:\n%s", name, colour.String())
		}
	}
}

// TestTextNarrow: on a narrow terminal no prose is broken but at blanks, and on
// one that is no wider than a word it still comes to an end.
func TestTextNarrow(t *testing.T) {
	broken := machine(t, "rxe", file("sys/class/net/eth0/mtu", "1500")+file("sys/class/net/eth1/flags", "0x1002")+file("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	for _, columns := range []int{1, 60, 80, 100, 1000} {
		var text bytes.Buffer
		if err := report(broken, nil, judge(broken, nil)).WriteText(&text, Page{Columns: columns}); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(text.String()) {
			widest = max(widest, len(strings.TrimSuffix(line, "\n")))
		}
		most := max(50, min(columns, maxColumns)) // headings and commands are whole
		if widest > most || widest < most-12 {
			t.Errorf("%d columns: the widest line has %d", columns, widest)
		}
	}
}

// TestExamine: all checks are made of both nodes and of the pair, and findings
// say of which node they are.
func TestExamine(t *testing.T) {
	here, there := machine(t, "rxe", ""), machine(t, "rxe", otherRXE+file("sys/class/net/eth1/mtu", "1500")+file("sys/class/net/eth0/mtu", "9000"))
	here.Node, there.Node = "a", "b"
	r := Examine(here, there)
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Node+" "+f.Check)
	}
	for _, want := range []string{"b mtu_low", "a peer_mtu"} {
		if !strings.Contains(strings.Join(got, ","), want) {
			t.Errorf("%v: no %s", got, want)
		}
	}
	if want := 2*len(Checks()) + len(PeerChecks()); r.Checks != want || r.Faults+r.Warnings != len(r.Findings) || len(r.Nodes) != 2 {
		t.Errorf("%d checks, want %d; %d faults and %d warnings of %d", r.Checks, want, r.Faults, r.Warnings, len(r.Findings))
	}
}

// TestHostileFacts: names that a peer chose steer neither the terminal nor the
// shell of who pastes a command. Of a name that cannot be typed there is no
// command, because it would name another interface.
func TestHostileFacts(t *testing.T) {
	for _, tt := range []struct {
		name, evil string
		commands   int
	}{
		{"typable", "e'; rm -rf /$(reboot)`id`", 2},
		{"control characters", "e'; rm -rf /\n\x1b]0;owned\a$(reboot)`id`", 0},
		{"turned around", "e'; rm -rf /\u202e", 0},
		{"invisible", "e'; rm -rf /\u200b", 0},
		{"invalid UTF-8", "e'; rm -rf /\xff", 0},
	} {
		t.Run(tt.name, func(t *testing.T) { hostileFacts(t, tt.evil, tt.commands) })
	}
}

func hostileFacts(t *testing.T, evil string, want int) {
	f := machine(t, "rxe", file("sys/class/net/eth0/mtu", "1500")+file("sys/class/net/eth1/flags", "0x1002")+file("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	for i := range f.Rails.Rails {
		f.Rails.Rails[i].Netdev += evil
	}
	for i := range f.Rails.Netdevs {
		f.Rails.Netdevs[i].Name += evil
	}
	f.Node, f.Unread = evil, []string{evil}
	list := judge(f, nil)
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	var text bytes.Buffer
	if err := report(f, nil, list).WriteText(&text, Page{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range text.String() {
		if c != '\n' && !unicode.IsPrint(c) {
			t.Fatalf("%q in %q", c, &text)
		}
	}
	commands := 0
	for _, finding := range list {
		said := false
		for _, m := range finding.Mend {
			if m != terminal.Plain(m) {
				t.Errorf("not one plain line: %q", m)
			}
			if strings.HasPrefix(m, "#") {
				said = said || strings.Contains(m, `no command is printed: the name "eth`)
				continue
			}
			commands++
			if !strings.Contains(m, ` dev 'eth`) || !strings.Contains(m, `e'\''; rm -rf`) {
				t.Errorf("not quoted: %q", m)
			}
		}
		if said != (want == 0) {
			t.Errorf("does it say that there is no command? %v: %q", said, finding.Mend)
		}
	}
	if commands != want {
		t.Errorf("%d commands, want %d", commands, want)
	}
}

// TestHung: a file that never answers costs the budget, once, and what hangs on
// it; which one it was is said.
func TestHung(t *testing.T) {
	const budget = 2 * time.Second // all that answers must do so in it, on a busy machine too
	root := sysfstest.Unpack(t, "testdata/rxe.txtar")
	path := root.Sys("class/infiniband/rxe1/ports/1/state")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mount := t.TempDir()
	hung := hungfs.Mount(t, mount, map[string]string{"file": "4: ACTIVE\n"})
	if err := os.Symlink(filepath.Join(mount, "file"), path); err != nil {
		t.Fatal(err)
	}
	g := New(Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir, Budget: budget})
	g.kernel = captured{root}
	for range 2 {
		before := time.Now()
		f := g.Gather(t.Context())
		if took := time.Since(before); took > 10*budget {
			t.Errorf("it took %v", took)
		}
		if len(f.Unread) != 1 || !strings.Contains(f.Unread[0], "rail 1 (rxe1/1)") || !strings.Contains(f.Unread[0], path) {
			t.Errorf("not read: %q", f.Unread)
		}
		if len(f.Rails.Rails) != 2 || !f.Rails.Rails[0].active() || f.Rails.Rails[1].StateID != 0 || f.Rails.Rails[1].Device != "rxe1" {
			t.Errorf("%+v", f.Rails.Rails)
		}
		if list := judge(f, nil); len(list) > 0 {
			t.Errorf("what was not read is judged: %+v", list)
		}
	}
	hung.Release()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		f := g.Gather(t.Context())
		if len(f.Unread) == 0 && f.Rails.Rails[1].active() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it answers again, and %q", f.Unread)
		}
	}
}

// TestUnread: what cannot be read is said, with the file.
func TestUnread(t *testing.T) {
	f := machine(t, "rxe", file("sys/class/net/eth1/carrier", "N/A")+"gone sys/class/net/eth1/mtu\n"+file("sys/class/net/eth1/mtu/x", ""))
	if len(f.Unread) != 2 || !strings.Contains(f.Unread[0], `net/eth1/carrier: "N/A" is not`) || !strings.Contains(f.Unread[1], "eth1/mtu") {
		t.Errorf("%q", f.Unread)
	}
}

// TestNotLookedAt: where the RDMA devices cannot be listed, nobody knows that there
// are none; and a tree that is not there is said to be the wrong one.
func TestNotLookedAt(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/hgx.txtar")
	class := root.Sys("class/infiniband")
	if err := errors.Join(os.RemoveAll(class), os.Symlink(class, class)); err != nil {
		t.Fatal(err)
	}
	f := New(Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir}).Gather(t.Context())
	if list := judge(f, nil); len(list) > 0 || len(f.Unread) == 0 || !strings.Contains(f.Unread[0], class) {
		t.Errorf("%+v, not read: %q", list, f.Unread)
	}
	f = New(Options{Sysfs: "/no/such/sys", Procfs: root.Proc(), Rootfs: root.Dir}).Gather(t.Context())
	if want := []string{"stat /no/such/sys/class: no such file or directory: --path.sysfs names where sysfs is mounted"}; !slices.Equal(f.Unread, want) {
		t.Errorf("not read: %q, want %q", f.Unread, want)
	}
}

// TestGIDUnread: a GID of which the type or the interface cannot be read is not
// taken for another one.
func TestGIDUnread(t *testing.T) {
	for _, attr := range []string{"types", "ndevs"} {
		path := mlx1 + "gid_attrs/" + attr + "/3"
		f := machine(t, "hgx", "gone "+path+"\n"+file(path+"/x", ""))
		if len(f.Unread) != 1 || !strings.Contains(f.Unread[0], path) {
			t.Errorf("%s: not read: %q", attr, f.Unread)
		}
		if list := judge(f, nil); len(list) > 0 {
			t.Errorf("%s: what was not read is judged: %+v", attr, list)
		}
	}
}

// TestDocs holds the tables of docs/doctor.md equal to the checks.
func TestDocs(t *testing.T) {
	const path, from, to = "../docs/doctor.md", "<!-- checks -->\n", "<!-- end of checks -->\n"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), from)
	_, tail, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", path, from, to)
	}
	golden(t, path, head+from+Docs()+to+tail)
}

// TestChecksAreWhole: IDs are unique, and each says what it finds.
func TestChecksAreWhole(t *testing.T) {
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
	for _, c := range PeerChecks() {
		add(c.ID, c.About)
	}
}

// FuzzFacts: whatever a peer tells, it is refused or judged; nothing panics, and
// nothing that it says reaches the terminal as a command to it.
func FuzzFacts(f *testing.F) {
	for _, name := range machines {
		f.Add([]byte(fmt.Sprintf(`{"version":1,"node":%q,"rails":{"rails":[{"name":"0","device":"x","netdev":"e","link_layer":"Ethernet","state_id":4,"gids_read":true}],"netdevs":[{"name":"e","mtu":1500,"addresses":["10.0.0.1/24"]}]}}`, name)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		there, err := ParseFacts(data)
		if err != nil {
			return
		}
		here := &Facts{Version: FactsVersion, Node: "here", Rails: RailFacts{Rails: []Rail{{Name: "0", Device: "mlx5_0", Netdev: "e", LinkLayer: "Ethernet", StateID: 4}}}}
		var text bytes.Buffer
		if err := Examine(here, there).WriteText(&text, Page{}); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(text.String(), func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }) {
			t.Errorf("%q", &text)
		}
	})
}

// TestPropose: an address is proposed in a subnet that is free, at this node's
// place, and never beyond what an address can be.
func TestPropose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		f := machineOfAddresses(rng)
		r := &f.Rails[rng.IntN(len(f.Rails))]
		p, like, ok := f.propose(r)
		if !ok {
			continue
		}
		base := f.netdev(like.Netdev).ipv4()[0]
		if f.taken(p) || p.Bits() != base.Bits() || !p.Addr().Is4() {
			t.Fatalf("%s for %s, after %s: %+v", p, r, base, f.Netdevs)
		}
		mask := uint32(1)<<(32-p.Bits()) - 1
		if a, b := p.Addr().As4(), base.Addr().As4(); (uint32(a[2])<<8|uint32(a[3]))&mask != (uint32(b[2])<<8|uint32(b[3]))&mask {
			t.Fatalf("%s has not the place of %s", p, base)
		}
	}
}

// machineOfAddresses is a node with some rails, most of which have an address.
func machineOfAddresses(rng *rand.Rand) *RailFacts {
	f := &RailFacts{}
	bits := 16 + rng.IntN(15)
	for i := range 1 + rng.IntN(6) {
		name := fmt.Sprintf("e%d", i)
		f.Rails = append(f.Rails, Rail{Name: fmt.Sprint(i), Netdev: name})
		n := Netdev{Name: name}
		if rng.IntN(3) > 0 {
			n.Addresses = append(n.Addresses, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(rng.IntN(256)), byte(rng.IntN(3)), byte(rng.IntN(4)), byte(rng.IntN(256))}), bits))
		}
		f.Netdevs = append(f.Netdevs, n)
	}
	return f
}
