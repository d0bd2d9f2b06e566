package serve

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
)

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
