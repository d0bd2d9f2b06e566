package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// stopLimit is how long the process may take to end after SIGTERM, whatever hangs.
// It is below TimeoutStopSec of the unit and the grace period of Kubernetes, which
// kill without a word of what hung.
const stopLimit = 14 * time.Second

// unfinished is what has to end before the process does, by name. Safe for
// concurrent use.
type unfinished struct {
	mu     sync.Mutex
	parts  map[string]func() []string // name → what of it runs, for people; nil: no more is known
	code   int                        // with which the process ends when it is forced to
	report func(limit time.Duration, still string)
}

// newUnfinished returns what runs at the start: nothing.
func newUnfinished() *unfinished {
	return &unfinished{parts: map[string]func() []string{}, code: exitFailure, report: func(limit time.Duration, still string) {
		fmt.Fprintf(os.Stderr, "railscope: %s after %v: %s\n", forced, limit, still)
	}}
}

const forced = "Exiting although not everything has ended"

// begin notes a part until done is called.
func (r *unfinished) begin(name string, details func() []string) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts[name] = details
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.parts, name)
	}
}

// become says with what the process ends when it is forced to, and who is told.
func (r *unfinished) become(code int, report func(limit time.Duration, still string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code, r.report = code, report
}

// still names what runs.
func (r *unfinished) still() (text string, code int, report func(time.Duration, string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for name, details := range r.parts {
		if details != nil {
			if of := details(); len(of) > 0 {
				name += " (" + strings.Join(of, ", ") + ")"
			}
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, "; "), r.code, r.report
}

// forceStop calls exit when ctx has been done for so long. A thread that sleeps in
// the kernel, as in a read from a dead NFS server, cannot be ended: then the
// process is gone when the kernel lets go of it.
func (r *unfinished) forceStop(ctx context.Context, limit time.Duration, exit func(code int)) (cancel func() bool) {
	return context.AfterFunc(ctx, func() {
		time.Sleep(limit)
		still, code, report := r.still()
		report(limit, still)
		exit(code)
	})
}
