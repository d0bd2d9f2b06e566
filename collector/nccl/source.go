// Package nccl reads the log files of NCCL jobs: which network a job chose, whether its adapters reach GPU memory,
// which transports its channels use, and its warnings.
//
//	files → tailer.go → parse.go: line → event → state.go → source.go Read → collector.Sample
//
// Only list.go and tailer.go know how files are found and read, only parse.go what NCCL prints.
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

// How often logs are read. Listing takes at most 1/500 of the time, for directories of very many files.
const (
	passEvery = 2 * time.Second
	listEvery = 10 * time.Second
	listShare = 500
	stuck     = time.Minute // without a pass: a file system that hangs
)

// Source reads log files of NCCL between scrapes; [Source.Read] only copies.
type Source struct {
	*table
	where string // the globs
	jobs  *jobs
	f     *tailer
	next  time.Time // when files are listed again

	mu     sync.Mutex // protects all following fields
	last   *listing   // nil before the first
	faults error      // of the passes since
	active time.Time  // when the last pass ended, or the first began; zero before
}

// New returns the source for the files that match globs (path/filepath.Match). An error names a valid glob, too.
func New(globs []string) (*Source, error) {
	list := make([]glob, len(globs))
	for i, pattern := range globs {
		var err error
		if list[i], err = newGlob(pattern); err != nil {
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

// Pass reads what is new, and reports whether more is left than one pass reads. Do not call it while Run runs.
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
		s.next = start.Add(max(listEvery, listShare*time.Since(start)))
	}
	more, err := s.f.pass()
	s.mu.Lock()
	defer s.mu.Unlock()
	if found != nil {
		s.last, s.faults = found, nil
	}
	if err != nil {
		s.faults = err // of the last pass that had any: a bounded list
	}
	s.active = time.Now()
	return more
}

// Read emits what the logs have reported so far. If no file matches the globs, the error is ErrAbsent.
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
