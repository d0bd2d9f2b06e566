// Package nccl reads the log files of NCCL jobs: the network of a job, whether its adapters access GPU memory, the
// transports of its channels, and its warnings.
//
//	files → tailer.go → parse.go: line → event → state.go → source.go Read → collector.Sample
//
// Only list.go and tailer.go find and read files, and only parse.go knows NCCL's messages.
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

// Intervals of passes and listings. Listing takes at most 1/500 of the time, which matters for very large
// directories, but one slow listing delays the next by a minute at most.
const (
	passEvery = 2 * time.Second
	listEvery = 10 * time.Second
	listShare = 500
	listLate  = time.Minute
	stuck     = time.Minute // time without a pass after which the file system is reported as hanging
)

// Source reads log files of NCCL between scrapes; [Source.Read] only copies the results.
type Source struct {
	*table
	where string // the globs, as text for errors
	jobs  *jobs
	f     *tailer
	next  time.Time // time of the next listing

	mu     sync.Mutex // protects all following fields
	last   *listing   // last listing; nil before the first
	faults error      // faults of the passes since then
	active time.Time  // end of the last pass, or start of the first; zero before
}

// New returns the source for the files that match globs (path/filepath.Match). An error names a glob with valid
// syntax.
func New(globs []string) (*Source, error) {
	list := make([]glob, len(globs))
	for i, pattern := range globs {
		var err error
		list[i], err = newGlob(pattern)
		if err != nil {
			return nil, err
		}
	}
	t := newTable()
	jobs := newJobs(t)
	return &Source{table: t, where: strings.Join(globs, " or "), jobs: jobs, f: newTailer(list, jobs)}, nil
}

// Run reads the files until ctx is done, and closes them.
func (s *Source) Run(ctx context.Context) {
	defer s.f.close()
	for ctx.Err() == nil {
		s.Pass()
		select {
		case <-ctx.Done():
		case <-time.After(passEvery):
		}
	}
}

// Pass reads new lines, and reports whether more are left than one pass reads. It must not be called while Run
// runs.
func (s *Source) Pass() (more bool) {
	start := time.Now()
	s.mu.Lock()
	if s.active.IsZero() {
		s.active = start
	}
	s.mu.Unlock()
	var found *listing
	if !start.Before(s.next) {
		found = s.f.list()
		s.next = start.Add(listPause(time.Since(start)))
	}
	more, err := s.f.pass()
	s.mu.Lock()
	defer s.mu.Unlock()
	if found != nil {
		s.last, s.faults = found, nil
	}
	if err != nil {
		s.faults = err // faults of the last pass that had any: a list of bounded length
	}
	s.active = time.Now()
	return more
}

// listPause returns the time from the start of a listing to the next, after a listing that took so long.
func listPause(took time.Duration) time.Duration {
	return min(max(listEvery, listShare*took), listLate)
}

// Read emits what the logs have reported so far. If no file matches the globs, the error wraps ErrAbsent.
func (s *Source) Read(emit func(collector.Sample)) error {
	s.mu.Lock()
	last, err, active := s.last, s.faults, s.active
	s.mu.Unlock()
	if late := time.Since(active); !active.IsZero() && late > stuck {
		err = errors.Join(err, &collector.Fault{Reason: sysfs.ReasonTimeout, Err: fmt.Errorf("logs were last read %v "+
			"ago: the file system of %s does not answer", late.Round(time.Second), s.where)})
	}
	if last == nil {
		return err // nothing has been read yet
	}
	err = errors.Join(append([]error{err}, last.faults...)...)
	if len(last.files) == 0 && err == nil {
		return fmt.Errorf("no file matches %s; see docs/nccl.md for how to make NCCL write one: %w", s.where,
			collector.ErrAbsent)
	}
	for _, state := range []string{followed, waiting, idle, special, unreadable, sameName} {
		emit(collector.Sample{Metric: s.files, Labels: []string{state}, Value: float64(last.files[state])})
	}
	s.jobs.emit(emit)
	return err
}
