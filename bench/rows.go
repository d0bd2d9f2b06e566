package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/railscope/railscope/bench/advice"
	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/steps"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// Suite returns the results of a round and its extras as rows, in the order of the tables.
func Suite(r result.Result, o Options) suite.Suite {
	var all []suite.Suite
	for _, one := range append(slices.Clone(o.Earlier), r) {
		all = append(all, single(one, o))
	}
	s := suite.Merge(all)
	speedUp(s.Rows)
	s.Ratios = ratios(s.Rows)
	s.Notes, s.Incomplete = incomplete(s, r, o)
	s.Notes = append(s.Notes, steps.Notes(o.Steps)...)
	s.Further = suite.Further{Storage: append([]suite.Checkpoint{}, o.Storage...),
		Compared: append([]suite.Change{}, o.Compared...), Advice: []suite.Advice{}}
	if o.Steps != nil {
		s.Advice = advice.For(inRailOrder(r), s)
	}
	return s
}

// single returns the suite of one round.
func single(r result.Result, o Options) suite.Suite {
	r = inRailOrder(r)
	text, _, _ := verdict(r)
	s := suite.Suite{Version: suite.Version, Start: r.Start.UTC(), Node: r.Node, Peer: r.Peer,
		Verdict: terminal.Plain(text), Carrier: string(r.Transport), Good: r.Outcome == result.OK,
		Settings: append(settings(r), o.Settings...),
		Rows:     []suite.Row{}, Sweep: []suite.Row{}, KVCache: []suite.KVCache{}, Rails: rails(r),
		Findings: append([]finding.Finding{}, check.Round(r)...)}
	b := rowBuilder{result: r, rails: map[string]*result.RailResult{}}
	for i := range r.Rails {
		b.rails[r.Rails[i].Rail] = &r.Rails[i]
	}
	s.Rows = append(s.Rows, b.tcp()...)
	s.Rows = append(s.Rows, b.round()...)
	for _, m := range r.Extras {
		one := measurementOf(m.Kind)
		if one.row == nil {
			continue
		}
		row, ok := one.row(&b, m)
		switch {
		case !ok:
		case m.Kind == result.Sweep:
			s.Sweep = append(s.Sweep, row)
		default:
			s.Rows = append(s.Rows, row)
		}
	}
	s.KVCache = append(s.KVCache, b.caches(s, o)...)
	return s
}

// settings returns the settings that the figures of a round depend on.
func settings(r result.Result) []suite.Setting {
	list := []suite.Setting{}
	if r.Burst > 0 {
		list = append(list, suite.Setting{Name: "burst", Here: r.Burst.String()},
			suite.Setting{Name: "depth", Here: terminal.Count(r.Depth, "write") + " in flight per rail, " +
				terminal.Count(max(r.QueuePairs, 1), "queue pair")})
	}
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
		rail := &r.Rails[i]
		here := fmt.Sprintf("%s port %d, %s, MTU %d", rail.Device, rail.Port, rail.Netdev, rail.PathMTU)
		if rail.Capacity != nil {
			here += ", " + grid.GigabitsPerSecond(*rail.Capacity)
		}
		list = append(list, suite.Setting{Name: "rail " + rail.Rail, Here: here, There: peerDevice(rail)})
	}
	return list
}

// speedUp sets the speed-up of each row relative to the fastest TCP row.
func speedUp(rows []suite.Row) {
	best := 0.0
	for _, row := range rows {
		if row.Transport == string(result.TCP) && row.Goodput != nil {
			best = max(best, *row.Goodput)
		}
	}
	for i, row := range rows {
		if best > 0 && row.Goodput != nil && row.Op != both { // TCP is measured in one direction
			rows[i].Speedup = new(*row.Goodput / best)
		}
	}
}

// rowBuilder converts a result to rows.
type rowBuilder struct {
	result result.Result
	rails  map[string]*result.RailResult
}

const (
	host = "host" // kind of memory
	both = "both" // operation of a row with WRITE and READ at once
)

// tcp returns the rows of the baselines.
func (b *rowBuilder) tcp() (rows []suite.Row) {
	all := slices.Concat(b.result.TCP, b.result.TCPFailed)
	slices.SortStableFunc(all, func(x, y result.TCPResult) int { return cmp.Compare(x.Streams, y.Streams) })
	for _, t := range all {
		row := overTCP("TCP", t)
		fail(&row, t.Failure)
		for _, p := range row.PerRail {
			row.Rails = append(row.Rails, p.Rail)
		}
		row.LineRate = b.lineRate(row.Rails)
		if t.Streams == 1 {
			row.Latency = b.latencies(result.TCPTime, "", row.Rails)
		}
		rows = append(rows, row)
	}
	for _, m := range b.result.Extras {
		name, is := "TCP", m.Kind == result.TCPStreams
		if m.Kind == result.OneTCP {
			name, is = "rail "+m.Flows[0].Rail+", TCP", true
		}
		if !is || m.TCP == nil {
			continue
		}
		row := extraOverTCP(name, m)
		for _, p := range row.PerRail {
			row.Rails = append(row.Rails, p.Rail)
		}
		if m.Kind == result.OneTCP {
			row.Rails = []string{m.Flows[0].Rail}
		}
		row.LineRate = b.lineRate(row.Rails)
		rows = append(rows, row)
	}
	return rows
}

