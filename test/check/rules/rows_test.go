package rules

import (
	"slices"
	"testing"

	"github.com/railscope/railscope/test/check/catalog"
)

// rows returns the metrics by name, with their labels in Prometheus: labels that a target already has are renamed.
func rows(t *testing.T) map[string]catalog.Row {
	t.Helper()
	all, err := catalog.Read("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	// metrics of kube-state-metrics
	all["kube_node_spec_unschedulable"] = catalog.Row{Kind: "gauge", Labels: []string{"node"}}
	for name, r := range all {
		for _, l := range r.Labels {
			if slices.Contains([]string{"job", "instance", "pod", "container"}, l) {
				r.Labels = append(r.Labels, "exported_"+l)
			}
		}
		all[name] = r
	}
	return all
}

// ofTarget are the labels that a series has from its target; cluster is optional.
var ofTarget = []string{"cluster", "job", "instance"}

// has reports whether series of the row can have the label.
func has(r catalog.Row, label string) bool {
	return slices.Contains(r.Labels, label) || slices.Contains(ofTarget, label)
}
