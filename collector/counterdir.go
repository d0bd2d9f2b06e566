package collector

import (
	"errors"
	"maps"
	"path/filepath"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// book finds the row of a counter by the kernel's name for it. What it does not
// know goes to native, under the kernel's name.
type book struct {
	rows   map[string]entry
	native *Metric // labels: those of the rows, then counter
}

// entry is one row under one of the kernel's names for it. rank is the place of
// the name among the row's origins: where a device has two of them, the lower
// rank is the row and the other goes to native.
type entry struct {
	metric *Metric
	origin Origin
	rank   int
}

func newBook(rows []*Metric, native *Metric) *book {
	b := &book{rows: make(map[string]entry), native: native}
	for _, m := range rows {
		for i, o := range m.From {
			if _, taken := b.rows[o.Name]; !taken {
				b.rows[o.Name] = entry{m, o, i}
			}
		}
	}
	return b
}

// counter is one counter of one port.
type counter struct {
	entry
	dir      string // counters, hw_counters or counters_ext
	name     string
	labels   []string
	file     sysfs.File // unused when the value comes by netlink
	notUntil time.Time  // when a file that said "not supported" is asked again
}

// retryRefused is how long a file that said that there is no such counter is left
// alone: each attempt is a firmware command, and on some adapters a line in the
// kernel's log (node_exporter issue 3434).
const retryRefused = time.Minute

// read returns the counter's value in the kernel's unit.
func (c *counter) read(now time.Time) (uint64, error) {
	if now.Before(c.notUntil) {
		return 0, errRefused
	}
	var buf [64]byte
	b, err := c.file.Read(buf[:])
	if err != nil {
		return 0, c.refused(err, now)
	}
	v, err := sysfs.ParseCounter(b)
	if err != nil {
		return 0, c.refused(sysfs.At(c.file.Path, err), now)
	}
	return v, nil
}

// refused leaves the file alone for a while when err says that the port has no
// such counter, and returns err.
func (c *counter) refused(err error, now time.Time) error {
	if sysfs.Reason(err) == sysfs.ReasonUnsupported {
		c.notUntil = now.Add(retryRefused)
	}
	return err
}

// errRefused is returned while a refused file is left alone: nothing was read,
// so there is nothing to count.
var errRefused = errors.New("not asked: the driver refused it less than a minute ago")

// counterSet is the counters of one port or device, whatever way their values
// come by. It sees to it that no two of them make the same series.
type counterSet struct {
	labels  []string
	all     map[string]*counter // by directory/name
	owner   map[*Metric]*counter
	natives map[string]*counter // by the counter label
}

func newCounterSet(labels []string) *counterSet {
	return &counterSet{labels: labels,
		all: map[string]*counter{}, owner: map[*Metric]*counter{}, natives: map[string]*counter{}}
}

// get returns the counter of a name in a directory, making it when it is new.
func (s *counterSet) get(b *book, dir, name string) *counter {
	if c := s.all[dir+"/"+name]; c != nil {
		return c
	}
	c := &counter{dir: dir, name: name, labels: s.labels}
	e, known := b.rows[name]
	if holder := s.owner[e.metric]; known && holder != nil && holder.rank > e.rank {
		delete(s.owner, e.metric)
		s.toNative(b, holder)
	}
	if known && s.owner[e.metric] == nil {
		c.entry = e
		s.owner[e.metric] = c
	} else {
		s.toNative(b, c)
	}
	s.all[dir+"/"+name] = c
	return c
}

// toNative hands a counter through under the kernel's name, with the directory
// in front where another one has that name already.
func (s *counterSet) toNative(b *book, c *counter) {
	label := c.name
	if s.natives[label] != nil {
		label = c.dir + "/" + c.name
	}
	s.natives[label] = c
	c.entry = entry{metric: b.native}
	c.labels = append(append([]string{}, s.labels...), label)
}

// drop forgets a counter whose file is gone.
func (s *counterSet) drop(c *counter) {
	c.file.Close()
	delete(s.all, c.dir+"/"+c.name)
	if s.owner[c.metric] == c {
		delete(s.owner, c.metric)
	}
	maps.DeleteFunc(s.natives, func(_ string, n *counter) bool { return n == c })
}

// value turns what the kernel said into what is exported. A counter that wraps
// is exported as it is: Prometheus takes the wrap for a reset and loses less than
// an extension invents that a restart of railscope ends.
func (c *counter) value(raw uint64) float64 {
	return c.origin.Value(raw)
}

// saturated reports whether the counter stands at the greatest value that it
// can hold, where it stays.
func (c *counter) saturated(raw uint64) bool {
	return c.origin.Saturates && raw == 1<<c.origin.Bits-1
}

// counterDir is one directory of counter files, read into a set.
type counterDir struct {
	dir  sysfs.Dir
	book *book
	only string // read this file alone; empty reads all
	list []*counter

	live     bool      // on a real sysfs, where a file that goes says so itself
	had      bool      // it was there once
	notUntil time.Time // when it is looked at again
}

// lookAgain is how often a directory that was never there is looked for, and
// one on a real sysfs is listed again.
const lookAgain = time.Minute

// open lists the directory if it is new or has changed. A directory that is
// not there has no counters.
func (d *counterDir) open(set *counterSet, now time.Time) error {
	if now.Before(d.notUntil) {
		return nil
	}
	_, changed, err := d.dir.Look()
	if err != nil {
		d.close(set)
		if sysfs.Reason(err) != sysfs.ReasonVanished {
			return err
		}
		if !d.had {
			d.notUntil = now.Add(lookAgain)
		}
		return nil
	}
	d.had = true
	if d.live {
		d.notUntil = now.Add(lookAgain)
	} else if !changed {
		return nil
	}
	files, err := sysfs.List(d.dir.Path)
	if err != nil {
		d.close(set)
		return err
	}
	old := map[string]*counter{}
	for _, c := range d.list {
		c.file.Close()
		old[c.name] = c
	}
	d.list = make([]*counter, 0, len(files))
	for _, f := range files {
		if d.only != "" && f.Name != d.only {
			continue
		}
		delete(old, f.Name)
		c := set.get(d.book, filepath.Base(d.dir.Path), f.Name)
		c.file.Path = filepath.Join(d.dir.Path, f.Name)
		d.list = append(d.list, c)
	}
	for _, c := range old {
		set.drop(c)
	}
	return nil
}

// release closes the files and leaves the counters as they are: their values
// come by another way now.
func (d *counterDir) release() {
	for _, c := range d.list {
		c.file.Close()
	}
	d.list = nil
	d.dir.Close()
}

// close closes the files and forgets their counters.
func (d *counterDir) close(set *counterSet) {
	for _, c := range d.list {
		set.drop(c)
	}
	d.list = nil
	d.dir.Close()
}

// read reads every file of the directory.
func (d *counterDir) read(set *counterSet, now time.Time, emit func(*counter, uint64), fail func(error)) {
	if err := d.open(set, now); err != nil {
		fail(err)
		return
	}
	for _, c := range d.list {
		raw, err := c.read(now)
		switch {
		case err == nil:
			emit(c, raw)
		case !errors.Is(err, errRefused):
			fail(err)
		}
	}
}
