package scrape

import (
	"errors"
	"time"

	"github.com/railscope/railscope/collector"
)

// errorKey is the labels of source_errors_total.
type errorKey struct{ source, device, reason string }

// Bounds on the series of devices, since interfaces of containers come and go by the thousand with new names.
const (
	errorsKeep  = time.Hour   // after the device was last present
	errorsMost  = 256         // series of devices per source
	errorsEvery = time.Minute // between two checks of which devices are present
)

// errorCounts counts the faults of sources. Not safe for concurrent use.
type errorCounts struct {
	counts  map[errorKey]*errorCount
	checked map[string]time.Time // by source: when its devices were last checked
}

type errorCount struct {
	n    uint64
	last time.Time // when the device was last present, or failed
}

func newErrorCounts() errorCounts {
	return errorCounts{counts: map[errorKey]*errorCount{}, checked: map[string]time.Time{}}
}

// add counts a fault. When a source has too many, the device that was last present the longest ago is dropped.
func (e errorCounts) add(key errorKey, now time.Time) {
	c := e.counts[key]
	if c == nil {
		e.makeRoom(key)
		c = &errorCount{}
		e.counts[key] = c
	}
	c.n, c.last = c.n+1, now
}

func (e errorCounts) makeRoom(key errorKey) {
	if key.device == "" {
		return // as many as there are reasons
	}
	var oldest errorKey
	n := 0
	for k, c := range e.counts {
		if k.source != key.source || k.device == "" {
			continue
		}
		if n++; oldest.device == "" || c.last.Before(e.counts[oldest].last) {
			oldest = k
		}
	}
	if n >= errorsMost {
		delete(e.counts, oldest)
	}
}

// seen notes which devices a read emitted samples of. A read without samples of a
// device says nothing about which are present, unless the source has no hardware.
func (e errorCounts) seen(source string, r result, now time.Time) {
	if now.Sub(e.checked[source]) < errorsEvery {
		return
	}
	e.checked[source] = now
	missing := map[string]bool{}
	for key := range e.counts {
		if key.source == source && key.device != "" {
			missing[key.device] = true
		}
	}
	present, known := map[string]bool{}, errors.Is(r.err, collector.ErrAbsent)
	for i := 0; i < len(r.samples) && len(present) < len(missing); i++ {
		m := r.samples[i].Metric
		for l, label := range m.Labels {
			prefix, names := devicePrefix(label)
			if !names || l >= len(r.samples[i].Labels) || m.Name == railMissing {
				continue
			}
			known = true
			if name := prefix + r.samples[i].Labels[l]; missing[name] {
				present[name] = true
			}
		}
	}
	for key, c := range e.counts {
		if key.source == source && (present[key.device] || !known) {
			c.last = now
		}
	}
}

// railMissing is the one row about devices that are not there.
const railMissing = "rail_missing_info"

// devicePrefix returns what a fault has before the value of a label that names a
// device, and whether the label names one.
func devicePrefix(label string) (prefix string, names bool) {
	switch label {
	case "device", "netdev", "bond", "member", "pci_address":
		return "", true
	case "gpu":
		return "gpu", true
	}
	return "", false
}

// expire drops the counts of devices that have been absent for long.
func (e errorCounts) expire(now time.Time) {
	for key, c := range e.counts {
		if key.device != "" && now.Sub(c.last) >= errorsKeep {
			delete(e.counts, key)
		}
	}
}

// each calls f with every count.
func (e errorCounts) each(f func(key errorKey, n uint64)) {
	for key, c := range e.counts {
		f(key, c.n)
	}
}
