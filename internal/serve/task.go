package serve

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Task is one part of a node that runs beside the others.
type Task struct {
	Name string
	// Run runs until ctx is canceled or an error occurs. If ctx is canceled, it returns nil in bounded time. It closes
	// what it opened; what it was made from is closed by its owner.
	Run func(ctx context.Context) error
	// Waiting returns what Run waits for, for the message of an exit that is forced; nil: nothing is known.
	Waiting func() []string
}

// Run runs tasks until ctx is canceled or one of them fails, which cancels the others, and returns the error. begin,
// which may be nil, is called for each task, and done when the task has ended.
func Run(ctx context.Context, tasks []Task, begin func(name string, waiting func() []string) (done func())) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		done := func() {}
		if begin != nil {
			done = begin(t.Name, t.Waiting)
		}
		group.Go(func() error {
			defer done()
			return t.Run(ctx)
		})
	}
	return group.Wait()
}

// background returns the task of a function that cannot fail, and runs until its context is canceled. A function that
// hangs in a file is left behind.
func background(name string, run func(context.Context)) Task {
	return Task{Name: name, Run: func(ctx context.Context) error {
		ended := make(chan struct{})
		go func() { defer close(ended); run(ctx) }()
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
		}
		select {
		case <-ended:
		case <-time.After(deviceBudget):
		}
		return nil
	}}
}
