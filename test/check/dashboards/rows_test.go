package dashboards

import (
	"testing"

	"github.com/railscope/railscope/deploy/rules"
	"github.com/railscope/railscope/test/check/catalog"
)

// rows returns the metrics by name, including those that Prometheus adds and that rules record.
func rows(t *testing.T) map[string]catalog.Row {
	t.Helper()
	all, err := catalog.Read("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	labels := []string{"alertname", "severity", "fault", "check", "rail", "gpu", "peer"}
	all["ALERTS_FOR_STATE"] = catalog.Row{Kind: "gauge", Labels: labels}
	all["ALERTS"] = catalog.Row{Kind: "gauge", Labels: append([]string{"alertstate"}, labels...)}
	recorded, err := rules.Load("../../../deploy/rules")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recorded {
		if r.Record != "" {
			all[r.Record] = catalog.Row{Kind: "gauge", Labels: []string{"fault", "severity", "check", "reason", "rail",
				"device", "port", "peer", "leaf", "firmware", "by", "quantile", "kind"}}
		}
	}
	return all
}
