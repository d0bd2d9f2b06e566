package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// Suite is what a round and its extras measured, as rows. The order is that of the tables.
func Suite(r probe.Result, o Options) suite.Suite {
	var all []suite.Suite
	for _, one := range append(slices.Clone(o.Earlier), r) {
		all = append(all, single(one, o))
	}
	s := suite.Merge(all)
	speedUp(s.Rows)
	s.Compared = append([]suite.Change{}, o.Compared...)
	return s
}

// single is the suite of one round.
func single(r probe.Result, o Options) suite.Suite {
	text, _, _ := verdict(r)
	s := suite.Suite{Version: suite.Version, Start: r.Start.UTC(), Node: r.Node, Peer: r.Peer,
		Verdict: terminal.Plain(text), Good: r.Outcome == probe.OK, Settings: append(settings(r), o.Settings...),
		Rows: []suite.Row{}, Sweep: []suite.Row{}, KVCache: []suite.KVCache{},
		Findings: append([]finding.Finding{}, check.Round(r)...), Notes: append([]string{}, extraFailures(r)...)}
	b := rowBuilder{result: r, rails: map[string]*probe.RailResult{}}
	for i := range r.Rails {
		b.rails[r.Rails[i].Rail] = &r.Rails[i]
	}
	s.Rows = append(s.Rows, b.tcp()...)
	s.Rows = append(s.Rows, b.round()...)
	for _, m := range r.Extras {
		switch row, ok := b.extra(m); {
		case !ok:
		case m.Kind == probe.Sizes:
			s.Sweep = append(s.Sweep, row)
		default:
			s.Rows = append(s.Rows, row)
		}
	}
	s.KVCache = append(s.KVCache, b.caches(s, o)...)
	return s
}

// settings are what the figures of a round depend on.
func settings(r probe.Result) []suite.Setting {
	list := []suite.Setting{}
	for _, v := range r.Versions {
		if v.Here != "" || v.There != "" {
			list = append(list, suite.Setting{Name: v.Component, Here: v.Here, There: v.There})
		}
	}
	if r.Class.Source != "" {
		list = append(list, suite.Setting{Name: "traffic class", Here: fmt.Sprintf("%d, service level %d (%s)",
			r.Class.TrafficClass, r.Class.ServiceLevel, r.Class.Source)})
	}
	for i := range r.Rails {
		one := &r.Rails[i]
		here := fmt.Sprintf("%s port %d, %s, MTU %d", one.Device, one.Port, one.Netdev, one.PathMTU)
		if one.Capacity != nil {
			here += ", " + gigabitsPerSecond(*one.Capacity)
		}
		list = append(list, suite.Setting{Name: "rail " + one.Rail, Here: here, There: one.PeerDevice})
	}
	return list
}

// speedUp sets the speed-up of each row against the fastest by TCP.
func speedUp(rows []suite.Row) {
	best := 0.0
	for _, row := range rows {
		if row.Transport == string(probe.TCP) && row.Goodput != nil {
			best = max(best, *row.Goodput)
		}
	}
	for i, row := range rows {
		if best > 0 && row.Goodput != nil && row.Op != both { // TCP goes one way
			rows[i].Speedup = new(*row.Goodput / best)
		}
	}
}

// rowBuilder makes rows of a result.
type rowBuilder struct {
	result probe.Result
	rails  map[string]*probe.RailResult
}

const (
	host = "host" // memory
	both = "both" // of a row: WRITE and READ at once
)

// tcp are the baselines.
func (b *rowBuilder) tcp() (rows []suite.Row) {
	for _, t := range b.result.TCP {
		row := overTCP("TCP", t)
		for _, p := range row.PerRail {
			row.Rails = append(row.Rails, p.Rail)
		}
		row.LineRate = b.lineRate(row.Rails)
		if t.Streams == 1 {
			row.Latency = b.latencies(probe.TCPTime, "", row.Rails)
		}
		rows = append(rows, row)
	}
	return rows
}

// overTCP is a burst over TCP.
func overTCP(name string, t probe.TCPResult) suite.Row {
	row := suite.Row{Name: fmt.Sprintf("%s, %s", name, terminal.Count(t.Streams, "stream")), Transport: string(probe.TCP),
		Memory: host, Streams: t.Streams, Rails: []string{}, Latency: []suite.Latency{}, PerRail: []suite.Part{}}
	if t.BytesPerSecond > 0 {
		row.Goodput, row.Runs = new(t.BytesPerSecond), []float64{t.BytesPerSecond}
	}
	for _, one := range t.Rails {
		row.PerRail = append(row.PerRail, suite.Part{Rail: one.Rail, Goodput: positive(one.BytesPerSecond),
			CounterBytes: one.Counted})
	}
	return row
}

