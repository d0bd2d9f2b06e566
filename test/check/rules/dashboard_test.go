package rules

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/railscope/railscope/test/check/fleetgen"
)

// Cost of one refresh of the Fleet dashboard, in samples that queries read, as Prometheus counts them
// (totalQueryableSamples of its API).
const (
	costNodes = 1000
	maxCost   = 200_000
	shownTime = time.Hour
	step      = 15 * time.Second // step of a graph: Grafana's minimum for a scrape interval of 15 s
)

type fleetPanel struct {
	Type, Title string
	Targets     []struct {
		Expr    string
		Instant bool
	}
}

// TestDashboardCost limits the cost of a refresh of the expanded panels of the Fleet dashboard at 1,000 nodes.
// Graphs read only series that are recorded per cluster, and topk is only used in tables.
func TestDashboardCost(t *testing.T) {
	db, end := database(t), time.Unix(1.8e9, 0)
	f := newFleet(t, twoBad{fleetgen.Healthy(costNodes)}, costNodes, end)
	f.Skip = without(gpuMetrics, latencyMetrics)
	f.Template = append(f.Template, fleetgen.NewRow("railscope_rail_missing_info", 1, "rail", "5", "device", "mlx5_5",
		"port", "1", "pci_address", "0000:cc:00.0"))
	f.Change = func(n int, l labels.Labels) fleetgen.Change {
		if l.Get(model.MetricNameLabel) != "railscope_rail_missing_info" {
			return nil
		}
		return func(_ time.Duration, v float64) (float64, bool) { return v, n%25 == 1 }
	}
	store(t, f, db)
	e := newEvaluator(t, db)
	for _, before := range []time.Duration{2, 1, 0} { // rules read what others recorded
		e.eval(t, end.Add(-before*time.Second))
	}
	lengthen(t, db, end)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute,
		Parser: parser.NewParser(parser.Options{})})
	t.Cleanup(func() { _ = engine.Close() })
	var sum int64
	for _, p := range unfolded(t) {
		var cost int64
		answered := false
		for _, q := range p.Targets {
			if !q.Instant {
				checkGraph(t, p.Title, q.Expr)
			}
			samples, series := ask(t, engine, db, q.Expr, q.Instant, end)
			cost, answered = cost+samples, answered || series > 0
		}
		t.Logf("%7d samples: %s", cost, p.Title)
		sum += cost
		if !answered && !strings.HasPrefix(p.Title, "Alerts") && !strings.Contains(p.Title, "up to 32 nodes") {
			t.Errorf("%s is empty", p.Title)
		}
	}
	t.Logf("%7d samples: one refresh at %d nodes", sum, costNodes)
	if sum > maxCost {
		t.Errorf("a refresh reads %d samples, at most %d", sum, maxCost)
	}
}

// lengthen extends the series recorded per cluster to the length of a graph.
func lengthen(t *testing.T, db *tsdb.DB, end time.Time) {
	t.Helper()
	q, err := db.Querier(end.Add(-time.Minute).UnixMilli(), end.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	app, added := db.Appender(t.Context()), 0
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchRegexp,
		model.MetricNameLabel, "cluster:.*"))
	for ; set.Next(); added++ {
		for ago := shownTime; ago > time.Minute; ago -= time.Minute {
			if _, err := app.Append(0, set.At().Labels(), end.Add(-ago).UnixMilli(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil || set.Err() != nil || added < 10 {
		t.Fatal(err, set.Err(), added)
	}
}

func unfolded(t *testing.T) (list []fleetPanel) {
	t.Helper()
	text, err := os.ReadFile("../../../dashboards/provisioning/railscope-fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Panels []fleetPanel }
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels { // panels of collapsed rows are in the rows
		if p.Type != "row" {
			list = append(list, p)
		}
	}
	return list
}

func checkGraph(t *testing.T, title, expr string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if !strings.HasPrefix(n.Name, "cluster:") {
				t.Errorf("%s reads %s, which is not recorded of clusters", title, n.Name)
			}
		case *parser.AggregateExpr:
			if n.Op == parser.TOPK || n.Op == parser.BOTTOMK {
				t.Errorf("%s: another set of series at each step", title)
			}
		}
		return nil
	})
}

// ask evaluates a query as Grafana does, and returns the numbers of samples that it read and of resulting series.
func ask(t *testing.T, engine *promql.Engine, db *tsdb.DB, expr string, instant bool, end time.Time) (int64, int) {
	t.Helper()
	expr = strings.NewReplacer("$cluster", ".*", "$job", ".+", "$__range", "1h", "$__rate_interval", "1m").Replace(expr)
	q, err := engine.NewRangeQuery(t.Context(), db, nil, expr, end.Add(-shownTime), end, step)
	if instant {
		q, err = engine.NewInstantQuery(t.Context(), db, nil, expr, end)
	}
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	if result.Err != nil {
		t.Fatalf("%s: %v", expr, result.Err)
	}
	series := 0
	switch v := result.Value.(type) {
	case promql.Vector:
		series = len(v)
	case promql.Matrix:
		series = len(v)
	}
	return q.Stats().Samples.TotalSamples, series
}
