package dashboards

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pages is the address of the pages in docs/.
const pages = "https://github.com/railscope/railscope/blob/main/docs/"

// TestFolded: at least half of the panels of the node dashboard send no queries until their row is opened, and
// faults come first.
func TestFolded(t *testing.T) {
	for _, d := range load(t, "provisioning") {
		if d.UID != "railscope-node" {
			continue
		}
		all, open := d.all(), 0
		for _, p := range d.Panels {
			if p.Type != "row" {
				open++
			}
		}
		if 2*open > len(all) {
			t.Errorf("%d of %d panels are open", open, len(all))
		}
		var first []string
		for _, p := range all[:3] {
			first = append(first, p.Title)
		}
		if want := []string{"Alerts", "Findings", "Rails"}; !slices.Equal(first, want) {
			t.Errorf("begins with %v, want %v", first, want)
		}
	}
}

// railOf returns the number of the rail to which an override gives a colour.
func railOf(matcher string) string {
	if m := regexp.MustCompile(`^rail \[\^\\d \]\*(\d+) \.\*$`).FindStringSubmatch(matcher); m != nil {
		return m[1]
	}
	return ""
}

// colours returns the colours of rails 0 to 15 in a panel.
func (p panel) colours() map[string]string {
	all := map[string]string{}
	for _, o := range p.FieldConfig.Overrides {
		rail := railOf(o.Matcher.Options)
		if rail == "" {
			continue
		}
		for _, prop := range o.Properties {
			if c, ok := prop.Value.(map[string]any); ok && prop.ID == "color" && c["mode"] == "fixed" {
				all[rail], _ = c["fixedColor"].(string)
			}
		}
	}
	return all
}

// TestColours: graphs name rails in one way, and give each rail the same colour everywhere, which no other rail
// has.
func TestColours(t *testing.T) {
	var want map[string]string
	graphs := 0
	each(t, "provisioning", func(t *testing.T, d dashboard, p panel) {
		if p.Type != "timeseries" || d.UID == "railscope-fleet" {
			return
		}
		named := 0
		for _, q := range p.Targets {
			by, exact := labelsOf(parse(t, q.Expr))
			switch {
			case strings.HasPrefix(q.LegendFormat, "rail {{rail}} "):
				named++
			case strings.Contains(q.LegendFormat, "{{rail}}") || exact && slices.Contains(by, "rail"):
				t.Errorf("legend %q does not begin with the rail", q.LegendFormat)
			}
		}
		have := p.colours()
		if named == 0 {
			if len(have) > 0 {
				t.Error("colours rails that it does not name")
			}
			return
		}
		graphs++
		if graphs == 1 {
			want = have
		}
		if !maps.Equal(have, want) {
			t.Errorf("colours are %v, elsewhere %v", have, want)
		}
	})
	if different := slices.Compact(slices.Sorted(maps.Values(want))); len(want) != 16 || len(different) != 16 {
		t.Errorf("%d rails have %d colours, want 16", len(want), len(different))
	}
	for i := range 16 {
		if want[strconv.Itoa(i)] == "" {
			t.Errorf("rail %d has no colour", i)
		}
	}
	if graphs < 20 {
		t.Errorf("%d graphs are by rail, want more than 20", graphs)
	}
}

// TestColouredSeries: the colour of a rail applies only to its own series.
func TestColouredSeries(t *testing.T) {
	all := load(t, "provisioning")
	i := slices.IndexFunc(all, func(d dashboard) bool { return d.UID == "railscope-node" })
	for _, p := range all[i].all() {
		if len(p.colours()) == 0 {
			continue
		}
		for series, want := range map[string]string{"rail 5 transmit · a": "5", "rail 15 · a": "15", "rail rail1 busy · a": "1",
			"rail 1 priority 5 received · a": "1", "rail 16 · a": "", "rail storage · a": ""} {
			var got []string
			for _, o := range p.FieldConfig.Overrides {
				rail := railOf(o.Matcher.Options)
				if rail != "" && regexp.MustCompile("^(?:"+o.Matcher.Options+")$").MatchString(series) {
					got = append(got, rail)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%q has the colours of rails %v, want %q", series, got, want)
			}
		}
		return
	}
	t.Error("no panel colours rails")
}

// TestPages: values link to pages and headings that exist. Each alert has a runbook.
func TestPages(t *testing.T) {
	led := 0
	each(t, "provisioning", func(t *testing.T, _ dashboard, p panel) {
		for _, o := range p.FieldConfig.Overrides {
			for _, prop := range o.Properties {
				list, _ := prop.Value.([]any)
				for _, l := range list {
					url, _ := l.(map[string]any)["url"].(string)
					page, ok := strings.CutPrefix(url, pages)
					if !ok || prop.ID != "links" {
						continue
					}
					led++
					page, heading, _ := strings.Cut(strings.ReplaceAll(page, "${__value.text}", "RailDown"), "#")
					text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", filepath.FromSlash(page)))
					if err != nil {
						t.Error(err)
					}
					if heading != "" && !slices.Contains(anchors(string(text)), heading) {
						t.Errorf("docs/%s has no heading #%s", page, heading)
					}
				}
			}
		}
	})
	if led < 2 {
		t.Errorf("%d columns lead to pages, want those of alerts and checks", led)
	}
}
