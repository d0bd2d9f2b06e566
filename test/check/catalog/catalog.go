// Package catalog knows all metrics: those of docs/metrics.md, which is generated from the rows.
package catalog

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Row is one metric.
type Row struct {
	Kind   string // counter, gauge, histogram, untyped
	Labels []string
}

// Read returns the metrics by name, and up, which Prometheus adds itself. file is docs/metrics.md.
func Read(file string) (map[string]Row, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]Row{"up": {Kind: "gauge"}}
	line := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| ([a-z]+) \\| ([a-z0-9_, ]*) ?\\| ")
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = Row{Kind: m[2], Labels: strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })}
	}
	if len(all) < 100 {
		return nil, fmt.Errorf("only %d metrics found in %s", len(all), file)
	}
	return all, nil
}

// Find returns the row to which a series belongs: a classic histogram has three kinds of series.
func Find(all map[string]Row, name string) (Row, bool) {
	if r, ok := all[name]; ok {
		return r, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && all[base].Kind == "histogram" {
			r := all[base]
			if suffix == "_bucket" {
				r.Labels = append(slices.Clip(r.Labels), "le")
			}
			return r, true
		}
	}
	return Row{}, false
}
