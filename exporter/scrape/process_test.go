package scrape

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/railscope/railscope/collector"
)

// TestProcess: the rows have the values of this process, which are read every 5 s at most.
func TestProcess(t *testing.T) {
	p := newProcess(&collector.Table{}, nil)
	got := map[string]float64{}
	read := func(now time.Time) {
		for _, s := range p.read(now) {
			got[s.Metric.Name] = s.Value
		}
	}
	start := time.Now()
	read(start)
	for name := range p.rows {
		if _, ok := got[name]; !ok || got[name] < 0 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	if started := time.Unix(int64(got["process_start_time_seconds"]), 0); time.Since(started) > time.Hour {
		t.Errorf("started %v", started)
	}
	if got["process_open_fds"] > got["process_max_fds"] {
		t.Errorf("%v descriptors of %v", got["process_open_fds"], got["process_max_fds"])
	}
	const never = 1e12 // descriptors are never scarce
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "process_open_fds"},
		func() float64 { return never }))
	p.gatherer = reg
	read(start.Add(processEvery - 1))
	if got["process_open_fds"] == never {
		t.Error("the kernel was asked again too early")
	}
	read(start.Add(processEvery))
	if got["process_open_fds"] != never {
		t.Error("the kernel was not asked again")
	}
}
