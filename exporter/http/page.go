package http

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
)

// pageOptions gives the page its data: the scraper's series, recent rates and rounds.
func pageOptions(scraper *scrape.Scraper, opts Options) page.Options {
	o := page.Options{Node: opts.Node, Notice: opts.Notice, Metrics: opts.TelemetryPath, Version: scraper.Info().Version,
		Started: time.Now(), Logger: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)), Doctor: opts.Doctor,
		Refused: func(address string) { scraper.Refuse(scrape.RefusedStreams, address) },
		Read: func(sources []string, view func(page.Reading, map[string]string)) {
			scraper.Update(sources, func(series *table.Table, failed map[string]string) { view(series, failed) })
		}}
	for _, src := range scraper.Sources() {
		switch src := src.(type) {
		case interface {
			Recent(rail string, direction int, to []float64) ([]float64, float64, bool)
		}:
			o.Recent = src.Recent
		case interface{ Peers() ([]page.Peer, bool) }:
			o.Peers = src.Peers
		}
	}
	return o
}
