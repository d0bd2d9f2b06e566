package report

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) {
	hungfs.Main()
	testenv.Setup()
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "write the generated files anew")

// otherRXE turns the machine into the one at the other end of its rails: with host part 2 in each subnet where this one
// has 1.
var otherRXE = doctortest.File("kernel/addresses/eth0", "192.168.100.2/24") + doctortest.File("kernel/addresses/eth1",
	"192.168.101.2/24")

// judge runs the checks of one node, or with a peer those of pairs.
func judge(here, there *facts.Facts) (list []finding.Finding) {
	if there != nil {
		for _, c := range check.PeerChecks() {
			list = append(list, c.Find(here, there)...)
		}
		return list
	}
	for _, c := range check.Checks() {
		list = append(list, c.Find(here)...)
	}
	return list
}

// golden compares got with a file, or writes the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./doctor/report -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./doctor/report -update writes it anew):\n%s", path, diff)
	}
}

// report returns a report with only these findings.
func report(here, there *facts.Facts, list []finding.Finding) Report {
	r := Report{Findings: []finding.Finding{}, Checks: 25, NotRun: 6, Seconds: 0.31}
	for _, f := range []*facts.Facts{here, there} {
		if f != nil {
			n := Report{}
			n.addNode(f)
			r.Nodes = append(r.Nodes, n.Nodes...)
		}
	}
	r.add(list...)
	return r
}

