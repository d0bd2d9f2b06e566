// Command fleet writes the storage of a Prometheus that has scraped an imagined
// fleet for some time: sixteen nodes of eight rails, at work and with the faults
// that the dashboards are for. What a node exposes is that of a machine in
// exporter/testdata; what moves is in story.go. It is for looking at dashboards,
// not for testing them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

func main() {
	out := flag.String("out", "", "directory of the storage, which Prometheus is to be started with")
	until := flag.Int64("until", time.Now().Unix(), "time of the last scrape, in seconds of Unix")
	lasts := flag.Duration("lasts", 70*time.Minute, "time from the first scrape to the last")
	every := flag.Duration("every", 30*time.Second, "time between scrapes")
	nodes := flag.Int("nodes", 16, "nodes, at least 13")
	testdata := flag.String("testdata", "../../exporter/testdata", "directory of the expositions")
	flag.Parse()
	if err := write(*out, time.Unix(*until, 0), *lasts, *every, *nodes, *testdata); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func write(out string, until time.Time, lasts, every time.Duration, nodes int, testdata string) error {
	if out == "" || nodes < 13 || every <= 0 || lasts <= every {
		return fmt.Errorf("wants -out, at least 13 -nodes, and -lasts longer than -every")
	}
	w := &world{lasts: lasts.Seconds(), began: float64(until.Add(-lasts).Unix())}
	if err := w.fill(nodes, testdata); err != nil {
		return err
	}
	block, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), out, (30 * 24 * time.Hour).Milliseconds())
	if err != nil {
		return err
	}
	defer func() { _ = block.Close() }()
	ctx := context.Background()
	for t := time.Duration(0); t <= lasts; t += every {
		app := block.Appender(ctx)
		at := until.Add(t - lasts).UnixMilli()
		for _, s := range w.series {
			v, ok := s.next(t.Seconds(), every.Seconds())
			if !ok {
				continue
			}
			if s.ref, err = app.Append(s.ref, s.labels, at, v); err != nil {
				return fmt.Errorf("%s: %w", s.labels, err)
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
	}
	_, err = block.Flush(ctx)
	return err
}

// series is one, and what it does: a counter rises by what its function returns
// for a second, anything else is what it returns.
type series struct {
	labels  labels.Labels
	ref     storage.SeriesRef
	counts  bool
	value   func(t float64) float64
	there   func(t float64) bool // nil is always
	counted float64
}

func (s *series) next(t, every float64) (float64, bool) {
	if s.there != nil && !s.there(t) {
		return 0, false
	}
	if !s.counts {
		return s.value(t), true
	}
	s.counted += s.value(t) * every
	return s.counted, true
}
