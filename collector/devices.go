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
	// Read adds the values that can be read now to r. It may hang.
	Read(r *Reading)
	// Close closes the files. It is the last call.
	Close()
}

// Reading is the result of one read of one device.
type Reading struct {
	Device  string // name of the device in faults
	Time    time.Time
	samples []Sample
	faults  []error
}

// Add adds a sample. labels are not copied: the device keeps them for all reads.
func (r *Reading) Add(m *Metric, labels []string, value float64) {
	r.samples = append(r.samples, Sample{Metric: m, Labels: labels, Value: value})
}

// Record adds a sample for each set of labels. If err is not nil, it adds the fault instead; see [Reading.Fail].
func (r *Reading) Record(m *Metric, value float64, err error, labels ...[]string) {
	r.Fail(err)
	if err == nil {
		for _, l := range labels {
			r.Add(m, l, value)
		}
	}
}

// Fail adds a fault of the device (see [NewFault]), unless err is nil or [sysfs.ErrNone].
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

// Files holds the open files below one directory of a device.
type Files struct {
	Dir  string
	kept map[string]*sysfs.Attr
}

// NewFiles returns the files below the directory that the joined elements name.
func NewFiles(elem ...string) Files {
	return Files{Dir: filepath.Join(elem...), kept: map[string]*sysfs.Attr{}}
}

// Attr returns the file with this name. It is opened once and kept.
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

// FactsEvery is the interval at which facts are read. Facts are configuration and hardware, not counters and
// states.
const FactsEvery = 30 * time.Second

// Facts holds samples that are read every [FactsEvery] and repeated in between. The zero value is ready to use.
type Facts struct {
	until   time.Time
	samples []Sample
}

// Read repeats the last samples, or calls read, which adds new ones to r. After a fault, the next Read calls read
// again.
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

// Set keeps the devices of a source between its reads. Only the set opens, reads and closes them. Each device has
// its own lane: one that hangs loses only its own samples, and a device that left the set is closed when its read
// returns.
//
// The key identifies the device: its PCI address, the inode of its directory, its rail.
type Set[K comparable, D Device] struct {
	budget time.Duration
	name   func(K) string
	open   func(K) D
	lanes  lane.Lanes[*member[D], struct{}]

	keys    []K
	members []*member[D] // in the order of keys
}

// member is a device in a set. Its lane reads it. After it left the set, the last holder of mu closes it.
type member[D Device] struct {
	open    func() D
	reading Reading
	gone    atomic.Bool // no longer in the set

	mu     sync.Mutex // held during a read; protects all following fields
	device D
	opened bool
}

// NewSet returns an empty set. budget is counted from the start of a device's own read; a device that exceeds it is
// missing from that read. name returns the device's name in faults. open makes a device, in its lane.
func NewSet[K comparable, D Device](budget time.Duration, name func(K) string, open func(K) D) *Set[K, D] {
	return &Set[K, D]{budget: budget, name: name, open: open}
}

// Read makes keys, which must all differ, the members of the set, reads every device and emits the samples in the
// order of keys. It returns the devices that answered, for use until the next Read, and a [*Fault] for each
// failure. It must not be called concurrently.
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

// Close closes all devices. A device that hangs is closed when its read returns.
func (s *Set[K, D]) Close() { s.update(nil) }

// update opens the devices of new keys, and closes those that are not in keys.
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
		delete(before, k)
		if s.members[i] == nil {
			s.members[i] = &member[D]{open: func() D { return s.open(k) }, reading: Reading{Device: s.name(k)}}
		}
	}
	for _, m := range before {
		m.gone.Store(true)
		m.closeIfGone()
	}
}

// closeIfGone closes a device that left the set, unless it is being read: then the end of the read closes it.
func (m *member[D]) closeIfGone() {
	if m.gone.Load() && m.mu.TryLock() {
		m.closeLocked()
		m.mu.Unlock()
	}
}

// read reads the device, in its lane. A device whose read panics is reopened.
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
	clear(r.samples) // release the labels of devices that left
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
