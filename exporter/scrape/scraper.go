package scrape

import (
	"bytes"
	"cmp"
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
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sync/singleflight"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options are what a [Scraper] needs besides its sources.
type Options struct {
	Budget time.Duration // how long a scrape waits for a source
	Logger *slog.Logger
	Info   Info
	// Process has the standard metrics of this process; nil reads them.
	Process prometheus.Gatherer
	// State returns why nothing is saved in the state directory, if so; nil: there is none.
	State func() error
}

// Scraper reads the sources when asked to and renders what they say. Reads that
// overlap are one read: there is never more than one in flight for a source,
// and callers that come while one is going on share it. Safe for concurrent
// use.
type Scraper struct {
	opts    Options
	sources map[string]collector.Source
	names   []string              // of the sources, in the order given
	spare   map[string]*sync.Pool // per source: memory of a read that was taken in, to be used again
	rows    ownRows
	lanes   lane.Group[result]
	refused *connlimit.Refusals
	flights singleflight.Group // of expositions, by format and compression

	mu      sync.Mutex // protects all following fields
	table   *table.Table
	text    []byte // the last exposition; its memory is used again
	zip     *gzip.Writer
	errors  errorBook
	failed  map[string]string // source → why its last read did, in a line
	public  map[string]string // the same, without what only the log says
	log     faultLog
	status  status
	process *process
}

// result is what one read of a source came to.
type result struct {
	samples []collector.Sample
	err     error
	took    time.Duration
}

// NewScraper returns a scraper of the sources. It fails when two rows have one
// name or a row is not fit to be exported, which is a mistake in a table.
func New(sources []collector.Source, opts Options) (*Scraper, error) {
	s := &Scraper{opts: opts, refused: newRefusals(opts.Logger), sources: map[string]collector.Source{},
		process: newProcess(opts.Process), spare: map[string]*sync.Pool{}, rows: newOwnRows(), errors: newErrorBook(), failed: map[string]string{},
		log:    faultLog{logger: opts.Logger, seen: map[errorKey]time.Time{}},
		status: status{info: opts.Info, reloadOK: true, reloaded: time.Now(), state: opts.State}}
	for _, src := range sources {
		s.sources[src.Name()] = src
		s.spare[src.Name()] = new(sync.Pool)
		s.names = append(s.names, src.Name())
	}
	rows := s.OwnRows()
	for _, src := range sources {
		rows = append(rows, src.Metrics()...)
	}
	s.table = table.New(rows)
	zip, err := gzip.NewWriterLevel(io.Discard, gzip.StatelessCompression)
	if err != nil {
		return nil, err
	}
	s.zip = zip
	for _, src := range sources {
		if h, ok := src.(HistogramSource); ok {
			for row, c := range h.Histograms() {
				if err := s.table.Histograms(row, c); err != nil {
					return nil, fmt.Errorf("source %s: %w", src.Name(), err)
				}
			}
		}
	}
	return s, nil
}

// HistogramSource is a source that has histograms besides what it emits. Those
// need Prometheus, so it is one of this package.
type HistogramSource interface {
	Histograms() map[*collector.Metric]prometheus.Collector
}

// OwnRows returns the rows about railscope itself.
func (s *Scraper) OwnRows() []*collector.Metric {
	return slices.AppendSeq(s.rows.all(), maps.Values(s.process.rows))
}

// Exposition reads the sources and returns what they say in a format, compressed if asked for. Calls that overlap
// share one result, which nobody may change.
func (s *Scraper) Exposition(format expfmt.Format, compressed bool) ([]byte, error) {
	body, err, _ := s.flights.Do(fmt.Sprint(format, compressed), func() (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.scrapeLocked(nil)
		if err := s.encodeLocked(format); err != nil {
			return nil, err
		}
		if compressed {
			return s.compressLocked()
		}
		return bytes.Clone(s.text), nil
	})
	if err != nil {
		return nil, err
	}
	return body.([]byte), nil
}

// encodeLocked writes the table into s.text: what all servers ask for by the table itself, the rest by client_golang.
func (s *Scraper) encodeLocked(format expfmt.Format) error {
	s.text = s.text[:0]
	if format.FormatType() == expfmt.TypeTextPlain {
		s.text = s.table.AppendText(s.text)
		return nil
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(s.table); err != nil {
		return err
	}
	families, err := reg.Gather()
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

// compressLocked compresses s.text. A stateless compressor keeps a third of a megabyte rather than most of one, for
// 2 % more bytes, and is not slower after a pause.
func (s *Scraper) compressLocked() ([]byte, error) {
	packed := bytes.NewBuffer(make([]byte, 0, len(s.text)/6))
	s.zip.Reset(packed)
	if _, err := s.zip.Write(s.text); err != nil {
		return nil, err
	}
	err := s.zip.Close()
	return packed.Bytes(), err
}

// Alive returns when no scrape is going on: at once, or after the budget at
// most, unless something is wrong with the scraper itself. The watchdog asks.
func (s *Scraper) Alive() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// Reading returns which sources are being read now, for people.
func (s *Scraper) Reading() []string {
	list := s.lanes.Busy()
	for i, name := range list {
		list[i] = "source " + name
	}
	return list
}

// Reloaded records whether a configuration that was read is now in force.
func (s *Scraper) Reloaded(ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.reloadOK = ok
	if ok {
		s.status.reloaded = time.Now()
	}
}

// Sources returns the sources, in the order given.
func (s *Scraper) Sources() (list []collector.Source) {
	for _, name := range s.names {
		list = append(list, s.sources[name])
	}
	return list
}

// Info returns what build_info says.
func (s *Scraper) Info() Info { return s.opts.Info }

// Update reads the sources of these names, nil is all, and lets view see the series: of the other sources those of
// their last read. failed says why sources failed, in the words of source_errors_total, since errors name processes
// and files. view may not keep anything.
func (s *Scraper) Update(names []string, view func(series *table.Table, failed map[string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scrapeLocked(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return s.sources[name] == nil }))
	view(s.table, s.failed)
}

// scrapeLocked reads these sources side by side, nil is all, and fills the
// table.
func (s *Scraper) scrapeLocked(some []string) {
	start := time.Now()
	names := s.names
	if some == nil {
		s.table.Begin()
	} else {
		var rows []*collector.Metric
		for _, name := range some {
			rows = append(rows, s.sources[name].Metrics()...)
		}
		s.table.BeginSome(rows)
		names = some
	}
	results := s.lanes.Run(s.opts.Budget, names, s.read)
	for _, r := range results {
		if r.Err != nil {
			reason := sysfs.ReasonTimeout
			if r.State == lane.Died {
				reason = collector.ReasonPanic
			}
			r.Value.err = &collector.Fault{Reason: reason, Err: fmt.Errorf("source %s: %w", r.Key, r.Err)}
			r.Value.took = time.Since(r.Since)
		}
		s.accept(r.Key, r.Value)
	}
	if some == nil { // else it is not known which devices there are
		s.errors.forget(start)
	}
	s.refused.Each(func(reason string, n uint64) {
		s.table.Set(collector.Sample{Metric: s.rows.refused, Labels: []string{reason}, Value: float64(n)})
	})
	s.errors.emit(s.rows.errors, func(sample collector.Sample) { s.table.Set(sample) })
	s.log.settle(start)
	s.log.descriptors(start)
	set := func(sample collector.Sample) { s.table.Set(sample) }
	s.rows.emit(&s.status, time.Since(start), set)
	s.process.emit(start, set)
	s.table.End()
}

// read runs in the source's lane. It gathers the samples, so that a source that
// returns late has nowhere to write.
func (s *Scraper) read(name string) result {
	var r result
	start := time.Now()
	if spare, ok := s.spare[name].Get().([]collector.Sample); ok {
		r.samples = spare[:0]
	}
	r.err = s.sources[name].Read(func(sample collector.Sample) { r.samples = append(r.samples, sample) })
	r.took = time.Since(start)
	return r
}

// accept puts what a source said into the table and counts what it could not
// say.
func (s *Scraper) accept(name string, r result) {
	success, present := true, !errors.Is(r.err, collector.ErrAbsent)
	if present {
		for _, f := range collector.Faults(r.err) {
			success = success && f.Expected
			s.count(name, f)
		}
	}
	s.errors.seen(name, r, time.Now())
	delete(s.failed, name)
	if !success {
		s.failed[name] = firstFault(r.err)
	}
	for _, sample := range r.samples {
		if !s.table.Set(sample) {
			success = false
			s.failed[name] = "it gave a series twice or with the wrong labels"
			s.count(name, &collector.Fault{Reason: "duplicate", Err: fmt.Errorf("%s%v was emitted twice or with the wrong labels", sample.Metric.Name, sample.Labels)})
		}
	}
	s.spare[name].Put(r.samples) //nolint:staticcheck // the header is small beside what it saves
	label := []string{name}
	s.table.Set(collector.Sample{Metric: s.rows.present, Labels: label, Value: collector.Bool(present)})
	s.table.Set(collector.Sample{Metric: s.rows.success, Labels: label, Value: collector.Bool(success)})
	s.table.Set(collector.Sample{Metric: s.rows.seconds, Labels: label, Value: r.took.Seconds()})
}

// firstFault is the first unexpected fault, in the words of source_errors_total.
func firstFault(err error) string {
	for _, f := range collector.Faults(err) {
		if !f.Expected {
			return strings.TrimPrefix(f.Device+": "+f.Reason, ": ")
		}
	}
	return ""
}

func (s *Scraper) count(source string, f *collector.Fault) {
	key := errorKey{source, f.Device, f.Reason}
	s.errors.add(key, time.Now())
	s.log.fault(key, f)
}

// faultLog says each fault once, and once more when it is over, instead of at
// every scrape.
type faultLog struct {
	logger *slog.Logger
	seen   map[errorKey]time.Time // when it was last there
	few    time.Time              // when descriptors were last few
}

// over is how long a fault must stay away to be over: longer than a refused
// file is left alone.
const over = 3 * time.Minute

func (l *faultLog) fault(key errorKey, f *collector.Fault) {
	_, known := l.seen[key]
	l.seen[key] = time.Now()
	if known {
		return
	}
	text, _, _ := strings.Cut(f.Error(), "\n") // a panic's stack is for source_errors_total's reader to ask for
	l.logger.Warn("Cannot read; not said again until it changes", "collector", key.source, "device", key.device, "reason", key.reason, "expected", f.Expected, "err", text)
}

// descriptors says when files are no longer kept open, which costs time, and what
// to do about it.
func (l *faultLog) descriptors(now time.Time) {
	few, limit := sysfs.FewDescriptors()
	if !few {
		return
	}
	if now.Sub(l.few) > over {
		l.logger.Warn("Few file descriptors are left: files of devices are opened anew for each read", "limit", limit,
			"fix", fmt.Sprintf("raise the limit to %d: LimitNOFILE= of the unit, or ulimit -n", max(2*limit, enoughDescriptors)))
	}
	l.few = now
}

// enoughDescriptors is what the largest nodes need several times over.
const enoughDescriptors = 65536

func (l *faultLog) settle(now time.Time) {
	var gone []errorKey
	for key, last := range l.seen {
		if now.Sub(last) > over {
			gone = append(gone, key)
			delete(l.seen, key)
		}
	}
	slices.SortFunc(gone, func(a, b errorKey) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.device, b.device), cmp.Compare(a.reason, b.reason))
	})
	for _, key := range gone {
		l.logger.Info("Can be read again", "collector", key.source, "device", key.device, "reason", key.reason)
	}
}
