package rules

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"
)

// TestBounds: every threshold has bounds, which its default and the chart's schema keep, and is refused outside them.
func TestBounds(t *testing.T) {
	all, err := Thresholds()
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	text, err := os.ReadFile("../helm/railscope/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type limits struct{ Minimum, Maximum *float64 }
	var schema struct {
		Properties struct {
			PrometheusRule struct {
				Properties struct {
					Thresholds struct{ Properties map[string]limits }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	chart := schema.Properties.PrometheusRule.Properties.Thresholds.Properties
	for name, value := range all {
		check := func(v float64) bool { return Tuning{Thresholds: map[string]float64{name: v}}.Check() == nil }
		least, most := bounds(name)
		shipped, err := strconv.ParseFloat(value, 64)
		if err != nil || !check(shipped) || !check(least) || !check(most) {
			t.Errorf("%s: %v, %v or %v is refused: %v", name, shipped, least, most, err)
		}
		for _, bad := range []float64{math.Nextafter(least, -1), math.Nextafter(most, math.Inf(1)), math.NaN(),
			math.Inf(1)} {
			if check(bad) {
				t.Errorf("%s may be %v", name, bad)
			}
		}
		if c := chart[name]; c.Minimum == nil || c.Maximum == nil || *c.Minimum != least || *c.Maximum != most {
			t.Errorf("the chart's schema has other bounds of %s: %+v", name, c)
		}
	}
	if len(chart) != len(all) {
		t.Errorf("the chart's schema has %d thresholds of %d", len(chart), len(all))
	}
}
