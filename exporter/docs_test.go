package exporter

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/otlp"
	exportersampler "github.com/railscope/railscope/exporter/sampler"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/sysfstest"
)

// docs returns docs/metrics.md: page up to its first generated heading, and tables of the rows of a scraper's sources.
func docs(page string, s *scrape.Scraper) string {
	var b strings.Builder
	head, _, _ := strings.Cut(page, "## railscope itself\n")
	b.WriteString(head)
	section(&b, "railscope itself", s.OwnRows())
	for _, src := range s.Sources() {
		section(&b, "source "+src.Name(), src.Metrics())
	}
	return b.String()
}

func section(b *strings.Builder, title string, rows []*collector.Metric) {
	fmt.Fprintf(b, "## %s\n\n| metric | kind | labels | meaning | origin | reference |\n|---|---|---|---|---|---|\n",
		title)
	rows = slices.SortedFunc(slices.Values(rows), func(a, b *collector.Metric) int {
		return cmp.Compare(a.Name, b.Name)
	})
	for _, m := range rows {
		var origins []string
		for _, o := range m.From {
			origins = append(origins, origin(o, m.Ref))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", table.FullName(m), table.TypeName(m.Kind),
			strings.Join(m.Labels, ", "),
			cell(m.Help), cell(strings.Join(origins, ", ")), cell(m.Ref))
	}
	b.WriteString("\n")
}

// origin returns a row's origin for people. The width of a counter is that of mlx5 only if the row is written after
// mlx5; for bonds and NVML it holds everywhere.
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

// TestDocs compares docs/metrics.md with the rows.
func TestDocs(t *testing.T) {
	const file = "../docs/metrics.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, file, []byte(docs(string(page), everySource(t, sysfstest.Root{Dir: t.TempDir()}))))
}

// everySource returns a scraper of all sources.
func everySource(t *testing.T, root sysfstest.Root) *scrape.Scraper {
	t.Helper()
	push, err := otlp.New(otlp.Options{Endpoint: "http://collector:4318", Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return exportertest.Scraper(t,
		append(allSources(t, root), newTestProbe(), exportersampler.NewSource(func(*sampler.Snapshot) {}), push)...)
}
