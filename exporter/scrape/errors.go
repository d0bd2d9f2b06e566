package scrape

import (
	"errors"
	"time"

	"github.com/railscope/railscope/collector"
)

// errorKey is the labels of source_errors_total.
type errorKey struct{ source, device, reason string }

// Bounds on what source_errors_total keeps of devices: interfaces of containers
// come and go by the thousand, each with a name of its own.
const (
	errorsKeep  = time.Hour // after the device was last there
	errorsMost  = 256       // series of devices, for each source
	errorsEvery = time.Minute
)

// errorBook counts the faults of sources. Not safe for concurrent use.
type errorBook struct {
	counts map[errorKey]*errorCount
	looked map[string]time.Time // by source: when it was last seen which devices there are
}

type errorCount struct {
	n    uint64
	last time.Time // when the device was last there, or failed
}

func newErrorBook() errorBook {
	return errorBook{counts: map[errorKey]*errorCount{}, looked: map[string]time.Time{}}
}

// add counts a fault. Where there are too many of a source, the device that was
// there longest ago is forgotten.
func (b errorBook) add(key errorKey, now time.Time) {
	c := b.counts[key]
	if c == nil {
		b.makeRoom(key)
		c = &errorCount{}
		b.counts[key] = c
	}
	c.n, c.last = c.n+1, now
}

func (b errorBook) makeRoom(key errorKey) {
	if key.device == "" {
		return // as many as there are reasons
	}
	var oldest errorKey
	n := 0
	for k, c := range b.counts {
		if k.source != key.source || k.device == "" {
			continue
		}
		if n++; oldest.device == "" || c.last.Before(b.counts[oldest].last) {
			oldest = k
		}
	}
	if n >= errorsMost {
		delete(b.counts, oldest)
	}
}

// seen notes which devices a reading of a source has told of. One that told of
// no device says nothing of who is there, unless the source has no hardware.
func (b errorBook) seen(source string, r result, now time.Time) {
	if now.Sub(b.looked[source]) < errorsEvery {
		return
	}
	b.looked[source] = now
	missing := map[string]bool{}
	for key := range b.counts {
		if key.source == source && key.device != "" {
			missing[key.device] = true
		}
	}
	here, told := map[string]bool{}, errors.Is(r.err, collector.ErrAbsent)
	for i := 0; i < len(r.samples) && len(here) < len(missing); i++ {
		m := r.samples[i].Metric
		for l, label := range m.Labels {
			prefix, known := labelsOfDevices[label]
			if !known || l >= len(r.samples[i].Labels) || m.Name == railMissing {
				continue
			}
			told = true
			if name := prefix + r.samples[i].Labels[l]; missing[name] {
				here[name] = true
			}
		}
	}
	for key, c := range b.counts {
		if key.source == source && (here[key.device] || !told) {
			c.last = now
		}
	}
}

// labelsOfDevices are the labels that name what a fault may be of, with what is
// before the name there.
var labelsOfDevices = map[string]string{"device": "", "netdev": "", "bond": "", "member": "", "gpu": "gpu", "pci_address": ""}

// railMissing is the one row about devices that are not there.
const railMissing = "rail_missing_info"

// forget drops the counts of devices that have been gone for long.
func (b errorBook) forget(now time.Time) {
	for key, c := range b.counts {
		if key.device != "" && now.Sub(c.last) >= errorsKeep {
			delete(b.counts, key)
		}
	}
}

// emit emits what was counted.
func (b errorBook) emit(row *collector.Metric, emit func(collector.Sample)) {
	for key, c := range b.counts {
		emit(collector.Sample{Metric: row, Labels: []string{key.source, key.device, key.reason}, Value: float64(c.n)})
	}
}
