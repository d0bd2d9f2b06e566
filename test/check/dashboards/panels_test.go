package dashboards

import (
	"context"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/railscope/railscope/test/check/catalog"
)

// answer is the result of a panel's query.
type answer struct {
	values, histograms int // without NaN
	series             []labels.Labels
	numbers            map[string][]float64 // keyed by series
}

func (a *answer) add(series labels.Labels, histograms int, numbers ...float64) {
	a.series, a.histograms, a.numbers[series.String()] = append(a.series, series), a.histograms+histograms, numbers
	for _, n := range numbers {
		if !math.IsNaN(n) {
			a.values++
		}
	}
}

// like reports whether two answers are equal, apart from the order in which floating point numbers were added.
func (a *answer) like(b answer) bool {
	return maps.EqualFunc(a.numbers, b.numbers, func(a, b []float64) bool {
		return slices.EqualFunc(a, b, func(a, b float64) bool {
			return a == b || math.Abs(a-b) < 1e-9*math.Abs(a) || math.IsNaN(a) && math.IsNaN(b)
		})
	})
}

// asker queries a storage as Grafana does.
type asker struct {
	data   storage.Queryable
	engine *promql.Engine
}

func newAsker(t *testing.T, k keeps, more ...sample) asker {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 5e6, Timeout: time.Minute,
		Parser: parser.NewParser(parser.Options{}), EnableAtModifier: true})
	t.Cleanup(func() { _ = engine.Close() })
	return asker{stored(t, append(fleet(t), more...), k), engine}
}

func (a asker) ask(t *testing.T, p panel, q target) answer {
	t.Helper()
	chosen := maps.Clone(everything)
	if p.Repeat != "" {
		chosen[p.Repeat] = map[string]string{"rail": "0", "peer": "a:10092"}[p.Repeat]
	}
	ctx, expr := context.Background(), fill(q.Expr, chosen)
	query, err := a.engine.NewRangeQuery(ctx, a.data, nil, expr, end.Add(-shown), end, time.Minute)
	if q.Instant {
		query, err = a.engine.NewInstantQuery(ctx, a.data, nil, expr, end)
	}
	if err != nil {
		t.Fatalf("%s\n%v", expr, err)
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil || len(result.Warnings) > 0 {
		t.Fatalf("%s\n%v %v", expr, result.Err, result.Warnings)
	}
	came := answer{numbers: map[string][]float64{}}
	switch v := result.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			if s.H != nil {
				came.add(s.Metric, 1)
			} else {
				came.add(s.Metric, 0, s.F)
			}
		}
	case promql.Matrix:
		for _, s := range v {
			var numbers []float64
			for _, p := range s.Floats {
				numbers = append(numbers, p.F)
			}
			came.add(s.Metric, len(s.Histograms), numbers...)
		}
	default:
		t.Fatalf("%s answers with a %s", expr, result.Value.Type())
	}
	return came
}

// TestPanelsAnswer runs every query of every panel on a storage with the exporter's expositions, and requires values. A
// query for a fault has one because a machine in the storage has the fault. Queries for histograms must return one
// result for classic histograms, native ones, and both, because a heatmap cannot draw both.
func TestPanelsAnswer(t *testing.T) {
	for name, k := range map[string]keeps{"classic": {classic: true}, "native": {native: true},
		"both": {classic: true, native: true}} {
		t.Run(name, func(t *testing.T) {
			a := newAsker(t, k)
			each(t, "provisioning", func(t *testing.T, _ dashboard, p panel) {
				for _, q := range p.Targets {
					if !k.classic && !strings.Contains(q.Expr, "_bucket{") && !strings.Contains(q.Expr, "_count{") {
						continue // equal to the result with classic ones
					}
					came := a.ask(t, p, q)
					if came.values+came.histograms == 0 {
						t.Errorf("no answer to %s", q.Expr)
					}
					if came.histograms > 0 && (came.values > 0 || p.Type != "heatmap" || k.classic) {
						t.Errorf("%d values and %d whole histograms from %s", came.values, came.histograms, q.Expr)
					}
				}
			})
		})
	}
}

