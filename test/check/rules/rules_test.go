package rules

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/railscope/railscope/deploy/rules"
	"github.com/railscope/railscope/test/check/catalog"
)

const source = "../../../deploy/rules"

// checked is the state of one walk over an expression.
type checked struct {
	record   string // name of the rule that records it
	known    map[string]catalog.Row
	used     map[string]bool // metrics
	breaches []string
}

func (c *checked) breach(format string, args ...any) {
	c.breaches = append(c.breaches, fmt.Sprintf(format, args...))
}

// minRange is four scrape intervals of a minute: the minimum range in which one failed scrape leaves no gap.
const minRange = 4 * time.Minute

// overCounters are the functions that may be applied to a counter.
var overCounters = []string{"rate", "increase", "changes", "resets", "max_over_time", "absent"}

// expr walks an expression.
func (c *checked) expr(e parser.Expr) {
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			c.selector(n, path)
		case *parser.MatrixSelector:
			if n.Range < minRange {
				c.breach("%s: the range is less than %s", n, minRange)
			}
		case *parser.AggregateExpr:
			c.aggregate(n)
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil && m.On && !ofOne(m.MatchingLabels) && !global(n) {
				c.breach("%s matches across instances", n)
			} else if m != nil && !m.On && slices.Contains(m.MatchingLabels, "instance") {
				c.breach("%s matches across instances", n)
			} else if m != nil {
				c.labels(n, m.MatchingLabels)
			}
			if m := n.VectorMatching; m != nil && m.On && !n.Op.IsSetOperator() && m.Card == parser.CardOneToOne {
				c.breach("%s: on() between values fails where another label tells series apart; ignoring() does not", n)
			}
		}
		return nil
	})
}

// ofOne reports whether labels distinguish nodes: host is the instance without its port. A fault of a cluster or a
// leaf switch has no instance.
func ofOne(labels []string) bool {
	return slices.ContainsFunc([]string{"instance", "host", "fault", "leaf"}, func(l string) bool {
		return slices.Contains(labels, l)
	})
}

// global reports whether an operator suppresses everything at once, or compares with a value of the cluster.
func global(n *parser.BinaryExpr) bool {
	m := n.VectorMatching
	return n.Op == parser.LUNLESS && len(m.MatchingLabels) == 0 ||
		m.Card == parser.CardManyToOne && slices.Equal(m.MatchingLabels, []string{"cluster", "job"})
}

// selector checks a selector's metric, labels and use.
func (c *checked) selector(n *parser.VectorSelector, path []parser.Node) {
	row, ok := catalog.Find(c.known, n.Name)
	if !ok {
		c.breach("%s: there is no metric %s", n, n.Name)
		return
	}
	c.used[n.Name] = true
	for _, m := range n.LabelMatchers {
		if m.Name != model.MetricNameLabel && !has(row, m.Name) {
			c.breach("%s: %s has no label %s", n, n.Name, m.Name)
		}
	}
	under := ""
	for _, p := range slices.Backward(path) {
		if call, ok := p.(*parser.Call); ok {
			under = call.Func.Name
			break
		}
	}
	summed := strings.HasSuffix(c.record, "_measured:sum") // compared with itself
	if counter := row.Kind == "counter" || row.Kind == "histogram"; counter && !slices.Contains(overCounters, under) &&
		!summed {
		c.breach("%s: a counter by itself says when it began", n)
	} else if !counter && slices.Contains([]string{"rate", "increase"}, under) {
		c.breach("%s: the %s of what is no counter", n, under)
	}
}

// aggregate checks that an alert keeps its location.
func (c *checked) aggregate(n *parser.AggregateExpr) {
	kept := ofOne(n.Grouping)
	if n.Without {
		kept = !slices.Contains(n.Grouping, "instance")
	}
	if !kept && !strings.HasPrefix(c.record, "cluster:") {
		c.breach("%s loses the instance", n)
	}
	c.labels(n, n.Grouping)
}

// labels checks that named labels exist in the operand.
func (c *checked) labels(n parser.Expr, names []string) {
	has := map[string]bool{"cluster": true, "job": true, "instance": true}
	parser.Inspect(n, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			row, _ := catalog.Find(c.known, s.Name)
			for _, l := range row.Labels {
				has[l] = true
			}
		}
		if call, ok := node.(*parser.Call); ok && call.Func.Name == "label_replace" {
			has[call.Args[1].(*parser.StringLiteral).Val] = true
		}
		return nil
	})
	for _, l := range names {
		if !has[l] {
			c.breach("%s: nothing in it has a label %s", n, l)
		}
	}
}

