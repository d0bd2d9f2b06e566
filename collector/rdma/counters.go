package rdma

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// index finds the row of a counter by the kernel's name for it. A name that it
// does not have goes to native, under the kernel's name.
type index struct {
	rows   map[string]entry
	native *collector.Metric // labels: those of the rows, then counter
}

// entry is one row under one of the kernel's names for it. rank is the place of
// the name among the row's origins: where a device has two of them, the lower
// rank is the row and the other goes to native.
type entry struct {
	metric *collector.Metric
	origin collector.Origin
	rank   int
}

func newIndex() *index { return &index{rows: map[string]entry{}} }

// add enters a row under its names, and returns it.
func (x *index) add(m *collector.Metric) *collector.Metric {
	for i, o := range m.From {
		if _, taken := x.rows[o.Name]; !taken {
			x.rows[o.Name] = entry{m, o, i}
		}
	}
	return m
}

// counter is one counter of one port.
type counter struct {
	entry
	dir    string // counters, hw_counters or counters_ext
	name   string
	labels []string
	file   sysfs.Attr // unused when the value comes by netlink
}

// add adds the value, and that it is as great as it can get where it stays so. A
// counter that wraps is exported as it is: Prometheus takes the wrap for a reset
// and loses less than an extension invents that a restart of railscope ends.
func (c *counter) add(t *table, r *collector.Reading, raw uint64) {
	r.Add(c.metric, c.labels, c.origin.Value(raw))
	if c.origin.Saturates && raw == 1<<c.origin.Bits-1 {
		r.Add(t.saturated, append(slices.Clone(c.labels), c.name), 1)
	}
}

// counterSet is the counters of one port or device, whatever way their values
// come by. It sees to it that no two of them make the same series.
type counterSet struct {
	labels  []string
	all     map[string]*counter // by directory/name
	owner   map[*collector.Metric]*counter
	natives map[string]*counter // by the counter label
}

func newCounterSet(labels []string) *counterSet {
	return &counterSet{labels: labels, all: map[string]*counter{}, owner: map[*collector.Metric]*counter{},
		natives: map[string]*counter{}}
}

// get returns the counter of a name in a directory, making it when it is new.
func (s *counterSet) get(x *index, dir, name string) *counter {
	if c := s.all[dir+"/"+name]; c != nil {
		return c
	}
	c := &counter{dir: dir, name: name, labels: s.labels}
	e, known := x.rows[name]
	if holder := s.owner[e.metric]; known && holder != nil && holder.rank > e.rank {
		delete(s.owner, e.metric)
		s.toNative(x, holder)
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

// toNative hands a counter through under the kernel's name, with the directory
// in front where another one has that name already.
func (s *counterSet) toNative(x *index, c *counter) {
	label := c.name
	if s.natives[label] != nil {
		label = c.dir + "/" + c.name
	}
	s.natives[label] = c
	c.entry = entry{metric: x.native}
	c.labels = append(slices.Clone(s.labels), label)
}

// drop closes and forgets a counter.
func (s *counterSet) drop(c *counter) {
	c.file.Close()
	delete(s.all, c.dir+"/"+c.name)
	if s.owner[c.metric] == c {
		delete(s.owner, c.metric)
	}
	maps.DeleteFunc(s.natives, func(_ string, n *counter) bool { return n == c })
}

// counterDir is one directory of counter files, read into a set.
type counterDir struct {
	path  string
	index *index
	set   *counterSet
	list  []*counter
	next  time.Time // when it is listed again
}

// listEvery is how often a directory of counters is listed: drivers make it once.
const listEvery = time.Minute

// refresh lists the directory when it is time. One that is not there has no
// counters.
func (d *counterDir) refresh(now time.Time) error {
	if now.Before(d.next) {
		return nil
	}
	files, err := sysfs.List(d.path)
	if err != nil {
		d.drop(d.list)
		d.list = nil
		if sysfs.Reason(err) == sysfs.ReasonVanished {
			d.next, err = now.Add(listEvery), nil
		}
		return err
	}
	gone := slices.Clone(d.list) // the list may be being read
	d.next, d.list = now.Add(listEvery), make([]*counter, 0, len(files))
	for _, f := range files {
		c := d.set.get(d.index, filepath.Base(d.path), f.Name)
		c.file.Path = filepath.Join(d.path, f.Name)
		d.list = append(d.list, c)
		if i := slices.Index(gone, c); i >= 0 {
			gone = slices.Delete(gone, i, i+1)
		}
	}
	d.drop(gone)
	return nil
}

func (d *counterDir) drop(list []*counter) {
	for _, c := range list {
		d.set.drop(c)
	}
}

// close closes the files. The counters stay: their values may come by another way.
func (d *counterDir) close() {
	for _, c := range d.list {
		c.file.Close()
	}
	d.list, d.next = nil, time.Time{}
}

// read reads every file of the directory.
func (d *counterDir) read(t *table, r *collector.Reading) {
	if err := d.refresh(r.Time); err != nil {
		r.Fail(err)
		return
	}
	for _, c := range d.list {
		raw, err := c.file.Counter(r.Time)
		switch {
		case err == nil:
			c.add(t, r, raw)
		case errors.Is(err, sysfs.ErrNone):
		case sysfs.Reason(err) == sysfs.ReasonVanished && !d.has(c, r.Time):
		default:
			r.Fail(err)
		}
	}
}

// has lists the directory again and reports whether it still has a counter.
func (d *counterDir) has(c *counter, now time.Time) bool {
	d.next = time.Time{}
	return d.refresh(now) != nil || slices.Contains(d.list, c)
}