// TestOthers: no result changes if Prometheus also scrapes other programs that have metrics with the same names.
func TestOthers(t *testing.T) {
	var others []sample
	for _, s := range fleet(t) {
		if name := s.labels.Get(model.MetricNameLabel); !strings.HasPrefix(name, "railscope_") && name != "ALERTS" &&
			!strings.Contains(name, ":") {
			s.labels, s.value = labels.NewBuilder(s.labels).Set("job", "other").Labels(), 1e12
			others = append(others, s)
		}
	}
	if len(others) == 0 {
		t.Fatal("there are no such metrics")
	}
	alone, among := newAsker(t, keeps{classic: true}), newAsker(t, keeps{classic: true}, others...)
	each(t, "provisioning", func(t *testing.T, _ dashboard, p panel) {
		for _, q := range p.Targets {
			if before := alone.ask(t, p, q); !before.like(among.ask(t, p, q)) {
				t.Errorf("other programs have a part in %s", q.Expr)
			}
		}
	})
}

// TestLost: both lost rails count, and no port that was never up (two of the node spark have no cable), nor those
// of a node that no longer answers.
func TestLost(t *testing.T) {
	a, asked := newAsker(t, keeps{classic: true}), 0
	each(t, "provisioning", func(t *testing.T, _ dashboard, p panel) {
		switch p.Title {
		case "Rails lost":
			if got := a.ask(t, p, p.Targets[0]).numbers["{}"]; !slices.Equal(got, []float64{2}) {
				t.Errorf("%v rails are lost, want 2", got)
			}
		case "Faults":
			faults := map[string]string{}
			for _, s := range a.ask(t, p, p.Targets[0]).series {
				if what := s.Get("what"); what == "RailDown" || what == "GIDFault" {
					faults[s.Get("instance")+" "+s.Get("rail")] = what + " " + s.Get("reason")
				}
			}
			if want := map[string]string{"hgx:10091 6": "RailDown missing", "hgx:10091 7": "RailDown down",
				"rxe-bond-trap:10091 1": "GIDFault misbound"}; !maps.Equal(faults, want) {
				t.Errorf("faults are %v, want %v", faults, want)
			}
		default:
			return
		}
		asked++
	})
	if asked != 3 {
		t.Errorf("%d panels show lost rails, want 3", asked)
	}
}

// TestVendors: panels show the GPUs of both vendors. It compares the last values of GPU 0.
func TestVendors(t *testing.T) {
	a := newAsker(t, keeps{classic: true})
	perHour := func(total float64) float64 { return 3600 * (0.01*total + 1) / every.Seconds() } // as in sample.at
	want := map[string]map[string]float64{
		"Clock": {"hgx:10091 ": 1.98e9, "instinct:10091 ": 1.32e8},
		"ECC errors": {"hgx:10091 corrected": perHour(3), "hgx:10091 uncorrected": perHour(0),
			"instinct:10091 corrected": perHour(0), "instinct:10091 deferred": perHour(0),
			"instinct:10091 uncorrected": perHour(0)},
		"GPU utilization": {"hgx:10091 ": 0.98, "instinct:10091 ": 0},
		"PCIe replays":    {"hgx:10091 ": perHour(0) / 3600, "instinct:10091 ": perHour(0) / 3600},
		"Power":           {"hgx:10091 ": 640, "instinct:10091 ": 173},
		"Temperature":     {"hgx:10091 ": 58, "instinct:10091 ": 43},
	}
	asked := 0
	each(t, "provisioning", func(t *testing.T, _ dashboard, p panel) {
		shown, ok := want[p.Title]
		if !ok {
			return
		}
		asked++
		answer, got := a.ask(t, p, p.Targets[0]), map[string]float64{}
		for _, s := range answer.series {
			if numbers := answer.numbers[s.String()]; s.Get("gpu") == "0" && len(numbers) > 0 {
				got[s.Get("instance")+" "+s.Get("kind")] = numbers[len(numbers)-1]
			}
		}
		if !maps.EqualFunc(got, shown, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*b }) {
			t.Errorf("shows %v, want %v", got, shown)
		}
	})
	if asked != len(want) {
		t.Errorf("%d panels show GPUs of both vendors, want %d", asked, len(want))
	}
}