// series returns the labels that a result of the expression can have, as far as they come from rows: those of the
// selectors on its left, without those that aggregations remove.
func series(known map[string]catalog.Row, e parser.Expr) []string {
	switch n := e.(type) {
	case *parser.VectorSelector:
		row, _ := catalog.Find(known, n.Name)
		return append(slices.Clone(ofTarget), row.Labels...)
	case *parser.MatrixSelector:
		return series(known, n.VectorSelector)
	case *parser.ParenExpr:
		return series(known, n.Expr)
	case *parser.AggregateExpr:
		if n.Op == parser.TOPK {
			return series(known, n.Expr)
		}
		return slices.DeleteFunc(series(known, n.Expr), func(l string) bool {
			return slices.Contains(n.Grouping, l) == n.Without
		})
	case *parser.Call:
		var all []string
		for _, arg := range n.Args {
			all = append(all, series(known, arg)...)
		}
		if n.Func.Name == "label_replace" {
			all = append(all, n.Args[1].(*parser.StringLiteral).Val)
		}
		return all
	case *parser.BinaryExpr:
		all := series(known, n.LHS)
		if m := n.VectorMatching; m != nil && m.Card == parser.CardManyToOne {
			all = append(all, m.Include...)
		} else if m != nil && m.Card == parser.CardOneToOne && !m.On {
			all = slices.DeleteFunc(all, func(l string) bool { return slices.Contains(m.MatchingLabels, l) })
		}
		if n.Op == parser.LOR || len(all) == 0 {
			all = append(all, series(known, n.RHS)...)
		}
		return all
	}
	return nil
}

var (
	labelUsed = regexp.MustCompile(`\$labels\.(\w+)`)
	queryMade = regexp.MustCompile(`(?:printf|query) "((?:[^"\\]|\\.)*)"`)
	verb      = regexp.MustCompile(`%q`)
)

// annotation checks a template: the labels that it uses, and its queries.
func (c *checked) annotation(p parser.Parser, text string, has []string) {
	for _, m := range labelUsed.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(has, m[1]) {
			c.breach("the series have no label %s, only %v", m[1], has)
		}
	}
	for _, m := range queryMade.FindAllStringSubmatch(text, -1) {
		query := verb.ReplaceAllString(m[1], `"x"`)
		if strings.HasPrefix(query, "%") {
			continue // a number format
		}
		e, err := p.ParseExpr(query)
		if err != nil {
			c.breach("%s: %v", query, err)
			continue
		}
		in := checked{known: c.known, used: c.used}
		parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				in.selector(s, path)
			}
			return nil
		})
		c.breaches = append(c.breaches, in.breaches...)
	}
}

// TestRules checks all rules: names exist, counters are used as counters, no instance is lost, and recorded series
// are used.
func TestRules(t *testing.T) {
	all, err := rules.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	p, known, used := parser.NewParser(parser.Options{}), rows(t), map[string]bool{}
	parsed := make([]parser.Expr, len(all))
	for i, r := range all {
		parsed[i], err = p.ParseExpr(r.Expr)
		if err != nil {
			t.Fatalf("%s%s: %v", r.Record, r.Alert, err)
		}
	}
	for range 2 { // rules use series that are recorded below them
		for i, r := range all {
			if r.Record != "" {
				list := slices.Concat(known[r.Record].Labels, series(known, parsed[i]),
					slices.Collect(maps.Keys(r.Labels)))
				slices.Sort(list)
				known[r.Record] = catalog.Row{Kind: "gauge", Labels: slices.Compact(list)}
			}
		}
	}
	for i, r := range all {
		c := checked{record: r.Record, known: known, used: used}
		c.expr(parsed[i])
		for _, text := range r.Annotations {
			c.annotation(p, text, series(known, parsed[i]))
		}
		for _, b := range c.breaches {
			t.Errorf("%s%s: %s", r.Record, r.Alert, b)
		}
	}
	dashboard, err := os.ReadFile("../../../dashboards/provisioning/railscope-fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Record != "" && !used[r.Record] && !bytes.Contains(dashboard, []byte(r.Record+"{")) {
			t.Errorf("%s is recorded and neither a rule nor the Fleet dashboard uses it", r.Record)
		}
	}
}

