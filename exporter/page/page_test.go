package page

import (
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
)

var update = flag.Bool("update", false, "write the goldens anew")

// drawnPage returns the page of a reading, drawn at the time of the fixtures.
func drawnPage(t *testing.T, o Options, e exposition) *Page {
	t.Helper()
	page, _ := open(t, o, e)
	var err error
	b := page.builder
	page.o.Read = func(_ []string, view func(Reading, map[string]string)) { view(e, nil) }
	s := b.build(e, nil, then())
	if o.Exam != nil {
		s.Exam = o.Exam()
	}
	s.judge()
	page.shown = s
	page.last, err = page.drawing.draw(&s)
	if err != nil {
		t.Fatal(err)
	}
	page.made = time.Now()
	return page
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test ./exporter/page -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./exporter/page -update writes it anew):\n%s", file, diff)
	}
}

// TestDocument compares the whole document, with markup and drawings, of a node that has some of everything.
func TestDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, e := whole(t)
		page := drawnPage(t, o, e)
		text, err := page.document()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "page.html", strings.ReplaceAll(text, page.drawing.layout, "LAYOUT"))
	})
}

// TestParts compares what a reader sees of every kind of machine: which parts the page has, and the text of those that
// make the machine special. Markup is left to TestDocument.
func TestParts(t *testing.T) {
	alone := func(name string) func() (Options, exposition) {
		return func() (Options, exposition) { return options(name), captured(t, name) }
	}
	for _, tc := range []struct {
		name    string
		machine func() (Options, exposition)
		parts   string
	}{
		{"no-rdma", alone("no-rdma"), "head balance norails gpus bonds nopeers findings"},
		{"one-rail-dead", alone("one-rail-dead"), "head lane-0 lane-1"},
		{"spark", alone("spark"), "head lane-0 lane-1 gpus"},
		{"efa", alone("efa"), "head lane-0"},
		{"hgx", alone("hgx"), "head lane-0 lane-7 gpus"},
		{"bonded", func() (Options, exposition) {
			o := options("bonded")
			o.Exam = func() Exam {
				e := examined()
				e.Unread = []string{"environments of processes of other users (3): permission denied; run doctor as root"}
				return e
			}
			return o, captured(t, "bonded")
		}, "head lane-0 bonds findings"},
		{"trained", func() (Options, exposition) {
			o, e := trained(t)
			return few(o, 0, 3, 7), e
		}, "head balance lane-0 lane-7 gpus peer-1 peer-2 peer-3 findings"},
		{"wounded", func() (Options, exposition) { return wounded(t) },
			"head balance lane-0 lane-1 peer-0 findings"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, e := tc.machine()
				page := drawnPage(t, o, e)
				var out strings.Builder
				fmt.Fprintf(&out, "parts: %s\n", strings.Join(page.last.order, " "))
				for id := range strings.FieldsSeq(tc.parts) {
					element, ok := page.last.parts[id]
					if !ok {
						t.Errorf("no part %s", id)
					}
					fmt.Fprintf(&out, "\n%s\n%s\n", id, seen(element))
				}
				golden(t, tc.name+".txt", out.String())
			})
		})
	}
}

// seen returns what a reader sees of an element: its text, tooltips, the level of icons and of bars, and the sizes of
// bars. Lines of two minutes are left out.
func seen(element string) string {
	for _, one := range []struct{ pattern, with string }{
		{`(?s)<svg class="icon (\w+)".*?</svg>`, "[$1] "},
		{`<rect class="(?:(good|warn|bad|idle)|\w+)"((?: \w+="[\d.]+")+)/>`, "[$1$2] "},
		{`<span[^>]* title="([^"]*)"[^>]*>`, "($1) "},
		{`</t[dh]>`, " | "},
		{`</?(?:b|code|data|span|summary|t[dh]|time)\b[^>]*>`, ""},
		{`<[^>]*>`, "\n"},
		{`[ \t]+`, " "},
		{`(?: ?\n ?)+`, "\n  "},
	} {
		element = regexp.MustCompile(one.pattern).ReplaceAllString(element, one.with)
	}
	return strings.TrimRight("  "+strings.TrimSpace(html.UnescapeString(element)), " ")
}

