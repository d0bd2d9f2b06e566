package collector

import (
	"errors"
	"slices"
	"strconv"
	"sync"
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
	lanes  lane.Group[*member[D]]
	next   int // number of the next device's lane

	// Of the last Read. Replaced and never changed: a read that starts late may overlap the next Read.
	keys    []K
	order   []string // lanes, in step with keys
	members map[string]*member[D]

	mu sync.Mutex // protects busy and gone of the members
}

// member is a device in a set. The goroutine in its lane owns device, opened and reading.
type member[D Device] struct {
	lane    string
	open    func() D
	device  D
	opened  bool
	reading Reading

	busy, gone bool // being read; no longer in the set
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
	members := s.members
	for _, res := range s.lanes.Run(s.budget, s.order, func(lane string) *member[D] {
		s.read(members[lane])
		return members[lane]
	}) {
		if res.State != lane.Done {
			faults = append(faults, LaneFault(members[res.Key].reading.Device, res.State, res.Err))
			continue
		}
		faults = append(faults, res.Value.reading.Emit(emit)...)
		answered = append(answered, res.Value.device)
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
		before[k] = s.members[s.order[i]]
	}
	s.keys, s.order, s.members = slices.Clone(keys), make([]string, len(keys)), make(map[string]*member[D], len(keys))
	for i, k := range keys {
		m := before[k]
		delete(before, k)
		if m == nil {
			s.next++
			m = &member[D]{lane: strconv.Itoa(s.next), open: func() D { return s.open(k) },
				reading: Reading{Device: s.name(k)}}
		}
		s.order[i], s.members[m.lane] = m.lane, m
	}
	for _, m := range before {
		s.retire(m)
	}
}

// retire closes a device, or leaves that to the read in progress.
func (s *Set[K, D]) retire(m *member[D]) {
	s.mu.Lock()
	m.gone = true
	busy := m.busy
	s.mu.Unlock()
	if !busy {
		m.close()
	}
}

// read reads one device, in its lane. A device whose read panics is opened again.
func (s *Set[K, D]) read(m *member[D]) {
	s.mu.Lock()
	m.busy = !m.gone
	s.mu.Unlock()
	if !m.busy {
		return
	}
	completed := false
	defer func() {
		if !completed {
			m.close()
		}
		s.mu.Lock()
		m.busy = false
		gone := m.gone
		s.mu.Unlock()
		if gone {
			m.close()
		}
	}()
	if !m.opened {
		m.device = m.open()
		m.opened = true
	}
	r := &m.reading
	clear(r.samples) // keep no labels of what is gone
	r.samples, r.faults, r.Time = r.samples[:0], r.faults[:0], time.Now()
	m.device.Read(r)
	completed = true
}

func (m *member[D]) close() {
	if m.opened {
		m.opened = false
		m.device.Close()
	}
}
