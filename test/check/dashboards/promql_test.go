package dashboards

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/railscope/railscope/test/check/catalog"
)

// fill replaces Grafana's variables by values, as Grafana does: several values, or all of them, become a regular
// expression.
func fill(expr string, values map[string]string) string {
	replaced := []string{"$__rate_interval", rateInterval.String(),
		"$__range_s", strconv.Itoa(int(shown.Seconds())), "$__range", shown.String()}
	for name, value := range values {
		replaced = append(replaced, "$"+name, value)
	}
	return strings.NewReplacer(replaced...).Replace(expr)
}

// Values of these variables here: durations that do not occur in a query.
const (
	rateInterval = 61 * time.Second
	shown        = 901 * time.Second
)

// everything has the values of all variables if All is selected.
var everything = map[string]string{"cluster": ".*", "job": ".+", "instance": ".+", "rail": ".+", "peer": ".+"}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(fill(expr, everything))
	if err != nil {
		t.Fatalf("%s\n%v", expr, err)
	}
	return parsed
}

// TestQueries: every query parses, and follows the rules.
func TestQueries(t *testing.T) {
	known := rows(t)
	each(t, "provisioning", func(t *testing.T, d dashboard, p panel) {
		for _, q := range p.Targets {
			checkQuery(t.Errorf, known, variablesOf(d), q.Expr)
			checkLegend(t, parse(t, q.Expr), q.LegendFormat)
		}
	})
	for _, d := range load(t, "provisioning") {
		for _, a := range d.Annotations.List {
			if a.Datasource.Type == "prometheus" {
				checkQuery(t.Errorf, known, variablesOf(d), a.Expr)
			}
		}
		for i, v := range d.Templating.List {
			if v.Type == "query" {
				checkVariable(t, known, v.Definition, variablesOf(d)[:i])
			}
		}
	}
}

func variablesOf(d dashboard) []string {
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	return names
}

// complain reports a violation.
type complain func(format string, args ...any)

func checkQuery(wrong complain, known map[string]catalog.Row, variables []string, expr string) {
	// with the variables' names in place of values
	raw, err := parser.NewParser(parser.Options{}).ParseExpr(fill(expr, nil))
	if err != nil {
		wrong("%s\n%v", expr, err)
		return
	}
	parser.Inspect(raw, func(n parser.Node, path []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			checkSelector(wrong, known, variables, n, path)
		case *parser.AggregateExpr:
			checkGrouping(wrong, known, n)
		}
		return nil
	})
}

// checkGrouping checks that an aggregation keeps or drops labels that its operand has: any other name has no
// effect, without an error.
func checkGrouping(wrong complain, known map[string]catalog.Row, aggregate *parser.AggregateExpr) {
	have := []string{"cluster", "job", "instance", "le"}
	parser.Inspect(aggregate.Expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			r, _ := catalog.Find(known, n.Name)
			have = append(have, r.Labels...)
		case *parser.StringLiteral: // arguments of label_replace and label_join, including the new label's name
			have = append(have, n.Val)
		}
		return nil
	})
	for _, label := range aggregate.Grouping {
		if !slices.Contains(have, label) {
			wrong("%s: nothing in it has a label %s", aggregate, label)
		}
	}
}

// checkSelector checks that a selector uses an existing metric and existing labels, applies the selection, and uses
// a counter only in a rate.
func checkSelector(wrong complain, known map[string]catalog.Row, variables []string, v *parser.VectorSelector,
	path []parser.Node) {
	r, ok := catalog.Find(known, v.Name)
	if !ok {
		wrong("%s: no such metric", v.Name)
		return
	}
	matched := map[string]string{}
	for _, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel {
			continue
		}
		if !slices.Contains(append([]string{"cluster", "job", "instance"}, r.Labels...), m.Name) {
			wrong("%s has no label %s", v.Name, m.Name)
		}
		if name, ok := strings.CutPrefix(m.Value, "$"); ok {
			name = strings.TrimSuffix(name, "|")
			if m.Type != labels.MatchRegexp || !slices.Contains(variables, name) {
				wrong("%s: %s is no regular expression, or no variable of this dashboard", v.Name, m)
			}
		}
		matched[m.Name] = m.Value
	}
	for _, name := range []string{"cluster", "job", "instance"} {
		if strings.HasPrefix(v.Name, "ALERTS") { // an alert may concern no single node
			matched[name] = strings.TrimSuffix(matched[name], "|")
		}
		if slices.Contains(variables, name) && matched[name] != "$"+name {
			wrong("%s is not within the chosen %s", v.Name, name)
		}
	}
	counts := r.Kind == "counter" || r.Kind == "histogram"
	call, over := callOf(path)
	if counts != slices.Contains([]string{"rate", "increase"}, call) {
		wrong("%s is a %s, used in %q", v.Name, r.Kind, call)
	}
	if counts && over != rateInterval && (call != "increase" || over != shown) {
		wrong("%s over %v, which is neither $__rate_interval nor, of an increase, $__range", v.Name, over)
	}
}

