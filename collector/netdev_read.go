package collector

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/sysfs"
)

// netdevLabels are the label values of one interface, once per rail on it.
type netdevLabels struct {
	netdev string
	rails  []string
	values [][]string
}

// set brings the labels up to date; changed says that they are others.
func (l *netdevLabels) set(rails []string) (changed bool) {
	if slices.Equal(l.rails, rails) {
		return false
	}
	l.rails, l.values = rails, l.with(rails, nil)
	return true
}

// with returns label values that go on with more.
func (l *netdevLabels) with(rails, more []string) (list [][]string) {
	for _, r := range rails {
		list = append(list, append([]string{r, l.netdev}, more...))
	}
	return list
}

// addEach adds one sample per rail.
func (r *laneRead) addEach(m *Metric, labels [][]string, value float64) {
	for _, l := range labels {
		r.add(m, l, value)
	}
}

// netdevFiles is what sysfs tells of an interface without a lock.
type netdevFiles struct {
	labels     netdevLabels
	table      []Metric
	dir, stats *keptDir
	rows       [2][]int // the row of each file in dir and stats
	out        laneRead
	buf        []byte
}

func newNetdevFiles(n *Netdev, name string) *netdevFiles {
	f := &netdevFiles{labels: netdevLabels{netdev: name}, table: n.table, buf: make([]byte, 128)}
	var files [2][]string
	for i, row := range n.rows {
		if row.file == "" || i == netdevCarrier || i == netdevSpeed {
			continue
		}
		at := 0
		file, found := strings.CutPrefix(row.file, "statistics/")
		if found {
			at = 1
		}
		files[at], f.rows[at] = append(files[at], file), append(f.rows[at], i)
	}
	dir := filepath.Join(n.net, name)
	f.dir, f.stats = newKeptDir(dir, files[0]...), newKeptDir(filepath.Join(dir, "statistics"), files[1]...)
	return f
}

func (f *netdevFiles) read(rails []string) *laneRead {
	f.out.reset()
	f.labels.set(rails)
	for at, dir := range [...]*keptDir{f.dir, f.stats} {
		if _, err := dir.check(); err != nil {
			f.out.fail(f.labels.netdev, err)
			break // no interface, no statistics: one fault is enough
		}
		for i, row := range f.rows[at] {
			v, ok, err := f.value(dir, i, row)
			if err != nil {
				f.out.fail(f.labels.netdev, err)
			} else if ok {
				f.out.addEach(&f.table[row], f.labels.values, v)
			}
		}
	}
	return &f.out
}

func (f *netdevFiles) value(dir *keptDir, i, row int) (v float64, ok bool, err error) {
	if row != netdevUp {
		n, ok, err := dir.uint(i, f.buf)
		return float64(n), ok, err
	}
	b, err := dir.read(i, f.buf)
	if b == nil || err != nil {
		return 0, false, err
	}
	word := bytes.TrimSpace(b)
	switch string(word) { // operstates of net/core/net-sysfs.c
	case "up":
		return 1, true, nil
	case "down", "lowerlayerdown", "dormant", "testing", "notpresent":
		return 0, true, nil
	case "unknown":
		return 0, false, nil
	}
	return 0, false, dir.bad(i, word, "no operational state")
}

func (f *netdevFiles) close() {
	f.dir.close()
	f.stats.close()
	f.out.reset()
}

// netdevLocked is what takes the RTNL lock: carrier, speed and ethtool
// statistics.
type netdevLocked struct {
	labels  netdevLabels
	n       *Netdev
	dir     *keptDir // carrier, speed, carrier_changes
	changes uint64   // carrier_changes as of the last read
	stats   *ethtool.Device
	columns []netdevColumn
	asked   ethtoolState
	out     laneRead
	buf     []byte
}

type ethtoolState int

const (
	ethtoolNew     ethtoolState = iota // not known yet to be the interface that sysfs shows
	ethtoolSame                        // it is
	ethtoolRefused                     // it has no statistics; told, and not asked again in this life
)

// netdevColumn is one statistic that goes to a row.
type netdevColumn struct {
	at     int // index in the driver's values
	match  netdevMatch
	labels [][]string
}

func newNetdevLocked(n *Netdev, name string) *netdevLocked {
	return &netdevLocked{labels: netdevLabels{netdev: name}, n: n, buf: make([]byte, 128),
		dir: newKeptDir(filepath.Join(n.net, name), "carrier", "speed", "carrier_changes")}
}

func (s *netdevLocked) read(rails []string) *laneRead {
	s.out.reset()
	if s.labels.set(rails) {
		for i := range s.columns {
			s.columns[i].labels = s.labels.with(rails, s.columns[i].match.values)
		}
	}
	born, err := s.dir.check()
	if err != nil {
		return &s.out // told by the other lane
	}
	if born {
		s.asked = ethtoolNew
		if s.stats != nil {
			s.stats.Forget()
		}
	}
	s.carrier()
	s.speed()
	if s.n.ioctl != nil {
		s.statistics()
	}
	return &s.out
}