// TestHostile: names from drivers, peers and configurations are only text on the page. They add no element,
// attribute or script, and do not change the text direction.
func TestHostile(t *testing.T) {
	const evil = "<script>alert(1)</script>\"' onload=x \u202e]]>\x1b[2J javascript:alert(1)"
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(evil)
	e := read(t, strings.ReplaceAll(`railscope_source_present{source="rdma"} 1
railscope_source_success{source="EVIL"} 0
railscope_rail_info{rail="EVIL",device="EVIL",port="EVIL",netdev="EVIL",pci_address="EVIL",numa_node="EVIL",link_layer="EVIL",role="EVIL",gpu="EVIL",gpu_distance="EVIL"} 1
railscope_port_up{rail="EVIL",device="EVIL",port="1"} 1
railscope_port_pause_frames_total{rail="EVIL",netdev="x",priority="EVIL",direction="EVIL"} 1
railscope_bond_info{bond="EVIL",mode="EVIL",xmit_hash_policy="",miimon="",lacp_rate=""} 1
railscope_bond_member_up{bond="EVIL",member="EVIL"} 0
railscope_bond_rdma_info{bond="EVIL",rail="EVIL",device="",port="",member=""} 1
railscope_gpu_info{gpu="EVIL",uuid="",name="EVIL",pci_address="",driver=""} 1
railscope_gpu_memory_source_info{gpu="EVIL",source="EVIL"} 1
railscope_gpudirect_info{mode="EVIL",reason="EVIL"} 1
railscope_fallback_suspected{reason="EVIL"} 1
railscope_nccl_fallback{job="EVIL"} 1
`, "EVIL", quoted))
	o := options(evil)
	o.Notice, o.Version = evil, evil
	o.Peers = func() ([]Peer, bool) {
		return []Peer{{Name: evil, Rounds: []Round{{Outcome: evil, Transport: evil, Reason: evil, Detail: evil,
			Failures: []string{evil}}}}}, true
	}
	page, s := open(t, o, e)
	s.failed = map[string]string{evil: evil, "rdma": evil}
	page.o.Exam = func() Exam {
		e := examined(finding.Finding{Check: evil, Severity: evil, Subject: evil, Where: evil, Evidence: evil,
			Why: evil, Fix: []string{evil + "\nreboot"}})
		e.Err, e.Unread, e.Findings[0].Silenced = evil, []string{evil}, evil
		return e
	}
	text, err := page.document()
	if err != nil {
		t.Fatal(err)
	}
	page.work.Lock()
	defer page.work.Unlock()
	event := decode(t, page.eventLocked(nil))
	// the browser does not parse its title
	for what, got := range map[string]string{"the page": text, "an event": event.Main} {
		if n := strings.Count(got, "&lt;script&gt;"); n < 20 {
			t.Errorf("%s has %d of the names, want them all", what, n)
		}
		for _, bad := range []string{"<script>", "</script>alert", "\x1b", `onload=x "`, "\nreboot"} {
			if strings.Contains(got, bad) {
				t.Errorf("%s has %q in it", what, bad)
			}
		}
	}
	if n := strings.Count(text+event.Main+event.Title, "\u202e"); n > 0 {
		t.Errorf("%d marks of another direction are left", n)
	}
}

