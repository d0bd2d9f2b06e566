package main

import (
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/test/faults"
)

// TestJobTraffic: the traffic of jobs over rails is known if both the sampler and the source of processes are
// enabled.
func TestJobTraffic(t *testing.T) {
	t.Parallel()
	all := faults.List()
	f := all[slices.IndexFunc(all, func(f faults.Fault) bool { return f.Name == "a job on 1 of 3 rails" })]
	const counters = "sys/devices/pci0000:10/0000:10:01.0/0000:1a:00.0/infiniband/mlx5_0/ports/1/counters/"
	f.Before = counters + "port_rcv_data = 1000; " + counters + "port_xmit_data = 1000"
	n := serveCaptured(t, f)
	runTasks(t, n.Tasks(), "source sampler")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		rails := map[string]bool{}
		n.Scraper.Update(nil, 0, func(series *table.Table, _ map[string]string) {
			series.Each("process_job_rail_bytes_total", []string{"rail"}, func(values []string, _ float64) {
				rails[values[0]] = true
			})
		})
		if rails["0"] && len(rails) == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("bytes of jobs on rails %v, want rail 0", rails)
		}
	}
}
