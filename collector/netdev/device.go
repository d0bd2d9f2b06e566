package netdev

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/rtnl"
	"github.com/railscope/railscope/internal/sysfs"
)

// labels returns the label values of an interface, once for each rail on it,
// followed by more.
func (k key) labels(more ...string) (list [][]string) {
	for r := range strings.SplitSeq(k.rails, "\n") {
		list = append(list, append([]string{r, k.name}, more...))
	}
	return list
}

// add adds one sample for each rail.
func add(r *collector.Reading, m *collector.Metric, labels [][]string, value float64) {
	for _, l := range labels {
		r.Add(m, l, value)
	}
}

// unlocked is the part of an interface that the kernel gives without a lock, or
// that it gave by netlink.
type unlocked struct {
	source  *Source
	dir     string
	name    string
	labels  [][]string
	up      sysfs.Attr
	numbers []sysfs.Attr // in step with the table's

	index   int // of the interface in sysfs, as of verified
	address string
	expires time.Time // when index and address are read again
}

func newUnlocked(s *Source, k key) *unlocked {
	u := &unlocked{source: s, dir: filepath.Join(s.net, k.name), name: k.name, labels: k.labels(),
		numbers: make([]sysfs.Attr, len(s.table.numbers))}
	u.up.Path = filepath.Join(u.dir, "operstate")
	for i, n := range s.table.numbers {
		u.numbers[i].Path = filepath.Join(u.dir, n.file)
	}
	return u
}

// Read implements [collector.Device].
func (u *unlocked) Read(r *collector.Reading) {
	t := u.source.table
	if link := u.link(r.Time); link != nil {
		if link.OperState != rtnl.OperUnknown {
			add(r, t.up, u.labels, collector.Bool(link.OperState == rtnl.OperUp))
		}
		for _, n := range t.numbers {
			if v, ok := link.Number(n.index); ok {
				add(r, n.row, u.labels, float64(v))
			}
		}
		return
	}
	if up, ok, err := readOperState(&u.up, r); err != nil {
		r.Fail(err)
	} else if ok {
		add(r, t.up, u.labels, collector.Bool(up))
	}
	for i, n := range t.numbers {
		v, err := u.numbers[i].Uint(r.Time)
		switch {
		case err == nil:
			add(r, n.row, u.labels, float64(v))
		case !errors.Is(err, sysfs.ErrNone):
			r.Fail(err)
		}
	}
}

// link returns what netlink gave of the interface, nil where the files are to be
// read. sysfs may be mounted from another network namespace than netlink speaks
// of: name, index and address together say whether it is the same interface.
func (u *unlocked) link(now time.Time) *rtnl.Link {
	link := (*u.source.links.Load())[u.name]
	if link == nil || link.Address == "" {
		return nil
	}
	if !now.Before(u.expires) {
		index, _ := sysfs.ReadUint(u.dir, "ifindex")
		u.index, u.expires = int(index), now.Add(collector.FactsEvery)
		u.address, _ = sysfs.ReadString(u.dir, "address")
		u.Close() // of when the files were read
	}
	if link.Index != u.index || link.Address != u.address {
		return nil
	}
	return link
}

// readOperState reads an operational state (net/core/net-sysfs.c); ok is false
// where the driver does not say.
func readOperState(f *sysfs.Attr, r *collector.Reading) (up, ok bool, err error) {
	var buf [64]byte
	b, err := f.Read(buf[:], r.Time)
	if errors.Is(err, sysfs.ErrNone) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	switch word := bytes.TrimSpace(b); string(word) {
	case "up":
		return true, true, nil
	case "down", "lowerlayerdown", "dormant", "testing", "notpresent":
		return false, true, nil
	case "unknown":
		return false, false, nil
	default:
		return false, false, sysfs.Invalid(f.Path, word, "no operational state")
	}
}

// Close implements [collector.Device].
func (u *unlocked) Close() {
	u.up.Close()
	for i := range u.numbers {
		u.numbers[i].Close()
	}
}

// locked is the part of an interface that takes the RTNL lock.
type locked struct {
	table                   *table
	key                     key
	dir                     string
	labels                  [][]string
	carrier, speed, changes sysfs.Attr
	ioctl                   ethtool.Ioctl // nil where ethtool is not asked
	speedFacts              collector.Facts
	changed                 uint64 // carrier_changes as of the last read
	statistics              statistics
}

func newLocked(s *Source, k key) *locked {
	l := &locked{table: s.table, key: k, dir: filepath.Join(s.net, k.name), labels: k.labels(), ioctl: s.ioctl}
	l.carrier.Path = filepath.Join(l.dir, "carrier")
	l.speed.Path = filepath.Join(l.dir, "speed")
	l.changes.Path = filepath.Join(l.dir, "carrier_changes")
	return l
}

// Read implements [collector.Device].
func (l *locked) Read(r *collector.Reading) {
	if carrier, ok, err := l.carrier.Carrier(r.Time); err != nil {
		r.Fail(err)
	} else if ok {
		add(r, l.table.carrier, l.labels, collector.Bool(carrier))
	}
	if v, err := l.changes.Uint(r.Time); err == nil && v != l.changed {
		l.changed, l.speedFacts = v, collector.Facts{}
		l.statistics.forget()
	}
	l.speedFacts.Read(r, func() { l.readSpeed(r) }) // a firmware command
	if l.ioctl != nil {
		l.readStatistics(r)
	}
}

// readSpeed emits the speed. EINVAL, -1 and, before Linux 4.10, 4294967295 say
// that it is unknown (SPEED_UNKNOWN), as 0 does for some drivers.
func (l *locked) readSpeed(r *collector.Reading) {
	var buf [64]byte
	b, err := l.speed.Read(buf[:], r.Time)
	l.speed.Close()
	if errors.Is(err, sysfs.ErrNone) || errors.Is(err,
		unix.EINVAL) || err == nil && string(bytes.TrimSpace(b)) == "-1" {
		return
	}
	var v uint64
	if err == nil {
		v, err = sysfs.ParseUint(b)
	}
	if err != nil {
		r.Fail(sysfs.At(l.speed.Path, err))
	} else if v > 0 && v < 1<<31 {
		add(r, l.table.speed, l.labels, l.table.speed.From[0].Value(v))
	}
}

// Close implements [collector.Device].
func (l *locked) Close() {
	for _, f := range []*sysfs.Attr{&l.carrier, &l.speed, &l.changes} {
		f.Close()
	}
	l.statistics.close()
}
