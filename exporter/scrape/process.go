package scrape

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/railscope/railscope/collector"
)

// process has the standard metrics of the process, by client_golang. Its two of the network are left out: they are
// of the network namespace, which is the node's.
type process struct {
	gatherer prometheus.Gatherer
	rows     map[string]*collector.Metric // by name
	samples  []collector.Sample
	read     time.Time // when samples were read
}

// processEvery is how long the process' samples are kept: reading them takes half a millisecond.
const processEvery = time.Second

func newProcess(gatherer prometheus.Gatherer) *process {
	if gatherer == nil {
		reg := prometheus.NewRegistry()
		reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines"},
				func() float64 { return float64(runtime.NumGoroutine()) }))
		gatherer = reg
	}
	p := &process{gatherer: gatherer, rows: map[string]*collector.Metric{}}
	row := func(kind collector.Kind, name, help string) {
		p.rows[name] = &collector.Metric{Name: name, Kind: kind, Help: help,
			Ref: "Prometheus client library conventions, process metrics"}
	}
	row(collector.Counter, "process_cpu_seconds_total", "CPU time that railscope has used, user and system.")
	row(collector.Gauge, "process_open_fds", "File descriptors that railscope has open.")
	row(collector.Gauge, "process_max_fds", "Limit on railscope's open file descriptors.")
	row(collector.Gauge, "process_resident_memory_bytes", "Resident memory of railscope.")
	row(collector.Gauge, "process_start_time_seconds", "When railscope started, Unix time.")
	row(collector.Gauge, "go_goroutines",
		"Goroutines of railscope. A number that keeps rising means reads that never return.")
	return p
}

// emit emits what is known. What the kernel does not say is absent.
func (p *process) emit(now time.Time, emit func(collector.Sample)) {
	if now.Sub(p.read) >= processEvery {
		p.read, p.samples = now, p.samples[:0]
		families, _ := p.gatherer.Gather() // with an error, what could be gathered
		for _, f := range families {
			row := p.rows[f.GetName()]
			if row == nil || len(f.GetMetric()) != 1 {
				continue
			}
			m := f.GetMetric()[0] // a counter or a gauge
			p.samples = append(p.samples, collector.Sample{Metric: row, Value: m.GetCounter().GetValue() + m.GetGauge().GetValue()})
		}
	}
	for _, s := range p.samples {
		emit(s)
	}
}
