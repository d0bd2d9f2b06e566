package fingerprint

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

const (
	every  = 5 * time.Second        // time between two readings
	budget = 500 * time.Millisecond // time limit of one rail's reading
	// A fault is over when its counters have stood still for so long: at timeout 20, the default of NCCL, they rise
	// every 8.6 s.
	still = 10 * time.Second
	// A fault that goes on is reported in parts of this length.
	longest = 3 * time.Minute
	// kept is how long a fault is reported.
	kept = 10 * time.Minute
	most = 100 // faults of a rail that are kept
)

// Fault is a time in which error counters of a rail rose, from the first rise until they stood still.
type Fault struct {
	Start, End time.Time // first and last reading that showed a rise
	Rose       Counts
}

// Watch reads the error counters of all rails every 5 s, and keeps the faults of the last 10 minutes. Safe for
// concurrent use.
type Watch struct {
	rails   func() ([]rail.Rail, error)
	lanes   lane.Group[reading]
	readers map[string]*reader // by name of the rail; only for Run

	mu  sync.Mutex         // protects the following field
	now map[string]*faults // by name of the rail
}

// reading is what the counters of a rail show; ok is false if the driver has none of them, or one that it has was not
// read.
type reading struct {
	counts Counts
	ok     bool
}

// NewWatch returns a watch over the rails that exist at each reading.
func NewWatch(rails func() ([]rail.Rail, error)) *Watch {
	return &Watch{rails: rails, readers: map[string]*reader{}, now: map[string]*faults{}}
}

// Run reads the counters until ctx is done.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		w.read()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// read reads the counters of all rails once. A device that hangs delays no other.
func (w *Watch) read() {
	rails, err := w.rails()
	if err != nil && len(rails) == 0 {
		return
	}
	readers, names := map[string]*reader{}, make([]string, 0, len(rails))
	for _, r := range rails {
		dir := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port), "hw_counters")
		readers[r.Name] = w.readers[r.Name]
		if of := readers[r.Name]; of == nil || of.dir != dir {
			readers[r.Name] = newReader(dir)
			w.restart(r.Name)
		}
		names = append(names, r.Name)
	}
	w.readers = readers
	results := w.lanes.Run(budget, names, func(name string) reading { return readers[name].read(time.Now()) })
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.now {
		if readers[name] == nil {
			delete(w.now, name)
		}
	}
	for _, r := range results {
		if r.State != lane.Done || !r.Value.ok {
			continue
		}
		if w.now[r.Key] == nil {
			w.now[r.Key] = &faults{}
		}
		w.now[r.Key].note(now, r.Value.counts)
	}
}

// restart lets the next reading of a rail be the first one: another device has other counters.
func (w *Watch) restart(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.now[name]; of != nil {
		of.known = false
	}
}

// reader reads the counters of one rail.
type reader struct {
	dir   string
	files [Counters][]*file
}

// file is one counter's file. Once it was read, a reading without it is not compared with others.
type file struct {
	sysfs.Attr
	exists bool
}

func newReader(dir string) *reader {
	r := &reader{dir: dir}
	for c, list := range names() {
		for _, name := range list {
			r.files[c] = append(r.files[c], &file{Attr: sysfs.Attr{File: sysfs.File{Path: filepath.Join(dir, name)}}})
		}
	}
	return r
}

func (r *reader) read(now time.Time) (all reading) {
	lost := false
	for c, list := range r.files {
		for _, f := range list {
			v, err := f.Counter(now)
			f.Close()
			if err == nil {
				all.counts[c], all.ok, f.exists = all.counts[c]+v, true, true
			}
			lost = lost || f.exists && err != nil
		}
	}
	all.ok = all.ok && !lost
	return all
}

// Faults returns the faults of a rail that ended in the last 10 minutes, oldest first.
func (w *Watch) Faults(name string) []Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.now[name]
	if of == nil {
		return nil
	}
	return of.lately(time.Now())
}

// faults are those of one rail.
type faults struct {
	last  Counts
	known bool // last was read
	open  Fault
	ended []Fault // oldest first
}

// note adds a reading.
func (f *faults) note(now time.Time, counts Counts) {
	before, known := f.last, f.known
	f.last, f.known = counts, true
	if !known {
		return
	}
	rose := false
	var by Counts
	for i, v := range counts {
		if v < before[i] { // the driver was loaded anew
			f.end()
			return
		}
		by[i] = v - before[i]
		rose = rose || by[i] > 0
	}
	stood := now.Sub(f.open.End)
	if stood >= still && !rose || stood > still+every || now.Sub(f.open.Start) >= longest {
		f.end()
	}
	if !rose {
		return
	}
	if f.open.Start.IsZero() {
		f.open.Start = now
	}
	f.open.End = now
	for i := range by {
		f.open.Rose[i] += by[i]
	}
}

// end ends the open fault.
func (f *faults) end() {
	if !f.open.Start.IsZero() {
		f.ended = append(f.ended, f.open)
		f.ended = f.ended[max(0, len(f.ended)-most):]
	}
	f.open = Fault{}
}

// lately returns the faults that ended in the last 10 minutes.
func (f *faults) lately(now time.Time) (list []Fault) {
	for _, one := range f.ended {
		if now.Sub(one.End) < kept {
			list = append(list, one)
		}
	}
	return list
}
