package rules

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// promtoolTest is one test of a file for `promtool test rules`.
type promtoolTest struct {
	Name     string           `yaml:"name"`
	Interval string           `yaml:"interval"`
	Series   []promtoolSeries `yaml:"input_series"`
	Exprs    []promtoolExpr   `yaml:"promql_expr_test"`
}

type promtoolSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type promtoolExpr struct {
	Expr     string           `yaml:"expr"`
	EvalTime string           `yaml:"eval_time"`
	Samples  []promtoolSample `yaml:"exp_samples"`
}

type promtoolSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

// test returns a test of the world with the alerts that fire in it, each with its severity.
func (w world) test(name, fires string) promtoolTest {
	p := promtoolTest{Name: name, Interval: "1m"}
	for _, k := range slices.Sorted(maps.Keys(w)) {
		p.Series = append(p.Series, promtoolSeries{k, w[k]})
	}
	all := promtoolExpr{
		Expr:     `group by (alertname, severity) (max_over_time(ALERTS{alertstate="firing"}[2h]))`,
		EvalTime: fmt.Sprintf("%dm", healthy+after),
	}
	for one := range strings.SplitSeq(fires, ", ") {
		if severity, alert, ok := strings.Cut(one, " "); ok {
			all.Samples = append(all.Samples,
				promtoolSample{fmt.Sprintf("{alertname=%q, severity=%q}", alert, severity), 1})
		}
	}
	p.Exprs = []promtoolExpr{all}
	return p
}

// promtool runs the tests on the rules.
func promtool(t *testing.T, tests []promtoolTest) {
	t.Helper()
	tool := os.Getenv("PROMTOOL")
	if tool == "" {
		t.Skip("no promtool: make rules has one")
	}
	var files []string
	for _, name := range Sources() {
		abs, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, abs)
	}
	groups, err := LoadGroups(".")
	if err != nil {
		t.Fatal(err)
	}
	var order []string // promtool has no default order
	for _, g := range groups {
		order = append(order, g.Name)
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": files, "evaluation_interval": "1m", "tests": tests,
		"group_eval_order": order})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "world_test.yml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), tool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
