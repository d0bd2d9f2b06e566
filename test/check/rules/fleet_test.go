package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/railscope/railscope/test/check/fleetgen"
)

// The nodes with a fault in a fleet that has two.
const slowNode, deadNode = 17, 23

// twoBad is a fleet in which rail 3 of one node carries half to every peer, and from every asker, and the probe of
// another one answers nobody and reaches nobody.
type twoBad struct{ fleetgen.World }

// Path is slow where either end is.
func (twoBad) Path(n, to, rail int, _ float64) (float64, bool) {
	if rail == 3 && (n == slowNode || to == slowNode) {
		return 0.47, true
	}
	return 0.94, true
}

// Transport is none where either end is dead.
func (twoBad) Transport(n, to int, _ float64) string {
	if n == deadNode || to == deadNode {
		return "none"
	}
	return "rdma"
}

// newFleet returns a fleet until a time, of which only the series that rules read are stored, as far back as they do.
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

// without drops metrics by prefix.
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

// The metrics of GPUs and of latencies, which most tests of rules do without.
const gpuMetrics, latencyMetrics = "railscope_gpu_", "railscope_probe_latency_"

// database is a storage without a log, which is removed when the test ends.
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
