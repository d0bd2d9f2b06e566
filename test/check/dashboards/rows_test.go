package dashboards

import (
	"testing"

	"github.com/railscope/railscope/test/check/catalog"
)

// rows returns the metrics by name. Those that Prometheus itself adds to the
// exporter's are among them.
func rows(t *testing.T) map[string]catalog.Row {
	t.Helper()
	all, err := catalog.Read("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all["ALERTS"] = catalog.Row{Kind: "gauge", Labels: []string{"alertname", "alertstate", "severity", "rail", "peer"}}
	return all
}
