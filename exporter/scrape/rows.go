package scrape

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/internal/sysfs"
)

// Info has the labels of build_info.
type Info struct {
	Version, Revision, GoVersion string
	Demo                         bool // all values are simulated
}

// rows are the exporter's own metrics, in rows like all others, for lint and documentation.
type rows struct {
	collector.Table
	source                                     struct{ present, success, seconds, errors *collector.Metric }
	build, demo, scrape, refused               *collector.Metric
	reloadOK, reloadTime, stateOK, maintenance *collector.Metric
	finding, more, fact                        *collector.Metric
}

func newRows() *rows {
	r := &rows{}
	own := r.Group("exporter/scrape/scraper.go")
	source := own.With("source")
	r.source.present = source.Gauge("source_present",
		"1 when the machine has hardware for the source, 0 when it has none: no series, and no fault.")
	r.source.success = source.Gauge("source_success",
		"1 if the last read of the source succeeded completely, 0 if it failed in part or in full.")
	r.source.seconds = source.Gauge("source_read_seconds",
		"Duration of the last read of the source, or of the current one while it has not returned.")
	r.source.errors = source.With("device", "reason").Counter("source_errors_total",
		"Read errors by device and reason. "+
			"reason=unsupported: the driver has no such counter for the port; it does not lower source_success. A "+
			"device's series are dropped 24 hours after its last error; device=other: more than 256 of a source.")
	r.build = own.With("version", "revision", "goversion").Gauge("build_info", "Version of railscope; always 1.")
	r.demo = own.Ref("docs/demo.md").Gauge("demo", "1 when all data is simulated by railscope demo: rails are shaped "+
		"TCP connections within one machine, GPUs do not exist. Absent otherwise.")
	r.scrape = own.Gauge("scrape_seconds", "Duration of the reads for this scrape, all sources in parallel.")
	r.refused = own.With("reason").Ref("exporter/scrape/rows.go").Counter("web_refused_total", "Clients that the web "+
		"port refused. connections: --web.max-connections are open. address: one address has half of them. timeout: "+
		"a request did not arrive, or an answer was not read, in time. streams: 50 live pages are open. body: the "+
		"request body was too large. cross_site: a page of another site requested a reload. login: a password was "+
		"not checked, as too many from its address were wrong.")
	reload := own.Ref("exporter/http/server.go")
	r.reloadOK = reload.Gauge("config_last_reload_successful",
		"1 when the last configuration was applied, 0 when it was refused and the previous one is still active.")
	r.reloadTime = reload.Gauge("config_last_reload_success_timestamp_seconds",
		"When a configuration was last applied, Unix time.")
	r.stateOK = own.Ref("docs/rails.md").Gauge("state_saved", "1 while the state is saved in --state.dir, 0 while it "+
		"is in memory only: the log says why. Absent without --state.dir.")
	r.maintenance = own.Ref("docs/maintenance.md").Gauge("maintenance", "1 while the maintenance file exists: no "+
		"round starts, and NVML is released. Absent in the demo.")
	found := own.Ref("docs/doctor.md")
	r.finding = found.With("check", "severity", "subject", "rail").Gauge("finding", "1 while a finding is active: "+
		"raised by 2 consecutive examinations, or 2 readings of a hard fact, and cleared by 3. The node is examined "+
		"every minute, a peer by each round. severity: critical, warning or info. rail is empty unless the subject "+
		"is one rail. Silenced findings have no series.")
	r.fact = own.Ref("docs/drift.md").With("subject", "value").Gauge("node_fact_info", "What nodes of one role should "+
		"have in common, always 1: railscope fleet drift compares it. Read every minute. Absent: not known.")
	r.more = found.Gauge("findings_dropped", "Findings beyond the 256 that have series, the least severe ones.")
	return r
}

// complete returns the rows whose series are all set by every read, whatever sources it reads.
func (r *rows) complete() []*collector.Metric {
	return slices.DeleteFunc(slices.Clone(r.Metrics()), func(m *collector.Metric) bool {
		return m == r.source.present || m == r.source.success || m == r.source.seconds
	})
}

// only selects the series of these sources, without the late ones, and railscope's own series except those about
// other sources.
func (r *rows) only(names, late []string, sources map[string]collector.Source,
) func(*collector.Metric, []string) bool {
	wanted := map[*collector.Metric]bool{}
	for _, m := range r.Metrics() {
		wanted[m] = true
	}
	for _, name := range names {
		if slices.Contains(late, name) {
			continue
		}
		for _, m := range sources[name].Metrics() {
			wanted[m] = true
		}
	}
	// The first label of these is source.
	about := []*collector.Metric{r.source.present, r.source.success, r.source.seconds, r.source.errors}
	return func(m *collector.Metric, labels []string) bool {
		return wanted[m] && (!slices.Contains(about, m) || slices.Contains(names, labels[0]))
	}
}

func (s *Scraper) emitOwn(took time.Duration) {
	r, o := s.rows, &s.opts
	s.set(r.build, 1, o.Info.Version, o.Info.Revision, o.Info.GoVersion)
	if o.Info.Demo {
		s.set(r.demo, 1)
	}
	s.set(r.scrape, took.Seconds())
	if !o.Once {
		s.set(r.reloadOK, collector.Bool(s.reloadOK))
		s.set(r.reloadTime, table.UnixSeconds(s.reloaded))
		s.refused.Each(func(reason string, n uint64) { s.set(r.refused, float64(n), reason) })
	}
	if o.State != nil {
		s.set(r.stateOK, collector.Bool(o.State() == nil))
	}
	if o.Findings != nil {
		list, more := o.Findings()
		for _, f := range list {
			if f.Silenced == "" {
				s.set(r.finding, 1, f.Check, string(f.Severity), f.Subject, f.Rail())
			}
		}
		s.set(r.more, float64(more))
	}
	if o.Facts != nil {
		for _, fact := range o.Facts() {
			s.set(r.fact, 1, fact.Subject, fact.Value)
		}
	}
	if o.Maintenance != nil {
		s.set(r.maintenance, collector.Bool(o.Maintenance()))
	}
	for key, c := range s.faults.counts {
		s.set(r.source.errors, float64(c.n), key.source, key.device, key.reason)
	}
}

