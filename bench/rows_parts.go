package bench

import (
	"github.com/railscope/railscope/bench/tables"

	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/kvcache"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// addFlow adds what one flow carried to the row of its burst.
func addFlow(row *suite.Row, f probe.MeasuredFlow) {
	i := slices.IndexFunc(row.PerRail, func(p suite.Part) bool { return p.Rail == f.Rail })
	if i < 0 {
		row.Rails = append(row.Rails, f.Rail)
		row.PerRail = append(row.PerRail, suite.Part{Rail: f.Rail, Goodput: f.Goodput, CounterBytes: f.Counted})
	} else if one := &row.PerRail[i]; one.Goodput != nil && f.Goodput != nil { // the other direction
		one.Goodput = new(*one.Goodput + *f.Goodput)
		if one.CounterBytes != nil && f.Counted != nil {
			one.CounterBytes = new(*one.CounterBytes + *f.Counted)
		}
	}
	if f.Latency == nil || row.Size > 0 {
		return
	}
	l := latency(f.Latency, tables.SmallMessage)
	switch {
	case l == nil:
	case len(row.Latency) == 0:
		row.Latency = append(row.Latency, *l)
	case l.P50 > row.Latency[0].P50:
		row.Latency[0] = *l
	}
}

func failureText(f *probe.Failure) string {
	if f == nil {
		return "not measured"
	}
	return terminal.Plain(f.Error())
}

// latency summarises samples of messages of one size.
func latency(l *probe.Latency, bytes int64) *suite.Latency {
	if l == nil || len(l.Samples) == 0 {
		return nil
	}
	var sum time.Duration
	for _, d := range l.Samples {
		sum += d
	}
	at := func(q float64) float64 { return seconds(l.Quantile(q)) }
	return &suite.Latency{Bytes: bytes, Samples: len(l.Samples), Mean: seconds(sum / time.Duration(len(l.Samples))),
		Min: seconds(l.Samples[0]), P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: at(1)}
}

// latencies are those of rails by an operation, of each size the rail's with the highest median: of 8 B from the round
// if no kind is given, and of longer messages from extras of a kind.
func (b *rowBuilder) latencies(kind probe.Kind, op probe.Op, rails []string) []suite.Latency {
	list := []suite.Latency{}
	worst := func(of func(rail string) *suite.Latency) {
		var max *suite.Latency
		for _, rail := range rails {
			if l := of(rail); l != nil && (max == nil || l.P50 > max.P50) {
				max = l
			}
		}
		if max != nil {
			list = append(list, *max)
		}
	}
	if kind == "" {
		kind = probe.Messages
		worst(func(rail string) *suite.Latency { return latency(b.rails[rail].Latency, tables.SmallMessage) })
	}
	for _, m := range b.result.Extras {
		if m.Kind != kind {
			continue
		}
		worst(func(rail string) *suite.Latency {
			i := slices.IndexFunc(m.Flows, func(f probe.MeasuredFlow) bool { return f.Rail == rail && f.Op == op })
			if i < 0 {
				return nil
			}
			return latency(m.Flows[i].Latency, m.Size)
		})
	}
	return list
}

// lineRate is what rails can carry together; nil if one's is not known.
func (b *rowBuilder) lineRate(rails []string) *float64 {
	sum := 0.0
	for _, rail := range rails {
		one := b.rails[rail]
		if one == nil || one.Capacity == nil {
			return nil
		}
		sum += *one.Capacity
	}
	return positive(sum)
}

// who names the rails of a row. All of them are called so where there are several.
func (b *rowBuilder) who(rails []string, kind probe.Kind) string {
	live := 0
	for _, one := range b.rails {
		if one.Failure == nil {
			live++
		}
	}
	switch {
	case len(rails) == 1:
		return "rail " + rails[0]
	case len(rails) == live && kind != probe.Subset:
		return "all rails"
	}
	return "rails " + strings.Join(rails, ", ")
}

func gigabitsPerSecond(bytesPerSecond float64) string { return grid.Gigabits(bytesPerSecond) + " Gb/s" }

// Cache is a KV cache whose transfer time is asked for.
type Cache struct {
	Model  string // or the size
	Tokens int64  // 0: a size
	Bytes  int64
	Page   int64
}

// Caches are those of all models, or of the one with this name, at the usual contexts on a node that shards a model
// over so many GPUs.
func Caches(name string, gpus int) (list []Cache) {
	for _, m := range kvcache.Models() {
		if name != "" && !strings.EqualFold(m.Name, name) {
			continue
		}
		for _, tokens := range kvcache.Contexts() {
			list = append(list, Cache{m.Name, tokens, m.Bytes(tokens, gpus), m.Page(gpus)})
		}
	}
	return list
}

// caches are the times to move caches, from bursts of their pages.
func (b *rowBuilder) caches(s suite.Suite, o Options) (list []suite.KVCache) {
	type key struct {
		page int64
		row  string
	}
	measured := map[key]probe.Measured{}
	var ways []string
	for _, m := range b.result.Extras {
		if m.Kind != probe.Pages || m.Failure != nil {
			continue
		}
		row := tables.OneRail
		if m.TCP != nil {
			row = tables.OverTCP
		} else if len(m.Flows) > 1 {
			row = tables.AllRails
		}
		measured[key{m.Size, row}] = m
		if !slices.Contains(ways, row) {
			ways = append(ways, row)
		}
	}
	for _, c := range o.Caches {
		for _, row := range ways {
			m, ok := measured[key{c.Page, row}]
			one := suite.KVCache{Model: c.Model, Tokens: c.Tokens, Bytes: c.Bytes, Page: c.Page, Row: row}
			if goodput, known := pagesGoodput(m); ok && known {
				one.Goodput, one.Seconds = &goodput, new(float64(c.Bytes)/goodput)
				if headline := b.headline(s.Rows, row); headline > 0 {
					one.Headline = new(goodput / headline)
				}
			} else {
				one.Failure = "not measured"
			}
			list = append(list, one)
		}
	}
	return list
}

func pagesGoodput(m probe.Measured) (float64, bool) {
	if m.TCP != nil {
		return m.TCP.BytesPerSecond, m.TCP.BytesPerSecond > 0
	}
	return m.Goodput(probe.Read)
}

// headline is the goodput that a burst of long messages has by the same way: reads if these were measured, else writes.
func (b *rowBuilder) headline(rows []suite.Row, way string) (best float64) {
	if way == tables.OverTCP {
		if tcp := bestTCP(b.result); tcp != nil {
			return tcp.BytesPerSecond
		}
		return 0
	}
	for _, op := range []probe.Op{probe.Read, probe.Write} {
		for _, row := range rows {
			if row.Goodput != nil && row.Op == string(op) && row.Memory == host && row.Size == 0 &&
				(len(row.Rails) == 1) == (way == tables.OneRail) &&
				(way == tables.AllRails || row.Rails[0] == firstRail(b.result)) {
				best = max(best, *row.Goodput)
			}
		}
		if best > 0 {
			return best
		}
	}
	return 0
}

// firstRail is the rail that single flows use.
func firstRail(r probe.Result) string {
	i := slices.IndexFunc(r.Rails, func(one probe.RailResult) bool { return one.Failure == nil })
	if i < 0 {
		return ""
	}
	return r.Rails[i].Rail
}
