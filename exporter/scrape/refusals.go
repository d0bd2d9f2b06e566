package scrape

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/railscope/railscope/internal/connlimit"
)

// Reasons of the web port to refuse a client, besides those of connlimit.
const (
	RefusedBody      = "body"       // the request body is too large
	RefusedCrossSite = "cross_site" // a page of another site requested a reload
	RefusedStreams   = "streams"    // too many live pages are open
)

// newRefusals counts refused clients, and logs the first of each reason.
func newRefusals(logger *slog.Logger) *connlimit.Refusals {
	fix := map[string]string{
		connlimit.Connections: "find out who opens the connections; the limit is --web.max-connections",
		connlimit.Address:     "raise --web.max-connections if a proxy uses this address: one may open half of them",
		connlimit.Timeout:     "send a request within 10 s and read its answer within 60 s",
		RefusedBody:           "send no request body",
		RefusedCrossSite:      "request the reload from outside a browser",
		RefusedStreams:        "close a live page",
	}
	return connlimit.NewRefusals(func(reason, address string) {
		logger.Warn("Web port refused a client (logged once until it stops)",
			"reason", reason, "address", address, "fix", fix[reason])
	}, slices.Sorted(maps.Keys(fix))...)
}

// Refuse counts a client that the web port refused.
func (s *Scraper) Refuse(reason, address string) { s.refused.Count(reason, address) }
