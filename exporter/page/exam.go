package page

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/terminal"
)

// exam runs doctor in the background: at most once a minute, one at a time. Safe for concurrent use.
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

// start runs doctor in the background when a minute has passed.
func (e *exam) start(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ask == nil || e.now.Running || e.ctx.Err() != nil || (!e.begun.IsZero() && now.Sub(e.begun) < examEvery) {
		return
	}
	if now.Sub(e.now.At) > 2*examEvery { // no page was open meanwhile: the findings are old
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

// safely runs doctor. A panic in a check costs the page its findings, not the node its metrics.
func (e *exam) safely(ctx context.Context) (findings []Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			findings, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return e.ask(ctx)
}

// end waits for a run in progress, whose context is done; not for one that hangs.
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

// plain is the finding without control characters.
func (f Finding) plain() Finding {
	f.Check, f.Subject = terminal.Plain(f.Check), terminal.Plain(f.Subject)
	f.Read, f.Why = terminal.Plain(f.Read), terminal.Plain(f.Why)
	fix := make([]string, len(f.Fix))
	for i, line := range f.Fix {
		fix[i] = terminal.Plain(line)
	}
	f.Fix = fix
	return f
}
