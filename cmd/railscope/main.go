// Command railscope shows what the RDMA rails of a node really do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run parses the command line, runs the command and returns the exit code.
func run(ctx context.Context, args []string) int {
	s, err := parse(args)
	if err == nil {
		switch s.command {
		case "rails":
			err = rails(s, os.Stdout)
		case "bench":
			err = bench(ctx, s, os.Stdout)
		case "doctor":
			err = examine(ctx, s, os.Stdout)
		case "demo":
			err = runDemo(ctx, s, os.Stdout)
		default:
			err = serve(ctx, s)
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