// TestVerdict: the state of the node in one sentence.
func TestVerdict(t *testing.T) {
	up, down := Rail{Name: "0", Up: new(1.0)}, Rail{Name: "1", Up: new(0.0)}
	unused := Rail{Name: "1", Up: new(0.0), Unused: true}
	second := Rail{Name: "1", Up: new(1.0)}
	idle := Balance{Active: new(0.0)}
	even := Balance{Imbalance: new(0.01), Active: new(2.0)}
	uneven := Balance{Imbalance: new(0.4), Active: new(1.0)}
	for _, tc := range []struct {
		name string
		s    Snapshot
		want Note
	}{
		{"all is well", Snapshot{Rails: []Rail{up, second}, Balance: [2]Balance{even, even}},
			Note{Level: Good, Text: "2 rails up, even"}},
		{"nothing to do", Snapshot{Rails: []Rail{up, second}, Balance: [2]Balance{idle, idle}},
			Note{Level: Good, Text: "2 rails up, idle"}},
		{"one rail", Snapshot{Rails: []Rail{up}, Balance: [2]Balance{{Active: new(1.0)}, idle}},
			Note{Level: Good, Text: "1 rail up, busy"}},
		{"nobody samples", Snapshot{Rails: []Rail{up, second}}, Note{Level: Good, Text: "2 rails up"}},
		{"uneven", Snapshot{Rails: []Rail{up, second}, Balance: [2]Balance{rail.Transmit: uneven}},
			Note{Level: Good, Text: "2 rails up, busy"}}, // not a problem until there is a finding
		{"one down", Snapshot{Rails: []Rail{up, down}, Balance: [2]Balance{uneven, idle}},
			Note{Level: Bad, Text: "rail 1 is down"}},
		{"several down", Snapshot{Rails: []Rail{up, down, {Name: "2", Up: new(0.0)}}},
			Note{Level: Bad, Text: "rails 1 and 2 are down"}},
		{"all down", Snapshot{Rails: []Rail{down}}, Note{Level: Bad, Text: "no rail is up"}},
		{"no RDMA", Snapshot{NoRails: "no RDMA device on this node"}, Note{Level: Idle, Text: "no RDMA device on this node"}},
		{"a warning", Snapshot{Rails: []Rail{up, second}, Balance: [2]Balance{even, even},
			Exam: examined(finding.Finding{Check: "mtu_low", Severity: finding.Warning, Subject: "rail 1"})},
			Note{Level: Warn, Text: "2 rails up, but rail 1: mtu low"}},
		{"a critical finding and a warning", Snapshot{Rails: []Rail{up}, Exam: examined(
			finding.Finding{Check: "fallback", Severity: finding.Critical, Subject: "peer b"},
			finding.Finding{Check: "mtu_low", Severity: finding.Warning, Subject: "rail 0"})},
			Note{Level: Bad, Text: "peer b: fallback; 1 more below"}},
		{"a rail that is down, and its finding", Snapshot{Rails: []Rail{up, down}, Exam: examined(
			finding.Finding{Check: "port_down", Severity: finding.Critical, Subject: "rail 1"},
			finding.Finding{Check: "goodput_below_expected", Severity: finding.Warning, Subject: "rail 1"})},
			Note{Level: Bad, Text: "rail 1 is down; 1 more below"}},
		{"a finding of a rail that the series have up", Snapshot{Rails: []Rail{up, second}, Exam: examined(
			finding.Finding{Check: "port_down", Severity: finding.Critical, Subject: "rail 1"})},
			Note{Level: Bad, Text: "rail 1: port down"}},
		{"a finding that recovers", Snapshot{Rails: []Rail{up, second}, Exam: examined(
			finding.Finding{Check: "port_down", Severity: finding.Critical, Subject: "rail 1", Recovering: true})},
			Note{Level: Good, Text: "2 rails up"}},
		{"no action needed", Snapshot{Rails: []Rail{up}, Exam: examined(
			finding.Finding{Check: "path_mtu_small", Severity: finding.Info, Subject: "rail 0"})},
			Note{Level: Good, Text: "1 rail up"}},
		{"silenced", Snapshot{Rails: []Rail{up}, Exam: Exam{Findings: []finding.Raised{{Silenced: "as planned",
			Finding: finding.Finding{Check: "same_subnet", Severity: finding.Critical, Subject: "rail 0"}}}}},
			Note{Level: Good, Text: "1 rail up"}},
		{"a rail that was never plugged in", Snapshot{Rails: []Rail{up, unused}},
			Note{Level: Good, Text: "1 rail up, 1 unused"}},
		{"a rail that nothing counts", Snapshot{Rails: []Rail{up, {Name: "1", Up: new(1.0), NotMeasured: true}}},
			Note{Level: Good, Text: "2 rails up, 1 not measured"}},
		{"a rail that is down as planned", Snapshot{Rails: []Rail{up, down}, Exam: silenced("port_down")},
			Note{Level: Good, Text: "1 rail up"}},
		{"a rail that is taken down as planned", Snapshot{Rails: []Rail{up, down}, Exam: silenced("netdev_down")},
			Note{Level: Good, Text: "1 rail up"}},
		{"a rail that is down, and another finding of it that is silenced", Snapshot{Rails: []Rail{up, down},
			Exam: silenced("mtu_low")}, Note{Level: Bad, Text: "rail 1 is down"}},
		{"no rail was ever plugged in", Snapshot{Rails: []Rail{unused}},
			Note{Level: Idle, Text: "no rail is up: each is unused (no cable) or silenced"}},
		{"a rail that is down beside an excused one", Snapshot{Rails: []Rail{up, unused, {Name: "2", Up: new(0.0)}}},
			Note{Level: Bad, Text: "rail 2 is down"}},
	} {
		tc.s.judge()
		if tc.s.Verdict != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, tc.s.Verdict, tc.want)
		}
	}
}