func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// round are the solo bursts and the striped one.
func (b *rowBuilder) round() (rows []suite.Row) {
	if b.result.Transport != probe.RDMA {
		return nil
	}
	all := suite.Row{Name: "all rails, WRITE", Transport: string(probe.RDMA), Op: string(probe.Write), Memory: host,
		QueuePairs: b.result.QueuePairs, Goodput: finite(b.result.Stealing), Runs: append([]float64{}, b.result.Runs...)}
	for i := range b.result.Rails {
		one := &b.result.Rails[i]
		row := all
		row.Name, row.Rails = "rail "+one.Rail+", WRITE", []string{one.Rail}
		row.Runs, row.Goodput = []float64{}, rate(one.Solo)
		row.PerRail, row.Latency = []suite.Part{}, b.latencies("", probe.Write, row.Rails)
		if one.Failure != nil {
			row.Failure = terminal.Plain(one.Failure.Error())
		}
		if one.Solo != nil {
			row.Runs = append(row.Runs, one.Solo.BytesPerSecond())
			row.PerRail = append(row.PerRail, suite.Part{Rail: one.Rail, Device: one.Device, Goodput: rate(one.Solo),
				CounterBytes: one.Solo.Counted})
		}
		row.LineRate = b.lineRate(row.Rails)
		rows = append(rows, row)
		if one.Stealing != nil {
			all.Rails = append(all.Rails, one.Rail)
			all.PerRail = append(all.PerRail, suite.Part{Rail: one.Rail, Device: one.Device, Goodput: rate(one.Stealing),
				CounterBytes: cmp.Or(one.Stealing.Counted, one.CounterBytes)})
		}
	}
	if len(rows) < 2 {
		return rows
	}
	all.LineRate, all.Latency = b.lineRate(all.Rails), b.latencies("", probe.Write, all.Rails)
	return append(rows, all)
}

// extra is the row of a burst of an extra that belongs to the comparison, or to the sweep.
func (b *rowBuilder) extra(m probe.Measured) (row suite.Row, ok bool) {
	if m.Kind == probe.Bond && m.TCP != nil && len(m.Flows) > 0 {
		row = overTCP("TCP over "+m.Flows[0].Rail, *m.TCP)
		if m.Failure != nil {
			row.Failure = failureText(m.Failure)
		}
		return row, true
	}
	names := map[probe.Kind]string{probe.Reads: "READ", probe.Both: "WRITE and READ", probe.QueuePairs: "WRITE",
		probe.GPU: "GPU memory", probe.Subset: "WRITE", probe.Sizes: ""}
	operations := map[probe.Kind]string{probe.Reads: string(probe.Read), probe.Both: both, probe.GPU: string(probe.Write)}
	what, known := names[m.Kind]
	if !known || m.Failure == nil && len(m.Flows) == 0 {
		return row, false
	}
	if m.Failure != nil { // of all rails: a saved row is worse now
		row = suite.Row{Name: "all rails, " + what, Transport: string(probe.RDMA), Memory: cmp.Or(m.Memory, host),
			Op: operations[m.Kind], Rails: []string{}, Runs: []float64{}, Latency: []suite.Latency{},
			PerRail: []suite.Part{}, Failure: failureText(m.Failure)}
		return row, operations[m.Kind] != ""
	}
	row = suite.Row{Transport: string(probe.RDMA), Memory: cmp.Or(m.Memory, host), QueuePairs: m.QueuePairs, Size: m.Size,
		Latency: []suite.Latency{}, PerRail: []suite.Part{}, Op: string(m.Flows[0].Op)}
	sum := 0.0
	for _, f := range m.Flows {
		addFlow(&row, f)
		if f.Goodput != nil {
			sum += *f.Goodput
		} else {
			row.Failure = failureText(f.Failure)
		}
	}
	if m.Kind == probe.Both {
		row.Op = both
	}
	if row.Failure == "" {
		row.Goodput, row.Runs = &sum, []float64{sum}
	}
	if row.LineRate = b.lineRate(row.Rails); row.LineRate != nil && row.Op == both {
		*row.LineRate *= 2 // that of both directions
	}
	row.Name = b.who(row.Rails, m.Kind) + ", " + what
	switch m.Kind {
	case probe.QueuePairs:
		row.Name += ", " + terminal.Count(m.QueuePairs, "queue pair")
	case probe.Sizes:
		row.Name = grid.Size(m.Size)
		if l := latency(m.Transfer, m.Size); l != nil {
			row.Latency = append(row.Latency, *l)
		}
	case probe.Reads:
		row.Latency = append(row.Latency, b.latencies(probe.Messages, probe.Read, row.Rails)...)
	}
	return row, true
}