// extraOverTCP returns the row of an extra over TCP.
func extraOverTCP(name string, m result.Measured) suite.Row {
	row := overTCP(name, *m.TCP)
	fail(&row, m.Failure)
	return row
}

// overTCP returns the row of a burst over TCP.
func overTCP(name string, t result.TCPResult) suite.Row {
	row := suite.Row{Name: fmt.Sprintf("%s, %s", name, terminal.Count(t.Streams, "stream")),
		Transport: string(result.TCP),
		Memory:    host, Streams: t.Streams, Rails: []string{}, Latency: []suite.Latency{}, PerRail: []suite.Part{}}
	if t.BytesPerSecond > 0 {
		row.Goodput, row.Runs = new(t.BytesPerSecond), []float64{t.BytesPerSecond}
	}
	for _, rail := range t.Rails {
		row.PerRail = append(row.PerRail, suite.Part{Rail: rail.Rail, Goodput: stats.Positive(rail.BytesPerSecond),
			CounterBytes: rail.Counted})
	}
	return row
}

// round returns the rows of the solo bursts and the striped burst.
func (b *rowBuilder) round() (rows []suite.Row) {
	if b.result.Transport != result.RDMA && b.result.StripedFailure == nil {
		return nil
	}
	all := suite.Row{Name: "all rails, WRITE", Transport: string(result.RDMA), Op: string(result.Write), Memory: host,
		QueuePairs: b.result.QueuePairs, Goodput: stats.Finite(b.result.Striped),
		Runs: append([]float64{}, b.result.Runs...)}
	for i := range b.result.Rails {
		rail := &b.result.Rails[i]
		if rail.Unpaired {
			continue
		}
		row := all
		row.Name, row.Rails = "rail "+rail.Rail+", WRITE", []string{rail.Rail}
		row.Runs, row.Goodput = []float64{}, rate(rail.Solo)
		row.PerRail, row.Latency = []suite.Part{}, b.latencies("", result.Write, row.Rails)
		fail(&row, cmp.Or(rail.Failure, rail.SoloFailure))
		if rail.Solo != nil {
			row.Runs = append(row.Runs, rail.Solo.BytesPerSecond())
			row.PerRail = append(row.PerRail, suite.Part{Rail: rail.Rail, Device: rail.Device, Goodput: rate(rail.Solo),
				CounterBytes: rail.Solo.Counted})
		}
		row.LineRate = b.lineRate(row.Rails)
		rows = append(rows, row)
		if rail.Striped == nil && b.result.StripedFailure != nil && rail.Failure == nil {
			all.Rails = append(all.Rails, rail.Rail)
		}
		if rail.Striped != nil {
			all.Rails = append(all.Rails, rail.Rail)
			all.PerRail = append(all.PerRail, suite.Part{Rail: rail.Rail, Device: rail.Device,
				Goodput: rate(rail.Striped), CounterBytes: cmp.Or(rail.Striped.Counted, rail.CounterBytes)})
		}
	}
	if len(rows) < 2 {
		return rows
	}
	if all.Goodput == nil {
		fail(&all, b.result.StripedFailure)
	}
	all.LineRate, all.Latency = b.lineRate(all.Rails), b.latencies("", result.Write, all.Rails)
	return append(rows, all)
}

// burst returns the row of an extra's burst by RDMA, without its name. op is the operation if it has no flows, or both.
func (b *rowBuilder) burst(m result.Measured, op string) suite.Row {
	row := suite.Row{Transport: string(result.RDMA), Memory: cmp.Or(m.Memory, host), QueuePairs: m.QueuePairs,
		Size: m.Size, Rails: []string{}, Runs: []float64{}, Latency: []suite.Latency{}, PerRail: []suite.Part{}, Op: op}
	if len(m.Flows) > 0 && op != both {
		row.Op = string(m.Flows[0].Op)
	}
	sum, known := 0.0, m.Failure == nil
	for _, f := range m.Flows {
		addFlow(&row, f)
		if f.Goodput != nil {
			sum += *f.Goodput
		} else {
			known = false
		}
	}
	if !known {
		fail(&row, cmp.Or(whyNot(m), &result.Failure{Stage: "extra", Reason: "other"}))
	} else {
		row.Goodput, row.Runs = &sum, []float64{sum}
	}
	row.LineRate = b.lineRate(row.Rails)
	if row.LineRate != nil && row.Op == both {
		*row.LineRate *= 2 // line rate of both directions
	}
	return row
}
