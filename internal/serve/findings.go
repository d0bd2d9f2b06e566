package serve

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/examine"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/fingerprint"
)

// newFindings returns the store of findings. It logs each finding once when it is raised and when it is cleared.
func newFindings(logger *slog.Logger) *finding.Store {
	return finding.NewStore(func(raised, cleared []finding.Raised) {
		for _, f := range raised {
			level := slog.LevelWarn
			if f.Severity == finding.Info {
				level = slog.LevelInfo
			}
			logger.Log(context.Background(), level, "Finding", "check", f.Check, "severity", f.Severity, "subject",
				f.Subject, "evidence", f.Evidence)
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
// processes. It reads hard facts by a gatherer of their own, because g may be busy for seconds.
func (n *Node) newExaminer(g *facts.Gatherer, errors *fingerprint.Watch, jobs bool) *examine.Examiner {
	scope := facts.WithoutJobs
	if jobs {
		scope = facts.All
	}
	hard := n.gatherer(hardBudget, nil)
	return examine.New(examine.Options{
		Gather: func(ctx context.Context) *facts.Facts { return g.Gather(ctx, scope) },
		Hard:   func(ctx context.Context) *facts.Facts { return hard.Gather(ctx, facts.Hard) },
		Series: func(view func(facts.Series, map[string]string)) {
			n.Scraper.Update([]string{"rdma", "netdev", "pcie", "gpu", "sampler", "nccl", "kmsg", "process", "probe"},
				fresh, func(series *table.Table, failed map[string]string) { view(series, failed) })
		},
		Faults: errors.Faults,
		Class:  n.Probe.class.Load,
		Uses:   func() bool { return n.Probe.Service.Stats().Running },
		Store:  n.Findings,
		Own: func() (string, string) {
			configuration, _ := n.configuration.Load().(string)
			return version.Version, configuration
		},
	})
}

// exam returns the findings for the live page.
func (n *Node) exam() page.Exam {
	last := n.Examiner.Last()
	e := page.Exam{On: true, At: last.At, Took: last.Took, Err: last.Err, Unread: last.Unread,
		Done: last.Done, Hard: last.Hard, Classes: last.Classes}
	e.Findings, e.More = n.Findings.List(time.Now())
	return e
}

// ports reads the node's hard facts now, and returns the states of the rails' ports.
func (n *Node) ports(ctx context.Context) (list []page.Port, read bool) {
	ports, read := n.Examiner.Now(ctx)
	for _, p := range ports {
		list = append(list, page.Port(p))
	}
	return list, read
}

// Silences returns the silences of the configuration, or an error for one that names no check.
func Silences(c *config.Config) (list []finding.Silence, err error) {
	known := check.Names()
	for _, s := range c.Findings.Silence {
		if !slices.Contains(known, s.Check) {
			return nil, fmt.Errorf("%s: unknown check %q in findings.silence%s", s.Place, s.Check,
				check.Suggest(s.Check))
		}
		list = append(list, finding.Silence{Check: s.Check, Subject: s.Subject, Reason: s.Reason, Until: s.Until.Time})
	}
	return list, nil
}

// applySilences applies silences, and logs those that have expired.
func applySilences(store *finding.Store, list []finding.Silence, logger *slog.Logger) {
	for _, s := range list {
		if !time.Now().Before(s.Until) {
			logger.Warn("Silence has expired: fix what it hid, or remove it from findings.silence", "check", s.Check,
				"subject", s.Subject, "until", s.Until)
		}
	}
	store.SetSilences(list)
}