// TestRulesFindsBreaches checks one violation of each kind, and what is allowed.
func TestRulesFindsBreaches(t *testing.T) {
	p, known := parser.NewParser(parser.Options{}), rows(t)
	for _, tc := range []struct{ expr, breach string }{
		{`railscope_port_upp == 0`, "no metric"},
		{`railscope_port_up{rial="1"} == 0`, "has no label rial"},
		{`railscope_port_ack_timeouts_total > 1`, "a counter by itself"},
		{`rate(railscope_port_ack_timeouts_total[2m]) > 1`, "the range is less"},
		{`rate(railscope_port_up[5m]) > 1`, "of what is no counter"},
		{`sum(railscope_port_up) < 2`, "loses the instance"},
		{`sum by (rail) (railscope_port_up) < 2`, "loses the instance"},
		{`sum without (instance, rail) (railscope_port_up) < 2`, "loses the instance"},
		{`sum without (rial) (railscope_port_up) < 2`, "has a label rial"},
		{`railscope_port_up == 0 and on (rail) railscope_gid_misbound == 1`, "across instances"},
		{`railscope_port_up == 0 and ignoring (instance) railscope_gid_misbound == 1`, "across instances"},
		{`railscope_port_up == on (job, instance, rail) railscope_gid_misbound`, "on() between values"},
		{`railscope_port_up == 0 and ignoring (peer) railscope_gid_misbound == 1`, "has a label peer"},

		{`railscope_port_up == 0 and on (job, instance, rail) railscope_gid_misbound == 1`, ""},
		{`sum by (job, instance) (rate(railscope_port_ack_timeouts_total[5m])) > 1`, ""},
		{`rate(railscope_probe_latency_seconds_bucket{le="1e-06"}[5m]) > 0`, ""},
	} {
		e, err := p.ParseExpr(tc.expr)
		if err != nil {
			t.Fatal(err)
		}
		c := checked{known: known, used: map[string]bool{}}
		c.expr(e)
		found := strings.Join(c.breaches, "\n")
		if (tc.breach == "") != (found == "") || !strings.Contains(found, tc.breach) {
			t.Errorf("%s:\n%s\nwant %q", tc.expr, found, tc.breach)
		}
	}
	has := series(known, mustParse(t, p,
		`max without (device, port, netdev) (railscope_port_up or railscope_netdev_carrier)`))
	for _, tc := range []struct{ text, breach string }{
		{`{{ $labels.device }} is down`, "no label device"},
		{`{{ with printf "sum(railscope_port_upp{job=%q})" $labels.job | query }}{{ end }}`, "no metric"},
		{`{{ with printf "sum(railscope_port_up{job=%q)" $labels.job | query }}{{ end }}`, "unexpected"},
		{`{{ with query "count(railscope_port_up{rial='1'})" }}{{ end }}`, "no label rial"},
		{`{{ $labels.rail }} {{ $value | printf "%.0f" }} {{ with printf "sum(railscope_port_up{job=%q})" ` +
			`$labels.job | query }}{{ end }}`, ""},
	} {
		c := checked{known: known, used: map[string]bool{}}
		c.annotation(p, tc.text, has)
		found := strings.Join(c.breaches, "\n")
		if (tc.breach == "") != (found == "") || !strings.Contains(found, tc.breach) {
			t.Errorf("%s:\n%s\nwant %q", tc.text, found, tc.breach)
		}
	}
}

func mustParse(t *testing.T, p parser.Parser, expr string) parser.Expr {
	t.Helper()
	e, err := p.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestPages: runbooks and docs/alerts.md name only metrics that exist.
func TestPages(t *testing.T) {
	known, word := rows(t), regexp.MustCompile(`(?:\w+:)?railscope_[a-z0-9_]+[a-z0-9](?::\w+)?`)
	all, err := rules.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		known[r.Record] = catalog.Row{}
	}
	pages, err := filepath.Glob("../../../docs/runbooks/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no runbooks", err)
	}
	for _, page := range append(pages, "../../../docs/alerts.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range word.FindAllString(string(text), -1) {
			if _, ok := catalog.Find(known, name); !ok {
				t.Errorf("%s: there is no metric %s", filepath.Base(page), name)
			}
		}
	}
}
