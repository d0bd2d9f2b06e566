package blame

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/railscope/railscope/fleet/why"
	"github.com/railscope/railscope/test/check/fleetgen"
)

// jobStorage returns the history of a job, and its end. It ran on four of five nodes for an hour; a port of one of them
// went down meanwhile, and so its rail carried less. A node beside it, with a worse finding, is not the job's.
func jobStorage(t *testing.T) (*teststorage.TestStorage, time.Time) {
	t.Helper()
	var series strings.Builder
	const before, during, after = 30, 60, 30 // minutes
	for i := range 5 {
		node := fmt.Sprintf(`job="railscope", instance="gpu-%d:10091"`, i)
		if i < 4 {
			fmt.Fprintf(&series, "  railscope_process_queue_pairs{%s, rail=\"0\", container=\"slurm-4711\", comm=\"python\", "+
				"state=\"rts\"} _x%d 8x%d stale\n", node, before, during)
		}
		for rail := range 2 {
			rate := 3e11 // bytes per minute
			if i == 2 && rail == 1 {
				rate = 1e11
			}
			fmt.Fprintf(&series, "  railscope_port_transmit_bytes_total{%s, rail=\"%d\", device=\"mlx5_%d\"} 0x%d 0+%gx%d\n",
				node, rail, rail, before, rate, during+after)
			fmt.Fprintf(&series, "  railscope_rail_tcp_bytes_total{%s, rail=\"%d\", direction=\"transmit\"} 0+1e6x%d\n", node,
				rail, before+during+after)
			if i < 4 && rail == 0 {
				fmt.Fprintf(&series, "  railscope_process_job_rail_bytes_total{%s, rail=\"%d\", direction=\"transmit\", "+
					"container=\"slurm-4711\", comm=\"python\"} _x%d 0+3e11x%d stale\n", node, rail, before, during)
			}
		}
	}
	series.WriteString(`  railscope_finding{job="railscope", instance="gpu-2:10091", check="port_down", severity="critical", subject="rail 1", rail="1"} _x50 1x10 stale
  railscope_finding{job="railscope", instance="gpu-4:10091", check="rail_missing", severity="critical", subject="rail 0", rail="0"} 1x120
`)
	return promqltest.LoadedStorage(t, "load 1m\n"+series.String()), time.Unix((before+during+after)*60, 0)
}

// TestWhy: Prometheus' engine answers the questions about a job.
func TestWhy(t *testing.T) {
	storage, now := jobStorage(t)
	defer storage.Close()
	api := fleetgen.NewAPI(storage, now)
	defer api.Close()
	job, err := why.NewJob("4711")
	if err != nil {
		t.Fatal(err)
	}
	for _, selector := range []string{"", `job="railscope"`} {
		data, err := why.Ask(t.Context(), job, selector, now, 7*24*time.Hour, api.Ask)
		if err != nil {
			t.Fatal(err)
		}
		ranAsPlanted(t, why.Judge(data))
	}
}

// ranAsPlanted checks what was found of the job of jobStorage.
func ranAsPlanted(t *testing.T, r why.Report) {
	t.Helper()
	if len(r.Failed) > 0 || len(r.Nodes) != 4 || r.Running || len(r.Findings) != 1 {
		t.Fatalf("%+v", r)
	}
	if took := r.To.Sub(r.From); took < 55*time.Minute || took > 66*time.Minute {
		t.Errorf("from %v to %v", r.From, r.To)
	}
	if since := r.Findings[0].From.Sub(r.From); since < 18*time.Minute || since > 22*time.Minute {
		t.Errorf("found %v after the job began", since)
	}
	if !strings.HasPrefix(r.Cause, "port_down on gpu-2: rail 1 (from ") || len(r.Also) != 1 ||
		!strings.HasPrefix(r.Also[0], "rail 1 of gpu-2 carried 0.3") {
		t.Errorf("%q, also %q", r.Cause, r.Also)
	}
	for _, n := range r.Nodes {
		for _, u := range n.Rails {
			if u.Bytes == nil || u.TCP == nil || u.Peak == nil || (u.JobBytes != nil) != (u.Rail == "0") {
				t.Errorf("%s rail %s: %+v", n.Name, u.Rail, u)
			}
		}
	}
}
