package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"html"
	"io"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/verdict"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/status"
)

// key returns the identity of a finding.
func key(check string, severity finding.Severity, subject string) string {
	return check + ", " + string(severity) + ", " + subject
}

func keys(list []finding.Finding) []string {
	set := []string{}
	for _, f := range list {
		set = append(set, key(f.Check, f.Severity, f.Subject))
	}
	slices.Sort(set)
	return set
}

// surfaces returns the findings of a running node on each surface, by the name of the surface.
func surfaces(t *testing.T, n *serve.Node, c common) map[string][]string {
	t.Helper()
	all := map[string][]string{"metrics": {}, "page": {}}
	handler := n.Handler(nil)
	defer handler.Close()
	get := func(path string) string {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	s, err := status.Parse([]byte(get(status.Path)))
	if err != nil {
		t.Fatal(err)
	}
	all["status"] = keys(verdict.Standing(s))
	label := regexp.MustCompile(`check="([^"]*)",rail="[^"]*",severity="([^"]*)",subject="([^"]*)"`)
	for line := range strings.Lines(get("/metrics")) {
		if m := label.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "railscope_finding{") {
			all["metrics"] = append(all["metrics"], key(m[1], finding.Severity(m[2]), m[3]))
		}
	}
	item := regexp.MustCompile(`<b>(critical|warning|info)</b> ([^<]*?)(?:: | <span)(?s:.*?)<span class="check">([^<]*)</span>`)
	for _, m := range item.FindAllStringSubmatch(get("/"), -1) {
		subject := strings.TrimSpace(html.UnescapeString(m[2]))
		all["page"] = append(all["page"], key(m[3], finding.Severity(m[1]), subject))
	}
	all["doctor"] = doctored(t, c)
	var checked verdict.Verdict
	line := checkSettings{common: &c, minSeverity: "info", format: "json", timeout: time.Minute}
	printed, _ := line.outcome(t)
	if err := json.Unmarshal([]byte(printed), &checked); err != nil {
		t.Fatal(err)
	}
	all["check"] = keys(checked.Findings)
	all["bench"] = keys(c.nodeFindings(t.Context(), nil))
	for _, set := range all {
		slices.Sort(set)
	}
	return all
}

