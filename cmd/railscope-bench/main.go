// Command railscope-bench holds the commands of railscope that need large libraries. railscope runs it from its own
// directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/internal/terminal"
)

// Exit codes, the same as railscope's: 1 for a failure, 2 for an invalid command line.
const (
	exitFailure = 1
	exitMisuse  = 2
)

// errReported is returned if the output of the command explains the failure.
var errReported = errors.New("reported")

// misuse is an error that the user fixes on the command line.
type misuse struct{ error }

func main() { os.Exit(execute(os.Args[1:])) }

func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := kingpin.New("railscope-bench", "Writes reports of what railscope measured. railscope runs it; by hand, it "+
		"makes a report of saved JSON.")
	app.Version(version.Print("railscope-bench"))
	app.HelpFlag.Short('h')
	commands := map[string]func(context.Context) error{}
	report := new(reportSettings)
	commands[report.define(app)] = report.run
	storage := new(storageSettings)
	commands[storage.define(app)] = storage.run
	blame := new(blameSettings)
	commands[blame.define(app)] = blame.run
	drift := new(driftSettings)
	commands[drift.define(app)] = drift.run
	reasons := new(whySettings)
	commands[reasons.define(app)] = reasons.run
	name, err := app.Parse(args)
	if err != nil {
		err = misuse{fmt.Errorf("%w; railscope-bench --help shows the commands and flags", err)}
	} else {
		err = commands[name](ctx)
	}
	if err == nil {
		return 0
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(os.Stderr, "railscope-bench:", terminal.PlainLines(err.Error()))
	}
	if _, ok := errors.AsType[misuse](err); ok {
		return exitMisuse
	}
	return exitFailure
}
