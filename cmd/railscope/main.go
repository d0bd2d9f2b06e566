// Command railscope measures and reports the state of a node's RDMA rails.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/railscope/railscope/collector/lldp"
	"github.com/railscope/railscope/doctor/verdict"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// Exit codes: 1 is a failure, 2 a command line or configuration that must be changed. Those of check are verdict's.
const (
	exitFailure = 1
	exitMisuse  = 2

	exitIncomplete = 3 // exit code of bench if something was not measured
)

func main() {
	if slices.Equal(os.Args[1:], []string{serve.WorkerCommand}) {
		os.Exit(probe.WorkerMain())
	}
	if slices.Equal(os.Args[1:], []string{serve.LLDPCommand}) {
		os.Exit(lldp.HelperMain())
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
	tracker := newShutdownTracker()
	defer tracker.forceStop(ctx, limit, os.Exit)()
	run, err := parse(args)
	if err == nil {
		err = run(ctx, tracker, os.Stdout)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUnknown):
		return verdict.ExitUnknown
	case errors.Is(err, errReported):
		return exitFailure
	case errors.Is(err, errIncomplete):
		return exitIncomplete
	}
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	writeError(os.Stderr, err)
	if _, ok := errors.AsType[misuse](err); ok {
		return exitMisuse
	}
	return exitFailure
}

func writeError(w io.Writer, err error) {
	fmt.Fprintln(w, "railscope:", terminal.PlainLines(err.Error()))
}

// errReported is returned for a failure that the command has already printed. errIncomplete is returned when
// something was not measured.
var (
	errReported   = errors.New("reported")
	errIncomplete = errors.New("incomplete")
)

// misuse is an error on the command line or in the configuration.
type misuse struct{ error }

// stopLimit is how long the process may take to end after SIGTERM. TimeoutStopSec of the unit and the grace period
// of Kubernetes are longer, because they kill without logging what hung.
const stopLimit = 14 * time.Second

// forced is the message of an exit after stopLimit.
const forced = "Exit forced, still running"

// shutdownTracker knows the parts that must end before the process exits, by name. Safe for concurrent use.
type shutdownTracker struct {
	mu     sync.Mutex                 // protects all following fields
	parts  map[string]func() []string // details by name; nil: no details
	code   int                        // exit code of a forced exit
	waits  bool                       // wait for the parts: no forced exit
	report func(limit time.Duration, still string)
}

func newShutdownTracker() *shutdownTracker {
	return &shutdownTracker{parts: map[string]func() []string{}, code: exitFailure,
		report: func(limit time.Duration, still string) {
			fmt.Fprintf(os.Stderr, "railscope: %s after %v: %s\n", forced, limit, terminal.Plain(still))
		}}
}

// begin adds a part, which ends when done is called.
func (t *shutdownTracker) begin(name string, details func() []string) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts[name] = details
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.parts, name)
	}
}

// wait disables the forced exit: the process waits for its parts.
func (t *shutdownTracker) wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = true
}

func (t *shutdownTracker) setExit(code int, report func(limit time.Duration, still string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.code, t.report = code, report
}

// forceStop calls exit when ctx has been done for limit. A thread that sleeps in the kernel, as in a read from a
// dead NFS server, cannot be ended: the process lasts until the kernel returns from the call.
func (t *shutdownTracker) forceStop(ctx context.Context, limit time.Duration, exit func(code int)) (
	cancel func() bool) {
	return context.AfterFunc(ctx, func() {
		time.Sleep(limit)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.waits {
			return
		}
		var list []string
		for name, details := range t.parts {
			if details != nil {
				if running := details(); len(running) > 0 {
					name += " (" + strings.Join(running, ", ") + ")"
				}
			}
			list = append(list, name)
		}
		slices.Sort(list)
		t.report(limit, strings.Join(list, "; "))
		exit(t.code)
	})
}
