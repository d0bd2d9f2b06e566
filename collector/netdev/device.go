package netdev

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/rtnl"
	"github.com/railscope/railscope/internal/sysfs"
)

// unlocked is the part of an interface that the kernel reports without the RTNL lock, or that it reported by
// netlink.
type unlocked struct {
	source *Source
	name   string
	labels [][]string
	files  collector.Files

	index   int // index of the interface in sysfs
	address string
	expires time.Time // index and address are read again after this time
}

func (u *unlocked) Read(r *collector.Reading) {
	t := u.source.table
	if link := u.link(r.Time); link != nil {
		if link.OperState != rtnl.OperUnknown {
			r.Record(t.up, collector.Bool(link.OperState == rtnl.OperUp), nil, u.labels...)
		}
		for _, n := range t.numbers {
			if v, ok := link.Number(n.index); ok {
				r.Record(n.row, float64(v), nil, u.labels...)
			}
		}
		return
	}
	u.readOperState(r)
	for _, n := range t.numbers {
		v, err := u.files.Attr(n.file).Uint(r.Time)
		r.Record(n.row, float64(v), err, u.labels...)
	}
}

// link returns the interface as netlink reported it, or nil if the files must be read. sysfs may be mounted from
// another network namespace than that of the socket: it is the same interface if name, index and address match.
func (u *unlocked) link(now time.Time) *rtnl.Link {
	link := (*u.source.links.Load())[u.name]
	if link == nil || link.Address == "" {
		return nil
	}
	if !now.Before(u.expires) {
		index, _ := sysfs.ReadUint(u.files.Dir, "ifindex")
		u.index, u.expires = int(index), now.Add(collector.FactsEvery)
		u.address, _ = sysfs.ReadString(u.files.Dir, "address")
		u.Close() // files that an earlier read opened
	}
	if link.Index != u.index || link.Address != u.address {
		return nil
	}
	return link
}

// readOperState emits the operational state (net/core/net-sysfs.c), which some drivers do not report.
func (u *unlocked) readOperState(r *collector.Reading) {
	var buf [64]byte
	file := u.files.Attr("operstate")
	b, err := file.Read(buf[:], r.Time)
	if err != nil {
		r.Fail(err)
		return
	}
	switch word := string(bytes.TrimSpace(b)); word {
	case "up", "down", "lowerlayerdown", "dormant", "testing", "notpresent":
		r.Record(u.source.up, collector.Bool(word == "up"), nil, u.labels...)
	case "unknown":
	default:
		r.Fail(sysfs.Invalid(file.Path, b, "not an operational state"))
	}
}

func (u *unlocked) Close() { u.files.Close() }

// locked is the part of an interface that takes the RTNL lock.
type locked struct {
	table      *table
	key        key
	labels     [][]string
	files      collector.Files
	ioctl      ethtool.Ioctl // socket for ethtool statistics; nil if there are none
	fec        readFEC       // nil if FEC is only read from the statistics
	speedFacts collector.Facts
	fecFacts   collector.Facts
	changed    uint64 // carrier_changes of the last read

	// State of the statistics.
	device     *ethtool.Device // nil before the first read
	identified bool            // verified: it is the interface that sysfs shows
	refused    bool            // reported already: it has no statistics
	columns    []column
}

func (l *locked) Read(r *collector.Reading) {
	carrier, err := l.files.Attr("carrier").Carrier(r.Time)
	r.Record(l.table.carrier, collector.Bool(carrier), err, l.labels...)
	if v, err := l.files.Attr("carrier_changes").Uint(r.Time); err == nil && v != l.changed {
		l.changed, l.speedFacts, l.fecFacts = v, collector.Facts{}, collector.Facts{}
		// mlx5 takes the link down when PFC moves to another priority, which changes the names of statistics: see
		// ADR 3.
		if l.device != nil {
			l.device.Forget()
		}
	}
	l.speedFacts.Read(r, func() { l.readSpeed(r) }) // a firmware command
	if l.ioctl != nil {
		l.readStatistics(r)
	}
	if l.identified {
		l.fecFacts.Read(r, func() { l.readFEC(r) }) // firmware commands
	}
}

