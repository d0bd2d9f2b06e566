package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench/read"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rail"
)

type readSettings struct {
	*common
	files            []string
	format, lineRate string
}

// readColumns is how wide the table is at least, if it needs to be: several tools have many columns.
const readColumns = 140

func (s *readSettings) define(app *kingpin.Application) *readSettings {
	cmd := app.Command("read", "Read results of perftest, iperf3, nccl-tests, nixlbench and NCCL, and show them in one "+
		"table, in Gb/s and µs. It needs no RDMA. Impossible values are kept and marked. The exit code is 1 if a file "+
		"could not be read.")
	cmd.Arg("file", "Files with the output of a tool, text or JSON; - is standard input.").Required().
		StringsVar(&s.files)
	cmd.Flag("line-rate", "Rate that no result can exceed, such as 200Gb/s. Without it, that of this node's rail with "+
		"the device's name.").Envar("RAILSCOPE_READ_LINE_RATE").PlaceHolder("RATE").StringVar(&s.lineRate)
	formatFlag(cmd, "RAILSCOPE_READ_FORMAT", &s.format, "table", "json")
	return s
}

func (s *readSettings) run(ctx context.Context, parts *unfinished, w io.Writer) error {
	defer parts.begin("read", nil)()
	var limit config.Rate
	if s.lineRate != "" {
		if err := limit.UnmarshalText([]byte(s.lineRate)); err != nil || limit <= 0 {
			return misuse{fmt.Errorf("--line-rate must be a rate such as 200Gb/s, not %q", s.lineRate)}
		}
	}
	results, failed := []read.Result{}, false
	for _, name := range s.files {
		found, err := readFile(name)
		if results = append(results, found...); err != nil {
			failed = true
			fmt.Fprintln(os.Stderr, err)
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
	if err == nil && failed {
		err = errReported
	}
	return err
}

func readFile(name string) ([]read.Result, error) {
	if name == "" { // the parser's form of -
		return read.File("-", os.Stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: is a directory: name the files in it", name)
	}
	return read.File(name, f)
}

// beside are this node's own figures; on a machine without rails there are none.
func (s *readSettings) beside(ctx context.Context) (b read.Beside) {
	cfg, err := s.load()
	if err != nil {
		return b
	}
	finder, _ := s.newFinder(cfg, listBudget)
	rails, _ := finder.Rails() // without those that cannot be read
	for _, r := range rails {
		status, err := rail.NewPort(s.sysfs, r, nil).Status()
		if err == nil {
			b.Rails = append(b.Rails, read.Rail{Device: r.Device, LineRate: status.Limits.Rate})
		}
	}
	if len(b.Rails) == 0 {
		return b
	}
	running, err := s.runningStatus(ctx, doctorBudget)
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
