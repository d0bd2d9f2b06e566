package record

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
)

// Run is one run of a comparison.
type Run struct {
	Transport string   `json:"transport"` // rdma or tcp, as set in the environment
	Seconds   float64  `json:"seconds"`
	ExitCode  int      `json:"exit_code"`
	Figure    *float64 `json:"figure"`     // figure that the command printed
	RDMA      int64    `json:"rdma_bytes"` // bytes that the rails carried
	TCP       *int64   `json:"tcp_bytes"`

	Collectives *Collectives `json:"collectives"` // collectives from NCCL Inspector
	Network     string       `json:"network"`     // networks that NCCL's log names; empty: it was not on
}

// NewRun returns the part of a record that a comparison uses.
func NewRun(transport string, r Record, figure *float64) Run {
	out := Run{Transport: transport, Seconds: r.Seconds, ExitCode: r.ExitCode, Figure: figure,
		Collectives: r.Collectives, Network: networks(r.Log)}
	for _, rail := range r.Rails {
		out.RDMA += rail.carried()
		if rail.TCP != nil {
			out.TCP = new(*rail.TCP + valueOf(out.TCP))
		}
	}
	return out
}

func valueOf(v *int64) int64 {
	if v == nil {
		return 0
	}
	return *v
}

// Comparison is one command, run over RDMA and over TCP.
type Comparison struct {
	Version int      `json:"version"`
	Command []string `json:"command"`
	Runs    []Run    `json:"runs"`

	RDMA    *float64 `json:"rdma_seconds"` // medians of the successful runs
	TCP     *float64 `json:"tcp_seconds"`
	Speedup *float64 `json:"speedup_ratio"` // TCP ÷ RDMA
	Clear   bool     `json:"clear"`         // the ranges of both do not overlap
	Figure  *Figures `json:"figure"`        // the figures of the runs; nil if a run printed none
	Verdict string   `json:"verdict"`
	Good    bool     `json:"good"`
}

// Transports of runs.
const (
	RDMA = "rdma"
	TCP  = "tcp"
)

// worthIt is the speed-up above which RDMA is worth its effort for a job: the threshold of tutorials.
const (
	worthIt    = 1.5
	notWorthIt = "below 1.5: communication is a small part of it, or RDMA is slow"
)

// NewComparison compares the runs of a command.
func NewComparison(command []string, runs []Run) Comparison {
	c := Comparison{Version: Version, Command: command, Runs: append([]Run{}, runs...)}
	rdma, tcp := c.seconds(RDMA), c.seconds(TCP)
	if len(rdma) > 0 && len(tcp) > 0 {
		c.RDMA, c.TCP = new(stats.Median(rdma)), new(stats.Median(tcp))
		c.Clear = apart(rdma, tcp)
		if *c.RDMA > 0 {
			c.Speedup = new(*c.TCP / *c.RDMA)
		}
		c.Figure = newFigures(c.figures(RDMA), c.figures(TCP), len(rdma), len(tcp))
	}
	c.Verdict, c.Good = c.sentence()
	return c
}

// apart reports whether the ranges of two lists do not overlap.
func apart(a, b []float64) bool {
	return slices.Max(a) < slices.Min(b) || slices.Max(b) < slices.Min(a)
}

func (c Comparison) seconds(transport string) (list []float64) {
	for _, r := range c.Runs {
		if r.Transport == transport && r.ExitCode == 0 {
			list = append(list, r.Seconds)
		}
	}
	return list
}

func (c Comparison) sentence() (string, bool) {
	failed := slices.ContainsFunc(c.Runs, func(r Run) bool { return r.ExitCode != 0 })
	without := slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Transport == RDMA && r.RDMA < minBytes })
	leaks := slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Transport == TCP && r.RDMA >= minBytes })
	switch {
	case failed:
		return "runs failed: nothing is compared", false
	case c.Speedup == nil:
		return "not enough runs", false
	case without:
		return "a run over RDMA moved nothing by RDMA: both are the same transport, or the rails do not count it", false
	case leaks:
		return "runs over TCP moved bytes by RDMA as well: the variables that forbid it did not reach the job", false
	}
	text, good := c.ofSeconds()
	if printed := slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Figure != nil }); c.Figure == nil && printed {
		text += "; not every run printed a figure, so figures are not compared"
	}
	if c.Figure != nil {
		ofFigure := c.Figure.sentence()
		switch {
		case c.Figure.Clear:
			good = c.Figure.Ratio != nil && *c.Figure.Ratio > 1
			text = ofFigure + fmt.Sprintf("; seconds, TCP ÷ RDMA: %s ×", grid.Ratio(*c.Speedup))
		case c.Clear:
			text += "; " + ofFigure
		default:
			text = ofFigure + fmt.Sprintf(", nor do the seconds (%s × as fast)", grid.Ratio(*c.Speedup))
		}
	}
	if len(c.seconds(RDMA)) == 1 || len(c.seconds(TCP)) == 1 {
		text += "; the spread of one run is not known: use --repeat"
	}
	return text, good
}