// readSpeed emits the speed. EINVAL, -1 and, before Linux 4.10, 4294967295 mean that it is unknown; 0 may mean it
// too.
func (l *locked) readSpeed(r *collector.Reading) {
	var buf [64]byte
	file := l.files.Attr("speed")
	b, err := file.Read(buf[:], r.Time)
	file.Close()
	if errors.Is(err, unix.EINVAL) || err == nil && string(bytes.TrimSpace(b)) == "-1" {
		return
	}
	var v uint64
	if err == nil {
		v, err = sysfs.ParseUint(b)
	}
	r.Fail(sysfs.At(file.Path, err))
	if err == nil && v > 0 && v < 1<<31 {
		r.Record(l.table.speed, l.table.speed.From[0].Value(v), nil, l.labels...)
	}
}

func (l *locked) Close() {
	l.files.Close()
	if l.device != nil {
		_ = l.device.Close() // nothing was written to it
	}
}

type column struct {
	at        int // index in the driver's values
	statistic statistic
	labels    [][]string
}

// readStatistics emits the ethtool statistics. An interface without statistics is reported once.
func (l *locked) readStatistics(r *collector.Reading) {
	if l.refused {
		return
	}
	values, err := l.fetchStatistics()
	if err != nil {
		f := collector.NewFault(l.key.name, err)
		if errors.Is(err, errOtherNamespace) {
			f.Reason = "other_namespace"
		}
		l.refused = l.device != nil && f.Expected
		r.Fault(f)
		return
	}
	for _, c := range l.columns {
		r.Record(c.statistic.row, c.statistic.origin.Value(values[c.at]), nil, c.labels...)
	}
}

func (l *locked) fetchStatistics() (values []uint64, err error) {
	if l.device == nil {
		l.device, err = ethtool.NewDevice(l.key.name, l.ioctl)
		if err != nil {
			return nil, err
		}
	}
	if !l.identified {
		if err := identify(l.device, l.key.name, l.files.Dir); err != nil {
			return nil, err
		}
		l.identified = true
	}
	return l.device.Read(l.index)
}

var (
	errOtherNamespace = errors.New("not the same interface; run in the network namespace that sysfs shows")
	pciAddress        = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$`)
)

// identify verifies that ethtool's interface is the one in dir of sysfs, which may be mounted from another network
// namespace: the driver must be on the same PCI function. An interface without one has no statistics of the table.
func identify(d *ethtool.Device, name, dir string) error {
	target, err := os.Readlink(filepath.Join(dir, "device"))
	address := filepath.Base(target)
	if err != nil || !pciAddress.MatchString(address) {
		return nil
	}
	_, bus, err := d.Driver()
	if errors.Is(err, unix.ENODEV) && sysfs.Exists(dir) != nil {
		return err // removed just now
	}
	if errors.Is(err, unix.ENODEV) || err == nil && bus != address {
		return fmt.Errorf("ethtool has %s at %q, sysfs at %s: %w", name, bus, address, errOtherNamespace)
	}
	return err
}

// index finds the rows of a driver's statistics. If several names match one series, the row's first is used.
func (l *locked) index(names []string) {
	columns := l.columns[:0]
	for at, name := range names {
		m, known := l.table.statistics[name]
		if !known {
			continue
		}
		i := slices.IndexFunc(columns, func(c column) bool {
			return c.statistic.row == m.row && slices.Equal(c.statistic.values, m.values)
		})
		if i < 0 {
			labels := slices.Concat([]string{l.key.name}, m.values)
			columns = append(columns, column{at, m, collector.RailLabels(l.key.rails, labels...)})
		} else if m.rank < columns[i].statistic.rank {
			columns[i].at, columns[i].statistic = at, m
		}
	}
	l.columns, l.fecFacts = columns, collector.Facts{} // the statistics may have gained or lost the blocks
}
