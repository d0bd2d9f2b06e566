// Command railscope-bench holds the benchmarks that need large libraries.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
)

// Exit codes: 1 is a failure, 2 a command line that must be changed.
const (
	exitFailure = 1
	exitMisuse  = 2
)

// errReported is a failure that the output of the command explains.
var errReported = errors.New("reported")

func main() { os.Exit(execute(os.Args[1:], os.Stdout)) }

// execute runs the command that args name, and returns the exit code.
func execute(args []string, w io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := kingpin.New("railscope-bench", "Benchmarks that need large libraries.")
	storage := new(storageSettings).define(app)
	if _, err := app.Parse(args); err != nil {
		fmt.Fprintln(os.Stderr, "railscope-bench:", err)
		return exitMisuse
	}
	switch err := storage.run(ctx, w); {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return exitFailure
	default:
		fmt.Fprintln(os.Stderr, "railscope-bench:", err)
		return exitFailure
	}
}
