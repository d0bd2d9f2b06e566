package fleetgen

import (
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/railscope/railscope/deploy/rules"
)

// lookback is the maximum age of a sample that an instant query reads.
const lookback = 5 * time.Minute

// Needs are the series that expressions read, and how far back they read them. Recorded series are not included.
type Needs struct {
	selectors map[string][]selector // keyed by metric
}

type selector struct {
	matchers []*labels.Matcher
	back     time.Duration
}

// NeedsOfRules returns the needs of the shipped rules in a directory.
func NeedsOfRules(dir string) (*Needs, error) {
	all, err := rules.Load(dir)
	if err != nil {
		return nil, err
	}
	n := &Needs{selectors: map[string][]selector{}}
	p := parser.NewParser(parser.Options{})
	for _, r := range all {
		expr, err := p.ParseExpr(r.Expr)
		if err != nil {
			return nil, err
		}
		n.read(expr)
	}
	return n, nil
}

func (n *Needs) read(expr parser.Expr) {
	parser.Inspect(expr, func(e parser.Node, path []parser.Node) error {
		v, ok := e.(*parser.VectorSelector)
		if !ok || strings.Contains(v.Name, ":") {
			return nil
		}
		s := selector{back: lookback + v.OriginalOffset}
		for _, m := range v.LabelMatchers {
			if m.Name != model.MetricNameLabel {
				s.matchers = append(s.matchers, m)
			}
		}
		for _, above := range path {
			if m, ok := above.(*parser.MatrixSelector); ok {
				s.back += m.Range
			}
		}
		n.selectors[v.Name] = append(n.selectors[v.Name], s)
		return nil
	})
}

// Metrics returns the names of the metrics that are read.
func (n *Needs) Metrics() (list []string) {
	for name := range n.selectors {
		list = append(list, name)
	}
	return list
}

func (n *Needs) has(metric string) bool { return len(n.selectors[metric]) > 0 }

// of returns how far back a series is read; wanted is false if it is not read at all.
func (n *Needs) of(l labels.Labels) (back time.Duration, wanted bool) {
	for _, s := range n.selectors[l.Get(model.MetricNameLabel)] {
		if labels.Selector(s.matchers).Matches(l) {
			back, wanted = max(back, s.back), true
		}
	}
	return back, wanted
}
