package exporter

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// Info is what build_info tells.
type Info struct{ Version, Revision, GoVersion string }

// ownRows are the exporter's own metrics: rows like any other, so that lint and
// documentation see them too.
type ownRows struct {
	present, success, seconds, errors, build *collector.Metric
	scrape                                   *collector.Metric
	reloadOK, reloadTime                     *collector.Metric
	cpu, resident, started, goroutines       *collector.Metric
}

func newOwnRows() ownRows {
	source := []string{"source"}
	const here, client = "exporter/scraper.go", "Prometheus client library conventions, process metrics"
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
		errors:     counter("source_errors_total", "Reads that failed, by device and reason. reason=unsupported is a driver's way to say that a port has no such counter; it does not lower source_success.", here, "source", "device", "reason"),
		build:      gauge("build_info", "What is running; always 1.", here, "version", "revision", "goversion"),
		scrape:     gauge("scrape_seconds", "How long the reads for this scrape took, all sources side by side.", here),
		reloadOK:   gauge("config_last_reload_successful", "1 when the configuration that was last read is in force, 0 when it was refused and the one before it still is.", "exporter/server.go"),
		reloadTime: gauge("config_last_reload_success_timestamp_seconds", "When a configuration was last put in force, Unix time.", "exporter/server.go"),
		cpu:        counter("process_cpu_seconds_total", "Processor time that railscope has used, user and system.", client),
		resident:   gauge("process_resident_memory_bytes", "Memory that railscope has resident.", client),
		started:    gauge("process_start_time_seconds", "When railscope started, Unix time.", client),
		goroutines: gauge("go_goroutines", "Goroutines that there are. Rising without end means reads that never return.", client),
	}
}

func (r ownRows) all() []*collector.Metric {
	return []*collector.Metric{r.present, r.success, r.seconds, r.errors, r.build, r.scrape, r.reloadOK, r.reloadTime,
		r.cpu, r.resident, r.started, r.goroutines}
}

// status is what the exporter knows of itself.
type status struct {
	info     Info
	started  time.Time
	reloadOK bool
	reloaded time.Time
	statm    sysfs.File // /proc/self/statm
}

// emit emits the rows that are about railscope itself.
func (r ownRows) emit(st *status, took time.Duration, emit func(collector.Sample)) {
	put := func(m *collector.Metric, v float64, labels ...string) {
		emit(collector.Sample{Metric: m, Labels: labels, Value: v})
	}
	put(r.build, 1, st.info.Version, st.info.Revision, st.info.GoVersion)
	put(r.scrape, took.Seconds())
	put(r.reloadOK, oneIf(st.reloadOK))
	put(r.reloadTime, unixSeconds(st.reloaded))
	put(r.started, unixSeconds(st.started))
	put(r.goroutines, float64(runtime.NumGoroutine()))
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) == nil {
		put(r.cpu, time.Duration(ru.Utime.Nano()+ru.Stime.Nano()).Seconds())
	}
	if pages, err := residentPages(&st.statm); err == nil {
		put(r.resident, float64(pages)*float64(os.Getpagesize()))
	}
}

// residentPages reads the second number of statm (proc(5)).
func residentPages(f *sysfs.File) (uint64, error) {
	var buf [128]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0, fmt.Errorf("%s: no second field", f.Path)
	}
	return strconv.ParseUint(string(fields[1]), 10, 64)
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }
