// Command fleet writes the storage of a Prometheus that has scraped an imagined fleet for some time, and evaluated the
// rules: nodes of eight rails, at work and with the faults that the dashboards are for. What a node exposes is that of
// a machine in exporter/testdata; what moves is in story.go. It is for looking at dashboards, not for testing them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/railscope/railscope/test/check/ruleeval"
)

func main() {
	out := flag.String("out", "", "directory of the storage, which Prometheus is to be started with")
	until := flag.Int64("until", time.Now().Unix(), "time of the last scrape, in seconds of Unix")
	lasts := flag.Duration("lasts", 70*time.Minute, "time from the first scrape to the last")
	every := flag.Duration("every", 30*time.Second, "time between scrapes")
	nodes := flag.Int("nodes", 16, "nodes, at least 2; with less than 13 some faults have no node")
	sound := flag.Bool("sound", false, "without faults")
	testdata := flag.String("testdata", "../../exporter/testdata", "directory of the expositions")
	flag.Parse()
	w := &world{lasts: lasts.Seconds(), began: float64(*until) - lasts.Seconds(), sound: *sound}
	if err := w.write(*out, time.Unix(*until, 0), *every, *nodes, *testdata); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func (w *world) write(out string, until time.Time, every time.Duration, nodes int, testdata string) error {
	lasts := time.Duration(w.lasts * float64(time.Second))
	if out == "" || nodes < 2 || every <= 0 || lasts <= every {
		return fmt.Errorf("wants -out, at least 2 -nodes, and -lasts longer than -every")
	}
	if err := w.fill(nodes, testdata); err != nil {
		return err
	}
	o := tsdb.DefaultOptions()
	o.MinBlockDuration, o.MaxBlockDuration = (48 * time.Hour).Milliseconds(), (48 * time.Hour).Milliseconds()
	db, err := tsdb.Open(out, promslog.NewNopLogger(), nil, o, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r, err := ruleeval.New(ctx, db, filepath.Join(testdata, "..", "..", "deploy", "rules"))
	if err != nil {
		return err
	}
	start := until.Add(-lasts)
	for t := time.Duration(0); t <= lasts; t += every {
		if err := errors.Join(w.scrape(ctx, db, start.Add(t), t, every), r.Eval(ctx, start, start.Add(t))); err != nil {
			return err
		}
	}
	return errors.Join(r.Close(), db.Close())
}

// scrape stores what all nodes expose at a moment, t after the start.
func (w *world) scrape(ctx context.Context, db *tsdb.DB, at time.Time, t, every time.Duration) error {
	app := db.Appender(ctx)
	for _, s := range w.series {
		v, ok := s.next(t.Seconds(), every.Seconds())
		if !ok {
			continue
		}
		var err error
		if s.ref, err = app.Append(s.ref, s.labels, at.UnixMilli(), v); err != nil {
			return fmt.Errorf("%s: %w", s.labels, err)
		}
	}
	return app.Commit()
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
