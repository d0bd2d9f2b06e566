// Command railscope shows what the RDMA rails of a node really do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/railscope/railscope/probe"
)

// Exit codes: 1 is something that went wrong, 2 a command line or
// configuration that must be changed.
const (
	exitFailure = 1
	exitMisuse  = 2
)

func main() {
	if isWorker(os.Args[1:]) {
		os.Exit(probe.WorkerMain())
	}
	os.Exit(process(os.Args[1:], stopLimit))
}

// process runs the command that args name until it has ended, or until it has been
// told to stop for so long. It returns the exit code.
func process(args []string, limit time.Duration) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	parts := newUnfinished()
	defer parts.forceStop(ctx, limit, os.Exit)()
	return run(ctx, parts, args)
}

// run parses the command line, runs the command and returns the exit code.
func run(ctx context.Context, parts *unfinished, args []string) int {
	s, err := parse(args)
	if err == nil {
		switch s.command {
		case "rails":
			defer parts.begin("rails", nil)()
			err = rails(s, os.Stdout)
		case "bench":
			defer parts.begin("bench", nil)()
			err = bench(ctx, s, os.Stdout)
		case "doctor":
			defer parts.begin("doctor", nil)()
			err = examine(ctx, s, os.Stdout)
		case "demo":
			defer parts.begin("demo", nil)()
			err = runDemo(ctx, s, os.Stdout)
		default:
			err = serve(ctx, s, parts)
		}
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNotGood), errors.Is(err, errFaults):
		return exitFailure
	}
	fmt.Fprintln(os.Stderr, "railscope:", err)
	if _, ok := errors.AsType[misuse](err); ok {
		return exitMisuse
	}
	return exitFailure
}

// misuse is an error that the user mends on the command line or in the
// configuration.
type misuse struct{ error }
