package scrape

import (
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/table"
)

// Info is what build_info tells, and whether nothing of what is told is real.
type Info struct {
	Version, Revision, GoVersion string
	Demo                         bool // the figures are those of the demo
}

// ownRows are the exporter's own metrics: rows like any other, so that lint and
// documentation see them too.
type ownRows struct {
	present, success, seconds, errors, build *collector.Metric
	demo                                     *collector.Metric
	scrape                                   *collector.Metric
	refused                                  *collector.Metric
	reloadOK, reloadTime, stateOK            *collector.Metric
}

func newOwnRows() ownRows {
	source := []string{"source"}
	const here = "exporter/scraper.go"
	gauge := func(name, help, ref string, labels ...string) *collector.Metric {
		return &collector.Metric{Name: name, Kind: collector.Gauge, Help: help, Ref: ref, Labels: labels}
	}
	counter := func(name, help, ref string, labels ...string) *collector.Metric {
		return &collector.Metric{Name: name, Kind: collector.Counter, Help: help, Ref: ref, Labels: labels}
	}
	return ownRows{
		present:    gauge("source_present", "1 when the machine has hardware for the source, 0 when it has none: then there are no series, and nothing is wrong.", here, source...),
		success:    gauge("source_success", "1 when everything that the source should read was read. What could be read is exported either way.", here, source...),
		seconds:    gauge("source_read_seconds", "How long the last read of the source took, or has taken so far when it has not returned.", here, source...),
		errors:     counter("source_errors_total", "Reads that failed, by device and reason. reason=unsupported is a driver's way to say that a port has no such counter; it does not lower source_success. A device's series go an hour after it was last there.", here, "source", "device", "reason"),
		build:      gauge("build_info", "What is running; always 1.", here, "version", "revision", "goversion"),
		demo:       gauge("demo", "1 where railscope demo made this up: rails that are shaped TCP connections of one machine, GPUs that are none. There is no series anywhere else.", "docs/demo.md"),
		scrape:     gauge("scrape_seconds", "How long the reads for this scrape took, all sources side by side.", here),
		refused:    counter("web_refused_total", "Clients that the web port refused: connections (--web.max-connections are open), address (one address has half of them), timeout (a request did not arrive, or an answer was not read, in time), streams (50 live pages are open), body (the request had a large one), cross_site (a page of another site asked for a reload).", "exporter/refusals.go", "reason"),
		reloadOK:   gauge("config_last_reload_successful", "1 when the configuration that was last read is in force, 0 when it was refused and the one before it still is.", "exporter/server.go"),
		reloadTime: gauge("config_last_reload_success_timestamp_seconds", "When a configuration was last put in force, Unix time.", "exporter/server.go"),
		stateOK:    gauge("state_saved", "1 while what is to be remembered is saved in --state.dir, 0 while it is only in memory: the log says why. Absent without --state.dir.", "docs/rails.md"),
	}
}

func (r ownRows) all() []*collector.Metric {
	return []*collector.Metric{r.present, r.success, r.seconds, r.errors, r.build, r.demo, r.scrape, r.refused, r.reloadOK, r.reloadTime,
		r.stateOK}
}

// status is what the exporter knows of itself.
type status struct {
	info     Info
	reloadOK bool
	reloaded time.Time
	state    func() error // nil: there is none
}

// emit emits the rows that are about railscope itself.
func (r ownRows) emit(st *status, took time.Duration, emit func(collector.Sample)) {
	put := func(m *collector.Metric, v float64, labels ...string) {
		emit(collector.Sample{Metric: m, Labels: labels, Value: v})
	}
	put(r.build, 1, st.info.Version, st.info.Revision, st.info.GoVersion)
	if st.info.Demo {
		put(r.demo, 1)
	}
	put(r.scrape, took.Seconds())
	put(r.reloadOK, collector.Bool(st.reloadOK))
	put(r.reloadTime, table.UnixSeconds(st.reloaded))
	if st.state != nil {
		put(r.stateOK, collector.Bool(st.state() == nil))
	}
}
