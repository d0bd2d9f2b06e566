package page

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// exam runs doctor in the background: at most once a minute, one at a time. Safe for concurrent use.
type exam struct {
	ctx    context.Context // done when the page is closed
	doctor func(context.Context) ([]Finding, error)

	mu     sync.Mutex // protects all following fields
	begun  time.Time
	result Exam
}

func newExam(ctx context.Context, doctor func(context.Context) ([]Finding, error)) *exam {
	return &exam{ctx: ctx, doctor: doctor, result: Exam{On: doctor != nil}}
}

// start runs doctor in the background when a minute has passed.
func (e *exam) start(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.doctor == nil || e.result.Running || e.ctx.Err() != nil || now.Sub(e.begun) < examEvery {
		return
	}
	if now.Sub(e.result.At) > 2*examEvery { // no page was open meanwhile: the findings are old
		e.result = Exam{On: true}
	}
	e.begun, e.result.Running = now, true
	go e.run(now)
}

// run runs doctor. A panic in a check costs the page its findings, not the node its metrics.
func (e *exam) run(start time.Time) {
	ctx, cancel := context.WithTimeout(e.ctx, examBudget)
	defer cancel()
	result := Exam{On: true}
	defer func() {
		if p := recover(); p != nil {
			result.Err = fmt.Sprintf("panic: %v", p)
		}
		result.At, result.Took = time.Now(), time.Since(start).Round(time.Millisecond)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.result = result
	}()
	findings, err := e.doctor(ctx)
	if result.Findings = findings; err != nil {
		result.Err = err.Error()
	}
}

func (e *exam) last() Exam {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.result
}
