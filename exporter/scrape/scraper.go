// Package scrape reads the sources, each within a time budget, and makes an exposition of what they emit: values,
// health and faults of the sources, and the exporter's own state.
package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sync/singleflight"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/lane"
)

// Options are what a [Scraper] needs besides its sources.
type Options struct {
	Budget time.Duration // how long a scrape waits for a source
	Logger *slog.Logger
	Info   Info
	// Process has the standard metrics of this process; nil reads them.
	Process prometheus.Gatherer
	// Once is that the process ends after one exposition, which has nothing about the process then. Another program may
	// export it beside its own metrics: two process_start_time_seconds would fail the whole scrape.
	Once bool
	// State returns the error with which the state directory was last saved; nil: there is no state directory.
	State func() error
	// Findings returns the findings that stand, and how many more there are; nil: nothing examines the node.
	Findings func() (list []finding.Raised, more int)
	// Maintenance returns whether the maintenance file exists; nil: there is none to check.
	Maintenance func() bool
}

// Scraper reads the sources on request, each at most once at a time, for all callers. Safe for concurrent use.
type Scraper struct {
	opts    Options
	list    []collector.Source
	names   []string // of list
	sources map[string]collector.Source
	buffers map[string]*sync.Pool // source → memory of earlier reads, []collector.Sample
	rows    *rows
	lanes   lane.Group[result]
	refused *connlimit.Refusals
	flights singleflight.Group // of expositions, by format and compression

	reading sync.Mutex // one read at a time; held while sources are waited for, and locked before mu

	mu       sync.Mutex // protects all following fields; no source is waited for under it
	table    *table.Table
	text     []byte // the last exposition; its memory is reused
	zip      *gzip.Writer
	faults   faults
	failed   map[string]string // source → why its last read failed, as in source_errors_total
	read     map[string]time.Time
	reloadOK bool
	reloaded time.Time
	process  *process
}

type result struct {
	samples []collector.Sample
	err     error
	took    time.Duration
}

// HistogramSource is a source that keeps histograms besides what it emits.
type HistogramSource interface {
	Histograms() map[*collector.Metric]table.Histograms
}

// New returns a scraper of the sources, whose rows have different names.
func New(sources []collector.Source, opts Options) *Scraper {
	s := &Scraper{opts: opts, list: sources, refused: newRefusals(opts.Logger), sources: map[string]collector.Source{},
		buffers: map[string]*sync.Pool{}, rows: newRows(), failed: map[string]string{},
		read:     map[string]time.Time{},
		faults:   faults{logger: opts.Logger, counts: map[faultKey]*faultCount{}},
		reloadOK: true, reloaded: time.Now()}
	s.process = newProcess(&s.rows.Table, opts.Process)
	rows, histograms := s.OwnRows(), map[*collector.Metric]table.Histograms{}
	for _, src := range sources {
		s.sources[src.Name()] = src
		s.buffers[src.Name()] = new(sync.Pool)
		s.names = append(s.names, src.Name())
		rows = slices.Concat(rows, src.Metrics())
		if h, ok := src.(HistogramSource); ok {
			maps.Copy(histograms, h.Histograms())
		}
	}
	s.table = table.New(rows, histograms)
	s.zip, _ = gzip.NewWriterLevel(io.Discard, gzip.StatelessCompression) // the level is valid
	return s
}

// OwnRows returns the rows about railscope itself.
func (s *Scraper) OwnRows() []*collector.Metric { return s.rows.Metrics() }

// Sources returns the sources, in the order given.
func (s *Scraper) Sources() []collector.Source { return s.list }

// Info returns the labels of build_info.
func (s *Scraper) Info() Info { return s.opts.Info }

// Alive returns when no scrape is in progress: within the budget, unless the scraper is stuck. The watchdog calls it.
func (s *Scraper) Alive() {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
}

// Maintenance reports whether the maintenance file exists.
func (s *Scraper) Maintenance() bool { return s.opts.Maintenance != nil && s.opts.Maintenance() }

