package http

import (
	"errors"
	"maps"
	"testing"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/page"
)

// TestPageShowsReasons: for a failed source the page shows the reason of source_errors_total, not the error, which
// names files and processes.
func TestPageShowsReasons(t *testing.T) {
	secret := errors.New("open /proc/4193337/environ: permission denied")
	a, b, c := exportertest.NewSource("a"), exportertest.NewSource("b"), exportertest.NewSource("c")
	a.Reads = func(func(collector.Sample)) error { return &collector.Fault{Reason: "permission", Err: secret} }
	b.Reads = func(func(collector.Sample)) error {
		return &collector.Fault{Device: "mlx5_0", Reason: "io", Err: secret}
	}
	c.Reads = func(func(collector.Sample)) error { return nil }
	s := exportertest.Scraper(t, a, b, c)
	var failed map[string]string
	pageOptions(s, page.Options{}).Read([]string{"a", "b", "c"},
		func(_ page.Reading, f map[string]string) { failed = maps.Clone(f) })
	if want := map[string]string{"a": "permission", "b": "mlx5_0: io"}; !maps.Equal(failed, want) {
		t.Errorf("%q, want %q", failed, want)
	}
}
