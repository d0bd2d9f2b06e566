package table

import (
	"regexp"
	"strings"
	"testing"

	"github.com/railscope/railscope/collector"
)

// TestLabelsFromOutside: names from outside are cleaned in every line, and two that become equal are one series.
func TestLabelsFromOutside(t *testing.T) {
	row := &collector.Metric{Name: "x", Help: "x", Kind: collector.Gauge,
		Labels: []string{"device", "netdev", "bond", "member", "comm", "container", "peer", "reason"}}
	table := New([]*collector.Metric{row}, nil)
	names := []string{"mlx5_0", "eth0.100", "", "evil\n\x1b[2J", "\u202ei0hte", "evil\n\x1b_2J", "evil___2J", "a b",
		"a_b", "\xff", strings.Repeat("é", 300), strings.Repeat("x", 129)}
	line := regexp.MustCompile(`^railscope_x\{(?:(?:bond|comm|container|device|member|netdev|peer)="[A-Za-z0-9._:\[\]-]{0,128}",){7}reason="a b é"\} 1$`)
	for range 3 {
		table.Begin(nil)
		set := 0
		for _, name := range names {
			if table.Set(collector.Sample{Metric: row, Labels: []string{name, name, name, name, name, name, name,
				"a b é"}, Value: 1}) {
				set++
			}
		}
		table.End()
		seen := map[string]bool{}
		for l := range strings.Lines(string(table.AppendText(nil))) {
			l = strings.TrimSuffix(l, "\n")
			if strings.HasPrefix(l, "#") {
				continue
			}
			if !line.MatchString(l) || seen[l] {
				t.Errorf("%q; was it there before? %v", l, seen[l])
			}
			seen[l] = true
		}
		if len(seen) != 10 || set != len(seen) {
			t.Errorf("%d lines of %d names, %d of them set", len(seen), len(names), set)
		}
	}
	for i := range 100 { // different names in each scrape, which all become one label
		table.Begin(nil)
		name := "\xff" + strings.Repeat("\x01", i%2) + "é" + string(rune(0x400+i))
		table.Set(collector.Sample{Metric: row, Labels: []string{name, name, name, name, name, name, name, "r"},
			Value: 1})
		table.End()
		if n := len(table.families[0].series); n > 2 {
			t.Fatalf("%d names are kept", n)
		}
	}
	table.Begin(nil)
	table.End()
	if text := table.AppendText(nil); len(text) > 0 {
		t.Errorf("still there: %q", text)
	}
}