// Reading returns the sources that are being read now.
func (s *Scraper) Reading() []string { return slices.Sorted(slices.Values(s.lanes.Busy())) }

// Reloaded records whether the configuration that was just read is applied.
func (s *Scraper) Reloaded(ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reloadOK = ok
	if ok {
		s.reloaded = time.Now()
	}
}

// Update reads the sources of these names that were not read for age, and passes all series to view, which keeps
// nothing of them. failed has why sources failed, as in source_errors_total: errors name processes and files.
func (s *Scraper) Update(names []string, age time.Duration, view func(series *table.Table, failed map[string]string)) {
	s.reading.Lock()
	defer s.reading.Unlock()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return s.sources[name] == nil || age > 0 && s.fresh(name, age)
	})
	s.readAll(names, s.opts.Budget, func() { view(s.table, s.failed) })
}

// View passes the series of the last reads to view, which keeps nothing of them, with why sources failed, and when each
// was read. It waits for no source.
func (s *Scraper) View(view func(series *table.Table, failed map[string]string, read map[string]time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	view(s.table, s.failed, s.read)
}

func (s *Scraper) fresh(name string, age time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.read[name]) < age
}

// readAll reads these sources in parallel, nil is all, updates the table, and calls then before it is unlocked. It
// waits at most the budget for each source. s.reading is locked.
func (s *Scraper) readAll(names []string, budget time.Duration, then func()) {
	start := time.Now()
	var rows []*collector.Metric // nil: all
	if names == nil {
		names = s.names
	} else {
		rows = s.rows.complete()
		for _, name := range names {
			rows = append(rows, s.sources[name].Metrics()...)
		}
	}
	results := s.lanes.Run(budget, names, s.readSource)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.Begin(rows)
	for _, r := range results {
		s.read[r.Key] = start
		if r.Err != nil {
			r.Value = result{took: time.Since(r.Since),
				err: collector.LaneFault("", r.State, fmt.Errorf("source %s: %w", r.Key, r.Err))}
		}
		s.accept(r.Key, r.Value)
	}
	s.faults.review(start)
	s.emitOwn(time.Since(start))
	if !s.opts.Once {
		for _, sample := range s.process.read(start) {
			s.table.Set(sample)
		}
	}
	s.table.End()
	then()
}

// readSource runs in the source's lane. It gathers the samples, so that a source that returns late cannot write
// anywhere.
func (s *Scraper) readSource(name string) result {
	var r result
	start := time.Now()
	if buffer, ok := s.buffers[name].Get().([]collector.Sample); ok {
		r.samples = buffer[:0]
	}
	r.err = s.sources[name].Read(func(sample collector.Sample) { r.samples = append(r.samples, sample) })
	r.took = time.Since(start)
	return r
}

func (s *Scraper) accept(name string, r result) {
	delete(s.failed, name)
	present := !errors.Is(r.err, collector.ErrAbsent)
	if present {
		for _, f := range collector.Faults(r.err) {
			s.fault(name, f)
		}
	}
	for _, sample := range r.samples {
		if !s.table.Set(sample) {
			s.fault(name, &collector.Fault{Reason: "duplicate",
				Err: fmt.Errorf("%s%v was emitted twice or with the wrong labels", sample.Metric.Name, sample.Labels)})
		}
	}
	s.buffers[name].Put(r.samples) //nolint:staticcheck // the header is small beside what it saves
	s.set(s.rows.present, collector.Bool(present), name)
	s.set(s.rows.success, collector.Bool(s.failed[name] == ""), name)
	s.set(s.rows.seconds, r.took.Seconds(), name)
}

// fault counts a fault, and keeps the source's first unexpected one.
func (s *Scraper) fault(source string, f *collector.Fault) {
	s.faults.add(source, f)
	if !f.Expected && s.failed[source] == "" {
		s.failed[source] = strings.TrimPrefix(f.Device+": "+f.Reason, ": ")
	}
}