// carrier emits the carrier; EINVAL is how an interface says that it is down.
func (s *netdevLocked) carrier() {
	v, ok, err := s.dir.uint(0, s.buf)
	switch {
	case errors.Is(err, unix.EINVAL):
	case err == nil && v > 1:
		s.out.fail(s.labels.netdev, s.dir.bad(0, fmt.Append(nil, v), "neither 0 nor 1"))
	case err != nil:
		s.out.fail(s.labels.netdev, err)
	case ok:
		s.out.addEach(&s.n.table[netdevCarrier], s.labels.values, float64(v))
	}
}

// speed emits the speed. EINVAL, -1 and, before Linux 4.10, 4294967295 say that
// it is unknown (SPEED_UNKNOWN), as 0 does for some drivers.
func (s *netdevLocked) speed() {
	b, err := s.dir.read(1, s.buf)
	if b == nil && err == nil || errors.Is(err, unix.EINVAL) || err == nil && string(bytes.TrimSpace(b)) == "-1" {
		return
	}
	var v uint64
	if err == nil {
		v, err = sysfs.ParseUint(b)
	}
	if err != nil {
		if e, ok := errors.AsType[*sysfs.Error](err); ok {
			e.Path = s.dir.files[1].Path
		}
		s.out.fail(s.labels.netdev, err)
		return
	}
	if v > 0 && v < 1<<31 {
		s.out.addEach(&s.n.table[netdevSpeed], s.labels.values, Origin{Scale: s.n.rows[netdevSpeed].scale}.Value(v))
	}
}

// statistics emits what ethtool tells.
func (s *netdevLocked) statistics() {
	if s.asked == ethtoolRefused {
		return
	}
	if s.stats == nil {
		d, err := ethtool.NewDevice(s.labels.netdev, s.n.ioctl)
		if err != nil {
			s.out.fail(s.labels.netdev, err)
			return
		}
		s.stats = d
	}
	if s.asked == ethtoolNew {
		if err := s.identify(); err != nil {
			s.refuse(err)
			return
		}
		s.asked = ethtoolSame
	}
	// mlx5 takes the link down and up when PFC moves to another priority, which
	// can change the names but not their number. See ADR 3.
	if v, ok, _ := s.dir.uint(2, s.buf); ok && v != s.changes {
		s.changes = v
		s.stats.Forget()
	}
	values, err := s.stats.Read(s.learn)
	if err != nil {
		s.refuse(err)
		return
	}
	for i := range s.columns {
		c := &s.columns[i]
		s.out.addEach(&s.n.table[c.match.row], c.labels, Origin{Scale: c.match.scale}.Value(values[c.at]))
	}
}

// refuse tells what ethtool answered. That it has no statistics of an interface,
// or does not know it, is told once in the interface's life.
func (s *netdevLocked) refuse(err error) {
	f := NewFault(s.labels.netdev, err)
	if errors.Is(err, errOtherNamespace) {
		f.Reason = "other_namespace"
	}
	if f.Expected {
		s.asked = ethtoolRefused
	}
	s.out.faults = append(s.out.faults, f)
}

var errOtherNamespace = errors.New("not the same interface; run in the network namespace that sysfs shows")

// identify makes sure that the interface that ethtool speaks of is the one in
// sysfs, which may be mounted from another network namespace: the driver must
// be on the same PCI function. Where there is none, nothing of a driver's that
// we know is at stake.
func (s *netdevLocked) identify() error {
	target, err := os.Readlink(filepath.Join(s.dir.dir.Path, "device"))
	address := filepath.Base(target)
	if err != nil || !isPCIAddress(address) {
		return nil
	}
	_, bus, err := s.stats.Driver()
	if errors.Is(err, unix.ENODEV) {
		if _, gone := s.dir.check(); gone != nil {
			return err // removed just now
		}
	}
	if errors.Is(err, unix.ENODEV) || err == nil && bus != address {
		return fmt.Errorf("ethtool has %s at %q, sysfs at %s: %w", s.labels.netdev, bus, address, errOtherNamespace)
	}
	return err
}

// isPCIAddress reports whether name is domain:bus:device.function.
func isPCIAddress(name string) bool {
	domain, rest, ok := strings.Cut(name, ":")
	return ok && len(domain) >= 4 && len(rest) == 7 && rest[2] == ':' && rest[5] == '.' && !strings.ContainsFunc(domain+rest[:2]+rest[3:5]+rest[6:], func(c rune) bool {
		return !strings.ContainsRune("0123456789abcdef", c)
	})
}

// learn finds the rows of a driver's statistics. Of several names for the same
// series, the row's first counts; of the same name twice, the first.
func (s *netdevLocked) learn(names []string) {
	s.columns = s.columns[:0]
	for at, name := range names {
		m, known := s.n.index[name]
		if !known {
			continue
		}
		i := slices.IndexFunc(s.columns, func(c netdevColumn) bool {
			return c.match.row == m.row && slices.Equal(c.match.values, m.values)
		})
		c := netdevColumn{at: at, match: m}
		switch {
		case i < 0:
			c.labels = s.labels.with(s.labels.rails, m.values)
			s.columns = append(s.columns, c)
		case m.rank < s.columns[i].match.rank:
			c.labels = s.columns[i].labels
			s.columns[i] = c
		}
	}
}

func (s *netdevLocked) close() {
	s.dir.close()
	s.out.reset()
	if s.stats != nil {
		_ = s.stats.Close() // nothing was written to it
		s.stats = nil
	}
}
