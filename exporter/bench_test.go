package exporter

import (
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
)

// BenchmarkScrape is one scrape of ten mlx5 ports with 53 counters each, from
// the files to the text, without HTTP. `make bench` compares the whole program
// with node_exporter.
func BenchmarkScrape(b *testing.B) {
	sys := b.TempDir()
	if err := sysfstest.WriteMlx5(sys, 10); err != nil {
		b.Fatal(err)
	}
	finder := rail.NewFinder(sys, rail.Options{}, nil, time.Second)
	s, err := NewScraper([]collector.Source{collector.NewRDMA(sys, finder.Rails, time.Second)},
		Options{Budget: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Text()
	}
}

// BenchmarkScrapeHGX is one scrape of all sources on the eight-rail capture:
// GIDs, netdevs, PCIe and GPUDirect beside the counters.
func BenchmarkScrapeHGX(b *testing.B) {
	s := testScraper(b, allSources(sysfstest.Unpack(b, "testdata/hgx.txtar")))
	b.ReportAllocs()
	for b.Loop() {
		s.Text()
	}
}

// BenchmarkScrapeProbe is one scrape of what rounds with ten peers over eight
// rails have left, 80 histograms among it.
func BenchmarkScrapeProbe(b *testing.B) {
	var peers []string
	for i := range 10 {
		peers = append(peers, fmt.Sprintf("node-%d:10092", i))
	}
	p := newTestProbe(peers...)
	for _, peer := range peers {
		r := healthy(peer)
		for i := range 3 {
			for _, rail := range r.Rails[:2] {
				rail.Rail += strconv.Itoa(i)
				r.Rails = append(r.Rails, rail)
			}
		}
		p.Observe(r)
	}
	s := testScraper(b, []collector.Source{p})
	b.ReportAllocs()
	for b.Loop() {
		s.Text()
	}
}
