package exporter

import (
	"cmp"
	"log/slog"

	"github.com/railscope/railscope/exporter/page"
)

// pageOptions gives the page what it is drawn of: the scraper's own readings, and
// what its sources keep besides.
func (s *Scraper) pageOptions(opts ServerOptions) page.Options {
	o := page.Options{Node: opts.Node, Notice: opts.Notice, Metrics: opts.TelemetryPath, Version: s.opts.Info.Version, Started: s.status.started,
		Logger: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)), Doctor: opts.Doctor}
	o.Look = func(sources []string, look func(page.Reading, map[string]string)) {
		// What a failure says in full is for the log: strangers see the page.
		s.Look(sources, func(series *Table, _ map[string]string) { look(series, s.public) })
	}
	for _, src := range s.sources {
		switch src := src.(type) {
		case *Sampler:
			o.Recent = src.recent
		case *Probe:
			o.Peers = src.recentRounds
		}
	}
	return o
}

// recent returns what a rail carried lately, as of the last read.
func (s *Sampler) recent(rail string, direction int, to []float64) (recent []float64, now float64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.snap.Rails {
		if r := &s.snap.Rails[i]; r.Name == rail {
			return r.Recent[direction].AppendTo(to), r.Recent[direction].Rate, true
		}
	}
	return to, 0, false
}