// TestColumns: every label in the results of a table has a column or is hidden, and no column is for a missing
// label. Overrides match at least one column or series.
func TestColumns(t *testing.T) {
	a := newAsker(t, keeps{classic: true})
	each(t, "provisioning", func(t *testing.T, _ dashboard, p panel) {
		have := map[string]bool{} // names of fields before they are renamed
		var names []string        // names of series
		for _, q := range p.Targets {
			for _, series := range a.ask(t, p, q).series {
				name := q.LegendFormat
				series.Range(func(l labels.Label) {
					have[l.Name] = true
					name = strings.ReplaceAll(name, "{{"+l.Name+"}}", l.Value)
				})
				names = append(names, name)
			}
			have["Value #"+q.RefID], have["Value"] = true, true
		}
		if p.Type == "table" {
			names = columns(t, p, have)
		}
		for _, o := range p.FieldConfig.Overrides {
			match := func(name string) bool { return name == o.Matcher.Options }
			if o.Matcher.ID == "byRegexp" {
				match = func(name string) bool {
					return regexp.MustCompile("^(?:" + o.Matcher.Options + ")$").MatchString(name)
				}
			}
			if !slices.ContainsFunc(names, match) && railOf(o.Matcher.Options) == "" {
				t.Errorf("nothing is called %q, only %q", o.Matcher.Options, names)
			}
		}
	})
}

// columns returns the final names of a table's columns.
func columns(t *testing.T, p panel, have map[string]bool) []string {
	t.Helper()
	var names []string
	for _, transform := range p.Transformations {
		switch o := transform.Options; transform.ID {
		case "groupingToMatrix":
			for _, of := range []string{"columnField", "rowField", "valueField"} {
				if field := o[of].(string); !have[field] {
					t.Errorf("%s is %s, which no answer has", of, field)
				}
			}
			names = append(names, o["rowField"].(string)+`\`+o["columnField"].(string))
		case "organize":
			renamed, hidden := o["renameByName"].(map[string]any), o["excludeByName"].(map[string]any)
			for field, name := range renamed {
				if !have[field] {
					t.Errorf("column %q is of %s, which no answer has", name, field)
				}
				names = append(names, name.(string))
			}
			for field := range have {
				if renamed[field] == nil && hidden[field] == nil && !strings.HasPrefix(field, "Value") {
					t.Errorf("%s is in the answers, and in no column", field)
				}
			}
		}
	}
	return names
}

// whole are metrics that are shown for all rails although they have a label rail.
var whole = []string{
	"railscope_pcie_", // they include GPUs, which are not rails
	"railscope_probe_rail_expected_bytes_per_second", // the goodput of all rails together is compared with its sum
}

// TestNarrowed: each selection of a dashboard applies to all that it shows, including rails and peers, and a
// repeated panel shows only its own value.
func TestNarrowed(t *testing.T) {
	known := rows(t)
	each(t, "provisioning", func(t *testing.T, d dashboard, p panel) {
		for _, q := range p.Targets {
			if p.Repeat != "" && !strings.Contains(q.Expr, "$"+p.Repeat) {
				t.Errorf("is repeated for each %s, and always the same: %s", p.Repeat, q.Expr)
			}
			parser.Inspect(parse(t, q.Expr), func(n parser.Node, _ []parser.Node) error {
				v, ok := n.(*parser.VectorSelector)
				if !ok || slices.ContainsFunc(whole, func(prefix string) bool {
					return strings.HasPrefix(v.Name, prefix)
				}) {
					return nil
				}
				r, _ := catalog.Find(known, v.Name)
				for _, name := range variablesOf(d)[3:] {
					chosen := slices.ContainsFunc(v.LabelMatchers,
						func(m *labels.Matcher) bool { return m.Name == name })
					if slices.Contains(r.Labels, name) && !chosen {
						t.Errorf("%s is not narrowed to the chosen %s", v.Name, name)
					}
				}
				return nil
			})
		}
	})
}

// TestMore: testdata/more.prom has only metrics that exist, with their kinds and labels.
func TestMore(t *testing.T) {
	known := rows(t)
	for _, s := range exposition(t, filepath.Join("testdata", "more.prom")) {
		name := s.labels.Get(model.MetricNameLabel)
		r, ok := catalog.Find(known, name)
		if !ok {
			t.Errorf("%s: no such metric", name)
			continue
		}
		var have []string
		for l := range s.labels.Map() {
			if l != model.MetricNameLabel {
				have = append(have, l)
			}
		}
		want := slices.Clone(r.Labels)
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) || string(s.kind) != r.Kind {
			t.Errorf("%s is a %s with labels %v, want %s with %v", name, s.kind, have, r.Kind, want)
		}
	}
}
