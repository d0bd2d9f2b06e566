package scrape

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
)

// flight is one read of sources, shared by all who request them meanwhile. It lasts as long as the sources need, at
// most the budget for each, independent of how long its users wait.
type flight struct {
	names  []string
	start  time.Time
	done   chan struct{}     // closed when all results are in the table
	bodies map[string][]byte // expositions of its results, by request; protected by Scraper.mu

	mu       sync.Mutex        // protects all following fields; locked after Scraper.mu
	landed   map[string]result // results of sources that have returned and are not in the table yet
	returned map[string]bool   // sources whose results have landed
	over     bool              // later results are dropped
}

// land keeps the result of a source that has returned.
func (f *flight) land(name string, r result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over && !f.returned[name] {
		f.landed[name], f.returned[name] = r, true
	}
}

// take returns the results that are not in the table yet.
func (f *flight) take() map[string]result {
	f.mu.Lock()
	defer f.mu.Unlock()
	landed := f.landed
	f.landed = map[string]result{}
	return landed
}

// missing returns those of names that the flight reads and whose results are not available.
func (f *flight) missing(names []string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.names), func(name string) bool {
		return f.returned[name] || !slices.Contains(names, name)
	})
}

// join returns the flights that read these sources: those in progress, and a new one for the rest.
func (s *Scraper) join(names []string) (list []*flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []string
	for _, name := range names {
		if f := s.flights[name]; f == nil {
			rest = append(rest, name)
		} else if !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	if len(rest) == 0 && len(names) > 0 {
		return list
	}
	f := &flight{names: rest, start: time.Now(), done: make(chan struct{}), bodies: map[string][]byte{},
		landed: map[string]result{}, returned: map[string]bool{}}
	for _, name := range rest {
		s.flights[name] = f
	}
	go s.fly(f)
	return append(list, f)
}

// fly reads the sources of a flight in parallel, and puts their samples into the table.
func (s *Scraper) fly(f *flight) {
	results := s.lanes.Run(s.opts.Budget, f.names, func(name string) struct{} {
		f.land(name, s.readSource(name))
		return struct{}{}
	})
	for _, r := range results {
		if r.Err != nil {
			err := fmt.Errorf("source %s: %w", r.Key, r.Err)
			f.land(r.Key, result{took: time.Since(r.Since), err: collector.LaneFault("", r.State, err)})
		}
	}
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(f.start, f.take())
	for _, name := range f.names {
		delete(s.flights, name)
	}
	close(f.done)
}

// wait waits for flights, at most for limit if that is positive.
func wait(list []*flight, limit time.Duration) {
	var over <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	for _, f := range list {
		select {
		case <-f.done:
		case <-over:
			return
		}
	}
}

// lateLocked puts the results so far of the flights into the table, and returns those of names that are missing.
func (s *Scraper) lateLocked(list []*flight, names []string) (late []string) {
	for _, f := range list {
		if landed := f.take(); len(landed) > 0 {
			s.settleLocked(f.start, landed)
		}
		late = append(late, f.missing(names)...)
	}
	return late
}

// settleLocked puts results of sources, whose read began at start, into the table.
func (s *Scraper) settleLocked(start time.Time, results map[string]result) {
	var rows []*collector.Metric // nil: all rows
	if len(results) < len(s.names) {
		rows = s.rows.complete()
		for name := range results {
			rows = append(rows, s.sources[name].Metrics()...)
		}
	}
	s.table.Begin(rows)
	for _, name := range s.names { // faults are logged in this order
		if r, ok := results[name]; ok {
			s.read[name] = start
			s.accept(name, r)
		}
	}
	s.faults.review(start)
	s.emitOwn(time.Since(start))
	if !s.opts.Once {
		for _, sample := range s.process.read(start) {
			s.table.Set(sample)
		}
	}
	s.table.End()
}

// withoutLocked calls do while sources that did not return in time for one client count as failed. For other
// clients nothing changes.
func (s *Scraper) withoutLocked(late []string, do func()) {
	if len(late) == 0 {
		do()
		return
	}
	before := map[string]float64{}
	s.table.Each(s.rows.source.success.Name, []string{"source"},
		func(values []string, v float64) { before[values[0]] = v })
	s.table.Begin([]*collector.Metric{}) // no row begins, so all series stay
	for _, name := range late {
		s.set(s.rows.source.success, 0, name)
	}
	s.table.End()
	do()
	for _, name := range late {
		s.set(s.rows.source.success, before[name], name)
	}
}
