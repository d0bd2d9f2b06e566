package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/dashboards"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
)

var update = flag.Bool("update", false, "write prometheusrule.yaml and the table of docs/alerts.md anew")

const runbooks = "../../docs/runbooks"

func alerts(t *testing.T) []Rule {
	t.Helper()
	all, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(r Rule) bool { return r.Alert == "" })
	if len(all) < 26 {
		t.Fatalf("only %d alerts", len(all))
	}
	return all
}

func generated(t *testing.T, file string, got []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (make docs writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; make docs writes it anew):\n%s", file, diff)
	}
}

// TestPrometheusRule: the resource matches the sources, as text and as parsed by a server.
func TestPrometheusRule(t *testing.T) {
	got, err := PrometheusRule(".")
	generated(t, "prometheusrule.yaml", got, err)
	var resource struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct {
			Name   string
			Labels map[string]string
		}
		Spec File
	}
	d := yaml.NewDecoder(bytes.NewReader(got))
	d.KnownFields(true)
	if err := d.Decode(&resource); err != nil {
		t.Fatal(err)
	}
	var there []Rule
	for _, g := range resource.Spec.Groups {
		there = append(there, g.Rules...)
	}
	want, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, there); diff != "" {
		t.Errorf("the resource has other rules than the sources (-sources +resource):\n%s", diff)
	}
	if resource.APIVersion != "monitoring.coreos.com/v1" || resource.Kind != "PrometheusRule" ||
		resource.Metadata.Name == "" {
		t.Errorf("it is a %s %s %q", resource.APIVersion, resource.Kind, resource.Metadata.Name)
	}
}

// TestTable: the table of docs/alerts.md matches the alerts and runbooks.
func TestTable(t *testing.T) {
	const page = "../../docs/alerts.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Table(text, ".", runbooks)
	generated(t, page, got, err)
}

// TestTableWantsItsPages: a table that cannot be generated is an error.
func TestTableWantsItsPages(t *testing.T) {
	for _, tc := range []struct{ runbook, means string }{
		{"# A\n\n## Meaning\n\nOne, that\ngoes on. Two.\n\n## Diagnosis\n", "One, that goes on."},
		{"# A\n\n## Meaning\n\nOne | two\n", `One \| two`},
		{"# A\n\n## Meanings\n\nOne.\n", ""},
	} {
		if got, err := meaning(tc.runbook); got != tc.means || (err == nil) != (tc.means != "") {
			t.Errorf("%q means %q, %v", tc.runbook, got, err)
		}
	}
	if _, err := Table([]byte(begin+end), ".", t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without runbooks: %v", err)
	}
	if _, err := Table([]byte("nothing\n"), ".", runbooks); err == nil {
		t.Error("a page without a place for the table is taken")
	}
}

