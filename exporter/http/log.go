package http

import (
	"log"
	"log/slog"
	"strings"

	"github.com/railscope/railscope/internal/connlimit"
)

// newServerLog returns a log for net/http: each kind of line, by its first three words, once until it stops.
func newServerLog(logger *slog.Logger) *log.Logger {
	kinds := connlimit.NewRefusals(func(_, text string) {
		logger.Warn("Web server reports (logged once until it stops)", "err", text)
	})
	return log.New(writer(func(line []byte) {
		text := strings.TrimSpace(string(line))
		if strings.HasPrefix(text, "http: panic") { // our own fault
			logger.Error("Web server panicked", "err", text)
			return
		}
		words := strings.Fields(text)
		kinds.Count(strings.Join(words[:min(len(words), 3)], " "), text)
	}), "", 0)
}

// writer is an [io.Writer] that cannot fail.
type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