// doctored returns the findings of doctor.
func doctored(t *testing.T, c common) []string {
	t.Helper()
	c.log.Writer = io.Discard
	var text bytes.Buffer
	doctor := doctorSettings{common: &c, format: "json"}
	if err := doctor.run(t.Context(), newShutdownTracker(), &text); err != nil && !errors.Is(err, errReported) {
		t.Fatal(err)
	}
	var report struct{ Findings []finding.Finding }
	if err := json.Unmarshal(text.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	return keys(report.Findings)
}

// TestDoctorRemembers: doctor adds, once, what only the running railscope can know, without what it sees itself.
func TestDoctorRemembers(t *testing.T) {
	c := checkOf(t).common
	c.log.Writer = io.Discard
	silenced := raised("lossy_rail", finding.Warning, "rail 0")
	silenced.Silenced = "known"
	lossy := raised("lossy_rail", finding.Warning, "rail 1")
	c.stateDir = answer(t, asJSON(statusOf(lossy, silenced, raised("counter_mismatch", finding.Warning, "rail 1"),
		raised("port_down", finding.Critical, "rail 1"), raised("rate_lost", finding.Critical, "rail 0"))))
	report := func(s doctorSettings) (list []string) {
		var text bytes.Buffer
		s.common, s.format = c, "json"
		if err := s.run(t.Context(), newShutdownTracker(), &text); err != nil {
			t.Fatal(err)
		}
		var report struct{ Findings []finding.Finding }
		if err := json.Unmarshal(text.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if f.Node == "" {
				t.Errorf("%s without its node", f.Check)
			}
			list = append(list, f.Check+" "+f.Subject)
		}
		return list
	}
	if diff := cmp.Diff([]string{"lossy_rail rail 1", "counter_mismatch rail 1"}, report(doctorSettings{})); diff != "" {
		t.Error(diff)
	}
	ignoring := doctorSettings{selection: selection{ignoreText: "counter_mismatch"}}
	if diff := cmp.Diff([]string{"lossy_rail rail 1"}, report(ignoring)); diff != "" {
		t.Error(diff)
	}
}

// TestSilences: a silenced finding is shown with its reason, and has no series. An expired silence is logged and
// hides nothing. A silence of an unknown check is refused.
func TestSilences(t *testing.T) {
	sys := tree(t)
	write(t, filepath.Join(sys, "class/infiniband/mlx5_0/ports/1/state"), "1: DOWN\n")
	write(t, filepath.Join(sys, "class/infiniband/mlx5_1/ports/1/state"), "1: DOWN\n")
	load := func(text string) *config.Config {
		c, err := config.Load(file(t, "findings: {silence: ["+text+"]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	o := serve.Options{Sources: serve.DefaultSources(), Machine: serve.Machine{Name: "n1", Sysfs: sys,
		Procfs: t.TempDir(), Rootfs: t.TempDir(), NVML: nvml.NewSession(nvml.NewLibrary("/no/such/file"))}}
	var log bytes.Buffer
	n := assembled(t, o, load("{check: port_down, subject: rail 0, reason: to be replaced, until: 2999-12-31}, "+
		"{check: port_down, reason: old, until: 2020-01-01}"), slog.New(slog.NewTextHandler(&log, nil)))
	n.Examiner.Examine(t.Context())
	n.Examiner.Examine(t.Context())
	w := httptest.NewRecorder()
	n.Local.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	got, err := status.Parse(w.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	silenced := map[string]string{}
	for _, f := range got.Findings {
		if f.Check == "port_down" {
			silenced[f.Subject] = f.Silenced
		}
	}
	if diff := cmp.Diff(map[string]string{"rail 0": "to be replaced", "rail 1": ""}, silenced); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(log.String(), "Silence has expired") || strings.Contains(log.String(), `subject="rail 0"`) ||
		!strings.Contains(log.String(), `subject="rail 1"`) {
		t.Error(log.String())
	}
	_, err = serve.New(o, load("{check: port_dwn, reason: a, until: 2999-12-31}"), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(),
		`:1: unknown check "port_dwn" in findings.silence; did you mean "port_down"?`) {
		t.Error(err)
	}
}

// TestDoctorAges: doctor prints since when a finding stands and when it was last seen, also for its own findings. A
// finding that the last round or reading did not repeat is listed last, as recovering, and does not cause exit code
// 1.
func TestDoctorAges(t *testing.T) {
	c := checkOf(t).common
	c.log.Writer = io.Discard
	aged := func(r finding.Raised, since, seen time.Duration) finding.Raised {
		r.Since, r.Seen = time.Now().Add(-since), time.Now().Add(-seen)
		return r
	}
	write(t, filepath.Join(c.Sysfs, "class/infiniband/mlx5_1/ports/1/state"), "1: DOWN\n")
	past := aged(raised("nccl_fallback", finding.Critical, "job a"), time.Hour, 3*time.Minute)
	past.Recovering = true
	c.stateDir = answer(t, asJSON(statusOf(past, aged(raised("lossy_rail", finding.Warning, "rail 0"), 10*time.Minute,
		20*time.Second), aged(raised("port_down", finding.Critical, "rail 1"), 5*time.Minute, time.Minute))))
	var text bytes.Buffer
	doctor := doctorSettings{common: c, format: "text"}
	if err := doctor.run(t.Context(), newShutdownTracker(), &text); !errors.Is(err, errReported) {
		t.Errorf("%v", err)
	}
	var got []string
	ages := regexp.MustCompile(`([0-9hms]+) ago`)
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "  since") {
			for _, m := range ages.FindAllStringSubmatch(line, -1) {
				got = append(got, m[1])
			}
		}
		if word, _, _ := strings.Cut(line, " "); slices.Contains([]string{"CRITICAL", "WARNING", "RECOVERING"}, word) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
	}
	want := []string{"CRITICAL rail 1 port_down", "5m0s", "1m0s", "WARNING rail 0 lossy_rail", "10m0s", "20s",
		"RECOVERING job a nccl_fallback", "1h0m0s", "3m0s"}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(text.String(), "\n1 critical, ") ||
		!strings.Contains(text.String(), ", 1 recovering; ") || !strings.Contains(text.String(), "it was critical") {
		t.Errorf("%s\n%s", diff, text.String())
	}
}
