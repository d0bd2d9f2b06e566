package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/railscope/railscope/doctor/examine"
	"github.com/railscope/railscope/doctor/facts"
	exporterpage "github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/finding"
)

// newFindings returns the store of findings. It logs each finding once when it is raised and when it is cleared.
func newFindings(logger *slog.Logger) *finding.Store {
	return finding.NewStore(func(raised, cleared []finding.Raised) {
		for _, f := range raised {
			level := slog.LevelWarn
			if f.Severity == finding.Info {
				level = slog.LevelInfo
			}
			logger.Log(context.Background(), level, "Finding", "check", f.Check, "severity", f.Severity, "subject", f.Subject,
				"evidence", f.Evidence)
		}
		for _, f := range cleared {
			logger.Info("Finding cleared", "check", f.Check, "subject", f.Subject, "after",
				time.Since(f.Since).Round(time.Second))
		}
	})
}

// fresh is the maximum age of series from which findings are derived: with a scrape every 15 s, no source is read
// for them.
const fresh = 30 * time.Second

// newExaminer returns the examiner, which examines the node every minute, and with jobs also the environments of
// processes. hard reads hard facts, because g may be busy for seconds.
func newExaminer(g, hard *facts.Gatherer, jobs bool, scraper *scrape.Scraper, probing *probing, store *finding.Store,
) *examine.Examiner {
	scope := facts.WithoutJobs
	if jobs {
		scope = facts.All
	}
	return examine.New(examine.Options{
		Gather: func(ctx context.Context) *facts.Facts { return g.Gather(ctx, scope) },
		Hard:   func(ctx context.Context) *facts.Facts { return hard.Gather(ctx, facts.Hard) },
		Series: func(view func(facts.Series, map[string]string)) {
			scraper.Update([]string{"rdma", "netdev", "pcie", "gpu", "sampler", "nccl", "kmsg", "process"}, fresh,
				func(series *table.Table, failed map[string]string) { view(series, failed) })
		},
		Uses:  func() bool { return probing.service.Stats().Running },
		Store: store,
	})
}

// pageExam returns a function that returns the findings for the live page.
func pageExam(found *finding.Store, examining *examine.Examiner) func() exporterpage.Exam {
	return func() exporterpage.Exam {
		last := examining.Last()
		e := exporterpage.Exam{On: true, At: last.At, Took: last.Took, Err: last.Err, Unread: last.Unread,
			Done: last.Done, Hard: last.Hard}
		e.Findings, e.More = found.List(time.Now())
		return e
	}
}

// portsNow returns a function that reads the node's hard facts now, and returns the states of the rails' ports.
func portsNow(examining *examine.Examiner) func(context.Context) ([]exporterpage.Port, bool) {
	return func(ctx context.Context) (list []exporterpage.Port, read bool) {
		ports, read := examining.Now(ctx)
		for _, p := range ports {
			list = append(list, exporterpage.Port(p))
		}
		return list, read
	}
}
