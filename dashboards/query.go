package dashboards

import (
	"fmt"
	"strings"
)

// selectors replaces <fleet>, <alert>, <node>, <rail>, <peer>, <path> and <latency> in queries by the selected
// variables. Each selector of a query is one of these. Classic histograms of latency have no rail.
var selectors = strings.NewReplacer(
	"<fleet>", `cluster=~"$cluster", job=~"$job"`,
	"<alert>", `cluster=~"$cluster", job=~"$job|"`,
	"<node>", `cluster=~"$cluster", job=~"$job", instance=~"$instance"`,
	"<rail>", `cluster=~"$cluster", job=~"$job", instance=~"$instance", rail=~"$rail"`,
	"<peer>", `cluster=~"$cluster", job=~"$job", instance=~"$instance", peer=~"$peer"`,
	"<latency>", `cluster=~"$cluster", job=~"$job", instance=~"$instance", peer=~"$peer", rail=~"$rail|"`,
	"<path>", `cluster=~"$cluster", job=~"$job", instance=~"$instance", peer=~"$peer", rail=~"$rail"`,
)

// target is one query of a panel. legend names its series.
type target struct{ expr, legend string }

func (p *panel) renderTarget(i int, t target) object {
	return object{
		"refId": refID(i), "datasource": source(), "editorMode": "code", "expr": selectors.Replace(t.expr),
		"legendFormat": t.legend,
		"format":       p.format, "instant": p.instant, "range": !p.instant, "exemplar": false,
	}
}

func refID(i int) string { return string(rune('A' + i)) }

// perSecond returns the rate of a counter per second, summed by labels.
func perSecond(counter, selector, by string) string {
	return fmt.Sprintf(`sum by (%s) (rate(railscope_%s{%s}[$__rate_interval]))`, by, counter, selector)
}

// bits is perSecond for byte counters, in bits.
func bits(counter, selector, by string) string { return "8 * " + perSecond(counter, selector, by) }

// A server may store classic histograms, native ones or both. These queries work
// in all cases and prefer classic ones.

// quantile returns the q-quantile of a histogram over window, by labels.
func quantile(q float64, histogram, selector, by, window string) string {
	return fmt.Sprintf(`histogram_quantile(%[1]g, sum by (le, %[4]s) (rate(railscope_%[2]s_bucket{%[3]s}[%[5]s])))`+
		` or histogram_quantile(%[1]g, sum by (%[4]s) (rate(railscope_%[2]s{%[3]s}[%[5]s])))`, q, histogram, selector,
		by, window)
}

// overall is quantile over the selected time, for a single value.
func overall(q float64, histogram, selector, by string) string {
	return strings.ReplaceAll(quantile(q, histogram, selector, by, "$__range"), "(rate(", "(increase(")
}

// mean returns the mean of a histogram over the selected time. It needs 2 classic series, and a quantile needs 20.
func mean(histogram, selector, by string) string {
	sum := func(suffix string) string {
		return fmt.Sprintf(`sum by (%s) (increase(railscope_%s%s{%s}[$__range]))`, by, histogram, suffix, selector)
	}
	return sum("_sum") + " / " + sum("_count") + " or histogram_sum(" + sum("") + ") / histogram_count(" + sum("") + ")"
}

// spread returns the distribution of a histogram, for heatmaps.
func spread(histogram, selector string) string {
	return fmt.Sprintf(`sum by (le) (increase(railscope_%[1]s_bucket{%[2]s}[$__rate_interval])) or on () `+
		`sum(increase(railscope_%[1]s{%[2]s}[$__rate_interval]))`,
		histogram, selector)
}