// callOf returns the function over the selector's range vector, and the length of the range.
func callOf(path []parser.Node) (function string, over time.Duration) {
	if len(path) < 2 {
		return "", 0
	}
	matrix, ok := path[len(path)-1].(*parser.MatrixSelector)
	if !ok {
		return "", 0
	}
	if call, ok := path[len(path)-2].(*parser.Call); ok {
		function = call.Func.Name
	}
	return function, matrix.Range
}

// checkLegend checks that a legend names only labels of the result.
func checkLegend(t *testing.T, expr parser.Expr, legend string) {
	t.Helper()
	have, exact := labelsOf(expr)
	for rest := legend; exact; {
		_, after, found := strings.Cut(rest, "{{")
		if !found {
			return
		}
		var name string
		name, rest, _ = strings.Cut(after, "}}")
		if !slices.Contains(have, name) {
			t.Errorf("legend %q: the answer has no label %s, only %v", legend, name, have)
		}
	}
}

// labelsOf returns the labels of an expression's result, as far as an aggregation names them.
func labelsOf(expr parser.Expr) (names []string, exact bool) {
	switch e := expr.(type) {
	case *parser.AggregateExpr:
		if e.Op == parser.TOPK || e.Op == parser.BOTTOMK {
			return labelsOf(e.Expr)
		}
		return e.Grouping, !e.Without
	case *parser.ParenExpr:
		return labelsOf(e.Expr)
	case *parser.BinaryExpr:
		names, exact = labelsOf(e.LHS)
		if exact {
			return names, true
		}
		return labelsOf(e.RHS)
	case *parser.Call:
		for _, arg := range e.Args {
			names, exact = labelsOf(arg)
			if exact {
				return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "le" }), true
			}
		}
	}
	return nil, false
}

// checkVariable checks that a variable queries an existing label and uses the variables before it.
func checkVariable(t *testing.T, known map[string]catalog.Row, definition string, before []string) {
	t.Helper()
	inner, ok := strings.CutPrefix(strings.TrimSuffix(definition, ")"), "label_values(")
	at := strings.LastIndex(inner, ", ")
	if !ok || at < 0 {
		t.Fatalf("%s is not label_values(series, label)", definition)
	}
	series, label := inner[:at], inner[at+2:]
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(series)
	if err != nil {
		t.Fatalf("%s: %v", definition, err)
	}
	selector := parsed.(*parser.VectorSelector)
	r, ok := catalog.Find(known, selector.Name)
	if !ok || !slices.Contains(append([]string{"cluster", "job", "instance"}, r.Labels...), label) {
		t.Errorf("%s: no such metric, or no such label", definition)
	}
	for _, m := range selector.LabelMatchers {
		if name, isVariable := strings.CutPrefix(m.Value, "$"); isVariable && !slices.Contains(before, name) {
			t.Errorf("%s: $%s is not a variable before it", definition, name)
		}
	}
}

// TestChecksFindFaults: each kind of fault in a query is found.
func TestChecksFindFaults(t *testing.T) {
	known := rows(t)
	const in = `cluster=~"$cluster", job=~"$job", instance=~"$instance"`
	for _, expr := range []string{
		`railscope_no_such_metric{` + in + `}`,
		`railscope_port_up{` + in + `, peer="x"}`,
		`railscope_port_up`,
		`railscope_port_up{cluster=~"$cluster", job=~"$job"}`,
		`railscope_port_up{job=~"$job", instance=~"$instance"}`,
		`railscope_port_up{` + in + `, rail=~"$rial"}`,
		`railscope_port_up{` + in + `, rail="$rail"}`,
		`railscope_port_link_downed_total{` + in + `}`,
		`rate(railscope_port_up{` + in + `}[$__rate_interval])`,
		`rate(railscope_port_link_downed_total{` + in + `}[5m])`,
		`railscope_probe_latency_seconds_bucket{` + in + `}`,
		`rate(railscope_port_up_bucket{` + in + `}[$__rate_interval])`,
		`railscope_port_up{cluster=~"$cluster", job=~"$job|", instance=~"$instance|"}`,
	} {
		found := 0
		checkQuery(func(string, ...any) { found++ }, known, []string{"cluster", "job", "instance", "rail"}, expr)
		if found == 0 {
			t.Errorf("found nothing wrong with %s", expr)
		}
	}
	checkQuery(t.Errorf, known, []string{"cluster", "job", "instance", "rail"},
		`sum(rate(railscope_port_link_downed_total{`+in+`, rail=~"$rail"}[$__rate_interval]))`)
}
