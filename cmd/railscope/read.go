package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench/read"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/terminal"
)

type readSettings struct {
	*common
	files            []string
	format, lineRate string
}

// readColumns is the maximum width of the table if its content needs it: several tools have many columns.
const readColumns = 140

func (s *readSettings) define(app *kingpin.Application) *readSettings {
	cmd := app.Command("read", "Read results of perftest, iperf, nccl-tests, nixlbench, OSU, ucx_perftest and NCCL, "+
		"and show them in one "+
		"table, in Gb/s and µs. It needs no RDMA. Impossible values are kept and marked. The exit code is 1 if a file "+
		"could not be read, a tool reported a failure, or a row cannot be attributed.")
	cmd.Arg("file", "Files with the output of a tool, text or JSON; - is standard input.").Required().
		StringsVar(&s.files)
	cmd.Flag("line-rate", "Rate that no result can exceed, such as 200Gb/s. Without it, what this node's rail with "+
		"the device's name can carry.").Envar("RAILSCOPE_READ_LINE_RATE").PlaceHolder("RATE").StringVar(&s.lineRate)
	formatFlag(cmd, "RAILSCOPE_READ_FORMAT", &s.format, "table", "json")
	return s
}

func (s *readSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("read", nil)()
	var limit config.Rate
	if s.lineRate != "" {
		if err := limit.UnmarshalText([]byte(s.lineRate)); err != nil || limit <= 0 {
			return misuse{fmt.Errorf("--line-rate must be a rate such as 200Gb/s, not %q", s.lineRate)}
		}
	}
	results, failed := []read.Result{}, false
	for _, name := range s.files {
		found, err := readFile(name)
		results = append(results, found...)
		if err != nil {
			failed = true
			fmt.Fprintln(os.Stderr, terminal.PlainLines(err.Error()))
		}
	}
	beside := s.beside(ctx)
	read.Mark(results, float64(limit), beside.Rails)
	var err error
	if s.format == "json" {
		err = read.WriteJSON(w, results)
	} else {
		err = read.WriteTable(w, results, beside, max(page().Columns, readColumns), page().Color)
	}
	failed = failed || slices.ContainsFunc(results, func(r read.Result) bool { return r.Failed })
	if err == nil && failed {
		err = errReported
	}
	return err
}

func readFile(name string) ([]read.Result, error) {
	if name == "" { // the parser passes - as an empty name
		return read.File("-", os.Stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the file was only read
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: is a directory: name the files in it", name)
	}
	return read.File(name, f)
}

// beside returns this node's own figures; a machine without rails has none.
func (s *readSettings) beside(ctx context.Context) (b read.Beside) {
	cfg, err := s.load()
	if err != nil {
		return b
	}
	rails, _ := s.host(cfg, listBudget).Finder.Rails() // rails that cannot be read are left out
	limits := make([]rail.Limits, len(rails))
	for i, r := range rails {
		if status, err := rail.NewPort(s.Sysfs, r, nil).Status(); err == nil {
			limits[i] = status.Limits
		}
	}
	for i, capacity := range rail.Capacities(limits) {
		if limits[i].Rate > 0 {
			b.Rails = append(b.Rails, read.Rail{Device: rails[i].Device, LineRate: capacity})
		}
	}
	if len(b.Rails) == 0 {
		return b
	}
	running, err := s.runningStatus(ctx, serve.GatherBudget)
	if err != nil || running.Simulated {
		return b
	}
	for _, p := range running.Peers {
		if p.Last != nil && p.Last.Goodput != nil {
			b.LastRound = max(b.LastRound, *p.Last.Goodput)
		}
	}
	return b
}