// silenced returns an examination whose only finding, critical and about rail 1, is silenced by an operator.
func silenced(check string) Exam {
	return Exam{Findings: []finding.Raised{{Silenced: "as planned",
		Finding: finding.Finding{Check: check, Severity: finding.Critical, Subject: "rail 1"}}}}
}

// TestFindingsOfRails: findings about a rail are also shown at that rail.
func TestFindingsOfRails(t *testing.T) {
	s := Snapshot{Rails: []Rail{{Name: "1", Up: new(1.0)}, {Name: "10", Up: new(1.0)}}, Exam: examined(
		finding.Finding{Check: "gid_missing", Severity: finding.Critical, Subject: "rail 10", Evidence: "no GID"},
		finding.Finding{Check: "mtu_low", Severity: finding.Warning, Subject: "rail 1", Evidence: "MTU 1500"},
		finding.Finding{Check: "port_down", Severity: finding.Critical, Subject: "rail 1", Evidence: "was down", Recovering: true},
		finding.Finding{Check: "memlock", Severity: finding.Critical, Subject: "node", Evidence: "64 KiB"},
		finding.Finding{Check: "path_mtu_small", Severity: finding.Info, Subject: "rail 1", Evidence: "small"})}
	s.judge()
	want := [][]Note{{{Warn, "MTU 1500"}, {Idle, "recovering: was down"}, {Idle, "small"}}, {{Bad, "no GID"}}}
	if diff := cmp.Diff(want, [][]Note{s.Rails[0].Notes, s.Rails[1].Notes}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if want := (Note{Bad, "rail 10: gid missing; 2 more below"}); s.Verdict != want {
		t.Errorf("%+v, want %+v", s.Verdict, want)
	}
}

// TestProofs: the last proof of a rail is a burst, or traffic that reached the part of what is expected.
func TestProofs(t *testing.T) {
	o, e := trained(t)
	var got []string
	for _, r := range Take(o, e, nil, then()).Rails {
		got = append(got, r.Name+": "+r.Proved)
	}
	want := []string{"0: 371.2 Gb/s by traffic, less than 1 min ago", "1: 371.2 Gb/s by traffic, 5 min ago",
		"2: 371.2 Gb/s by traffic, 10 min ago", "3: 371.2 Gb/s by traffic, 15 min ago",
		"4: 371.2 Gb/s by traffic, 20 min ago", "5: 360 Gb/s by burst, 20 min ago", "6: ",
		"7: 360 Gb/s by burst, 20 min ago"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	o.Proof = nil
	if r := Take(o, e, nil, then()).Rails[0]; r.Proof != nil {
		t.Errorf("without a probe: %+v", r.Proof)
	}
}
