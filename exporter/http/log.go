package http

import (
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/connlimit"
)

// maxKinds bounds what is remembered of lines that were logged.
const maxKinds = 64

// serverLog logs what net/http says, each kind of line once until it stops: clients
// cause most of them, and as often as they like. Safe for concurrent use.
type serverLog struct {
	logger *slog.Logger

	mu   sync.Mutex           // protects last
	last map[string]time.Time // by kind: when there was one
}

func newServerLog(logger *slog.Logger) *log.Logger {
	return log.New(&serverLog{logger: logger, last: map[string]time.Time{}}, "", 0)
}

// Write implements [io.Writer]; it is called once a line.
func (l *serverLog) Write(b []byte) (int, error) {
	text := strings.TrimSpace(string(b))
	kind, _, _ := strings.Cut(text, " from ") // the address of a client follows
	switch {
	case strings.HasPrefix(text, "http: panic"): // ours, each of them
		l.logger.Error("Web server panicked", "err", text)
	case l.isNew(kind, time.Now()):
		l.logger.Warn("Web server reports (logged once until it stops)", "err", text)
	}
	return len(b), nil
}

// isNew reports whether there was none of the kind for a while.
func (l *serverLog) isNew(kind string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.last[kind]
	if !known && len(l.last) >= maxKinds {
		clear(l.last)
	}
	l.last[kind] = now
	return !known || now.Sub(last) > connlimit.Quiet
}
