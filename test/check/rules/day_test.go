package rules

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/bond"
	"github.com/railscope/railscope/collector/gpudirect"
	"github.com/railscope/railscope/collector/netdev"
	"github.com/railscope/railscope/collector/pcie"
	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	exportersampler "github.com/railscope/railscope/exporter/sampler"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/rail"
)

// scraped is an exposition with the time of its read.
type scraped struct {
	at   time.Time
	text []byte
}

// served is a railscope with its sources that is examined and scraped every minute.
type served struct {
	t           *testing.T
	tree        *machines.Tree
	finder      *rail.Finder
	keeper      *expect.Keeper
	facts       *facts.Gatherer
	store       *finding.Store
	scraper     *scrape.Scraper
	stop        func() // stops the sampler
	records     []rail.Record
	memory      expect.Memory
	maintenance bool
	scrapes     []scraped
}

// Start implements [machines.Watcher].
func (s *served) Start() {
	const budget = time.Second
	s.finder = rail.NewFinder(s.tree.Sys(), rail.Options{}, nil, budget)
	if err := s.finder.Remember(s.records, func(list []rail.Record) { s.records = list }); err != nil {
		s.t.Fatal(err)
	}
	s.keeper = expect.New(expect.Options{Sysfs: s.tree.Sys(), Find: s.finder.Snapshot, Budget: budget, Memory: s.memory,
		Save: func(m expect.Memory) { s.memory = m }})
	s.facts = facts.New(facts.Options{Sysfs: s.tree.Sys(), Procfs: s.tree.Procfs(), Rootfs: s.tree.Root,
		Rails: s.finder.Snapshot, Expect: s.keeper, Budget: budget})
	s.store = finding.NewStore(nil)
	ports := rdma.New(s.tree.Sys(), s.finder.Snapshot, budget)
	ports.Expected, ports.Node = s.keeper.Expected, s.keeper.Node
	sampling := sampler.New(sampler.Options{Sysfs: s.tree.Sys(), Rails: s.finder.Rails, Interval: time.Second,
		Alarm: sampler.RuntimeAlarm})
	s.stop()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.stop = cancel
	go sampling.Run(ctx)
	start := float64(time.Now().Unix())
	process := prometheus.NewRegistry()
	process.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "process_start_time_seconds"},
		func() float64 { return start }))
	s.scraper = scrape.New([]collector.Source{ports,
		bond.New(s.tree.Sys(), s.tree.Procfs(), s.finder.Rails, budget),
		netdev.New(s.tree.Sys(), s.finder.Rails, budget, nil),
		pcie.New(s.tree.Sys(), s.finder.Snapshot, budget),
		gpudirect.New(s.tree.Sys(), s.tree.Procfs(), path.Dir(s.tree.Procfs()), budget),
		exportersampler.NewSource(sampling.Snapshot),
	}, scrape.Options{Budget: 4 * budget, Logger: slog.New(slog.DiscardHandler), Process: process,
		Findings:    func() ([]finding.Raised, int) { return s.store.List(time.Now()) },
		Maintenance: func() bool { return s.maintenance }})
}

// Minutes implements [machines.Watcher].
func (s *served) Minutes(count int, _ string) {
	for range count {
		time.Sleep(time.Minute)
		s.keeper.Observe()
		f := s.facts.Gather(s.t.Context(), facts.WithoutJobs)
		s.store.Update("node", time.Now(), check.Node(f, func(c check.Check) bool { return !c.Own() }))
		text, err := s.scraper.Exposition(expfmt.NewFormat(expfmt.TypeTextPlain), false)
		if err != nil {
			s.t.Fatal(err)
		}
		s.scrapes = append(s.scrapes, scraped{time.Now(), text})
	}
}

// Rails implements [machines.Watcher].
func (s *served) Rails() ([]rail.Rail, error) { return s.finder.Rails() }

// Maintenance implements [machines.Watcher].
func (s *served) Maintenance(on bool) { s.maintenance = on }

// Lost implements [machines.Watcher]: even allowed findings must not fire an alert.
func (s *served) Lost(string) {}

// Back implements [machines.Watcher].
func (s *served) Back(string) {}

// Over implements [machines.Watcher].
func (s *served) Over(string) {}

// Moment implements [machines.Watcher]: no scrape happens during it.
func (s *served) Moment(begin, end func()) {
	begin()
	time.Sleep(time.Second)
	end()
	time.Sleep(time.Second)
}

// ingest stores an exposition as Prometheus does, with stale markers for series that have disappeared.
func ingest(t *testing.T, db *tsdb.DB, s scraped, before map[string]labels.Labels) map[string]labels.Labels {
	t.Helper()
	app := db.Appender(t.Context())
	seen := map[string]labels.Labels{}
	put := func(l labels.Labels, v float64) {
		b := labels.NewBuilder(l)
		b.Set("job", "railscope").Set("instance", "node-1:10091").Del("__type__")
		l = b.Labels()
		seen[l.String()] = l
		if _, err := app.Append(0, l, s.at.UnixMilli(), v); err != nil {
			t.Fatal(err)
		}
	}
	put(labels.FromStrings(model.MetricNameLabel, "up"), 1)
	for p := textparse.NewPromParser(s.text, labels.NewSymbolTable(), false); ; {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var l labels.Labels
		p.Labels(&l)
		_, _, v := p.Series()
		put(l.WithoutEmpty(), v)
	}
	for name, l := range before {
		if _, ok := seen[name]; !ok {
			if _, err := app.Append(0, l, s.at.UnixMilli(), math.Float64frombits(value.StaleNaN)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestDay: during a normal day of ten machines (internal/machines, which tests the findings of the same day) no
// alert fires. Faults that last longer than an alert waits happen during maintenance, which the operator has
// announced.
func TestDay(t *testing.T) {
	for _, m := range machines.Days() {
		t.Run(m.Name, func(t *testing.T) {
			s := &served{tree: machines.NewTree(t), stop: func() {}}
			lanetest.Test(t, func(t *testing.T) {
				s.t = t
				m.Build(s.tree)
				s.Start()
				s.tree.Day(s)
				s.stop()
			})
			db, series := database(t), map[string]labels.Labels{}
			e, fired := newEvaluator(t, db), map[string][]int{}
			for i, one := range s.scrapes {
				series = ingest(t, db, one, series)
				since := time.Duration(i) * time.Minute // plus some seconds
				e.evalDue(t, one.at.Add(-since), since)
				for _, alert := range e.firing() {
					fired[alert] = append(fired[alert], i)
				}
			}
			for _, alert := range slices.Sorted(maps.Keys(fired)) {
				t.Errorf("%s fires in minutes %s of the day", alert, spans(fired[alert]))
			}
			t.Logf("%d scrapes, %d series", len(s.scrapes), len(series))
		})
	}
}