// ofSeconds returns the verdict on the times of the runs.
func (c Comparison) ofSeconds() (string, bool) {
	switch {
	case !c.Clear:
		return fmt.Sprintf("no difference beyond the runs' own spread (%s × as fast)", grid.Ratio(*c.Speedup)), true
	case *c.Speedup >= worthIt:
		return fmt.Sprintf("over RDMA the job is %s × as fast", grid.Ratio(*c.Speedup)), true
	case *c.Speedup > 1:
		return fmt.Sprintf("over RDMA the job is %s × as fast, %s", grid.Ratio(*c.Speedup), notWorthIt), true
	}
	return fmt.Sprintf("over RDMA the job is slower: %s × as fast as over TCP", grid.Ratio(*c.Speedup)), false
}

// WriteJSON writes the comparison as one object for scripts.
func (c Comparison) WriteJSON(w io.Writer) error {
	return terminal.WriteJSON(w, c)
}

// WriteTable writes the comparison for people.
func (c Comparison) WriteTable(w io.Writer, color bool) error {
	p := grid.NewPrinter(w, color)
	colour := terminal.Yellow
	if c.Good {
		colour = terminal.Green
	}
	for _, line := range terminal.Wrap(terminal.Plain(c.Verdict)+".", grid.MaxColumns) {
		p.Painted(line, colour)
	}
	for _, rows := range [][][]grid.Cell{c.Summary(), c.Table(), c.CollectiveTable()} {
		if len(rows) > 1 {
			p.Line("")
			p.Table(rows)
		}
	}
	return p.Flush()
}

// Summary returns the medians, spreads and ratios of both transports: what the command printed, its collectives and its
// time. Above 1, RDMA is ahead.
func (c Comparison) Summary() [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("MEDIAN", "RDMA", "SPREAD", "TCP", "SPREAD", "SPEED-UP")}
	if c.RDMA == nil || c.TCP == nil {
		return rows
	}
	add := func(name, rdma, rdmaSpread, tcp, tcpSpread string, ratio *float64) {
		text := ""
		if ratio != nil {
			text = grid.Ratio(*ratio)
		}
		rows = append(rows, []grid.Cell{grid.Name(name), grid.Number(rdma), grid.Number(rdmaSpread), grid.Number(tcp),
			grid.Number(tcpSpread), grid.Number(text)})
	}
	if f := c.Figure; f != nil {
		add("figure", fourDigits(f.RDMA), percent(f.RDMASpread), fourDigits(f.TCP), percent(f.TCPSpread), f.Ratio)
	}
	if rdma, tcp := c.collectives(RDMA), c.collectives(TCP); len(rdma) > 0 && len(tcp) > 0 {
		a, b := stats.Median(rdma), stats.Median(tcp)
		ratio := new(b / a)
		if a <= 0 || b <= 0 {
			ratio = nil
		}
		add("seconds of collectives", grid.ThreeDigits(a), percent(spread(rdma)), grid.ThreeDigits(b),
			percent(spread(tcp)),
			ratio)
	}
	add("seconds", grid.Decimal(*c.RDMA, 2), percent(spread(c.seconds(RDMA))), grid.Decimal(*c.TCP, 2),
		percent(spread(c.seconds(TCP))), c.Speedup)
	return rows
}

// collectives returns the times of collectives that the Inspector saw whole.
func (c Comparison) collectives(transport string) (list []float64) {
	for _, r := range c.Runs {
		if r.Transport == transport && r.ExitCode == 0 && r.Collectives != nil && !r.Collectives.AtLeast {
			list = append(list, r.Collectives.Seconds)
		}
	}
	return list
}

// Table returns a line for each run.
func (c Comparison) Table() [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("RUN", "SECONDS", "FIGURE", "RDMA MiB", "TCP MiB", "EXIT CODE")}
	named := slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Network != "" })
	if named {
		rows[0] = append(rows[0], grid.Cell{Text: "NCCL'S NETWORK"})
	}
	for _, r := range c.Runs {
		row := []grid.Cell{grid.Name(r.Transport), grid.Number(grid.Decimal(r.Seconds, 2)),
			grid.Number(fourDigits(r.Figure)), mebibytes(&r.RDMA), mebibytes(r.TCP),
			grid.Number(fmt.Sprint(r.ExitCode))}
		if named {
			row = append(row, grid.Cell{Text: terminal.Plain(cmp.Or(r.Network, "-"))})
		}
		rows = append(rows, row)
	}
	return rows
}

// CollectiveTable returns a line for each transport with collectives from NCCL Inspector.
func (c Comparison) CollectiveTable() [][]grid.Cell {
	rows := [][]grid.Cell{collectiveTitles()}
	for _, transport := range []string{RDMA, TCP} {
		var list []*Collectives
		for _, r := range c.Runs {
			if r.Transport == transport && r.ExitCode == 0 && r.Collectives != nil {
				list = append(list, r.Collectives)
			}
		}
		if len(list) > 0 {
			slices.SortFunc(list, func(a, b *Collectives) int { return cmp.Compare(a.Share, b.Share) })
			rows = append(rows, list[len(list)/2].row("median, "+transport))
		}
	}
	return rows
}
