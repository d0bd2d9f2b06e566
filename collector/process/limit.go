package process

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/railscope/railscope/collector"
)

// seriesKeeper keeps the series of one row within the limit: the greatest are named, the rest is summed in one series.
// A named series is kept until another one is twice as great, so that series near the limit do not flap.
type seriesKeeper struct {
	row      *collector.Metric
	overflow []string // the labels of the rest
	sums     map[string]*keptSeries
	named    map[string]bool // at the last flush
}

type keptSeries struct {
	key    string
	labels []string
	value  float64 // NaN: unknown
}

func newSeriesKeeper(row *collector.Metric) *seriesKeeper {
	return &seriesKeeper{row: row, overflow: slices.Repeat([]string{other}, len(row.Labels)),
		sums: map[string]*keptSeries{}}
}

// add adds to a series. NaN makes its value unknown: it is not emitted.
func (k *seriesKeeper) add(value float64, labels ...string) { k.series(labels).value += value }

func (k *seriesKeeper) series(labels []string) *keptSeries {
	key := strings.Join(labels, "\x00")
	s := k.sums[key]
	if s == nil {
		s = &keptSeries{key: key, labels: labels}
		k.sums[key] = s
	}
	return s
}

// flush emits at most limit series, and resets the sums.
func (k *seriesKeeper) flush(limit int, emit func(collector.Sample)) {
	weight := func(s *keptSeries) float64 {
		if k.named[s.key] {
			return 2 * s.value
		}
		return s.value
	}
	_, summed := k.sums[strings.Join(k.overflow, "\x00")] // by a dump, already
	rest := k.series(k.overflow)
	delete(k.sums, rest.key)
	maps.DeleteFunc(k.sums, func(_ string, s *keptSeries) bool { return math.IsNaN(s.value) })
	list := slices.SortedFunc(maps.Values(k.sums), func(a, b *keptSeries) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.key, b.key))
	})
	if summed || len(list) > limit {
		n := min(len(list), limit-1)
		for _, s := range list[n:] {
			rest.value += s.value
		}
		list = append(list[:n], rest)
	}
	k.named = make(map[string]bool, len(list))
	for _, s := range list {
		k.named[s.key] = true
		emit(collector.Sample{Metric: k.row, Labels: s.labels, Value: s.value})
	}
	clear(k.sums)
}