// TestText compares the text for people.
func TestText(t *testing.T) {
	broken := doctortest.Machine(t, "rxe",
		doctortest.File("sys/class/net/eth0/mtu", "1500")+doctortest.File("sys/class/net/eth1/flags",
			"0x1002")+doctortest.File("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	there := doctortest.Machine(t, "rxe", otherRXE+doctortest.File("kernel/addresses/eth0", "192.168.110.2/24"))
	broken.Node, there.Node = "node1", "node2"
	broken.Unread = []string{"read /sys/class/net/eth1/speed: permission denied: run it as root"}
	healthy := doctortest.Machine(t, "hgx", "")
	failed := report(healthy, nil, nil)
	failed.AddPeerFailure("spark-02:10092", errors.New("peer_unreachable: connection refused"),
		"# start railscope there")
	sorting := doctortest.Machine(t, "hgx", "")
	for _, r := range sorting.Rails {
		sorting.QoS = append(sorting.QoS, facts.QoS{Device: r.Device, Port: r.Port, Settings: []facts.Setting{
			{Name: "pfc", Value: "3"}, {Name: "dscp", Value: "0=0-7 3=24,26"}}})
	}
	served := report(sorting, nil, nil)
	served.AddClasses([]priority.Use{{Rail: "0", Priority: "3", DSCP: "24,26", Lossless: new(true), Sent: new(25e9),
		Probe: true}})
	for name, r := range map[string]Report{
		"classes": served,
		"healthy": report(healthy, nil, nil),
		"broken":  report(broken, nil, judge(broken, nil)),
		"pair":    report(broken, there, append(judge(broken, nil), judge(broken, there)...)),
		"alone":   failed,
	} {
		var text, colour, js bytes.Buffer
		if err := errors.Join(r.WriteText(&text, Page{}), r.WriteText(&colour, Page{Color: true}),
			r.WriteJSON(&js)); err != nil {
			t.Fatal(err)
		}
		golden(t, "../testdata/"+name+".txt", text.String())
		golden(t, "../testdata/"+name+".json", js.String())
		plainer := strings.NewReplacer(terminal.Red, "", terminal.Green, "", terminal.Yellow, "", terminal.Bold, "",
			terminal.Dim, "", terminal.Reset, "").Replace(colour.String())
		if plainer != text.String() || plainer == colour.String() {
			t.Errorf("%s: with colours it says something else:\n%s", name, colour.String())
		}
	}
}

// TestTextNarrow: on a narrow terminal prose breaks only at blanks, and a terminal narrower than a word does not hang.
func TestTextNarrow(t *testing.T) {
	broken := doctortest.Machine(t, "rxe",
		doctortest.File("sys/class/net/eth0/mtu", "1500")+doctortest.File("sys/class/net/eth1/flags",
			"0x1002")+doctortest.File("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	for _, columns := range []int{1, 60, 80, 100, 1000} {
		var text bytes.Buffer
		if err := report(broken, nil, judge(broken, nil)).WriteText(&text, Page{Columns: columns}); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(text.String()) {
			widest = max(widest, len(strings.TrimSuffix(line, "\n")))
		}
		most := max(52, min(columns, maxColumns)) // headings and commands are not wrapped
		if widest > most || widest < most-12 {
			t.Errorf("%d columns: the widest line has %d", columns, widest)
		}
	}
}

// TestExamine: all checks run on both nodes and the pair, and findings name their node.
func TestExamine(t *testing.T) {
	here, there := doctortest.Machine(t, "rxe", ""),
		doctortest.Machine(t, "rxe", otherRXE+doctortest.File("sys/class/net/eth1/mtu",
			"1500")+doctortest.File("sys/class/net/eth0/mtu", "9000"))
	here.Node, there.Node = "a", "b"
	r := Examine(here, there, nil)
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Node+" "+f.Check)
	}
	for _, want := range []string{"b mtu_low", "a peer_mtu"} {
		if !strings.Contains(strings.Join(got, ","), want) {
			t.Errorf("%v: no %s", got, want)
		}
	}
	live := 0
	for _, c := range check.Checks() {
		if c.Live() {
			live++
		}
	}
	want := 2*(len(check.Checks())-live) + len(check.PeerChecks())
	if r.Checks != want || r.NotRun != live || live < 10 || r.Critical+r.Warnings != len(r.Findings) ||
		len(r.Nodes) != 2 {
		t.Errorf("%d checks and %d not run, want %d and %d; %d faults and %d warnings of "+
			"%d", r.Checks, r.NotRun, want, live,
			r.Critical, r.Warnings, len(r.Findings))
	}
	r.AddRunning([]finding.Finding{{Check: "lossy_rail", Severity: finding.Warning, Subject: "rail 1"}})
	if last := r.Findings[len(r.Findings)-1]; r.Checks != want+live || r.NotRun != 0 || last.Check != "lossy_rail" {
		t.Errorf("with a running railscope: %d checks, %d not run, %+v", r.Checks, r.NotRun, last)
	}
}

// TestHostileFacts: names that a peer chose cannot control a terminal, or the shell into which a command is pasted. A
// name that cannot be typed yields no command, which would affect another interface.
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
	f := doctortest.Machine(t, "rxe",
		doctortest.File("sys/class/net/eth0/mtu", "1500")+doctortest.File("sys/class/net/eth1/flags",
			"0x1002")+doctortest.File("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	for i := range f.Rails {
		f.Rails[i].Netdev += evil
	}
	for i := range f.Netdevs {
		f.Netdevs[i].Name += evil
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
		for _, m := range finding.Fix {
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
			t.Errorf("note that no command is printed: %v: %q", said, finding.Fix)
		}
	}
	if commands != want {
		t.Errorf("%d commands, want %d", commands, want)
	}
}

// FuzzFacts: arbitrary facts of a peer are refused or judged without a panic, and none of their text controls the
// terminal.
func FuzzFacts(f *testing.F) {
	for _, name := range []string{"hgx", "spark", "rxe", "lag"} {
		f.Add([]byte(fmt.Sprintf(`{"version":3,"node":%q,"rails":{"rails":[{"name":"0","device":"x","netdev":"e","link_layer":"Ethernet","state_id":4,"gids_read":true}],"netdevs":[{"name":"e","mtu":1500,"addresses":["10.0.0.1/24"]}]}}`, name)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		there, err := facts.Parse(data)
		if err != nil {
			return
		}
		here := &facts.Facts{Version: facts.Version, Node: "here",
			Network: facts.Network{Rails: []facts.Rail{{Name: "0", Device: "mlx5_0", Netdev: "e", LinkLayer: "Ethernet",
				StateID: 4}}}}
		var text bytes.Buffer
		if err := Examine(here, there, nil).WriteText(&text, Page{}); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(text.String(), func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }) {
			t.Errorf("%q", &text)
		}
	})
}

// TestAddReplaces: a finding that knows an earlier better state replaces the one that does not.
func TestAddReplaces(t *testing.T) {
	r := Report{Nodes: []Node{{Node: "a"}}}
	for _, check := range []string{"mtu_low", "mtu_lost", "mtu_lost"} {
		r.Add([]finding.Finding{{Check: check, Severity: finding.Warning, Subject: "rail 1"},
			{Check: "mtu_low", Severity: finding.Warning, Subject: "rail 2"}})
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Check+" "+f.Subject)
	}
	if diff := cmp.Diff([]string{"mtu_low rail 2", "mtu_lost rail 1"}, got); diff != "" || r.Warnings != 2 {
		t.Errorf("%d warnings: %s", r.Warnings, diff)
	}
}
