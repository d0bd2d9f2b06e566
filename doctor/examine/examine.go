// Package examine examines the node once a minute while railscope runs, and keeps what it finds in a store that all
// surfaces show.
package examine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
)

const (
	every  = time.Minute
	soon   = 10 * time.Second // after the first one, so that what is wrong at the start stands early
	budget = 20 * time.Second // for one examination
	source = "node"           // in the store
)

// Options are what a [Examiner] needs.
type Options struct {
	// Gather reads the facts of the node in bounded time.
	Gather func(context.Context) *facts.Facts
	// Series lets view see the exporter's series, not older than a minute, and why sources failed; nil: none.
	Series func(view func(series facts.Series, failed map[string]string))
	// Uses reports whether this process uses RDMA itself: if not, what it lacks for that is no fault.
	Uses func() bool
	// Store keeps the findings.
	Store *finding.Store
}

// Exam is how the last examination went.
type Exam struct {
	At     time.Time     // of its end; zero: there was none yet
	Took   time.Duration // rounded to milliseconds
	Unread []string      // what could not be read, and is therefore not judged
	Unused []string      // rails that are down because nothing was ever plugged in
	Err    string        // why there is no result; empty: there is one
	Done   int           // examinations with a result: after two, what stands is known
}

// Examiner examines the node. Safe for concurrent use.
type Examiner struct {
	o       Options
	history facts.History
	done    int // examinations with a result

	mu   sync.Mutex // protects all following fields
	last Exam
}

// New returns an examiner. Nothing runs until [Examiner.Run].
func New(o Options) *Examiner { return &Examiner{o: o} }

// Last returns how the last examination went.
func (e *Examiner) Last() Exam {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// Run examines the node at once, after 10 s, and then every minute until ctx is done.
func (e *Examiner) Run(ctx context.Context) {
	timer := time.NewTimer(soon)
	defer timer.Stop()
	for {
		e.Examine(ctx)
		select {
		case <-timer.C:
			timer.Reset(every)
		case <-ctx.Done():
			return
		}
	}
}

// Examine runs all checks once; calls must not overlap. A panic in one costs this examination, not the process.
func (e *Examiner) Examine(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	start := time.Now()
	exam := Exam{Done: e.done}
	defer func() {
		if v := recover(); v != nil {
			exam.Err = fmt.Sprintf("panic: %v", v)
		}
		exam.At, exam.Took = time.Now(), time.Since(start).Round(time.Millisecond)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.last = exam
	}()
	f := e.o.Gather(ctx)
	if err := ctx.Err(); err != nil {
		exam.Err = err.Error() // facts are missing, which must not look like faults
		return
	}
	if e.o.Series != nil {
		e.o.Series(func(series facts.Series, failed map[string]string) { f.Live = e.history.Live(series, failed, start) })
	}
	exam.Unread = check.ServedUnread(f.Unread)
	for i := range f.Rails {
		if r := &f.Rails[i]; f.Unused(r) {
			exam.Unused = append(exam.Unused, r.Name)
		}
	}
	e.done++
	exam.Done = e.done
	e.o.Store.Update(source, start, Judge(f, e.o.Uses()))
}

// Judge runs all checks on the facts of this node, and returns the findings as metrics may show them. uses: this
// process uses RDMA itself.
func Judge(f *facts.Facts, uses bool) (found []finding.Finding) {
	for _, one := range check.Node(f, func(c check.Check) bool { return uses || !c.Own() }) {
		one.Node = "" // this one
		found = append(found, check.Served(one))
	}
	return found
}
