package dashboards

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDashboards checks what every dashboard must have.
func TestDashboards(t *testing.T) {
	want := []string{"railscope-fleet", "railscope-node",
		"railscope-probe"} // alerts and other dashboards link to these
	var have []string
	for _, d := range load(t, "provisioning") {
		have = append(have, d.UID)
		switch {
		case d.file != d.UID+".json":
			t.Errorf("%s has the uid %s", d.file, d.UID)
		case d.SchemaVersion < 39:
			t.Errorf("%s: schema version %d is too old", d.UID, d.SchemaVersion)
		case d.Editable:
			t.Errorf("%s can be edited: what is changed in Grafana is lost with the next version", d.UID)
		case d.Title == "" || d.Description == "" || !slices.Contains(d.Tags, "railscope"):
			t.Errorf("%s lacks title, description or tag", d.UID)
		case len(d.Inputs) > 0:
			t.Errorf("%s has inputs, which only import by hand asks for", d.UID)
		}
		if !slices.ContainsFunc(d.Annotations.List, func(a annotation) bool {
			return strings.Contains(a.Target.Expr, "ALERTS{") && a.Target.Expr == a.Expr
		}) {
			t.Errorf("%s does not show alerts", d.UID)
		}
		if len(d.Links) == 0 || d.Links[0].Type != "dashboards" || !d.Links[0].IncludeVars || !d.Links[0].KeepTime {
			t.Errorf("%s does not lead to the others with what is chosen", d.UID)
		}
		if len(d.Inputs) > 0 || len(d.Requires) > 0 {
			t.Errorf("%s cannot be provisioned: it asks for inputs", d.UID)
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("dashboards are %v, want %v", have, want)
	}
}

// TestVariables checks what people expect of variables, and that the query of each depends on those before it.
func TestVariables(t *testing.T) {
	// no cluster: ""
	all := map[string]string{"cluster": ".*", "job": ".+", "instance": ".+", "rail": ".+", "peer": ".+"}
	for _, d := range load(t, "provisioning") {
		for i, v := range d.Templating.List {
			switch {
			case i == 0:
				if v.Type != "datasource" || v.Name != "datasource" || v.Label != "Data source" || v.Query !=
					"prometheus" {
					t.Errorf("%s: the first variable is %+v, not the data source", d.UID, v)
				}
				continue
			case v.Name == "instance":
				if v.IncludeAll || !v.Multi {
					t.Errorf("%s: Node is %+v; it opens with one node, and All would draw hundreds of lines in "+
						"each panel", d.UID, v)
				}
			case v.Type != "query" || !v.Multi || !v.IncludeAll || v.AllValue != all[v.Name] || v.Refresh != 2 ||
				v.Datasource.UID != "${datasource}" || v.Label == "":
				t.Errorf("%s: variable %s is %+v", d.UID, v.Name, v)
			}
			query, _ := v.Query.(map[string]any)
			if query["query"] != v.Definition {
				t.Errorf("%s: variable %s shows %q and asks %q", d.UID, v.Name, v.Definition, query["query"])
			}
		}
		var names []string
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
		}
		want := []string{"datasource", "cluster", "job", "instance"}
		if d.UID == "railscope-fleet" { // it shows series that are recorded per cluster
			want = want[:3]
		}
		if !slices.Equal(names[:min(len(want), len(names))], want) {
			t.Errorf("%s has variables %v", d.UID, names)
		}
		for _, want := range map[string][]string{"railscope-node": {"rail"},
			"railscope-probe": {"rail", "peer"}}[d.UID] {
			if !slices.Contains(names, want) {
				t.Errorf("%s has no variable %s", d.UID, want)
			}
		}
	}
}

