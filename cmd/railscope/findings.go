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

// newFindings makes the store of what stands, which logs each finding once when it is raised and when it is cleared.
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

// fresh is how old series may be that findings are made of: with a scrape every 15 s, no source is read for them.
const fresh = 30 * time.Second

// newExaminer makes what examines the node every minute, with jobs also the environments of processes.
func newExaminer(g *facts.Gatherer, jobs bool, scraper *scrape.Scraper, probing *probing, store *finding.Store,
) *examine.Examiner {
	scope := facts.WithoutJobs
	if jobs {
		scope = facts.All
	}
	return examine.New(examine.Options{
		Gather: func(ctx context.Context) *facts.Facts { return g.Gather(ctx, scope) },
		Series: func(view func(facts.Series, map[string]string)) {
			scraper.Update([]string{"rdma", "netdev", "pcie", "gpu", "sampler", "nccl", "kmsg", "process"}, fresh,
				func(series *table.Table, failed map[string]string) { view(series, failed) })
		},
		Uses:  func() bool { return probing.service.Stats().Running },
		Store: store,
	})
}

// pageExam returns what the live page shows of findings.
func pageExam(found *finding.Store, examining *examine.Examiner) func() exporterpage.Exam {
	return func() exporterpage.Exam {
		last := examining.Last()
		e := exporterpage.Exam{On: true, At: last.At, Took: last.Took, Err: last.Err, Unread: last.Unread,
			Unused: last.Unused, Done: last.Done}
		e.Findings, e.More = found.List(time.Now())
		return e
	}
}
