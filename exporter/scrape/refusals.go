package scrape

import (
	"log/slog"

	"github.com/railscope/railscope/internal/connlimit"
)

// Why the web port refuses: [connlimit.Connections], [connlimit.Address],
// [connlimit.Timeout], and these.
const (
	RefusedBody      = "body"       // a request with a body larger than maxBody
	RefusedCrossSite = "cross_site" // a page of another site asked for a reload
	RefusedStreams   = "streams"    // as many live pages are open as can be
)

// newRefusals counts what the web port refuses, and logs the first of each
// reason.
func newRefusals(logger *slog.Logger) *connlimit.Refusals {
	fix := map[string]string{
		connlimit.Connections: "all places are taken: look for who opens them; --web.max-connections is the limit",
		connlimit.Address:     "this address has half of --web.max-connections open: raise it if a proxy has that address",
		connlimit.Timeout:     "a request must arrive within 10s and its answer be read within 60s",
		RefusedBody:           "requests need no body",
		RefusedCrossSite:      "a page of another site asked for a reload",
		RefusedStreams:        "close a live page",
	}
	report := func(reason, from string) {
		logger.Warn("Web port refuses a client (logged once until it stops)", "reason", reason, "address", from, "fix", fix[reason])
	}
	return connlimit.NewRefusals(report, connlimit.Address, RefusedBody, connlimit.Connections, RefusedCrossSite, RefusedStreams, connlimit.Timeout)
}

// Refuse counts a client that the web port refused. It is safe for concurrent use.
func (s *Scraper) Refuse(reason, address string) { s.refused.Count(reason, address) }