// TestPanels checks what every panel must have.
func TestPanels(t *testing.T) {
	each(t, "provisioning", func(t *testing.T, d dashboard, p panel) {
		if p.Title == "" || len(p.Description) < 40 {
			t.Error("lacks title or description")
		}
		if p.Datasource != (source{"prometheus", "${datasource}"}) {
			t.Errorf("data source is %v", p.Datasource)
		}
		if len(p.Targets) == 0 {
			t.Error("asks nothing")
		}
		if p.Repeat != "" && !slices.ContainsFunc(d.Templating.List,
			func(v variable) bool { return v.Name == p.Repeat }) {
			t.Errorf("is repeated for %s, which is no variable", p.Repeat)
		}
		for i, q := range p.Targets {
			if q.Datasource != p.Datasource || q.RefID != string(rune('A'+i)) || q.Instant == q.Range {
				t.Errorf("query %d: data source %v, refId %s, instant %v, range %v", i, q.Datasource, q.RefID,
					q.Instant, q.Range)
			}
			if want := map[string]string{"table": "table",
				"heatmap": "heatmap"}[p.Type]; want != "" && q.Format != want {
				t.Errorf("query %s wants a %s as an answer", q.RefID, q.Format)
			}
		}
		unit := p.FieldConfig.Defaults.Unit
		if unit != "" && !slices.Contains(units, unit) {
			t.Errorf("unit %q is not one of Grafana's that we know", unit)
		}
		if unit == "" && slices.Contains([]string{"timeseries", "heatmap", "bargauge", "stat"}, p.Type) {
			t.Error("has no unit")
		}
		for _, o := range p.FieldConfig.Overrides {
			if o.Matcher.ID == "byRegexp" {
				if _, err := regexp.Compile(o.Matcher.Options); err != nil {
					t.Errorf("override: %v", err)
				}
			}
			for _, prop := range o.Properties {
				if prop.ID == "unit" && !slices.Contains(units, prop.Value.(string)) {
					t.Errorf("unit %v is not one of Grafana's that we know", prop.Value)
				}
			}
		}
	})
}

// units are the IDs of @grafana/data's value formats that are allowed here.
var units = []string{
	"none", "short", "string", "locale", "percent", "percentunit", "sci", "bits", "bytes", "decbits", "decbytes", "bps",
	"Bps", "pps", "cps", "eps", "cpm", "ops", "suffix:/min", "suffix:/h", "suffix:GT/s",
	"ns", "µs", "ms", "s", "m", "h", "d", "dtdurations", "dateTimeAsIso", "dateTimeFromNow", "hertz", "celsius", "watt",
	"dBm",
	"joule", "bool", "bool_yes_no", "bool_on_off",
}

// TestGrid: no two panels overlap, none is outside the grid, and no two have the same ID.
func TestGrid(t *testing.T) {
	for _, d := range load(t, "provisioning") {
		ids := map[int]string{}
		number := func(p panel) {
			if other := ids[p.ID]; other != "" || p.ID < 1 {
				t.Errorf("%s: %q and %q have the number %d", d.UID, p.Title, other, p.ID)
			}
			ids[p.ID] = p.Title
		}
		for _, p := range d.Panels {
			number(p)
			for _, in := range p.Panels {
				number(in)
			}
			overlaps(t, d.UID, p.Panels)
		}
		overlaps(t, d.UID, d.Panels)
	}
}

func overlaps(t *testing.T, name string, panels []panel) {
	t.Helper()
	for i, a := range panels {
		g := a.GridPos
		if g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("%s: %q is at %+v", name, a.Title, g)
		}
		for _, b := range panels[i+1:] {
			o := b.GridPos
			if g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				t.Errorf("%s: %q and %q overlap: %+v and %+v", name, a.Title, b.Title, g, o)
			}
		}
	}
}

// TestFits: columns of tables and titles of figures are not cut off on a screen of 1600 pixels. A column of the
// grid has 65 pixels.
func TestFits(t *testing.T) {
	const column, letter = 65, 10
	each(t, "provisioning", func(t *testing.T, _ dashboard, p panel) {
		if room := p.GridPos.W * column; p.Type == "stat" && len([]rune(p.Title))*letter > room-10 {
			t.Errorf("the title is too long for %d pixels", room)
		}
		if p.Type != "table" || len(p.Transformations) == 0 {
			return
		}
		renamed, ok := p.Transformations[len(p.Transformations)-1].Options["renameByName"].(map[string]any)
		if !ok {
			return // a matrix has one column per peer
		}
		needs, named := 20, map[string]bool{}
		for _, name := range renamed {
			named[name.(string)] = true // the field of a single query has two names
		}
		for name := range named {
			wide := max(60, len([]rune(name))*8+20)
			for _, o := range p.FieldConfig.Overrides {
				for _, prop := range o.Properties {
					if o.Matcher.Options == name && prop.ID == "custom.width" {
						wide = int(prop.Value.(float64))
					}
				}
			}
			if wide < len([]rune(name))*7+15 {
				t.Errorf("column %q does not fit into %d pixels", name, wide)
			}
			needs += wide
		}
		if room := p.GridPos.W * column; needs > room {
			t.Errorf("needs %d pixels for its columns and has %d", needs, room)
		}
	})
}

