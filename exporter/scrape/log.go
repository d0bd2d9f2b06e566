package scrape

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// faultLog logs each fault when it begins and when it is over, rather than at every scrape.
type faultLog struct {
	logger *slog.Logger
	last   map[errorKey]time.Time // when a fault last occurred
	few    time.Time              // when descriptors were last scarce
}

// overAfter is how long a fault must stay away to be over: longer than a refused file is left alone.
const overAfter = 3 * time.Minute

// fault logs a fault that is new.
func (l *faultLog) fault(key errorKey, f *collector.Fault) {
	_, known := l.last[key]
	l.last[key] = time.Now()
	if known {
		return
	}
	text, _, _ := strings.Cut(f.Error(), "\n") // without the stack of a panic
	l.logger.Warn("Read failed (logged once until it changes)", "collector", key.source, "device", key.device,
		"reason", key.reason, "expected", f.Expected, "err", text)
}

// enoughDescriptors is several times what the largest nodes need.
const enoughDescriptors = 65536

// descriptors logs that files are no longer kept open, which costs CPU time, and what to do.
func (l *faultLog) descriptors(now time.Time) {
	few, limit := sysfs.FewDescriptors()
	if !few {
		return
	}
	if now.Sub(l.few) > overAfter {
		l.logger.Warn("File descriptors are scarce: device files are reopened for every read", "limit", limit,
			"fix", fmt.Sprintf("raise the limit to %d: LimitNOFILE= of the unit, or ulimit -n",
				max(2*limit, enoughDescriptors)))
	}
	l.few = now
}

// recovered logs the faults that are over.
func (l *faultLog) recovered(now time.Time) {
	var gone []errorKey
	for key, last := range l.last {
		if now.Sub(last) > overAfter {
			gone = append(gone, key)
			delete(l.last, key)
		}
	}
	slices.SortFunc(gone, func(a, b errorKey) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.device, b.device), cmp.Compare(a.reason, b.reason))
	})
	for _, key := range gone {
		l.logger.Info("Read succeeds again", "collector", key.source, "device", key.device, "reason", key.reason)
	}
}
