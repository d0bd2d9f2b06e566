package page

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/terminal"
)

// exam asks the doctor: at most once a minute, one at a time, beside everything
// else. Safe for concurrent use.
type exam struct {
	ctx context.Context
	ask func(context.Context) ([]Finding, error)

	running sync.WaitGroup

	mu    sync.Mutex // protects all following fields
	begun time.Time
	now   Exam
}

func newExam(ctx context.Context, ask func(context.Context) ([]Finding, error)) *exam {
	return &exam{ctx: ctx, ask: ask, now: Exam{On: ask != nil}}
}

// look has the doctor look at the node, when it is time.
func (e *exam) look(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ask == nil || e.now.Running || e.ctx.Err() != nil || (!e.begun.IsZero() && now.Sub(e.begun) < examEvery) {
		return
	}
	if now.Sub(e.now.At) > 2*examEvery { // nobody looked meanwhile, and it may be of another day
		e.now = Exam{On: true}
	}
	e.begun, e.now.Running = now, true
	e.running.Go(func() { e.run(now) })
}

func (e *exam) run(start time.Time) {
	ctx, cancel := context.WithTimeout(e.ctx, examBudget)
	defer cancel()
	findings, err := e.safely(ctx)
	for i := range findings {
		findings[i] = findings[i].plain()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = Exam{On: true, At: time.Now(), Took: time.Since(start).Round(time.Millisecond), Findings: findings}
	if err != nil {
		e.now.Err = terminal.Plain(err.Error())
	}
}

// safely asks. A slip in a check costs the page that check's opinion, and not the
// node its metrics.
func (e *exam) safely(ctx context.Context) (findings []Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			findings, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return e.ask(ctx)
}

// end waits for a look that is going on, which has been told to stop; not for
// one that hangs.
func (e *exam) end() {
	done := make(chan struct{})
	go func() { defer close(done); e.running.Wait() }()
	timer := time.NewTimer(endBudget)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

func (e *exam) last() Exam {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

func (f Finding) plain() Finding {
	f.Check, f.Subject, f.Read, f.Why = terminal.Plain(f.Check), terminal.Plain(f.Subject), terminal.Plain(f.Read), terminal.Plain(f.Why)
	mend := make([]string, len(f.Mend))
	for i, line := range f.Mend {
		mend[i] = terminal.Plain(line)
	}
	f.Mend = mend
	return f
}
