package exporter

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/connlimit"
)

// Why the web port refuses: [connlimit.Connections], [connlimit.Address],
// [connlimit.Timeout], and these.
const (
	refusedBody      = "body"       // a request with a body larger than maxBody
	refusedCrossSite = "cross_site" // a page of another site asked for a reload
	refusedStreams   = "streams"    // as many live pages are open as can be
)

// newRefusals counts what the web port refuses, and logs the first of each
// reason.
func newRefusals(logger *slog.Logger) *connlimit.Refusals {
	fix := map[string]string{
		connlimit.Connections: "all places are taken: look for who opens them; --web.max-connections is the limit",
		connlimit.Address:     "this address has half of --web.max-connections open: raise it if a proxy has that address",
		connlimit.Timeout:     "a request must arrive within 10s and its answer be read within 60s",
		refusedBody:           "requests need no body",
		refusedCrossSite:      "a page of another site asked for a reload",
		refusedStreams:        "close a live page",
	}
	report := func(reason, from string) {
		logger.Warn("Web port refuses a client (logged once until it stops)", "reason", reason, "address", from, "fix", fix[reason])
	}
	return connlimit.NewRefusals(report, connlimit.Address, refusedBody, connlimit.Connections, refusedCrossSite, refusedStreams, connlimit.Timeout)
}

// maxSlow is how many answers may wait for their clients to read them. A healthy
// client reads in milliseconds, and each answer that waits holds its text.
const maxSlow = 64

// slowAnswers cuts off the oldest answer when too many wait for their clients.
// The zero value is ready to use. Safe for concurrent use.
type slowAnswers struct {
	mu    sync.Mutex
	going []*answer // oldest first
}

// answer is a response whose writes count as slow while they block.
type answer struct {
	http.ResponseWriter
	among *slowAnswers
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	a.among.begin(a)
	defer a.among.end(a)
	return a.ResponseWriter.Write(b)
}

func (s *slowAnswers) begin(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.going) >= maxSlow {
		_ = http.NewResponseController(s.going[0]).SetWriteDeadline(time.Now()) // its write fails, and frees what it holds
		s.going = s.going[1:]
	}
	s.going = append(s.going, a)
}

func (s *slowAnswers) end(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.going {
		if other == a {
			s.going = append(s.going[:i:i], s.going[i+1:]...)
			return
		}
	}
}
