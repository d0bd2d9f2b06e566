package rules

import (
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"
)

// TestQuickstart: Prometheus accepts the configuration in docs/quickstart.md, whose scrape settings are those that
// the rules require.
func TestQuickstart(t *testing.T) {
	text, err := os.ReadFile("../../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```yaml\n(scrape_configs:.*?)^```").FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("there is no scrape_configs")
	}
	c, err := config.Load(m[1], slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := c.GetScrapeConfigs()
	if err != nil || len(jobs) != 1 {
		t.Fatal(err, len(jobs))
	}
	switch job := jobs[0]; {
	case !strings.Contains(job.JobName, "railscope"), job.HonorLabels, job.ScrapeInterval.String() != "15s",
		!job.ScrapeNativeHistogramsEnabled(), len(c.RuleFiles) != 3:
		t.Errorf("%+v, rules %v", job, c.RuleFiles)
	}
}
