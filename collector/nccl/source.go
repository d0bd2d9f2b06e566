package nccl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// How often logs are read. Listing takes at most 1/500 of the time: directories
// of very many files are listed less often.
const (
	passEvery = 2 * time.Second
	listEvery = 10 * time.Second
	listShare = 500
	stuck     = time.Minute // without a pass: a file system that hangs
)

// Source reads log files of NCCL between scrapes; [Source.Read] only copies.
type Source struct {
	table *table
	globs []string
	jobs  *jobs
	f     *tailer
	next  time.Time // when files are listed again

	mu      sync.Mutex
	listing listing   // of the last listing; protected by mu, like all below
	faults  error     // of the passes since
	began   time.Time // when the first pass began
	passed  time.Time // when the last one ended; zero before
}

var _ collector.Source = (*Source)(nil)

// New returns the source for the files that match globs (path/filepath.Match).
// It opens nothing yet. The error says which glob is wrong and what is right.
func New(globs []string) (*Source, error) { return newSource(globs, defaultLimits()) }

func newSource(globs []string, l limits) (*Source, error) {
	s := &Source{table: newTable(), globs: globs, jobs: newJobs()}
	var list []glob
	for _, text := range globs {
		g, err := newGlob(text)
		if err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	s.f = newTailer(list, l, s.jobs.open)
	return s, nil
}

// Name returns "nccl".
func (s *Source) Name() string { return "nccl" }

// Metrics returns the rows.
func (s *Source) Metrics() []*collector.Metric { return s.table.Metrics() }

// Run reads the files until ctx is done, and closes them.
func (s *Source) Run(ctx context.Context) {
	defer s.f.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		s.Pass()
		timer.Reset(passEvery)
	}
}

// Pass reads what is new, and reports whether there is more than one pass reads.
// While Run calls it nobody else may.
func (s *Source) Pass() (more bool) {
	start := time.Now()
	s.mu.Lock()
	if s.began.IsZero() {
		s.began = start
	}
	s.mu.Unlock()
	var c *listing
	if !start.Before(s.next) {
		found := s.f.list(start)
		c = &found
		s.next = start.Add(max(listEvery, listShare*time.Since(start)))
	}
	more, err := s.f.pass()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != nil {
		s.listing, s.faults = *c, nil
	}
	if err != nil {
		s.faults = err // of the last pass that had any: a bounded list
	}
	s.passed = time.Now()
	return more
}

// Read emits what the logs have reported so far; see [collector.Source]. If no
// file matches the globs, that is ErrAbsent.
func (s *Source) Read(emit func(collector.Sample)) error {
	s.mu.Lock()
	c, err, began, passed := s.listing, s.faults, s.began, s.passed
	s.mu.Unlock()
	where := strings.Join(s.globs, " or ")
	last := began
	if passed.After(began) {
		last = passed
	}
	if late := time.Since(last); !began.IsZero() && late > stuck {
		err = errors.Join(err, &collector.Fault{Reason: sysfs.ReasonTimeout,
			Err: fmt.Errorf("logs were last read %v ago: "+
				"the file system of %s does not answer", late.Round(time.Second), where)})
	}
	if passed.IsZero() {
		return err // nothing has been read yet
	}
	err = errors.Join(append([]error{err}, c.faults...)...)
	if c.matched() == 0 && err == nil {
		return fmt.Errorf("no file matches %s; docs/nccl.md says how to make NCCL write one: %w", where,
			collector.ErrAbsent)
	}
	for _, n := range [...]struct {
		state string
		count int
	}{{"followed", c.followed}, {"waiting", c.waiting}, {"idle", c.idle}, {"special", c.special},
		{"unreadable", c.unreadable}, {"same_name", c.same}} {
		emit(collector.Sample{Metric: s.table.files, Labels: []string{n.state}, Value: float64(n.count)})
	}
	s.jobs.emit(s.table, emit)
	return err
}

// emit emits the state of all logs.
func (s *jobs) emit(t *table, emit func(collector.Sample)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.list {
		j.emit(t, emit)
	}
	for i, rule := range warnKinds() {
		emit(collector.Sample{Metric: t.warnings, Labels: []string{rule.kind}, Value: float64(s.warnings[i])})
	}
	for status, name := range completionNames() {
		if status == 0 {
			name = "other"
		}
		if name != "" {
			emit(collector.Sample{Metric: t.completions, Labels: []string{name}, Value: float64(s.completions[status])})
		}
	}
	emit(collector.Sample{Metric: t.cut, Value: float64(s.cuts)})
	emit(collector.Sample{Metric: t.skipped, Value: float64(s.skipped)})
}
