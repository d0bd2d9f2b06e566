package bench

import (
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// extraTables are one grid for each kind of extra of which there are bursts.
func extraTables(r probe.Result) (tables [][][]grid.Cell) {
	for _, kind := range probe.Kinds() {
		var list []probe.Measured
		for _, m := range r.Extras {
			if m.Kind == kind && m.Failure == nil && len(m.Flows) > 0 {
				list = append(list, m)
			}
		}
		if len(list) == 0 {
			continue
		}
		rows := map[probe.Kind]func([]probe.Measured) [][]grid.Cell{probe.Both: bothRows, probe.Loopback: loopbackRows,
			probe.Paths: pathRows, probe.Contention: pairRows, probe.GPU: gpuRows(r)}[kind]
		if rows != nil { // else they are in the comparison
			tables = append(tables, rows(list))
		}
	}
	return tables
}

// extraFailures say which extras were not made, or not to the end; those that fail alike together.
func extraFailures(r probe.Result) (list []string) {
	whats := map[string][]string{}
	for _, m := range r.Extras {
		if m.Failure == nil {
			continue
		}
		what := strings.ReplaceAll(string(m.Kind), "_", " ")
		if m.Memory != "" {
			what = m.Memory
		}
		why := m.Failure.Error()
		if whats[why] == nil {
			list = append(list, why)
		}
		whats[why] = append(whats[why], what)
	}
	for i, why := range list {
		list[i] = strings.Join(slices.Compact(whats[why]), ", ") + " not measured: " + why
	}
	return list
}

// who names the rails of a burst.
func who(m probe.Measured) string {
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

// together is the goodput of one operation in Gb/s, or why it is not known.
func together(m probe.Measured, op probe.Op) grid.Cell {
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

// quantile is a latency of a burst's only flow of an operation, in µs.
func quantile(m probe.Measured, op probe.Op, q float64) grid.Cell {
	var of *probe.Latency
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

func bothRows(list []probe.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("BOTH DIRECTIONS", "WRITE Gb/s", "READ Gb/s", "SUM Gb/s")}
	for _, m := range list {
		sum := grid.Number("")
		write, okW := m.Goodput(probe.Write)
		if read, okR := m.Goodput(probe.Read); okW && okR {
			sum = grid.Number(grid.Gigabits(write + read))
		}
		rows = append(rows, []grid.Cell{grid.Name(who(m)), together(m, probe.Write), together(m, probe.Read), sum})
	}
	return rows
}

func loopbackRows(list []probe.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("LOOPBACK", "Gb/s", "P50 µs", "P99 µs")}
	for _, m := range list {
		f := m.Flows[0]
		rows = append(rows, []grid.Cell{grid.Name("rail " + f.Rail + " to rail " + f.Other), together(m, probe.Write),
			quantile(m, probe.Write, 0.5), quantile(m, probe.Write, 0.99)})
	}
	return rows
}

func pathRows(list []probe.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("PATH", "UDP PORT", "Gb/s", "P50 µs", "LOST")}
	for _, m := range list {
		f, port, lost := m.Flows[0], "", ""
		if f.UDPPort > 0 {
			port = strconv.Itoa(int(f.UDPPort))
		}
		if l := f.Loss; l != nil && l.Packets > 0 {
			lost = terminal.Percent(l.Rate())
		}
		rows = append(rows, []grid.Cell{grid.Name("rail " + f.Rail + ", label " + strconv.Itoa(f.Path)), grid.Number(port),
			together(m, probe.Write), quantile(m, probe.Write, 0.5),
			grid.Number(lost).ColorIf(f.PathLoss() > 0, terminal.Yellow)})
	}
	return rows
}

func pairRows(list []probe.Measured) [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("PAIRS OF RAILS", "Gb/s", "OF THE SUM ALONE")}
	contended := probe.Contended(list)
	for _, m := range list {
		part := ""
		for _, c := range contended {
			if len(m.Flows) == 2 && m.Flows[0].Rail == c.Rail && m.Flows[1].Rail == c.Other {
				part = terminal.Percent(c.Ratio)
			}
		}
		rows = append(rows, []grid.Cell{grid.Name(who(m)), together(m, probe.Write), grid.Number(part)})
	}
	return rows
}

// gpuRows are bursts between memory of GPUs, and of each rail what part that is of the same between the hosts.
func gpuRows(r probe.Result) func([]probe.Measured) [][]grid.Cell {
	return func(list []probe.Measured) [][]grid.Cell {
		rows := [][]grid.Cell{append([]grid.Cell{grid.Name("GPU MEMORY"), {Text: "KIND"}},
			grid.Titles("Gb/s", "P50 µs", "OF HOST MEMORY")...)}
		rows[0][2].Right = true
		for _, m := range list {
			part := ""
			if ratio, memory := r.GPUOf(m.Flows[0].Rail); len(m.Flows) == 1 && memory != "" {
				part = terminal.Percent(ratio)
			}
			rows = append(rows, []grid.Cell{grid.Name(who(m)), {Text: m.Memory}, together(m, probe.Write),
				quantile(m, probe.Write, 0.5), grid.Number(part)})
		}
		return rows
	}
}

// jsonExtra is one burst of an extra.
type jsonExtra struct {
	Kind       probe.Kind   `json:"kind"`
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
	Op      probe.Op     `json:"op"`
	Path    int          `json:"path"`
	UDPPort *uint16      `json:"udp_port"`
	Goodput *float64     `json:"goodput_bytes_per_second"`
	Latency *jsonLatency `json:"latency_seconds"`
	Loss    *jsonLoss    `json:"loss"`
	Failure *jsonFailure `json:"failure"`
}

func jsonExtras(r probe.Result) []jsonExtra {
	list := []jsonExtra{}
	for _, m := range r.Extras {
		out := jsonExtra{Kind: m.Kind, QueuePairs: nonZero(m.QueuePairs), Memory: nonZero(m.Memory), Size: nonZero(m.Size),
			Flows: []jsonFlow{}, Transfer: newJSONLatency(m.Transfer), Failure: newJSONFailure(m.Failure)}
		if m.TCP != nil {
			out.TCP = nonZero(m.TCP.BytesPerSecond)
		}
		for _, f := range m.Flows {
			one := jsonFlow{Rail: f.Rail, Other: nonZero(f.Other), Op: f.Op, Path: f.Path, UDPPort: nonZero(f.UDPPort),
				Goodput: finite(f.Goodput), Latency: newJSONLatency(f.Latency), Failure: newJSONFailure(f.Failure)}
			if l := f.Loss; l != nil {
				one.Loss = &jsonLoss{l.Retransmits, l.PeerEvents, l.Packets}
			}
			out.Flows = append(out.Flows, one)
		}
		list = append(list, out)
	}
	return list
}
