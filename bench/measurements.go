package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// Measurement is one row of the table of what is shown of each kind of extra. JSON and CSV need no more than this.
type Measurement struct {
	Kind     result.Kind
	Flag     string // flag of bench that switches it on; empty: other flags need it, or set its values
	Help     string // help of the flag
	compared bool   // its rows are of the comparison, which is complete only with others
	// row returns a burst as a row of the comparison or the sweep; nil: it has none.
	row func(b *rowBuilder, m result.Measured) (row suite.Row, ok bool)
	// table returns the bursts as a table of their own; nil: they have none.
	table func(r result.Result, list []result.Measured) [][]grid.Cell
	// gaps returns which figures of a burst that is not a row are missing, and the number of all; nil: none.
	gaps func(m result.Measured) (gaps []gap, figures int)
}

// Measurements returns the table, one row for each of [result.Kinds], in the order in which bench measures them.
func Measurements() []Measurement {
	return []Measurement{
		{Kind: result.Reads, compared: true, row: rdmaRow("READ", string(result.Read), addReadLatencies)},
		{Kind: result.Bidirectional, Flag: "bidirectional", Help: "Also measure WRITE and READ at once, each rail " +
			"alone and all at once.", row: rdmaRow("WRITE and READ", both, nil), table: bothRows},
		{Kind: result.QueuePairs, compared: true, row: rdmaRow("WRITE", string(result.Write), nameQueuePairs)},
		{Kind: result.Rails, compared: true, row: rdmaRow("WRITE", string(result.Write), nil)},
		{Kind: result.Messages, compared: true, gaps: latencyGaps},
		{Kind: result.Sweep, row: rdmaRow("", string(result.Write), nameSize)},
		{Kind: result.Loopback, Flag: "loopback", Help: "Also measure each rail to itself and to each other rail of " +
			"this node: without the wire to the peer.", table: loopbackRows, gaps: loopbackGaps},
		{Kind: result.Paths, table: pathRows, gaps: goodputGaps},
		{Kind: result.Contention, Flag: "pairs", Help: "Also measure two rails at a time, beside each alone: which " +
			"of them share something.", table: pairRows, gaps: goodputGaps},
		{Kind: result.GPU, row: rdmaRow("WRITE", string(result.Write), nameMemory), table: gpuRows},
		// gaps: see memoryGaps
		{Kind: result.KVCache}, // shown as the times of KV caches
		{Kind: result.TCPTime, compared: true, gaps: latencyGaps},
		{Kind: result.Bond, compared: true, row: bondRow, gaps: bondGaps},
		{Kind: result.OneTCP, compared: true},     // its row is among those of the baselines
		{Kind: result.TCPStreams, compared: true}, // its rows, too
	}
}

// measurementOf returns the row of a kind. An unknown kind has an empty one.
func measurementOf(kind result.Kind) Measurement {
	all := Measurements()
	if i := slices.IndexFunc(all, func(m Measurement) bool { return m.Kind == kind }); i >= 0 {
		return all[i]
	}
	return Measurement{}
}

// rdmaRow returns a function that returns the row of a burst by RDMA. what is its operation in words, and finish adds
// what only this kind has.
func rdmaRow(what, op string, finish func(*rowBuilder, result.Measured, *suite.Row)) func(*rowBuilder,
	result.Measured) (suite.Row, bool) {
	return func(b *rowBuilder, m result.Measured) (row suite.Row, ok bool) {
		if m.Failure == nil && len(m.Flows) == 0 {
			return row, false
		}
		row = b.burst(m, op)
		row.Name = "all rails, " + what
		if len(row.Rails) > 0 {
			row.Name = b.who(row.Rails, m.Kind) + ", " + what
		}
		if finish != nil {
			finish(b, m, &row)
		}
		return row, true
	}
}

func addReadLatencies(b *rowBuilder, _ result.Measured, row *suite.Row) {
	row.Latency = append(row.Latency, b.latencies(result.Messages, result.Read, row.Rails)...)
}

func nameQueuePairs(_ *rowBuilder, m result.Measured, row *suite.Row) {
	row.Name += ", " + terminal.Count(m.QueuePairs, "queue pair")
}

func nameMemory(_ *rowBuilder, m result.Measured, row *suite.Row) {
	row.Memory = cmp.Or(m.Memory, "gpu")
	row.Name += ", " + row.Memory
}

func nameSize(_ *rowBuilder, m result.Measured, row *suite.Row) {
	row.Name = grid.Size(m.Size)
	if l := latency(m.Transfer, m.Size); l != nil {
		row.Latency = append(row.Latency, *l)
	}
}

func bondRow(_ *rowBuilder, m result.Measured) (row suite.Row, ok bool) {
	if m.TCP == nil || len(m.Flows) == 0 {
		return row, false
	}
	return extraOverTCP("TCP over "+m.Flows[0].Rail, m), true
}

// kindName returns the name of a burst's kind in words.
func kindName(m result.Measured) string { return strings.ReplaceAll(string(m.Kind), "_", " ") }

func newGap(name string, f *result.Failure, asked bool) gap {
	return gap{name, string(f.Reason), terminal.Plain(f.Error()), asked}
}

// latencyGaps returns the rails whose latency of one size is missing.
func latencyGaps(m result.Measured) (gaps []gap, figures int) {
	if m.Failure != nil {
		return []gap{newGap(fmt.Sprintf("time of %d B", m.Size), m.Failure, true)}, 1
	}
	for _, f := range m.Flows {
		why := f.Failure
		if why == nil && f.Latency == nil {
			why = &result.Failure{Stage: "latency", Reason: "timeout"}
		}
		if why != nil {
			gaps = append(gaps, newGap(fmt.Sprintf("time of %d B, rail %s", m.Size, f.Rail), why, true))
		}
	}
	return gaps, len(m.Flows)
}

// goodputGaps returns a gap if the goodput is missing. A flow that carries nothing is a result.
func goodputGaps(m result.Measured) (gaps []gap, figures int) {
	why := whyNot(m)
	if why == nil || m.Failure == nil && len(m.Flows) == 1 && m.Flows[0].PathLoss() == 1 {
		return nil, 1
	}
	return []gap{newGap(strings.TrimSpace(kindName(m)+" "+who(m)), why, true)}, 1
}

// loopbackGaps works like goodputGaps. That one rail does not reach another is a result.
func loopbackGaps(m result.Measured) (gaps []gap, figures int) {
	if why := whyNot(m); m.Failure == nil && len(m.Flows) == 1 && m.Flows[0].Other != m.Flows[0].Rail && why != nil &&
		why.Reason == "no_route" {
		return nil, 1
	}
	return goodputGaps(m)
}

// bondGaps returns a gap if no bond was measured. A bond of another network cannot be measured.
func bondGaps(m result.Measured) (gaps []gap, figures int) {
	if m.Failure == nil || len(m.Flows) > 0 {
		return nil, 0
	}
	return []gap{newGap(kindName(m), m.Failure, m.Failure.Reason != "no_address")}, 1
}