// TestDocs: every description links to a page and a heading that exist.
func TestDocs(t *testing.T) {
	leads := regexp.MustCompile(`\(https://github\.com/railscope/railscope/blob/main/docs/([a-z0-9/-]+\.md)(?:#([a-z0-9-]+))?\)$`)
	each(t, "provisioning", func(t *testing.T, _ dashboard, p panel) {
		m := leads.FindStringSubmatch(p.Description)
		if m == nil {
			t.Fatalf("description leads to no page of docs/: %q", p.Description)
		}
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", filepath.FromSlash(m[1])))
		if err != nil {
			t.Fatal(err)
		}
		if m[2] != "" && !slices.Contains(anchors(string(text)), m[2]) {
			t.Errorf("docs/%s has no heading #%s", m[1], m[2])
		}
	})
}

// anchors returns the anchors of a page's headings.
func anchors(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]),
			""), " ", "-"))
	}
	return all
}

// TestLinks: links between dashboards lead to existing ones, set only variables that those have, and pass data
// source, job and time on.
func TestLinks(t *testing.T) {
	variables := map[string][]string{}
	for _, d := range load(t, "provisioning") {
		for _, v := range d.Templating.List {
			variables[d.UID] = append(variables[d.UID], v.Name)
		}
	}
	to := map[string]map[string]bool{} // from, to
	each(t, "provisioning", func(t *testing.T, d dashboard, p panel) {
		for _, url := range p.links() {
			if page, ok := strings.CutPrefix(url, "https://github.com/railscope/railscope/blob/main/docs/runbooks/"); ok {
				if page != "Railscope${__value.text}.md" { // TestRunbooks checks that each alert has a runbook
					t.Errorf("%s leads to no runbook", url)
				}
				continue
			}
			uid, query, _ := strings.Cut(strings.TrimPrefix(url, "/d/"), "?")
			if variables[uid] == nil {
				t.Errorf("%s leads to no dashboard of ours", url)
			}
			for part := range strings.SplitSeq(query, "&") {
				name, _, set := strings.Cut(strings.TrimPrefix(part, "var-"), "=")
				if set && !slices.Contains(variables[uid], name) {
					t.Errorf("%s sets %s, which that dashboard does not have", url, name)
				}
			}
			for _, want := range []string{"${datasource:queryparam}", "${job:queryparam}", "${__url_time_range}"} {
				if !strings.Contains(query, want) {
					t.Errorf("%s leaves %s behind", url, want)
				}
			}
			if to[d.UID] == nil {
				to[d.UID] = map[string]bool{}
			}
			to[d.UID][uid] = true
		}
	})
	for _, way := range [][2]string{{"fleet", "node"}, {"fleet", "probe"}, {"node", "probe"}, {"probe", "node"}} {
		if !to["railscope-"+way[0]]["railscope-"+way[1]] {
			t.Errorf("%s does not lead to %s", way[0], way[1])
		}
	}
}

// links returns the dashboards to which values of the panel link.
func (p panel) links() []string {
	var urls []string
	for _, l := range p.FieldConfig.Defaults.Links {
		urls = append(urls, l.URL)
	}
	for _, o := range p.FieldConfig.Overrides {
		for _, prop := range o.Properties {
			list, _ := prop.Value.([]any)
			for _, l := range list {
				url, ok := l.(map[string]any)["url"].(string)
				if ok && prop.ID == "links" && !strings.HasPrefix(url, pages) {
					urls = append(urls, url)
				}
			}
		}
	}
	return urls
}

// TestForImport: the variant for import names all that it needs, and is otherwise the same.
func TestForImport(t *testing.T) {
	mounted := load(t, "provisioning")
	for i, d := range load(t, "grafana.com") {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "dashboards", "grafana.com", d.file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "${datasource") || strings.Contains(string(text), "$datasource") {
			t.Errorf("%s uses the variable datasource, which it does not have", d.file)
		}
		if len(d.Inputs) != 1 || d.Inputs[0].PluginID != "prometheus" || !strings.Contains(string(text),
			"${"+d.Inputs[0].Name+"}") {
			t.Errorf("%s asks for %v", d.file, d.Inputs)
		}
		if len(d.Panels) != len(mounted[i].Panels) || d.UID != mounted[i].UID {
			t.Errorf("%s is not %s", d.file, mounted[i].file)
		}
		for _, p := range d.all() {
			if !slices.ContainsFunc(d.Requires, func(r struct{ Type, ID string }) bool {
				return r.Type == "panel" && r.ID == p.Type
			}) {
				t.Errorf("%s has a %s, which it does not require", d.file, p.Type)
			}
			if p.Datasource.UID != "${"+d.Inputs[0].Name+"}" {
				t.Errorf("%s: %q asks %v", d.file, p.Title, p.Datasource)
			}
		}
	}
}
