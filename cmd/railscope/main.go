// Command railscope shows what the RDMA rails of a node really do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/railscope/railscope/probe"
)

// Exit codes: 1 is a failure, 2 a command line or configuration that must be changed.
const (
	exitFailure = 1
	exitMisuse  = 2
)

// workerCommand starts the process that uses libibverbs. It is not for users, so the parser does not know it.
const workerCommand = "probe-worker"

func main() {
	if slices.Equal(os.Args[1:], []string{workerCommand}) {
		os.Exit(probe.WorkerMain())
	}
	os.Exit(process(os.Args[1:], stopLimit))
}

// process runs the command off the process's first thread. The kernel delivers signals to that thread first
// (complete_signal in kernel/signal.c), and one that waits for a file that hangs never handles them.
func process(args []string, limit time.Duration) int {
	runtime.LockOSThread()
	code := make(chan int)
	go func() { code <- execute(args, limit) }()
	return <-code
}

// execute runs the command that args name until it has ended, or until limit has passed since a signal to stop. It
// returns the exit code.
func execute(args []string, limit time.Duration) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	parts := newUnfinished()
	defer parts.forceStop(ctx, limit, os.Exit)()
	run, err := parse(args)
	if err == nil {
		err = run(ctx, parts, os.Stdout)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return exitFailure
	}
	fmt.Fprintln(os.Stderr, "railscope:", err)
	if _, ok := errors.AsType[misuse](err); ok {
		return exitMisuse
	}
	return exitFailure
}

// errReported is a failure that the output of the command explains.
var errReported = errors.New("reported")

// misuse is an error that the user fixes on the command line or in the configuration.
type misuse struct{ error }
