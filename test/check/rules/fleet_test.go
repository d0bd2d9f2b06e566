package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/railscope/railscope/test/check/fleetgen"
)

// The two nodes with a fault in a fleet.
const slowNode, deadNode = 17, 23

// twoBad is a fleet in which rail 3 of one node has half the goodput with every peer, in both directions, and the
// probe of another node neither answers nor reaches any node.
type twoBad struct{ fleetgen.World }

// Path is slow if either end is.
func (twoBad) Path(n, to, rail int, _ float64) (float64, bool) {
	if rail == 3 && (n == slowNode || to == slowNode) {
		return 0.47, true
	}
	return 0.94, true
}

// Transport is none if either end is dead.
func (twoBad) Transport(n, to int, _ float64) string {
	if n == deadNode || to == deadNode {
		return "none"
	}
	return "rdma"
}

// newFleet returns a fleet until a time. It has only the series that rules read, as far back as they read them.
func newFleet(t *testing.T, w fleetgen.World, nodes int, end time.Time) *fleetgen.Fleet {
	t.Helper()
	needs, err := fleetgen.NeedsOfRules(source)
	if err != nil {
		t.Fatal(err)
	}
	template, err := fleetgen.ReadTemplate("../../../exporter/testdata/hgx.prom")
	if err != nil {
		t.Fatal(err)
	}
	return &fleetgen.Fleet{World: w, Nodes: nodes, Begin: end, From: -24 * time.Hour, Every: time.Minute, Needs: needs,
		Template: template}
}

// store writes a fleet.
func store(t *testing.T, f *fleetgen.Fleet, db *tsdb.DB) {
	t.Helper()
	if err := f.Store(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

// without returns a filter that drops metrics by prefix.
func without(prefixes ...string) func(string) bool {
	return func(metric string) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(metric, p) {
				return true
			}
		}
		return false
	}
}

// Metrics of GPUs and of latencies, which most tests of rules do not need.
const gpuMetrics, latencyMetrics = "railscope_gpu_", "railscope_probe_latency_"

// database returns a storage without a write-ahead log, which is removed when the test ends.
func database(t *testing.T) *tsdb.DB {
	t.Helper()
	o := tsdb.DefaultOptions()
	o.WALSegmentSize = -1
	o.OutOfOrderTimeWindow = (2 * time.Hour).Milliseconds()
	o.MinBlockDuration, o.MaxBlockDuration = (48 * time.Hour).Milliseconds(), (48 * time.Hour).Milliseconds()
	db, err := tsdb.Open(t.TempDir(), promslog.NewNopLogger(), nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