// Reasons for the web port to refuse a client, in addition to those of connlimit.
const (
	RefusedBody      = "body"       // the request body is too large
	RefusedCrossSite = "cross_site" // a page of another site requested a reload
	RefusedStreams   = "streams"    // too many live pages are open
	RefusedLogin     = "login"      // too many passwords from the address were wrong
)

// newRefusals counts refused clients, and logs the first of each reason.
func newRefusals(logger *slog.Logger) *connlimit.Refusals {
	fix := map[string]string{
		connlimit.Connections: "find out who opens the connections; the limit is --web.max-connections",
		connlimit.Address:     "raise --web.max-connections if a proxy uses this address: one may open half of them",
		connlimit.Timeout:     "send a request within 10 s and read its answer within 60 s",
		RefusedBody:           "send no request body",
		RefusedCrossSite:      "request the reload from outside a browser",
		RefusedStreams:        "close a live page",
		RefusedLogin:          "correct the password of this client, or block its address",
	}
	return connlimit.NewRefusals(func(reason, address string) {
		logger.Warn("Web port refused a client (logged once until it stops)",
			"reason", reason, "address", address, "fix", fix[reason])
	}, slices.Sorted(maps.Keys(fix))...)
}

// Refuse counts a client that the web port refused.
func (s *Scraper) Refuse(reason, address string) { s.refused.Count(reason, address) }

// process reads the standard metrics of the process with client_golang. It omits network metrics, which cover the
// whole network namespace, and virtual memory, which is meaningless for a Go program.
type process struct {
	gatherer prometheus.Gatherer
	rows     map[string]*collector.Metric // keyed by name
	samples  []collector.Sample
	until    time.Time // samples are read again after this time
}

// processEvery is the interval of reads: one read takes up to half a millisecond, and more on large nodes.
const processEvery = 5 * time.Second

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

// read returns the known values. Values that the kernel does not report are absent.
func (p *process) read(now time.Time) []collector.Sample {
	if now.Before(p.until) {
		return p.samples
	}
	p.until, p.samples = now.Add(processEvery), p.samples[:0]
	families, _ := p.gatherer.Gather() // with an error, families has what could be gathered
	for _, f := range families {
		if row := p.rows[f.GetName()]; row != nil && len(f.GetMetric()) == 1 {
			m := f.GetMetric()[0] // a counter or a gauge; the other one is 0
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			p.samples = append(p.samples, collector.Sample{Metric: row, Value: v})
		}
	}
	return p.samples
}

const (
	// overAfter is the time without a fault after which it counts as over. It is longer than the pause after a
	// refused file.
	overAfter = 3 * time.Minute
	// Limits of the series of devices: interfaces of containers come and go by the thousand, with new names.
	faultsKeep = 24 * time.Hour // after the last fault
	maxFaults  = 256            // per source
	// enoughDescriptors is several times the number that the largest nodes need.
	enoughDescriptors = 65536
)

// faults counts the faults of sources, and logs the start and the end of each. Not safe for concurrent use.
type faults struct {
	logger *slog.Logger
	counts map[faultKey]*faultCount
	scarce time.Time // time at which descriptors were last scarce
}

type faultKey struct{ source, device, reason string }

type faultCount struct {
	n    uint64
	last time.Time
	open bool // not over yet
}

// add counts a fault, and logs a new one. Devices beyond the limit of their source are counted as other.
func (s *faults) add(source string, f *collector.Fault) {
	key := faultKey{source, f.Device, f.Reason}
	if s.counts[key] == nil && f.Device != "" && s.devices(source) >= maxFaults {
		key.device = "other"
	}
	c := s.counts[key]
	if c == nil {
		c = &faultCount{}
		s.counts[key] = c
	}
	if !c.open {
		text, _, _ := strings.Cut(f.Error(), "\n") // without the stack of a panic
		s.logger.Warn("Read failed (logged once until it changes)", "collector", source, "device", f.Device,
			"reason", f.Reason, "expected", f.Expected, "err", text)
	}
	c.n, c.last, c.open = c.n+1, time.Now(), true
}

func (s *faults) devices(source string) (n int) {
	for key := range s.counts {
		if key.source == source && key.device != "" {
			n++
		}
	}
	return n
}

func (s *faults) review(now time.Time) {
	for key, c := range s.counts {
		quiet := now.Sub(c.last)
		if c.open && quiet > overAfter {
			c.open = false
			s.logger.Info("Read succeeds again", "collector", key.source, "device", key.device, "reason", key.reason)
		}
		if key.device != "" && quiet >= faultsKeep {
			delete(s.counts, key)
		}
	}
	s.descriptors(now)
}

// descriptors logs that files are no longer kept open, which costs CPU time, and what to do.
func (s *faults) descriptors(now time.Time) {
	scarce, limit := sysfs.FewDescriptors()
	if !scarce {
		return
	}
	if now.Sub(s.scarce) > overAfter {
		s.logger.Warn("File descriptors are scarce: device files are reopened for every read", "limit", limit,
			"fix", fmt.Sprintf("raise the limit to %d: LimitNOFILE= of the unit, or ulimit -n",
				max(2*limit, enoughDescriptors)))
	}
	s.scarce = now
}
