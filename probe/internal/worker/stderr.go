package worker

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of what is logged of stderr: a library may print in a loop, and so may one that crashes at every start.
const (
	logLines = 50 // at once, and one more each logEvery
	logEvery = 10 * time.Second
)

// stderrLog logs what the workers of a node write to stderr. The bound is the node's: a new process does not reset it.
// Safe for concurrent use.
type stderrLog struct {
	log func(line string)

	mu      sync.Mutex // protects all following fields
	lines   *rate.Limiter
	dropped int  // lines since the last report of them
	due     bool // a report is
}

func newStderrLog(log func(line string)) *stderrLog {
	return &stderrLog{log: log, lines: rate.NewLimiter(rate.Every(logEvery), logLines)}
}

func (l *stderrLog) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines.Allow() {
		l.log(text)
		return
	}
	l.dropped++
	if !l.due {
		l.due = true
		time.AfterFunc(logEvery, l.report)
	}
}

// report logs how many lines were dropped.
func (l *stderrLog) report() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped > 0 {
		l.log(fmt.Sprintf("%d lines not logged: more than %d at once, then one each %v", l.dropped, logLines, logEvery))
	}
	l.dropped, l.due = 0, false
}
