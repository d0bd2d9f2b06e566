package rdma

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// index finds the row of a counter by the kernel's name. A counter without a row is exported by native, under the
// kernel's name.
type index struct {
	rows    map[string]entry
	ignored map[string]bool   // names that are not exported at all
	native  *collector.Metric // labels: those of the rows, then counter
}

// entry is one row under one of the kernel's names for it. rank is the position of the name among the row's
// origins: if a device has two of them, the lower rank becomes the row and the other one goes to native.
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
	row     entry  // the row of its name, even if another counter fills it
	dir     string // counters or hw_counters
	name    string
	labels  []string
	file    sysfs.Attr // unused if the value is read by netlink
	answers bool       // it has been read at least once
	refused bool       // the driver refused to read it and it never answered: it is not read again
}

// add adds the value, and whether it is saturated. A counter that wraps is exported unchanged. Prometheus treats
// the wrap as a reset; an extension to 64 bits would lose more with each restart of railscope.
func (c *counter) add(t *table, r *collector.Reading, raw uint64) {
	r.Add(c.metric, c.labels, c.origin.Value(raw))
	if c.origin.Saturates && raw == 1<<c.origin.Bits-1 {
		r.Add(t.saturated, append(slices.Clone(c.labels), c.name), 1)
	}
}

// counterSet holds the counters of one port or device, read from files or by netlink. No two counters have the same
// series.
type counterSet struct {
	labels  []string
	all     map[string]*counter // keyed by directory/name
	owner   map[*collector.Metric]*counter
	natives map[string]*counter // keyed by the counter label
}

func newCounterSet(labels []string) *counterSet {
	return &counterSet{labels, map[string]*counter{}, map[*collector.Metric]*counter{}, map[string]*counter{}}
}

// get returns the counter of a name, or nil if it is ignored.
func (s *counterSet) get(x *index, dir, name string) *counter {
	if c := s.all[dir+"/"+name]; c != nil || x.ignored[name] {
		return c
	}
	e, known := x.rows[name]
	c := &counter{row: e, dir: dir, name: name, labels: s.labels}
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

// toNative exports a counter under the kernel's name. The directory is added as prefix if another counter has that
// name.
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
	delete(s.all, c.dir+"/"+c.name)
	s.release(c)
}

// refuse marks a counter as refused by the driver: each attempt may cost a firmware command and a line in the
// kernel log. The row goes to the next of its origins that the device has.
func (s *counterSet) refuse(c *counter) {
	c.refused = true
	s.release(c)
}

func (s *counterSet) release(c *counter) {
	c.file.Close()
	maps.DeleteFunc(s.natives, func(_ string, n *counter) bool { return n == c })
	if s.owner[c.metric] != c {
		return
	}
	delete(s.owner, c.metric)
	var next *counter
	for _, o := range s.all {
		if o != c && o.row.metric == c.metric && !o.refused && (next == nil || o.row.rank < next.row.rank) {
			next = o
		}
	}
	if next != nil {
		maps.DeleteFunc(s.natives, func(_ string, n *counter) bool { return n == next })
		next.entry, next.labels = next.row, s.labels
		s.owner[c.metric] = next
	}
}

type counterDir struct {
	path  string
	index *index
	set   *counterSet
	list  []*counter
	next  time.Time // time of the next listing
}

// listEvery is the interval at which a directory of counters is listed: drivers create it once.
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

// close closes the files. The counters stay: their values may be read by netlink.
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
		if c.refused {
			continue
		}
		if raw, err := c.file.Counter(r.Time); err == nil {
			c.answers = true
			c.add(t, r, raw)
		} else if sysfs.Reason(err) == sysfs.ReasonUnsupported && !c.answers {
			r.Fail(err)
			d.set.refuse(c)
		} else if sysfs.Reason(err) != sysfs.ReasonVanished || d.has(c, r.Time) {
			r.Fail(err)
		}
	}
}

func (d *counterDir) has(c *counter, now time.Time) bool {
	d.next = time.Time{}
	return d.refresh(now) != nil || slices.Contains(d.list, c)
}
