package scrape

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

const (
	// overAfter is how long a fault must stay away to be over: longer than a refused file is left alone.
	overAfter = 3 * time.Minute
	// Bounds on the series of devices: interfaces of containers come and go by the thousand, with new names.
	faultsKeep = 24 * time.Hour // after the last fault
	faultsMost = 256            // per source
	// enoughDescriptors is several times what the largest nodes need.
	enoughDescriptors = 65536
)

// faults counts the faults of sources, and logs where each begins and ends. Not safe for concurrent use.
type faults struct {
	logger *slog.Logger
	counts map[faultKey]*faultCount
	scarce time.Time // when descriptors were last scarce
}

type faultKey struct{ source, device, reason string }

type faultCount struct {
	n    uint64
	last time.Time
	open bool // not over yet
}

// add counts a fault, and logs a new one. Devices beyond the limit of their source are counted as other.
func (s *faults) add(source string, f *collector.Fault) {
	key := faultKey{source, f.Device, f.Reason}
	if s.counts[key] == nil && f.Device != "" && s.devices(source) >= faultsMost {
		key.device = "other"
	}
	c := s.counts[key]
	if c == nil {
		c = &faultCount{}
		s.counts[key] = c
	}
	if !c.open {
		text, _, _ := strings.Cut(f.Error(), "\n") // without the stack of a panic
		s.logger.Warn("Read failed (logged once until it changes)", "collector", source, "device", f.Device,
			"reason", f.Reason, "expected", f.Expected, "err", text)
	}
	c.n, c.last, c.open = c.n+1, time.Now(), true
}

func (s *faults) devices(source string) (n int) {
	for key := range s.counts {
		if key.source == source && key.device != "" {
			n++
		}
	}
	return n
}

func (s *faults) review(now time.Time) {
	for key, c := range s.counts {
		quiet := now.Sub(c.last)
		if c.open && quiet > overAfter {
			c.open = false
			s.logger.Info("Read succeeds again", "collector", key.source, "device", key.device, "reason", key.reason)
		}
		if key.device != "" && quiet >= faultsKeep {
			delete(s.counts, key)
		}
	}
	s.descriptors(now)
}

// descriptors logs that files are no longer kept open, which costs CPU time, and what to do.
func (s *faults) descriptors(now time.Time) {
	scarce, limit := sysfs.FewDescriptors()
	if !scarce {
		return
	}
	if now.Sub(s.scarce) > overAfter {
		s.logger.Warn("File descriptors are scarce: device files are reopened for every read", "limit", limit,
			"fix", fmt.Sprintf("raise the limit to %d: LimitNOFILE= of the unit, or ulimit -n",
				max(2*limit, enoughDescriptors)))
	}
	s.scarce = now
}
