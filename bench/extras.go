package bench

import (
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// extraTables returns one table for each kind of extra that has a table and bursts.
func extraTables(r result.Result) (tables [][][]grid.Cell) {
	for _, measurement := range Measurements() {
		var list []result.Measured
		for _, m := range r.Extras {
			if m.Kind == measurement.Kind && m.Failure == nil && len(m.Flows) > 0 {
				list = append(list, m)
			}
		}
		if len(list) > 0 && measurement.table != nil {
			tables = append(tables, measurement.table(r, list))
		}
	}
	return tables
}

// who returns the names of a burst's rails.
func who(m result.Measured) string {
	var rails []string
	for _, f := range m.Flows {
		if !slices.Contains(rails, f.Rail) {
			rails = append(rails, f.Rail)
		}
	}
	if len(rails) == 1 {
		return "rail " + rails[0]
	}
	return "rails " + strings.Join(rails, ", ")
}

// together returns the goodput of one operation in Gb/s, or why it is unknown.
func together(m result.Measured, op result.Op) grid.Cell {
	for _, f := range m.Flows {
		if f.Op == op && f.Failure != nil {
			return grid.Number(string(f.Failure.Reason)).ColorIf(true, terminal.Red)
		}
	}
	v, ok := m.Goodput(op)
	if !ok {
		return grid.Number("")
	}
	return grid.Number(grid.Gigabits(v))
}

// quantile returns a latency quantile of the burst's only flow of an operation, in µs.
func quantile(m result.Measured, op result.Op, q float64) grid.Cell {
	var of *result.Latency
	for _, f := range m.Flows {
		if f.Op == op && of != nil {
			return grid.Number("")
		}
		if f.Op == op {
			of = f.Latency
		}
	}
	if of == nil || len(of.Samples) == 0 {
		return grid.Number("")
	}
	return grid.Number(grid.Microseconds(of.Quantile(q)))
}

func bothRows(_ result.Result, list []result.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("BOTH DIRECTIONS", "WRITE Gb/s", "READ Gb/s", "SUM Gb/s")}
	for _, m := range list {
		sum := grid.Number("")
		write, okW := m.Goodput(result.Write)
		if read, okR := m.Goodput(result.Read); okW && okR {
			sum = grid.Number(grid.Gigabits(write + read))
		}
		rows = append(rows, []grid.Cell{grid.Name(who(m)), together(m, result.Write), together(m, result.Read), sum})
	}
	return rows
}

func loopbackRows(_ result.Result, list []result.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("LOOPBACK", "Gb/s", "P50 µs", "P99 µs")}
	for _, m := range list {
		f := m.Flows[0]
		rows = append(rows, []grid.Cell{grid.Name("rail " + f.Rail + " to rail " + f.Other), together(m, result.Write),
			quantile(m, result.Write, 0.5), quantile(m, result.Write, 0.99)})
	}
	return rows
}

func pathRows(_ result.Result, list []result.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("PATH", "UDP PORT", "Gb/s", "P50 µs", "LOST")}
	for _, m := range list {
		f, port, lost := m.Flows[0], "", ""
		if f.UDPPort > 0 {
			port = strconv.Itoa(int(f.UDPPort))
		}
		if l := f.Loss; l != nil && l.Packets > 0 {
			lost = terminal.Percent(l.Rate())
		}
		rows = append(rows, []grid.Cell{grid.Name("rail " + f.Rail + ", label " + strconv.Itoa(f.Path)),
			grid.Number(port), together(m, result.Write), quantile(m, result.Write, 0.5),
			grid.Number(lost).ColorIf(f.PathLoss() > 0, terminal.Yellow)})
	}
	return rows
}

// bestOfRails keeps, of several bursts over the same rails, the best one, as [probe.Contended] does.
func bestOfRails(list []result.Measured) (best []result.Measured) {
	for _, m := range list {
		i := slices.IndexFunc(best, func(o result.Measured) bool { return byRails(o, m) == 0 })
		if i < 0 {
			best = append(best, m)
			continue
		}
		now, known := m.Goodput(result.Write)
		if before, _ := best[i].Goodput(result.Write); known && now > before {
			best[i] = m
		}
	}
	return best
}

func pairRows(_ result.Result, list []result.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("PAIRS OF RAILS", "Gb/s", "OF THE SUM ALONE")}
	contended := result.Contended(list)
	for _, m := range bestOfRails(list) {
		part := ""
		for _, c := range contended {
			if len(m.Flows) == 2 && m.Flows[0].Rail == c.Rail && m.Flows[1].Rail == c.Other {
				part = terminal.Percent(c.Ratio)
			}
		}
		rows = append(rows, []grid.Cell{grid.Name(who(m)), together(m, result.Write), grid.Number(part)})
	}
	return rows
}

// gpuRows returns bursts between memory that GPUs use, by kind, with each rail's ratio to the same burst between
// plain host memory.
func gpuRows(r result.Result, list []result.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{append([]grid.Cell{grid.Name("BY MEMORY"), {Text: "KIND"}},
		grid.Titles("Gb/s", "P50 µs", "OF HOST MEMORY")...)}
	rows[0][2].Right = true
	for _, m := range list {
		part := ""
		if ratio, known := r.OfHostMemory(m); known {
			part = terminal.Percent(ratio)
		}
		rows = append(rows, []grid.Cell{grid.Name(who(m)), {Text: m.Memory}, together(m, result.Write),
			quantile(m, result.Write, 0.5), grid.Number(part)})
	}
	return rows
}

// jsonExtra is one burst of an extra.
type jsonExtra struct {
	Kind       result.Kind  `json:"kind"`
	QueuePairs *int         `json:"queue_pairs"`
	Memory     *string      `json:"memory"`
	Size       *int64       `json:"size"`
	Flows      []jsonFlow   `json:"flows"`
	Transfer   *jsonLatency `json:"transfer_seconds"`
	TCP        *float64     `json:"tcp_bytes_per_second"`
	Failure    *jsonFailure `json:"failure"`
}

type jsonFlow struct {
	Rail    string       `json:"rail"`
	Other   *string      `json:"to_rail"`
	Op      result.Op    `json:"op"`
	Path    int          `json:"path"`
	UDPPort *uint16      `json:"udp_port"`
	Goodput *float64     `json:"goodput_bytes_per_second"`
	Latency *jsonLatency `json:"latency_seconds"`
	Loss    *jsonLoss    `json:"loss"`
	Failure *jsonFailure `json:"failure"`
}

func jsonExtras(r result.Result) []jsonExtra {
	list := []jsonExtra{}
	for _, m := range r.Extras {
		out := jsonExtra{Kind: m.Kind, QueuePairs: nonZero(m.QueuePairs), Memory: nonZero(m.Memory),
			Size:  nonZero(m.Size),
			Flows: []jsonFlow{}, Transfer: newJSONLatency(m.Transfer), Failure: newJSONFailure(m.Failure)}
		if m.TCP != nil {
			out.TCP = nonZero(m.TCP.BytesPerSecond)
		}
		for _, f := range m.Flows {
			one := jsonFlow{Rail: f.Rail, Other: nonZero(f.Other), Op: f.Op, Path: f.Path, UDPPort: nonZero(f.UDPPort),
				Goodput: stats.Finite(f.Goodput), Latency: newJSONLatency(f.Latency),
				Failure: newJSONFailure(f.Failure)}
			if l := f.Loss; l != nil {
				one.Loss = &jsonLoss{l.Retransmits, l.PeerEvents, l.Packets}
			}
			out.Flows = append(out.Flows, one)
		}
		list = append(list, out)
	}
	return list
}
