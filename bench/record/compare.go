package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
)

// Run is one run of a comparison.
type Run struct {
	Transport string   `json:"transport"` // rdma or tcp, as the environment asked for
	Seconds   float64  `json:"seconds"`
	ExitCode  int      `json:"exit_code"`
	Figure    *float64 `json:"figure"`     // that the command printed
	RDMA      int64    `json:"rdma_bytes"` // that the rails carried
	TCP       *int64   `json:"tcp_bytes"`

	Collectives *Collectives `json:"collectives"` // by NCCL Inspector
}

// NewRun is what a comparison keeps of a record.
func NewRun(transport string, r Record, figure *float64) Run {
	out := Run{Transport: transport, Seconds: r.Seconds, ExitCode: r.ExitCode, Figure: figure,
		Collectives: r.Collectives}
	for _, one := range r.Rails {
		out.RDMA += one.carried()
		if one.TCP != nil {
			out.TCP = new(*one.TCP + valueOf(out.TCP))
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

// Comparison is the same command over RDMA and over TCP.
type Comparison struct {
	Version int      `json:"version"`
	Command []string `json:"command"`
	Runs    []Run    `json:"runs"`

	RDMA    *float64 `json:"rdma_seconds"` // medians of the runs that ended well
	TCP     *float64 `json:"tcp_seconds"`
	Speedup *float64 `json:"speedup_ratio"` // TCP ÷ RDMA
	Clear   bool     `json:"clear"`         // the ranges of both do not overlap
	Verdict string   `json:"verdict"`
	Good    bool     `json:"good"`
}

// Transports of runs.
const (
	RDMA = "rdma"
	TCP  = "tcp"
)

// worthIt is the speed-up from which RDMA is worth it for a job: the tutorials' threshold.
const worthIt = 1.5

// NewComparison compares runs.
func NewComparison(command []string, runs []Run) Comparison {
	c := Comparison{Version: Version, Command: command, Runs: append([]Run{}, runs...)}
	rdma, tcp := c.seconds(RDMA), c.seconds(TCP)
	if len(rdma) > 0 && len(tcp) > 0 {
		c.RDMA, c.TCP = new(median(rdma)), new(median(tcp))
		c.Clear = slices.Max(rdma) < slices.Min(tcp) || slices.Max(tcp) < slices.Min(rdma)
		if *c.RDMA > 0 {
			c.Speedup = new(*c.TCP / *c.RDMA)
		}
	}
	c.Verdict, c.Good = c.sentence()
	return c
}

func (c Comparison) seconds(transport string) (list []float64) {
	for _, r := range c.Runs {
		if r.Transport == transport && r.ExitCode == 0 {
			list = append(list, r.Seconds)
		}
	}
	return list
}

// figure is the median of what the command printed; empty: nothing.
func (c Comparison) figure(transport string) string {
	var list []float64
	for _, r := range c.Runs {
		if r.Transport == transport && r.ExitCode == 0 && r.Figure != nil {
			list = append(list, *r.Figure)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%.4g", median(list))
}

func (c Comparison) sentence() (string, bool) {
	failed := slices.ContainsFunc(c.Runs, func(r Run) bool { return r.ExitCode != 0 })
	without := slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Transport == RDMA && r.RDMA < leastBytes })
	leaks := slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Transport == TCP && r.RDMA >= leastBytes })
	switch {
	case failed:
		return "runs failed: nothing is compared", false
	case c.Speedup == nil:
		return "not enough runs", false
	case without:
		return "a run over RDMA moved nothing by RDMA: both are the same transport, or the rails do not count it", false
	case leaks:
		return "runs over TCP moved bytes by RDMA as well: the variables that forbid it did not reach the job", false
	case !c.Clear:
		return fmt.Sprintf("no difference beyond the runs' own spread (%s × as fast)", grid.Ratio(*c.Speedup)), true
	case *c.Speedup >= worthIt:
		return fmt.Sprintf("over RDMA the job is %s × as fast", grid.Ratio(*c.Speedup)), true
	case *c.Speedup > 1:
		return fmt.Sprintf("over RDMA the job is %s × as fast, below %.1f: communication is a small part of it, or RDMA is "+
			"slow", grid.Ratio(*c.Speedup), worthIt), true
	}
	return fmt.Sprintf("over RDMA the job is slower: %s × as fast as over TCP", grid.Ratio(*c.Speedup)), false
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// WriteJSON writes the comparison as one object for scripts.
func (c Comparison) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(c)
}

// WriteTable writes the comparison for people.
func (c Comparison) WriteTable(w io.Writer, color bool) error {
	p := grid.NewPrinter(w, color)
	colour := terminal.Yellow
	if c.Good {
		colour = terminal.Green
	}
	for _, line := range terminal.Wrap(terminal.Plain(c.Verdict)+".", grid.MaxColumns) {
		p.Line(p.Paint(line, colour))
	}
	for _, rows := range [][][]grid.Cell{c.Table(), c.CollectiveTable()} {
		if len(rows) > 1 {
			p.Line("")
			p.Table(rows)
		}
	}
	return p.Flush()
}

// Table has a line for each run, and one for the median of each transport.
func (c Comparison) Table() [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("RUN", "SECONDS", "FIGURE", "RDMA MiB", "TCP MiB", "EXIT CODE")}
	for _, r := range c.Runs {
		figure := ""
		if r.Figure != nil {
			figure = fmt.Sprintf("%.4g", *r.Figure)
		}
		rows = append(rows, []grid.Cell{grid.Name(r.Transport), grid.Number(grid.Decimal(r.Seconds, 2)),
			grid.Number(figure), mebibytes(&r.RDMA), mebibytes(r.TCP), grid.Number(fmt.Sprint(r.ExitCode))})
	}
	if c.RDMA != nil && c.TCP != nil {
		rows = append(rows, []grid.Cell{grid.Name("median, rdma"), grid.Number(grid.Decimal(*c.RDMA, 2)),
			grid.Number(c.figure(RDMA))}, []grid.Cell{grid.Name("median, tcp"), grid.Number(grid.Decimal(*c.TCP, 2)),
			grid.Number(c.figure(TCP))})
	}
	return rows
}

// CollectiveTable has a line for each transport of which NCCL Inspector has dumped collectives.
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
