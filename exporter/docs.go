package exporter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/collector"
)

// Docs returns docs/metrics.md for the sources, made of nothing but their rows.
func Docs(sources []collector.Source) string {
	var b strings.Builder
	b.WriteString(`# Metrics

Generated from the rows in ` + "`collector/`, `exporter/own.go`, `exporter/probe_rows.go` and `exporter/sampler_rows.go` by `make docs`" + `; a test keeps it equal. Units are base units: bytes, seconds, ratios
from 0 to 1. A value that cannot be read is absent, never 0. "Origin" is what the kernel or the driver calls it; where there are several, the first
that a device has is used. A factor is what the origin is multiplied with; a width is the counter's where it is narrower than 64 bits.

`)
	section(&b, "railscope itself", allRows(newOwnRows(), newProcess(nil), nil))
	for _, src := range sources {
		section(&b, "source "+src.Name(), src.Metrics())
	}
	return b.String()
}

func section(b *strings.Builder, title string, rows []*collector.Metric) {
	fmt.Fprintf(b, "## %s\n\n| metric | kind | labels | meaning | origin | reference |\n|---|---|---|---|---|---|\n", title)
	rows = slices.SortedFunc(slices.Values(rows), func(a, b *collector.Metric) int { return cmp.Compare(a.Name, b.Name) })
	for _, m := range rows {
		var origins []string
		for _, o := range m.From {
			origins = append(origins, origin(o, m.Ref))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", FullName(m), typeNames[m.Kind], strings.Join(m.Labels, ", "),
			cell(m.Help), cell(strings.Join(origins, ", ")), cell(m.Ref))
	}
	b.WriteString("\n")
}

// origin is a row's origin for people. Only where the row is written after mlx5
// is the width that adapter's; bonds and NVML have theirs everywhere.
func origin(o collector.Origin, ref string) string {
	s := o.Name
	if o.Scale != 0 {
		s += fmt.Sprintf(" × %g", o.Scale)
	}
	switch {
	case o.Saturates:
		s += fmt.Sprintf(" (%d bits, saturates)", o.Bits)
	case o.Bits != 0 && strings.Contains(ref, "mlx5"):
		s += fmt.Sprintf(" (%d bits on mlx5, wraps)", o.Bits)
	case o.Bits != 0:
		s += fmt.Sprintf(" (%d bits, wraps)", o.Bits)
	}
	return s
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
