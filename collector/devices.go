package collector

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// Device is one device of a source with its open files. A [Set] calls it from one goroutine at a time.
type Device interface {
	// Read adds what can be read now to r. It may hang.
	Read(r *Reading)
	// Close closes the files. Nothing is called after it.
	Close()
}

// Reading is the result of one read of one device.
type Reading struct {
	Device  string // in the faults
	Time    time.Time
	samples []Sample
	faults  []error
}

// Add adds a sample. labels are not copied, so keep them from read to read.
func (r *Reading) Add(m *Metric, labels []string, value float64) {
	r.samples = append(r.samples, Sample{Metric: m, Labels: labels, Value: value})
}

// Record adds a sample for each set of labels or, if err is not nil, the fault; see [Reading.Fail].
func (r *Reading) Record(m *Metric, value float64, err error, labels ...[]string) {
	if r.Fail(err); err == nil {
		for _, l := range labels {
			r.Add(m, l, value)
		}
	}
}

// Fail adds a fault of the device, see [NewFault], unless err is nil or [sysfs.ErrNone].
func (r *Reading) Fail(err error) {
	if err != nil && !errors.Is(err, sysfs.ErrNone) {
		r.Fault(NewFault(r.Device, err))
	}
}

// Fault adds a fault.
func (r *Reading) Fault(f *Fault) { r.faults = append(r.faults, f) }

// Emit emits the samples and returns the faults.
func (r *Reading) Emit(emit func(Sample)) []error {
	for _, sample := range r.samples {
		emit(sample)
	}
	return r.faults
}

// Files are the files below one directory that a device keeps open.
type Files struct {
	Dir  string
	kept map[string]*sysfs.Attr
}

// NewFiles returns the files below the directory that the elements name.
func NewFiles(elem ...string) Files {
	return Files{Dir: filepath.Join(elem...), kept: map[string]*sysfs.Attr{}}
}

// Attr returns the file of this name, always the same one.
func (f *Files) Attr(name string) *sysfs.Attr {
	a := f.kept[name]
	if a == nil {
		a = &sysfs.Attr{File: sysfs.File{Path: filepath.Join(f.Dir, name)}}
		f.kept[name] = a
	}
	return a
}

// Close closes the files. A read opens its file again.
func (f *Files) Close() {
	for _, a := range f.kept {
		a.Close()
	}
}

// FactsEvery is how often facts are read: configuration and hardware, not counters and states.
const FactsEvery = 30 * time.Second

// Facts are samples that are read every [FactsEvery] and repeated in between. The zero value is ready to use.
type Facts struct {
	until   time.Time
	samples []Sample
}

// Read repeats the last samples, or calls read, which adds new ones to r. After a fault the next Read calls it again.
func (f *Facts) Read(r *Reading, read func()) {
	if r.Time.Before(f.until) {
		r.samples = append(r.samples, f.samples...)
		return
	}
	samples, faults := len(r.samples), len(r.faults)
	read()
	clear(f.samples)
	f.samples = append(f.samples[:0], r.samples[samples:]...)
	f.until = time.Time{}
	if len(r.faults) == faults {
		f.until = r.Time.Add(FactsEvery)
	}
}

// Set keeps the devices of a source between its reads, and is the only thing that opens, reads and closes them. Each
// has its own lane: one that hangs costs its own samples only, and a device that left the set is closed when its read
// returns.
//
// The key identifies the device: its PCI address, the inode of its directory, its rail.
type Set[K comparable, D Device] struct {
	budget time.Duration
	name   func(K) string
	open   func(K) D
	lanes  lane.Lanes[*member[D], struct{}]

	keys    []K
	members []*member[D] // in step with keys
}

// member is a device in a set. Its lane reads it; once it is gone, whoever holds mu last closes it.
type member[D Device] struct {
	open    func() D
	reading Reading
	gone    atomic.Bool // no longer in the set

	mu     sync.Mutex // held during a read; protects all following fields
	device D
	opened bool
}

// NewSet returns an empty set. A device that has not answered within budget, counted from when its own read starts, is
// left out of that read. name is the device's name in faults; open makes a device, in its lane.
func NewSet[K comparable, D Device](budget time.Duration, name func(K) string, open func(K) D) *Set[K, D] {
	return &Set[K, D]{budget: budget, name: name, open: open}
}

// Read makes the set that of keys, all different, reads every device, and emits the samples in that order. It returns
// the devices that answered, for use until the next Read, and a [*Fault] for each failure. One goroutine at a time.
func (s *Set[K, D]) Read(keys []K, emit func(Sample)) (answered []D, faults []error) {
	s.update(keys)
	for _, res := range s.lanes.Run(s.budget, s.members, (*member[D]).read) {
		if res.State != lane.Done {
			faults = append(faults, LaneFault(res.Key.reading.Device, res.State, res.Err))
			continue
		}
		faults = append(faults, res.Key.reading.Emit(emit)...)
		answered = append(answered, res.Key.device)
	}
	return answered, faults
}

// Close closes all devices, those that hang when they return.
func (s *Set[K, D]) Close() { s.update(nil) }

// update makes the members those of keys, and closes the others.
func (s *Set[K, D]) update(keys []K) {
	if slices.Equal(keys, s.keys) {
		return
	}
	before := make(map[K]*member[D], len(s.keys))
	for i, k := range s.keys {
		before[k] = s.members[i]
	}
	s.keys, s.members = slices.Clone(keys), make([]*member[D], len(keys))
	for i, k := range keys {
		s.members[i] = before[k]
		if delete(before, k); s.members[i] == nil {
			s.members[i] = &member[D]{open: func() D { return s.open(k) }, reading: Reading{Device: s.name(k)}}
		}
	}
	for _, m := range before {
		m.gone.Store(true)
		m.closeIfGone()
	}
}

// closeIfGone closes a device that left the set, unless it is being read: that read closes it.
func (m *member[D]) closeIfGone() {
	if m.gone.Load() && m.mu.TryLock() {
		m.closeLocked()
		m.mu.Unlock()
	}
}

// read reads the device, in its lane. A device whose read panics is opened again.
func (m *member[D]) read() (none struct{}) {
	m.mu.Lock()
	completed := false
	defer func() {
		if !completed {
			m.closeLocked()
		}
		m.mu.Unlock()
		m.closeIfGone()
	}()
	if m.gone.Load() {
		return none
	}
	if !m.opened {
		m.device = m.open()
		m.opened = true
	}
	r := &m.reading
	clear(r.samples) // keep no labels of what is gone
	r.samples, r.faults, r.Time = r.samples[:0], r.faults[:0], time.Now()
	m.device.Read(r)
	completed = true
	return none
}

func (m *member[D]) closeLocked() {
	if m.opened {
		m.opened = false
		m.device.Close()
	}
}
