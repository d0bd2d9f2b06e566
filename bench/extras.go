package bench

import (
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// extraTables are one grid for each kind of extra of which there are bursts.
func extraTables(r probe.Result) (tables [][][]cell) {
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
		rows := map[probe.Kind]func([]probe.Measured) [][]cell{probe.Reads: readRows, probe.Both: bothRows,
			probe.QueuePairs: queuePairRows, probe.Loopback: loopbackRows, probe.Paths: pathRows,
			probe.Contention: pairRows, probe.GPU: gpuRows(r)}[kind]
		tables = append(tables, rows(list))
	}
	return tables
}

// extraFailures say which extras were not made, or not to the end.
func extraFailures(r probe.Result) (list []string) {
	for _, m := range r.Extras {
		if m.Failure != nil {
			what := strings.ReplaceAll(string(m.Kind), "_", " ")
			if m.Memory != "" {
				what += " memory " + m.Memory
			}
			list = append(list, what+" not measured: "+m.Failure.Error())
		}
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
func together(m probe.Measured, op probe.Op) cell {
	for _, f := range m.Flows {
		if f.Op == op && f.Failure != nil {
			return number(string(f.Failure.Reason)).colorIf(true, terminal.Red)
		}
	}
	v, ok := m.Goodput(op)
	if !ok {
		return number("")
	}
	return number(gigabits(v))
}

// quantile is a latency of a burst's only flow of an operation, in µs.
func quantile(m probe.Measured, op probe.Op, q float64) cell {
	var of *probe.Latency
	for _, f := range m.Flows {
		if f.Op == op && of != nil {
			return number("")
		}
		if f.Op == op {
			of = f.Latency
		}
	}
	if of == nil || len(of.Samples) == 0 {
		return number("")
	}
	return number(microseconds(of.Quantile(q)))
}

func readRows(list []probe.Measured) [][]cell {
	rows := [][]cell{{name("RDMA READ"), number("Gb/s"), number("P50 µs"), number("P99 µs")}}
	for _, m := range list {
		rows = append(rows, []cell{name(who(m)), together(m, probe.Read), quantile(m, probe.Read, 0.5),
			quantile(m, probe.Read, 0.99)})
	}
	return rows
}

func bothRows(list []probe.Measured) [][]cell {
	rows := [][]cell{{name("BOTH DIRECTIONS"), number("WRITE Gb/s"), number("READ Gb/s"), number("SUM Gb/s")}}
	for _, m := range list {
		sum := number("")
		write, okW := m.Goodput(probe.Write)
		if read, okR := m.Goodput(probe.Read); okW && okR {
			sum = number(gigabits(write + read))
		}
		rows = append(rows, []cell{name(who(m)), together(m, probe.Write), together(m, probe.Read), sum})
	}
	return rows
}

func queuePairRows(list []probe.Measured) [][]cell {
	rows := [][]cell{{name("QUEUE PAIRS"), number("PER RAIL"), number("Gb/s")}}
	for _, m := range list {
		rows = append(rows, []cell{name(who(m)), number(strconv.Itoa(m.QueuePairs)), together(m, probe.Write)})
	}
	return rows
}

func loopbackRows(list []probe.Measured) [][]cell {
	rows := [][]cell{{name("LOOPBACK"), number("Gb/s"), number("P50 µs"), number("P99 µs")}}
	for _, m := range list {
		f := m.Flows[0]
		rows = append(rows, []cell{name("rail " + f.Rail + " to rail " + f.Other), together(m, probe.Write),
			quantile(m, probe.Write, 0.5), quantile(m, probe.Write, 0.99)})
	}
	return rows
}

func pathRows(list []probe.Measured) [][]cell {
	rows := [][]cell{{name("PATH"), number("UDP PORT"), number("Gb/s"), number("P50 µs"), number("LOST")}}
	for _, m := range list {
		f, port, lost := m.Flows[0], "", ""
		if f.UDPPort > 0 {
			port = strconv.Itoa(int(f.UDPPort))
		}
		if l := f.Loss; l != nil && l.Packets > 0 {
			lost = terminal.Percent(l.Rate())
		}
		rows = append(rows, []cell{name("rail " + f.Rail + ", label " + strconv.Itoa(f.Path)), number(port),
			together(m, probe.Write), quantile(m, probe.Write, 0.5),
			number(lost).colorIf(f.PathLoss() > 0, terminal.Yellow)})
	}
	return rows
}

func pairRows(list []probe.Measured) [][]cell {
	rows := [][]cell{{name("PAIRS OF RAILS"), number("Gb/s"), number("OF THE SUM ALONE")}}
	contended := probe.Contended(list)
	for _, m := range list {
		part := ""
		for _, c := range contended {
			if len(m.Flows) == 2 && m.Flows[0].Rail == c.Rail && m.Flows[1].Rail == c.Other {
				part = terminal.Percent(c.Ratio)
			}
		}
		rows = append(rows, []cell{name(who(m)), together(m, probe.Write), number(part)})
	}
	return rows
}

// gpuRows are bursts between memory of GPUs, and of each rail what part that is of the same between the hosts.
func gpuRows(r probe.Result) func([]probe.Measured) [][]cell {
	return func(list []probe.Measured) [][]cell {
		rows := [][]cell{{name("GPU MEMORY"), {text: "KIND"}, number("Gb/s"), number("P50 µs"), number("OF HOST MEMORY")}}
		for _, m := range list {
			part := ""
			if ratio, memory := r.GPUOf(m.Flows[0].Rail); len(m.Flows) == 1 && memory != "" {
				part = terminal.Percent(ratio)
			}
			rows = append(rows, []cell{name(who(m)), {text: m.Memory}, together(m, probe.Write),
				quantile(m, probe.Write, 0.5), number(part)})
		}
		return rows
	}
}

// jsonExtra is one burst of an extra.
type jsonExtra struct {
	Kind       probe.Kind   `json:"kind"`
	QueuePairs *int         `json:"queue_pairs"`
	Memory     *string      `json:"memory"`
	Flows      []jsonFlow   `json:"flows"`
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
		out := jsonExtra{Kind: m.Kind, QueuePairs: nonZero(m.QueuePairs), Memory: nonZero(m.Memory), Flows: []jsonFlow{},
			Failure: newJSONFailure(m.Failure)}
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