func (s *Scraper) set(m *collector.Metric, v float64, labels ...string) {
	s.table.Set(collector.Sample{Metric: m, Labels: labels, Value: v})
}

// Request is what a scrape asks for.
type Request struct {
	Format     expfmt.Format
	Compressed bool
	Sources    []string      // whose series are wanted, beside railscope's own; nil: all
	Wait       time.Duration // for each source, at most; 0, and more than the budget: the budget
}

// Exposition is Scrape for all sources.
func (s *Scraper) Exposition(format expfmt.Format, compressed bool) ([]byte, error) {
	return s.Scrape(Request{Format: format, Compressed: compressed})
}

// Scrape reads sources and returns their series. Equal requests that overlap share the result: don't change it. The
// sources must be known, see [Scraper.Unknown].
func (s *Scraper) Scrape(r Request) ([]byte, error) {
	budget := s.opts.Budget
	if r.Wait > 0 {
		budget = min(budget, r.Wait)
	}
	body, err, _ := s.flights.Do(fmt.Sprint(r.Format, r.Compressed, budget, r.Sources), func() (any, error) {
		s.reading.Lock()
		defer s.reading.Unlock()
		var body []byte
		var err error
		s.readAll(r.Sources, budget, func() {
			if r.Sources != nil {
				s.table.Only = s.rows.only(r.Sources, s.sources)
				defer func() { s.table.Only = nil }()
			}
			body, err = s.exposeLocked(r.Format, r.Compressed)
		})
		return body, err
	})
	if err != nil {
		return nil, err
	}
	return body.([]byte), nil
}

// Gather implements [prometheus.Gatherer] with a scrape of all sources. Histograms have classic buckets.
func (s *Scraper) Gather() (families []*dto.MetricFamily, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.readAll(nil, s.opts.Budget, func() { families, err = s.gatherLocked(false) })
	return families, err
}

// gatherLocked makes client_golang's families of the table.
func (s *Scraper) gatherLocked(native bool) ([]*dto.MetricFamily, error) {
	s.table.Native = native
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(s.table); err != nil {
		return nil, err
	}
	return reg.Gather()
}

// Unknown returns why a name is not that of a source, with those that there are; nil: it is.
func (s *Scraper) Unknown(name string) error {
	if s.sources[name] == nil {
		return fmt.Errorf("unknown or disabled source %q; the sources are %s", name, strings.Join(s.names, ", "))
	}
	return nil
}

func (s *Scraper) exposeLocked(format expfmt.Format, compressed bool) ([]byte, error) {
	if err := s.encodeLocked(format); err != nil {
		return nil, err
	}
	if compressed {
		return s.compressLocked()
	}
	return bytes.Clone(s.text), nil
}

// encodeLocked writes the table into s.text: the text format by the table itself, all others by client_golang.
func (s *Scraper) encodeLocked(format expfmt.Format) error {
	s.text = s.text[:0]
	if format.FormatType() == expfmt.TypeTextPlain {
		s.text = s.table.AppendText(s.text)
		return nil
	}
	families, err := s.gatherLocked(format.FormatType() != expfmt.TypeOpenMetrics) // protobuf
	if err != nil {
		return err
	}
	b := bytes.NewBuffer(s.text)
	enc := expfmt.NewEncoder(b, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	if closer, ok := enc.(expfmt.Closer); ok {
		err = closer.Close()
	}
	s.text = b.Bytes()
	return err
}

// compressLocked compresses s.text, statelessly: 0.3 MB of memory instead of 0.8, for 2 % more bytes.
func (s *Scraper) compressLocked() ([]byte, error) {
	packed := bytes.NewBuffer(make([]byte, 0, len(s.text)/6))
	s.zip.Reset(packed)
	if _, err := s.zip.Write(s.text); err != nil {
		return nil, err
	}
	err := s.zip.Close()
	return packed.Bytes(), err
}
