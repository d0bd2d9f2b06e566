// Package status serves /-/status: the content of the page and the findings, as JSON.
package status

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/status"
)

// Handler serves the status of a node. It reads hard facts (o.Now), and no source. The page of o needs no Read.
func Handler(scraper *scrape.Scraper, o page.Options) http.Handler {
	o = page.WithSources(o, scraper.Sources())
	o.Version = scraper.Info().Version
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ports []page.Port // nil: use those of the last read
		if o.Now != nil {
			if now, read := o.Now(r.Context()); read {
				ports = append([]page.Port{}, now...)
			}
		}
		body, err := json.Marshal(take(scraper, o, time.Now(), ports))
		if err != nil {
			http.Error(w, "encode the status: "+err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Length", strconv.Itoa(len(body)+1))
		_, _ = w.Write(append(body, '\n')) // the client has disconnected
	})
}

// take makes the status from the last reads. ports were read just now; nil: they were not.
func take(scraper *scrape.Scraper, o page.Options, now time.Time, ports []page.Port) status.Status {
	var shown page.Snapshot
	var read *time.Time
	scraper.View(func(series *table.Table, failed map[string]string, at map[string]time.Time) {
		shown = page.TakeNow(o, series, failed, now, ports)
		read = known(at["rdma"])
	})
	info := scraper.Info()
	s := status.Status{
		Version: status.Version, Node: shown.Node, Verdict: verdict(shown),
		Railscope: status.Build{Version: info.Version, Revision: info.Revision, Go: info.GoVersion},
		Simulated: info.Demo, Started: o.Started, At: now, Maintenance: scraper.Maintenance(),
		Rails: []status.Rail{}, RailsRead: read, Peers: []status.Peer{},
		Examination: status.Examination{At: known(shown.Exam.At), Seconds: shown.Exam.Took.Seconds(),
			Error: text(shown.Exam.Err), Done: shown.Exam.Done, Hard: known(shown.Exam.Hard),
			Unread: append([]string{}, shown.Exam.Unread...), Classes: append([]priority.Use{}, shown.Exam.Classes...)},
		Findings: append([]finding.Raised{}, shown.Exam.Findings...), FindingsDropped: shown.Exam.More,
	}
	for _, r := range shown.Rails {
		one := rail(r)
		if o.Own != nil {
			one.ProbeTransmit, one.ProbeReceive, one.ProbeTCP = o.Own(r.Device, r.Port)
		}
		s.Rails = append(s.Rails, one)
	}
	most := min(len(shown.Peers), status.MaxPeers)
	for _, p := range shown.Peers[:most] {
		s.Peers = append(s.Peers, peer(p))
	}
	s.PeersDropped = len(shown.Peers) - most
	return s
}

// verdict returns the page's verdict. Before two examinations, a good state is not known.
func verdict(s page.Snapshot) status.Verdict {
	v := status.Verdict{Level: status.Unknown, Text: s.Verdict.Text}
	switch s.Verdict.Level {
	case page.Bad:
		v.Level = status.Critical
	case page.Warn:
		v.Level = status.Warning
	case page.Good:
		v.Level = status.OK
		if s.Exam.Done < 2 {
			v = status.Verdict{Level: status.Unknown, Text: v.Text + ", not examined yet"}
		}
	}
	return v
}

func rail(r page.Rail) status.Rail {
	out := status.Rail{Name: r.Name, Device: r.Device, Port: r.Port, Netdev: r.Netdev, PCIAddress: r.PCIAddress,
		NUMANode: text(r.NUMA), State: text(r.State), Rate: stats.Finite(r.Rate), Capacity: stats.Finite(r.Capacity),
		Expected: stats.Finite(r.Expected), MTU: stats.Finite(r.MTU), Proof: r.Proof, Unused: r.Unused,
		NotMeasured: r.NotMeasured}
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
		out.Last = &status.Round{Start: r.Start, Seconds: r.Duration.Seconds(), Outcome: r.Outcome,
			Transport: r.Transport,
			Reason:    text(r.Reason), Goodput: stats.Finite(r.Goodput), Expected: stats.Finite(r.Expected),
			Imbalance: stats.Finite(r.Imbalance), P50: stats.Finite(r.P50), P99: stats.Finite(r.P99),
			Findings: append([]finding.Finding{}, r.Findings...)}
	}
	return out
}

// text returns nil for an unknown text.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// known returns nil for a zero time.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
