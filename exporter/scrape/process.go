package scrape

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/railscope/railscope/collector"
)

// process reads the standard metrics of the process by client_golang. Those of the network are left out, since they
// count the whole network namespace, and those of virtual memory, which mean nothing for a Go program.
type process struct {
	gatherer prometheus.Gatherer
	rows     map[string]*collector.Metric // by name
	samples  []collector.Sample
	until    time.Time // when samples are read again
}

// processEvery is how long the samples are kept: reading them takes up to half a millisecond, and more on large nodes.
const processEvery = 5 * time.Second

// newProcess returns the reader of this process, or of gatherer, and adds its rows to a table.
func newProcess(t *collector.Table, gatherer prometheus.Gatherer) *process {
	if gatherer == nil {
		reg := prometheus.NewRegistry()
		reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines"},
				func() float64 { return float64(runtime.NumGoroutine()) }))
		gatherer = reg
	}
	p := &process{gatherer: gatherer, rows: map[string]*collector.Metric{}}
	g := t.Group("Prometheus client library conventions, process metrics")
	for _, m := range []*collector.Metric{
		g.Counter("process_cpu_seconds_total", "CPU time of railscope, user and system."),
		g.Gauge("process_open_fds", "Open file descriptors of railscope."),
		g.Gauge("process_max_fds", "Limit on open file descriptors of railscope."),
		g.Gauge("process_resident_memory_bytes", "Resident memory of railscope."),
		g.Gauge("process_start_time_seconds", "When railscope started, Unix time."),
		g.Gauge("go_goroutines", "Goroutines of railscope. A number that keeps rising means reads that never return."),
	} {
		p.rows[m.Name] = m
	}
	return p
}

// read returns what is known. What the kernel does not report is absent.
func (p *process) read(now time.Time) []collector.Sample {
	if now.Before(p.until) {
		return p.samples
	}
	p.until, p.samples = now.Add(processEvery), p.samples[:0]
	families, _ := p.gatherer.Gather() // with an error, what could be gathered
	for _, f := range families {
		if row := p.rows[f.GetName()]; row != nil && len(f.GetMetric()) == 1 {
			m := f.GetMetric()[0] // a counter or a gauge; the other one is 0
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			p.samples = append(p.samples, collector.Sample{Metric: row, Value: v})
		}
	}
	return p.samples
}
