// Package status answers /-/status with what the page shows and the findings, as JSON.
package status

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/status"
)

// Handler answers with the status of a node. It reads no source and waits for none. The page of o needs no Read.
func Handler(scraper *scrape.Scraper, o page.Options) http.Handler {
	o = page.WithSources(o, scraper.Sources())
	o.Version = scraper.Info().Version
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(take(scraper, o, time.Now()))
		if err != nil {
			http.Error(w, "encode the status: "+err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Length", strconv.Itoa(len(body)+1))
		_, _ = w.Write(append(body, '\n')) // the client is gone
	})
}

// take makes the status of what was read last.
func take(scraper *scrape.Scraper, o page.Options, now time.Time) status.Status {
	var shown page.Snapshot
	var read *time.Time
	scraper.View(func(series *table.Table, failed map[string]string, at map[string]time.Time) {
		shown = page.Take(o, series, failed, now)
		read = known(at["rdma"])
	})
	info := scraper.Info()
	s := status.Status{
		Version: status.Version, Node: shown.Node, Verdict: verdict(shown),
		Railscope: status.Build{Version: info.Version, Revision: info.Revision, Go: info.GoVersion},
		Simulated: info.Demo, Started: o.Started, At: now, Maintenance: scraper.Maintenance(),
		Rails: []status.Rail{}, RailsRead: read, Peers: []status.Peer{},
		Examination: status.Examination{At: known(shown.Exam.At), Seconds: shown.Exam.Took.Seconds(),
			Error: text(shown.Exam.Err), Done: shown.Exam.Done, Unread: append([]string{}, shown.Exam.Unread...)},
		Findings: append([]finding.Raised{}, shown.Exam.Findings...), FindingsDropped: shown.Exam.More,
	}
	for _, r := range shown.Rails {
		s.Rails = append(s.Rails, rail(r))
	}
	most := min(len(shown.Peers), status.MaxPeers)
	for _, p := range shown.Peers[:most] {
		s.Peers = append(s.Peers, peer(p))
	}
	s.PeersDropped = len(shown.Peers) - most
	return s
}

// verdict is that of the page. Before two examinations nobody knows that a node is good.
func verdict(s page.Snapshot) status.Verdict {
	v := status.Verdict{Level: status.Unknown, Text: s.Verdict.Text}
	switch s.Verdict.Level {
	case page.Bad:
		v.Level = status.Critical
	case page.Warn:
		v.Level = status.Warning
	case page.Good:
		if v.Level = status.OK; s.Exam.Done < 2 {
			v = status.Verdict{Level: status.Unknown, Text: v.Text + ", not examined yet"}
		}
	}
	return v
}

func rail(r page.Rail) status.Rail {
	out := status.Rail{Name: r.Name, Device: r.Device, Port: r.Port, Netdev: r.Netdev, PCIAddress: r.PCIAddress,
		NUMANode: text(r.NUMA), State: text(r.State), Rate: finite(r.Rate), Capacity: finite(r.Capacity),
		Expected: finite(r.Expected), MTU: finite(r.MTU)}
	if r.Up != nil {
		up := *r.Up == 1
		out.Up = &up
	}
	return out
}

func peer(p page.Peer) status.Peer {
	out := status.Peer{Name: p.Name}
	if len(p.Rounds) > 0 {
		r := p.Rounds[0]
		out.Last = &status.Round{Start: r.Start, Seconds: r.Duration.Seconds(), Outcome: r.Outcome, Transport: r.Transport,
			Reason: text(r.Reason), Goodput: finite(r.Goodput), Expected: finite(r.Expected), Imbalance: finite(r.Imbalance),
			P50: finite(r.P50), P99: finite(r.P99), Findings: append([]finding.Finding{}, r.Findings...)}
	}
	return out
}

// text is nil for an unknown text.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// known is nil for no time.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// finite is nil for what JSON cannot represent.
func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}
