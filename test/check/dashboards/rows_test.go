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
	labels := []string{"alertname", "severity", "fault", "check", "rail", "gpu", "peer"}
	all["ALERTS_FOR_STATE"] = catalog.Row{Kind: "gauge", Labels: labels}
	all["ALERTS"] = catalog.Row{Kind: "gauge", Labels: append([]string{"alertstate"}, labels...)}
	return all
}
