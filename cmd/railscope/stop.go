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

// stopLimit is the time that the process has to end after SIGTERM. It is below TimeoutStopSec of the unit and the grace
// period of Kubernetes, which kill without logging what hung.
const stopLimit = 14 * time.Second

// forced is the message of an exit after stopLimit.
const forced = "Exit forced, still running"

// unfinished holds the parts that must end before the process exits, by name. Safe for concurrent use.
type unfinished struct {
	mu     sync.Mutex                 // protects all following fields
	parts  map[string]func() []string // name → details; nil: no details
	code   int                        // of a forced exit
	report func(limit time.Duration, still string)
}

func newUnfinished() *unfinished {
	return &unfinished{parts: map[string]func() []string{}, code: exitFailure,
		report: func(limit time.Duration, still string) {
			fmt.Fprintf(os.Stderr, "railscope: %s after %v: %s\n", forced, limit, still)
		}}
}

// begin adds a part until done is called.
func (u *unfinished) begin(name string, details func() []string) (done func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[name] = details
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.parts, name)
	}
}

// setExit sets the code and the report of a forced exit.
func (u *unfinished) setExit(code int, report func(limit time.Duration, still string)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.code, u.report = code, report
}

// forceStop calls exit when ctx has been done for limit. A thread that sleeps in the kernel, as in a read from a dead
// NFS server, cannot be ended: the process is gone when the kernel returns from it.
func (u *unfinished) forceStop(ctx context.Context, limit time.Duration, exit func(code int)) (cancel func() bool) {
	return context.AfterFunc(ctx, func() {
		time.Sleep(limit)
		u.mu.Lock()
		defer u.mu.Unlock()
		var list []string
		for name, details := range u.parts {
			if details != nil {
				if running := details(); len(running) > 0 {
					name += " (" + strings.Join(running, ", ") + ")"
				}
			}
			list = append(list, name)
		}
		slices.Sort(list)
		u.report(limit, strings.Join(list, "; "))
		exit(u.code)
	})
}
