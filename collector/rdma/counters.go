package rdma

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// index finds the row of a counter by the kernel's name. An unknown name goes to native, under the kernel's name.
type index struct {
	rows    map[string]entry
	ignored map[string]bool   // names that are not exported at all
	native  *collector.Metric // labels: those of the rows, then counter
}

// entry is one row under one of the kernel's names for it. rank is the place of the name among the row's origins: where
// a device has two of them, the lower rank is the row and the other goes to native.
type entry struct {
	metric *collector.Metric
	origin collector.Origin
	rank   int
}

func newIndex() *index { return &index{rows: map[string]entry{}, ignored: map[string]bool{}} }

func (x *index) add(m *collector.Metric) *collector.Metric {
	for i, o := range m.From {
		if _, exists := x.rows[o.Name]; !exists {
			x.rows[o.Name] = entry{m, o, i}
		}
	}
	return m
}

type counter struct {
	entry
	dir    string // counters or hw_counters
	name   string
	labels []string
	file   sysfs.Attr // unused when the value comes by netlink
}

// add adds the value, and whether it is saturated. A counter that wraps is exported as it is: Prometheus takes the wrap
// for a reset, and loses less than an extension to 64 bits that a restart of railscope ends.
func (c *counter) add(t *table, r *collector.Reading, raw uint64) {
	r.Add(c.metric, c.labels, c.origin.Value(raw))
	if c.origin.Saturates && raw == 1<<c.origin.Bits-1 {
		r.Add(t.saturated, append(slices.Clone(c.labels), c.name), 1)
	}
}

// counterSet is the counters of one port or device, read from files or by netlink. No two of them make the same series.
type counterSet struct {
	labels  []string
	all     map[string]*counter // by directory/name
	owner   map[*collector.Metric]*counter
	natives map[string]*counter // by the counter label
}

func newCounterSet(labels []string) *counterSet {
	return &counterSet{labels, map[string]*counter{}, map[*collector.Metric]*counter{}, map[string]*counter{}}
}

// get returns the counter of a name, nil if it is ignored.
func (s *counterSet) get(x *index, dir, name string) *counter {
	if c := s.all[dir+"/"+name]; c != nil || x.ignored[name] {
		return c
	}
	c := &counter{dir: dir, name: name, labels: s.labels}
	e, known := x.rows[name]
	if owner := s.owner[e.metric]; known && owner != nil && owner.rank > e.rank {
		delete(s.owner, e.metric)
		s.toNative(x, owner)
	}
	if known && s.owner[e.metric] == nil {
		c.entry = e
		s.owner[e.metric] = c
	} else {
		s.toNative(x, c)
	}
	s.all[dir+"/"+name] = c
	return c
}

// toNative exports a counter under the kernel's name, prefixed with the directory where another counter has that name.
func (s *counterSet) toNative(x *index, c *counter) {
	label := c.name
	if s.natives[label] != nil {
		label = c.dir + "/" + c.name
	}
	s.natives[label] = c
	c.entry = entry{metric: x.native}
	c.labels = append(slices.Clone(s.labels), label)
}

func (s *counterSet) drop(c *counter) {
	c.file.Close()
	delete(s.all, c.dir+"/"+c.name)
	if s.owner[c.metric] == c {
		delete(s.owner, c.metric)
	}
	maps.DeleteFunc(s.natives, func(_ string, n *counter) bool { return n == c })
}

type counterDir struct {
	path  string
	index *index
	set   *counterSet
	list  []*counter
	next  time.Time // when it is listed again
}

// listEvery is how often a directory of counters is listed: drivers create it once.
const listEvery = time.Minute

func (d *counterDir) refresh(now time.Time) error {
	if now.Before(d.next) {
		return nil
	}
	files, err := sysfs.List(d.path)
	if err != nil && sysfs.Reason(err) == sysfs.ReasonVanished {
		err = nil
	}
	list := make([]*counter, 0, len(files))
	for _, f := range files {
		if c := d.set.get(d.index, filepath.Base(d.path), f.Name); c != nil {
			c.file.Path = filepath.Join(d.path, f.Name)
			list = append(list, c)
		}
	}
	for _, c := range d.list {
		if !slices.Contains(list, c) {
			d.set.drop(c)
		}
	}
	d.list = list
	if err == nil {
		d.next = now.Add(listEvery)
	}
	return err
}

// close closes the files. The counters stay: their values may come by netlink.
func (d *counterDir) close() {
	for _, c := range d.list {
		c.file.Close()
	}
	d.list, d.next = nil, time.Time{}
}

func (d *counterDir) read(t *table, r *collector.Reading) {
	if err := d.refresh(r.Time); err != nil {
		r.Fail(err)
		return
	}
	for _, c := range d.list {
		if raw, err := c.file.Counter(r.Time); err == nil {
			c.add(t, r, raw)
		} else if sysfs.Reason(err) != sysfs.ReasonVanished || d.has(c, r.Time) {
			r.Fail(err)
		}
	}
}

func (d *counterDir) has(c *counter, now time.Time) bool {
	d.next = time.Time{}
	return d.refresh(now) != nil || slices.Contains(d.list, c)
}
