package dashboards

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/railscope/railscope/test/check/catalog"
)

// TestPeers: every value of the probe shows its peer, unless its metric has none.
func TestPeers(t *testing.T) {
	known, a := rows(t), newAsker(t, keeps{classic: true})
	each(t, "provisioning", func(t *testing.T, d dashboard, p panel) {
		if d.UID != "railscope-probe" || p.Repeat == "peer" && strings.Contains(p.Title, "$peer") {
			return
		}
		for _, q := range p.Targets {
			if !ofPeers(t, known, q) {
				continue
			}
			series := a.ask(t, p, q).series
			for _, s := range series {
				if s.Get("peer") == "" {
					t.Errorf("%s is of no peer: %s", s, q.Expr)
				}
			}
			if p.Type != "table" && !strings.Contains(q.LegendFormat, "{{peer}}") {
				t.Errorf("legend %q names no peer", q.LegendFormat)
			}
			if p.Type == "stat" && (len(series) != 1 || p.Options.TextMode != "value_and_name") {
				t.Errorf("does not show the one peer that it is of: %s", q.Expr)
			}
		}
		if p.Type != "table" {
			return
		}
		last := p.Transformations[len(p.Transformations)-1]
		if renamed, _ := last.Options["renameByName"].(map[string]any); renamed["peer"] != "Peer" {
			t.Error("has no column Peer")
		}
	})
}

// ofPeers reports whether a query uses a metric with a label peer.
func ofPeers(t *testing.T, known map[string]catalog.Row, q target) bool {
	t.Helper()
	found := false
	parser.Inspect(parse(t, q.Expr), func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			r, _ := catalog.Find(known, v.Name)
			found = found || slices.Contains(r.Labels, "peer")
		}
		return nil
	})
	return found
}
