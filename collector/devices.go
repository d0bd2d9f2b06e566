package collector

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
)

// Device is one device of a source with what is kept of it between reads, open
// files above all. A [Set] calls it from one goroutine at a time.
type Device interface {
	// Read adds what can be read now to r. It may hang.
	Read(r *Reading)
	// Close closes the files. Nothing is called after it.
	Close()
}

// Reading is what one read of one device brings back.
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

// Fail adds a fault of the device; see [NewFault]. A nil error is none.
func (r *Reading) Fail(err error) {
	if err != nil {
		r.faults = append(r.faults, NewFault(r.Device, err))
	}
}

// Fault adds a fault as it is.
func (r *Reading) Fault(f *Fault) { r.faults = append(r.faults, f) }

// FactsEvery is how often facts are read: what changes when somebody configures
// or replaces something, not counters and states.
const FactsEvery = 30 * time.Second

// Facts are the samples of a part of a device that is read every [FactsEvery]
// and repeated in between. The zero value is ready to use.
type Facts struct {
	until   time.Time
	samples []Sample
}

// Read repeats the last samples, or calls read for new ones, which adds them to
// r. What had a fault is read again at once.
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

// Set keeps the devices of a source between its reads, and is the only thing that
// opens, reads and closes them. Each has a lane of its own: one that hangs costs
// its own samples only, and is closed when its read returns, if it is to be.
//
// The key says which device it is, and changes with everything that makes it
// another: its PCI address, the inode of its directory, the rail that it is.
type Set[K comparable, D Device] struct {
	budget time.Duration
	name   func(K) string
	open   func(K) D
	lanes  lane.Group[*member[D]]
	next   int // number of the next device's lane

	// Of the last Read. Replaced and never changed: a read that starts late may meet
	// the next one.
	keys  []K
	order []string // lanes, in step with keys
	byKey map[K]*member[D]
	at    map[string]*member[D] // by lane

	mu sync.Mutex // protects busy and gone of the members
}

// member is a device in a set. The goroutine in its lane owns device, opened and
// reading.
type member[D Device] struct {
	lane    string
	open    func() D
	device  D
	opened  bool
	reading Reading

	busy, gone bool // being read; not in the set any more
}

// NewSet returns an empty set. A device that has not answered within budget,
// counted from when its own read starts, is left out of that read. name is what
// the device of a key is called in faults; open makes a device, in its lane.
func NewSet[K comparable, D Device](budget time.Duration, name func(K) string, open func(K) D) *Set[K, D] {
	return &Set[K, D]{budget: budget, name: name, open: open}
}

// Read makes the set that of keys, no two of them equal, reads every device, and
// emits what they say in the order of keys. It returns the devices that answered,
// which may be looked at until the next Read, and one [*Fault] for everything that
// could not be read. One goroutine at a time.
func (s *Set[K, D]) Read(keys []K, emit func(Sample)) (answered []D, faults []error) {
	s.keep(keys)
	at := s.at
	for _, res := range s.lanes.Run(s.budget, s.order, func(lane string) *member[D] {
		s.read(at[lane])
		return at[lane]
	}) {
		if res.State != lane.Done {
			faults = append(faults, LaneFault(at[res.Key].reading.Device, res.State, res.Err))
			continue
		}
		for _, sample := range res.Value.reading.samples {
			emit(sample)
		}
		faults = append(faults, res.Value.reading.faults...)
		answered = append(answered, res.Value.device)
	}
	return answered, faults
}

// Close closes all devices, those that hang when they return.
func (s *Set[K, D]) Close() { s.keep(nil) }

// keep makes the members those of keys, and closes the others.
func (s *Set[K, D]) keep(keys []K) {
	if slices.Equal(keys, s.keys) {
		return
	}
	before := s.byKey
	s.keys, s.order = slices.Clone(keys), make([]string, len(keys))
	s.byKey, s.at = make(map[K]*member[D], len(keys)), make(map[string]*member[D], len(keys))
	for i, k := range keys {
		m := before[k]
		if m == nil {
			s.next++
			m = &member[D]{lane: strconv.Itoa(s.next), open: func() D { return s.open(k) },
				reading: Reading{Device: s.name(k)}}
		}
		s.byKey[k], s.at[m.lane], s.order[i] = m, m, m.lane
	}
	for k, m := range before {
		if s.byKey[k] == nil {
			s.retire(m)
		}
	}
}

// retire closes a device, or leaves that to the read that is in it.
func (s *Set[K, D]) retire(m *member[D]) {
	s.mu.Lock()
	m.gone = true
	shut := !m.busy && m.opened
	s.mu.Unlock()
	if shut {
		m.device.Close()
	}
}

// read reads one device, in its lane. A device whose read panics is opened again.
func (s *Set[K, D]) read(m *member[D]) {
	if !s.enter(m) {
		return
	}
	completed := false
	defer func() { s.leave(m, completed) }()
	if !m.opened {
		m.device = m.open()
		m.opened = true
	}
	r := &m.reading
	clear(r.samples) // keeps no labels of what is gone
	r.samples, r.faults, r.Time = r.samples[:0], r.faults[:0], time.Now()
	m.device.Read(r)
	completed = true
}

func (s *Set[K, D]) enter(m *member[D]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.busy = !m.gone
	return m.busy
}

func (s *Set[K, D]) leave(m *member[D], completed bool) {
	s.mu.Lock()
	m.busy = false
	shut := m.opened && (m.gone || !completed)
	m.opened = m.opened && !shut
	s.mu.Unlock()
	if shut {
		m.device.Close()
	}
}
