package nixl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/railscope/railscope/bench/read"
	"github.com/railscope/railscope/bench/record"
	"github.com/railscope/railscope/internal/terminal"
)

// Runner runs combinations of settings.
type Runner struct {
	Settings    Settings
	Environment map[string]string // relevant environment of nixlbench
	Watch       func() *record.Recorder
	Line        func(text string) // shows progress to the user
	Output      io.Writer         // receives the output of nixlbench as it arrives; nil drops it
}

// maxOutput bounds each of the two parts of a run's output that are kept, the beginning and the end, in bytes.
const maxOutput = 4 << 20

// Run runs one combination. The user starts the target with the printed command. The initiator, which waits for 25 s,
// is restarted until the timeout.
func (r *Runner) Run(ctx context.Context, c Combination) Row {
	row := Row{Combination: c}
	r.Line(fmt.Sprintf("%s: start the target on %s now, and keep it until it ends:\n  nixlbench %s", c, r.Settings.Peer,
		strings.Join(r.Settings.Args(c), " ")))
	ctx, cancel := context.WithTimeout(ctx, r.Settings.Timeout)
	defer cancel()
	for {
		output, rec, err := r.once(ctx, c)
		row.Results, _ = read.File("nixlbench", strings.NewReader(output)) // missing results are visible in the row
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
		row.Causes = append(Causes(r.Settings, c, output), Environment(r.Environment)...)
		if len(row.Causes) == 0 {
			row.Causes = []string{"its last line: " + lastLine(output)}
		}
		return row
	}
}

// once runs the initiator until it exits.
func (r *Runner) once(ctx context.Context, c Combination) (string, *record.Record, error) {
	cmd := exec.CommandContext(ctx, r.Settings.Program, r.Settings.Args(c)...) //nolint:gosec // chosen by user
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

// addRails adds the bytes that the rails carried during the run.
func (row *Row) addRails(rec *record.Record) {
	if rec == nil {
		return
	}
	row.Rails, row.TCP, row.devices = map[string]int64{}, 0, map[string]string{}
	for _, rail := range rec.Rails {
		row.devices[rail.Rail] = rail.Device
		for _, d := range []record.Direction{rail.Transmit, rail.Receive} {
			if v := d.Best(); v != nil {
				row.Rails[rail.Rail] += *v
			}
		}
		if rail.TCP != nil {
			row.TCP += *rail.TCP
		}
	}
}

// minBytes is the minimum that a run moves by RDMA if it uses RDMA.
const minBytes = 1 << 20

// almostAll is the share of the bytes above which the remaining rails count as unused: connections are made over all
// rails.
const almostAll = 0.95

// doubts returns how a successful run deviated from its settings, such as the transport that carried the bytes.
func (r *Runner) doubts(row Row) (list []string) {
	for _, result := range row.Results {
		if result.Failed {
			list = append(list, result.Marks...)
		}
	}
	if row.Rails == nil {
		return list
	}
	sum, other := int64(0), int64(0)
	best := ""
	for _, name := range slices.Sorted(maps.Keys(row.Rails)) {
		v := row.Rails[name]
		sum += v
		if best == "" || v > row.Rails[best] {
			best = name
		}
		if wanted := row.Combination.Devices; len(wanted) > 0 && !slices.Contains(wanted, row.devices[name]) {
			other += v
		}
	}
	percent := func(part int64) string { return terminal.Percent(float64(part) / float64(sum)) }
	switch {
	case sum < minBytes || row.TCP > sum:
		list = append(list, "nothing went by RDMA: the figures are those of another transport")
		if sum >= minBytes {
			list[len(list)-1] = "most went by TCP: the figures are not those of RDMA"
		}
		list = append(list, Environment(r.Environment)...)
	case len(row.Combination.Devices) == 0 && len(row.Rails) > 1 && float64(row.Rails[best]) >= almostAll*float64(sum):
		list = append(list, fmt.Sprintf("all rails were asked for, and rail %s carried %s: the figures are those of "+
			"one rail; set UCX_MAX_RMA_RAILS and leave UCX_NET_DEVICES unset at both ends", best,
			percent(row.Rails[best])))
	case float64(other) > (1-almostAll)*float64(sum):
		list = append(list, fmt.Sprintf("rails that were not asked for carried %s: the figures are not those of %s",
			percent(other), strings.Join(row.Combination.Devices, ",")))
	}
	return list
}

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// bounded keeps the beginning and the end of its input.
type bounded struct {
	head, tail bytes.Buffer
	dropped    bool
	also       io.Writer
}

// String returns the kept parts, with a line break where text is missing.
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
