package nixl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/railscope/railscope/bench/read"
	"github.com/railscope/railscope/bench/record"
)

// Runner runs combinations.
type Runner struct {
	Settings    Settings
	Environment map[string]string // of nixlbench, as far as it matters
	Watch       func() *record.Recorder
	Line        func(text string) // what the user reads meanwhile
	Output      io.Writer         // of nixlbench, as it comes; nil: nowhere
}

// maxOutput bounds what is kept of the output of a run, in bytes: up to as much again of its end.
const maxOutput = 4 << 20

// Run runs one combination. The target is started by the user: its command is printed, and the initiator, which waits
// for 25 s, is started again until the time is up.
func (r *Runner) Run(ctx context.Context, c Combination) Row {
	row := Row{Combination: c}
	r.Line(fmt.Sprintf("%s: start the target on %s now, and keep it until it ends:\n  nixlbench %s", c, r.Settings.Peer,
		strings.Join(r.Settings.Args(c), " ")))
	ctx, cancel := context.WithTimeout(ctx, r.Settings.Timeout)
	defer cancel()
	for {
		output, rec, err := r.once(ctx, c)
		row.Results, _ = read.File("nixlbench", strings.NewReader(output)) // what is missing shows in the results
		row.addRails(rec)
		switch {
		case err == nil && len(row.Results) > 0:
			row.Causes = r.doubts(row)
			return row
		case ctx.Err() == nil && strings.Contains(output, "ASIO Connection timeout"):
			r.Line("no target yet; waiting for another 25 s")
			continue
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			row.Failure = fmt.Sprintf("it did not end within %v", r.Settings.Timeout)
		case err != nil:
			row.Failure = err.Error()
		default:
			row.Failure = "it printed no results"
		}
		row.Causes = append(Causes(r.Settings, output), Environment(r.Environment)...)
		if len(row.Causes) == 0 {
			row.Causes = []string{"its last line: " + lastLine(output)}
		}
		return row
	}
}

// once runs the initiator to its end.
func (r *Runner) once(ctx context.Context, c Combination) (string, *record.Record, error) {
	cmd := exec.CommandContext(ctx, r.Settings.Program, r.Settings.Args(c)...) //nolint:gosec // the user names it
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	out := &bounded{also: r.Output}
	cmd.Stdout, cmd.Stderr = out, out
	var watch *record.Recorder
	if r.Watch != nil {
		watch = r.Watch()
	}
	err := cmd.Run()
	var rec *record.Record
	if watch != nil {
		rec = new(watch.Stop())
	}
	return out.String(), rec, err
}

// addRails adds what the rails carried meanwhile.
func (row *Row) addRails(rec *record.Record) {
	if rec == nil {
		return
	}
	row.Rails, row.TCP = map[string]int64{}, 0
	for _, one := range rec.Rails {
		for _, d := range []record.Direction{one.Transmit, one.Receive} {
			if v := d.Best(); v != nil {
				row.Rails[one.Rail] += *v
			}
		}
		if one.TCP != nil {
			row.TCP += *one.TCP
		}
	}
}

// leastBytes is what a run moves by RDMA at least, if it uses it.
const leastBytes = 1 << 20

// doubts are what a run that ended well did otherwise than asked.
func (r *Runner) doubts(row Row) (list []string) {
	sum := int64(0)
	for _, v := range row.Rails {
		sum += v
	}
	if row.Rails != nil && sum < leastBytes {
		list = append(list, "nothing went by RDMA: the figures are those of another transport")
		list = append(list, Environment(r.Environment)...)
	}
	return list
}

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// bounded keeps the beginning and the end of what is written.
type bounded struct {
	head, tail bytes.Buffer
	dropped    bool
	also       io.Writer
}

// String is what was kept, with a line break where something is missing.
func (b *bounded) String() string {
	gap := ""
	if b.dropped {
		gap = "\n"
	}
	return b.head.String() + gap + b.tail.String()
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), maxOutput/2-b.head.Len())
	b.head.Write(p[:n])
	b.tail.Write(p[n:])
	if b.tail.Len() > maxOutput {
		b.tail.Next(b.tail.Len() - maxOutput/2)
		b.dropped = true
	}
	if b.also != nil {
		_, _ = b.also.Write(p) // the terminal may be gone
	}
	return len(p), nil
}
