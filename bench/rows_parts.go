package bench

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/kvcache"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// rails returns what the round measured for each rail.
func rails(r result.Result) []suite.Rail {
	list := []suite.Rail{}
	for i := range r.Rails {
		rail := &r.Rails[i]
		row := suite.Rail{Rail: rail.Rail, Device: cmp.Or(rail.Device, rail.Netdev), Peer: peerDevice(rail),
			Latency: latency(rail.Latency, 0), Solo: rate(rail.Solo), Striped: rate(rail.Striped),
			Expected: stats.Finite(rail.Expected),
			WhySolo:  why(cmp.Or(rail.SoloFailure, notAlone(rail)))}
		if rail.Port > 1 {
			row.Device += "/" + strconv.Itoa(rail.Port)
		}
		if rail.Striped == nil && rail.Failure == nil && !rail.Unpaired {
			row.WhyStriped = why(cmp.Or(rail.Left, r.StripedFailure))
		}
		list = append(list, row)
	}
	return list
}

// notAlone returns why no burst was made over a rail alone; nil: one was, or it failed.
func notAlone(rail *result.RailResult) *result.Failure {
	if rail.Solo != nil || rail.Failure != nil {
		return nil
	}
	return rail.Left
}

func why(f *result.Failure) *suite.Why {
	if f == nil {
		return nil
	}
	return &suite.Why{Reason: string(f.Reason)}
}

// addFlow adds the figures of one flow to the row of its burst.
func addFlow(row *suite.Row, f result.MeasuredFlow) {
	i := slices.IndexFunc(row.PerRail, func(p suite.Part) bool { return p.Rail == f.Rail })
	if i < 0 {
		row.Rails = append(row.Rails, f.Rail)
		row.PerRail = append(row.PerRail, suite.Part{Rail: f.Rail, Goodput: f.Goodput, CounterBytes: f.Counted})
	} else if one := &row.PerRail[i]; one.Goodput != nil && f.Goodput != nil { // the flow of the other direction
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

// fail records why a row has no figure; nil: it has one.
func fail(row *suite.Row, f *result.Failure) {
	if f != nil {
		row.Failure, row.Reason, row.Skipped = terminal.Plain(f.Error()), string(f.Reason), f.Reason.Skips()
	}
}

// latency summarizes samples of messages of one size.
func latency(l *result.Latency, bytes int64) *suite.Latency {
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

// latencies returns the latencies of rails for an operation: for each size, those of the rail with the highest
// median. Latencies of 8 B come from the round if kind is empty; those of longer messages come from extras of the
// kind.
func (b *rowBuilder) latencies(kind result.Kind, op result.Op, rails []string) []suite.Latency {
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
		kind = result.Messages
		worst(func(rail string) *suite.Latency { return latency(b.rails[rail].Latency, tables.SmallMessage) })
	}
	for _, m := range b.result.Extras {
		if m.Kind != kind {
			continue
		}
		worst(func(rail string) *suite.Latency {
			i := slices.IndexFunc(m.Flows, func(f result.MeasuredFlow) bool { return f.Rail == rail && f.Op == op })
			if i < 0 {
				return nil
			}
			return latency(m.Flows[i].Latency, m.Size)
		})
	}
	return list
}

// lineRate returns the sum of the rails' line rates, or nil if one is unknown.
func (b *rowBuilder) lineRate(rails []string) *float64 {
	sum := 0.0
	for _, rail := range rails {
		one := b.rails[rail]
		if one == nil || one.Capacity == nil {
			return nil
		}
		sum += *one.Capacity
	}
	return stats.Positive(sum)
}

// who returns the names of a row's rails, or a name for all of them if there are several.
func (b *rowBuilder) who(rails []string, kind result.Kind) string {
	live := 0
	for _, rail := range b.rails {
		if rail.Failure == nil {
			live++
		}
	}
	switch {
	case len(rails) == 1:
		return "rail " + rails[0]
	case len(rails) == live && kind != result.Rails:
		return "all rails"
	}
	return "rails " + strings.Join(rails, ", ")
}

// Cache is a KV cache whose transfer time is calculated.
type Cache struct {
	Model  string // model, or size as text
	Tokens int64  // 0: Model is a size
	Bytes  int64
	Page   int64
}

// Caches returns the caches of all models, or of the named one, at the usual context lengths on a node that shards
// a model over the GPUs.
func Caches(name string, gpus int) (list []Cache) {
	for _, m := range kvcache.Models() {
		if name != "" && !strings.EqualFold(m.Name, name) {
			continue
		}
		list = append(list, CachesOf(m, kvcache.Contexts(), gpus)...)
	}
	return list
}

// CachesOf returns the caches of a model for contexts of these numbers of tokens.
func CachesOf(m kvcache.Model, contexts []int64, gpus int) (list []Cache) {
	for _, tokens := range contexts {
		list = append(list, Cache{m.Name, tokens, m.Bytes(tokens, gpus), m.Page(gpus)})
	}
	return list
}

// caches returns the times to move caches, from the bursts of their pages.
func (b *rowBuilder) caches(s suite.Suite, o Options) (list []suite.KVCache) {
	type key struct {
		page int64
		row  string
	}
	measured := map[key]result.Measured{}
	var ways []string
	for _, m := range b.result.Extras {
		if m.Kind != result.KVCache {
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
			m := measured[key{c.Page, row}]
			one := suite.KVCache{Model: c.Model, Tokens: c.Tokens, Bytes: c.Bytes, Page: c.Page, Row: row}
			if goodput, known := pagesGoodput(m); known {
				one.Goodput, one.Seconds = &goodput, new(float64(c.Bytes)/goodput)
				if headline := b.headline(s.Rows, row, m); headline > 0 {
					one.Headline = new(goodput / headline)
				}
			} else {
				f := cmp.Or(whyNot(m), &result.Failure{Stage: "extra", Reason: "not_measured"})
				one.Failure, one.Reason = terminal.Plain(f.Error()), string(f.Reason)
			}
			list = append(list, one)
		}
	}
	return list
}

// whyNot returns why a burst has no figure, or nil.
func whyNot(m result.Measured) *result.Failure {
	for _, f := range m.Flows {
		if m.Failure == nil && f.Failure != nil {
			return f.Failure
		}
	}
	return m.Failure
}

func pagesGoodput(m result.Measured) (float64, bool) {
	if m.Failure != nil {
		return 0, false
	}
	if m.TCP != nil {
		return m.TCP.BytesPerSecond, m.TCP.BytesPerSecond > 0
	}
	return m.Goodput(result.Read)
}

// headline returns the goodput of a burst of long messages by the same way: of reads if measured, else of writes.
func (b *rowBuilder) headline(rows []suite.Row, way string, pages result.Measured) (best float64) {
	if way == tables.OverTCP {
		if tcp := bestTCP(b.result); tcp != nil {
			return tcp.BytesPerSecond
		}
		return 0
	}
	for _, op := range []result.Op{result.Read, result.Write} {
		for _, row := range rows {
			if row.Goodput != nil && row.Op == string(op) && row.Memory == host && row.Size == 0 &&
				(len(row.Rails) == 1) == (way == tables.OneRail) &&
				(way == tables.AllRails || row.Rails[0] == pages.Flows[0].Rail) {
				best = max(best, *row.Goodput)
			}
		}
		if best > 0 {
			return best
		}
	}
	return 0
}
