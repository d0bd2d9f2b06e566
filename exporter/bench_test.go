package exporter

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	exportersampler "github.com/railscope/railscope/exporter/sampler"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
)

// BenchmarkScrape measures one scrape of ten mlx5 ports with 53 counters each, from the files to the text, without
// HTTP. `make bench` compares the whole program with node_exporter.
func BenchmarkScrape(b *testing.B) {
	sys := b.TempDir()
	if err := sysfstest.WriteMlx5(sys, 10); err != nil {
		b.Fatal(err)
	}
	finder := rail.NewFinder(sys, rail.Options{}, nil, time.Second)
	s := scrape.New([]collector.Source{rdma.New(sys, finder.Snapshot, time.Second)},
		scrape.Options{Budget: time.Second, Logger: slog.New(slog.DiscardHandler)})
	b.ReportAllocs()
	for b.Loop() {
		exportertest.Text(b, s)
	}
}

// BenchmarkScrapeSampler compares scrapes of all sources of the eight-rail capture with and without a sampler:
// processor time, measured alternately, and the median of the ratios.
func BenchmarkScrapeSampler(b *testing.B) {
	root := sysfstest.Unpack(b, "testdata/hgx.txtar")
	finder := rail.NewFinder(root.Sys(), rail.Options{}, nil, time.Second)
	smp := sampler.New(sampler.Options{Sysfs: root.Sys(), Rails: finder.Rails, Interval: sampler.DefaultInterval,
		Histogram: exportersampler.NewHistogram})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		smp.Run(ctx)
		close(ended)
	}()
	time.Sleep(2500 * time.Millisecond) // until capacities are known and the histograms exist
	cancel()
	<-ended
	without := exportertest.Scraper(b, allSources(b, root)...)
	with := exportertest.Scraper(b, append(allSources(b, root), exportersampler.NewSource(smp.Snapshot))...)
	turn := func(s *scrape.Scraper) float64 {
		start := processorTime(b)
		for range 50 {
			exportertest.Text(b, s)
		}
		return (processorTime(b) - start).Seconds() / 50
	}
	var ratios, costs []float64
	for b.Loop() {
		before := turn(without)
		after := turn(with)
		ratios, costs = append(ratios, after/before), append(costs, before)
	}
	slices.Sort(ratios)
	slices.Sort(costs)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(costs[len(costs)/2]*1e6, "µs/scrape")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(float64(bytes.Count(exportertest.Text(b, without), []byte("\n"))), "lines")
	b.ReportMetric(float64(bytes.Count(exportertest.Text(b, with), []byte("\n"))), "lines-with")
}

// processorTime returns the processor time that this process has used.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkScrapeHGX measures one scrape of all sources of the eight-rail capture: GIDs, netdevs, PCIe and
// GPUDirect in addition to the counters.
func BenchmarkScrapeHGX(b *testing.B) {
	s := exportertest.Scraper(b, allSources(b, sysfstest.Unpack(b, "testdata/hgx.txtar"))...)
	b.ReportAllocs()
	for b.Loop() {
		exportertest.Text(b, s)
	}
}

// BenchmarkScrapeProbe measures one scrape of the results of rounds with ten peers over eight rails, with 80
// histograms.
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
		p.Observe(r, nil)
	}
	s := exportertest.Scraper(b, p)
	b.ReportAllocs()
	for b.Loop() {
		exportertest.Text(b, s)
	}
}