// TestLoadRefusesWhatPrometheusWould: a misspelled key is an error, and does not drop a rule.
func TestLoadRefusesWhatPrometheusWould(t *testing.T) {
	dir := t.TempDir()
	for _, name := range Sources() {
		if err := os.WriteFile(filepath.Join(dir, name),
			[]byte("groups:\n  - name: a\n    rules:\n      - {alert: A, exprr: up}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "conditions-node.yml: ") ||
		!strings.Contains(err.Error(), "exprr") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "alerts.yml"), []byte("group:\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := PrometheusRule(dir); err == nil || !strings.Contains(err.Error(), "alerts.yml") {
		t.Errorf("a file without groups: %v", err)
	}
}

// TestAlerts checks the requirements on every alert. Two severities are two rules of one name.
func TestAlerts(t *testing.T) {
	const runbookURL = "https://github.com/railscope/railscope/blob/main/docs/runbooks/"
	name, seen, names := regexp.MustCompile(`^Railscope([A-Z][A-Za-z]+)$`), map[string]bool{}, map[string]bool{}
	for _, r := range alerts(t) {
		a, severity := r.Annotations, r.Labels["severity"]
		selects := fmt.Sprintf("railscope:fault{fault=%q, severity=%q}", strings.TrimPrefix(r.Alert, "Railscope"), severity)
		switch {
		case !name.MatchString(r.Alert):
			t.Errorf("%s must be Railscope…, in camel case", r.Alert)
		case seen[r.Alert+severity]:
			t.Errorf("%s %s is there twice", severity, r.Alert)
		case r.For == "" || r.For == "0s":
			t.Errorf("%s has no for: it would fire for what is over at once", r.Alert)
		case len(r.Labels) != 1 || !slices.Contains([]string{"critical", "warning", "info"}, severity):
			t.Errorf("%s has labels %v, not one severity of critical, warning, info", r.Alert, r.Labels)
		case !strings.HasPrefix(r.Expr, selects) && r.Alert != "RailscopeManyNodes":
			t.Errorf("%s does not begin with %s:\n%s", r.Alert, selects, r.Expr)
		case len(a) != 4 || a["summary"] == "" || a["description"] == "" || a["runbook_url"] == "" ||
			a["dashboard_url"] == "":
			t.Errorf("%s has annotations %v, not summary, description, runbook_url and dashboard_url", r.Alert, a)
		case a["runbook_url"] != runbookURL+r.Alert+".md":
			t.Errorf("%s leads to %s", r.Alert, a["runbook_url"])
		case !strings.HasSuffix(a["summary"], ".") && !strings.HasSuffix(a["summary"], ".{{ end }}") ||
			strings.Contains(a["summary"], "$value"):
			t.Errorf("%s: its summary %q is not a sentence that stays the same", r.Alert, a["summary"])
		}
		for key, text := range a {
			if regexp.MustCompile(`\bquery\b`).MatchString(text) {
				t.Errorf("%s: %s makes a query, one for each alert", r.Alert, key)
			}
		}
		seen[r.Alert+severity], names[r.Alert] = true, true
	}
	if len(names) != 26 {
		t.Errorf("%d alerts, want 26: %v", len(names), slices.Sorted(maps.Keys(names)))
	}
}

// TestFaultsHaveAlerts: every recorded fault has an alert, and every alert a recorded fault.
func TestFaultsHaveAlerts(t *testing.T) {
	all, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	recorded, alerted := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		severity := r.Labels["severity"]
		switch name := r.Labels["fault"]; {
		case r.Record == "railscope:condition" && name == "Finding": // its severity is the finding's
			recorded[name+" critical"], recorded[name+" warning"] = true, true
		case r.Record == "railscope:condition":
			recorded[name+" "+severity] = true
		case r.Alert != "" && r.Alert != "RailscopeManyNodes":
			alerted[strings.TrimPrefix(r.Alert, "Railscope")+" "+severity] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(recorded)), slices.Sorted(maps.Keys(alerted))); diff != "" {
		t.Errorf("faults without an alert (-), alerts without a fault (+):\n%s", diff)
	}
}

// variables returns the variables of all dashboards, by uid.
func variables(t *testing.T) map[string][]string {
	t.Helper()
	files, err := dashboards.Files()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for name, text := range files {
		if !strings.HasPrefix(name, "provisioning/") {
			continue
		}
		var d struct {
			UID        string
			Templating struct{ List []struct{ Name string } }
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Templating.List {
			all[d.UID] = append(all[d.UID], v.Name)
		}
	}
	return all
}

// TestDashboards: every alert links to an existing dashboard and sets only variables that it has, each to the label of
// the same name.
func TestDashboards(t *testing.T) {
	whole := regexp.MustCompile(`^/d/([a-z-]+)(?:\?(.+))?$`)
	setting := regexp.MustCompile(`^var-(\w+)=\{\{ \$labels\.(\w+) \| urlquery \}\}$`)
	of := variables(t)
	perhaps := regexp.MustCompile(`\{\{ with \$labels\.(\w+) \}\}([?&]var-\w+=)\{\{ \. \| urlquery \}\}\{\{ end \}\}`)
	branch := regexp.MustCompile(`\{\{ if \$labels.instance \}\}(.*)\{\{ else \}\}fleet.*\{\{ end \}\}`)
	for _, r := range alerts(t) {
		link := perhaps.ReplaceAllString(r.Annotations["dashboard_url"], "${2}{{ $$labels.$1 | urlquery }}")
		link = branch.ReplaceAllString(link, "$1") // without a scraped railscope there is no node
		m := whole.FindStringSubmatch(link)
		if m == nil || of[m[1]] == nil {
			t.Errorf("%s leads to %q, which is no path of a dashboard that there is", r.Alert,
				r.Annotations["dashboard_url"])
			continue
		}
		if !strings.Contains(m[2], "var-instance=") && r.Alert != "RailscopeManyNodes" {
			t.Errorf("%s leads to all nodes: %s", r.Alert, m[0])
		}
		for one := range strings.SplitSeq(m[2], "&") {
			v := setting.FindStringSubmatch(one)
			if v == nil || v[1] != v[2] || !slices.Contains(of[m[1]], v[1]) {
				t.Errorf("%s sets %q: want a variable of %s, %v, to the label of its name", r.Alert, one, m[1],
					of[m[1]])
			}
		}
	}
}

// TestRunbooks: every alert has a runbook with all required sections, and every runbook an alert.
func TestRunbooks(t *testing.T) {
	pages, err := filepath.Glob(runbooks + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	all := alerts(t)
	for _, page := range pages {
		if !slices.ContainsFunc(all, func(r Rule) bool { return r.Alert+".md" == filepath.Base(page) }) {
			t.Errorf("%s is of no alert", page)
		}
	}
	heading := regexp.MustCompile(`(?m)^(## .*)\n\n[^#\s]`) // a heading with text
	for _, r := range all {
		text, err := os.ReadFile(filepath.Join(runbooks, r.Alert+".md"))
		if err != nil {
			t.Error(err)
			continue
		}
		var have []string
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			have = append(have, m[1])
		}
		if !strings.HasPrefix(string(text), "# "+r.Alert+"\n\n## Meaning\n") {
			t.Errorf("%s.md does not begin with its name and what it means", r.Alert)
		}
		want := []string{"## Meaning", "## Diagnosis", "## Fix", "## Silence"}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s.md: headings with text below (-want +got):\n%s", r.Alert, diff)
		}
	}
}

// promtoolTests is the part of a file for `promtool test rules` that the checks below read.
type promtoolTests struct {
	Tests []struct {
		Name        string
		InputSeries []struct{ Series, Values string } `yaml:"input_series"`
		Alerts      []struct {
			EvalTime string `yaml:"eval_time"`
			Name     string `yaml:"alertname"`
			Expected []struct {
				Labels      map[string]string `yaml:"exp_labels"`
				Annotations map[string]string `yaml:"exp_annotations"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

// leads checks that an alert's link sets exactly those of its labels that are variables of its dashboard.
func leads(t *testing.T, of map[string][]string, alert string, labels map[string]string, dashboard string) {
	t.Helper()
	u, err := url.Parse(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	has, want := map[string]string{}, map[string]string{}
	for v, values := range u.Query() {
		has[v] = strings.Join(values, " ")
	}
	for _, v := range of[strings.TrimPrefix(u.Path, "/d/")] {
		if value := labels[v]; value != "" && v != "job" { // without a value, all jobs are selected
			want["var-"+v] = value
		}
	}
	if diff := cmp.Diff(want, has); diff != "" {
		t.Errorf("%s with %v leads to %s (-want +got):\n%s", alert, labels, dashboard, diff)
	}
}

// TestBothCases: promtool tests each alert at a time at which it fires, at an earlier one at which it does not yet, and
// with an instance on which it never fires, in the same test or another of its name.
func TestBothCases(t *testing.T) {
	files, err := filepath.Glob("tests/*_test.yml")
	if err != nil || len(files) == 0 {
		t.Fatal("no tests", err)
	}
	instance := regexp.MustCompile(`instance="([^"]+)"`)
	fires, pends, spares := map[string]bool{}, map[string]bool{}, map[string]bool{}
	of := variables(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f promtoolTests
		if err := yaml.Unmarshal(text, &f); err != nil {
			t.Fatal(err)
		}
		for _, test := range f.Tests {
			sick := map[string]bool{}
			for _, a := range test.Alerts {
				for _, e := range a.Expected {
					leads(t, of, a.Name, e.Labels, e.Annotations["dashboard_url"])
					fires[a.Name+" "+e.Labels["severity"]], sick[e.Labels["instance"]] = true, true
				}
				pends[a.Name] = pends[a.Name] || len(a.Expected) == 0 && len(sick) == 0
			}
			for _, s := range test.InputSeries {
				m := instance.FindStringSubmatch(s.Series)
				for _, a := range test.Alerts {
					spares[a.Name] = spares[a.Name] || m != nil && !sick[m[1]]
				}
			}
		}
	}
	for _, r := range alerts(t) {
		fires := fires[r.Alert+" "+r.Labels["severity"]]
		if !fires || !pends[r.Alert] || !spares[r.Alert] {
			t.Errorf("%s %s: promtool sees it fire: %t; not fire before its time: %t; not fire on another node: %t",
				r.Labels["severity"], r.Alert, fires, pends[r.Alert], spares[r.Alert])
		}
	}
}

// TestInhibitions: the Alertmanager rules in docs/alerts.md name only existing alerts, cover all that they should, and
// use labels that both alerts have.
func TestInhibitions(t *testing.T) {
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\ninhibit_rules:")
	text, _, _ = strings.Cut(text, "```")
	var there struct {
		Rules []struct {
			Source []string `yaml:"source_matchers"`
			Target []string `yaml:"target_matchers"`
			Equal  []string
		} `yaml:"inhibit_rules"`
	}
	d := yaml.NewDecoder(strings.NewReader("inhibit_rules:" + text))
	d.KnownFields(true)
	if err := d.Decode(&there); err != nil || len(there.Rules) == 0 {
		t.Fatalf("%v, in %q", err, text)
	}
	all := alerts(t)
	known := func(alert string) bool {
		return slices.ContainsFunc(all, func(r Rule) bool { return r.Alert == alert })
	}
	labels := []string{"cluster", "job", "instance", "rail", "fault", "check"}
	matcher := regexp.MustCompile(`^alertname(?:=|=~)"([^"]+)"$`)
	nested := regexp.MustCompile(`(\w*)\(([^()]*)\)`)
	for _, r := range there.Rules {
		for _, m := range append(r.Source, r.Target...) {
			names := matcher.FindStringSubmatch(m)
			if names == nil {
				t.Errorf("matcher %q is none of alert names", m)
				continue
			}
			flat := nested.ReplaceAllStringFunc(names[1], func(s string) string {
				n := nested.FindStringSubmatch(s)
				return n[1] + strings.ReplaceAll(n[2], "|", "|"+n[1])
			})
			for name := range strings.SplitSeq(flat, "|") {
				if !known(name) && name != "Railscope.+" {
					t.Errorf("%s is no alert", name)
				}
			}
		}
		for _, l := range r.Equal {
			if !slices.Contains(labels, l) {
				t.Errorf("%s is no label of alerts", l)
			}
		}
	}
}

// TestFindingAlert: RailscopeFinding skips exactly the checks with their own alert, and findings about the process
// alone raise RailscopeExporterImpaired.
func TestFindingAlert(t *testing.T) {
	all, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	var conditions strings.Builder
	for _, r := range all {
		if r.Record == "railscope:condition" {
			conditions.WriteString(r.Expr + "\n")
		}
	}
	known := alerts(t)
	var own []string
	for id, alert := range check.Alerts() {
		if !slices.ContainsFunc(known, func(r Rule) bool { return r.Alert == alert }) {
			t.Errorf("%s: no alert %s", id, alert)
		}
		if check.IsOwn(id) {
			own = append(own, id)
		}
	}
	slices.Sort(own)
	for _, want := range []string{
		fmt.Sprintf("check!~%q", strings.Join(slices.Sorted(maps.Keys(check.Alerts())), "|")),
		fmt.Sprintf("railscope_finding{check=~%q}", strings.Join(own, "|")),
	} {
		if !strings.Contains(conditions.String(), want) {
			t.Errorf("no condition has %s", want)
		}
	}
	thresholds, err := Thresholds()
	if err != nil {
		t.Fatal(err)
	}
	for name, above := range check.Thresholds() {
		if got := thresholds[name]; got != fmt.Sprint(above) {
			t.Errorf("threshold %s is %q; the check of the same fault has %v", name, got, above)
		}
	}
}

// reasons are those of the conditions that are about a check, where its alert has others as well.
var reasons = map[string]string{"bond_member_down": "members", "bond_lacp": "lacp", "gid_misbound": "misbound",
	"nccl_fallback": "nccl", "rdma_idle_tcp_busy": "traffic", "single_rail": "traffic", "rail_failed": "rail",
	"peer_gid": "rail", "imbalance": "imbalance", "shared_bottleneck": "bottleneck"}

// about reports whether a condition of the alert of a check is about this check.
func about(r Rule, id string) bool {
	if r.Labels["check"] != "" || id == "pfc_storm" { // the rollup counts it apart
		return r.Labels["check"] == id
	}
	if reason := reasons[id]; reason != "" && r.Labels["reason"] != reason &&
		(r.Labels["reason"] != "" || !strings.Contains(r.Expr, fmt.Sprintf("reason=%q", reason))) {
		return false
	}
	m := regexp.MustCompile(`and on \([a-z, ]+\)\s+railscope_finding{check=~?"([^"]+)"`).FindStringSubmatch(r.Expr)
	return m == nil || slices.Contains(strings.Split(m[1], "|"), id)
}

// TestSeverities: findings of a check and its alert have the same severities. Where these are two, the condition reads
// the finding, or TestFindingAlert compares the threshold between them.
func TestSeverities(t *testing.T) {
	all, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	own := check.Alerts()
	routed := regexp.MustCompile(`railscope_finding{check="(\w+)", severity="(\w+)"`)
	fires := map[string][]finding.Severity{}
	for _, r := range slices.DeleteFunc(all, func(r Rule) bool { return r.Record != "railscope:condition" }) {
		if r.Labels["fault"] == "Finding" {
			if r.Labels["severity"] != "" || !strings.Contains(r.Expr, `severity=~"critical|warning"`) {
				t.Errorf("RailscopeFinding has another severity than its finding: %v %s", r.Labels, r.Expr)
			}
			for _, m := range routed.FindAllStringSubmatch(r.Expr, -1) {
				fires[m[1]] = append(fires[m[1]], finding.Severity(m[2]))
			}
			continue
		}
		for id, alert := range own {
			if "Railscope"+r.Labels["fault"] == alert && about(r, id) {
				fires[id] = append(fires[id], finding.Severity(r.Labels["severity"]))
			}
		}
	}
	for id, found := range check.Severities() {
		if own[id] == "" || check.IsOwn(id) {
			continue // RailscopeFinding; or what railscope's own process lacks, which ends no job
		}
		found = slices.DeleteFunc(found, func(s finding.Severity) bool { return s == finding.Info })
		fires := slices.Compact(slices.SortedFunc(slices.Values(fires[id]), finding.Severity.Compare))
		if id == check.ProbeFailed { // a finding of one peer: the alert is critical if no peer is reached
			found = append([]finding.Severity{finding.Critical}, found...)
		}
		if !slices.Equal(found, fires) {
			t.Errorf("%s: findings are %v, %s is %v", id, found, own[id], fires)
		}
	}
}

// TestThresholdsDocumented: docs/alerts.md has every threshold with its value, and no other.
func TestThresholdsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Thresholds\n")
	text, _, _ = strings.Cut(text, "\n## ")
	got := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\S+) \\|").FindAllStringSubmatch(text, -1) {
		got[m[1]] = m[2]
	}
	want, err := Thresholds()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table of thresholds (-rules +docs):\n%s", diff)
	}
}
