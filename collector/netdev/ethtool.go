package netdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/sysfs"
)

// statistics is what is kept of an interface's ethtool statistics.
type statistics struct {
	device     *ethtool.Device // nil before the first read
	identified bool            // it is the interface that sysfs shows
	refused    bool            // it has no statistics, which was reported
	columns    []column
}

// column is one statistic that goes to a row.
type column struct {
	at     int // index in the driver's values
	match  match
	labels [][]string
}

// forget makes the next read fetch the names again, after the carrier changed:
// mlx5 takes the link down and up when PFC moves to another priority, which can
// change the names but not their number. See ADR 3.
func (s *statistics) forget() {
	if s.device != nil {
		s.device.Forget()
	}
}

// close gives the memory back.
func (s *statistics) close() {
	if s.device != nil {
		_ = s.device.Close() // nothing was written to it
		s.device = nil
	}
}

// readStatistics emits what ethtool reports.
func (l *locked) readStatistics(r *collector.Reading) {
	s := &l.statistics
	if s.refused {
		return
	}
	if s.device == nil {
		d, err := ethtool.NewDevice(l.key.name, l.ioctl)
		if err != nil {
			r.Fail(err)
			return
		}
		s.device = d
	}
	if !s.identified {
		if err := l.identify(); err != nil {
			l.failStatistics(r, err)
			return
		}
		s.identified = true
	}
	values, err := s.device.Read(l.index)
	if err != nil {
		l.failStatistics(r, err)
		return
	}
	for _, c := range s.columns {
		add(r, c.match.row, c.labels, c.match.origin.Value(values[c.at]))
	}
}

// failStatistics reports why there are no statistics. That an interface has none,
// or that ethtool does not know it, is reported once.
func (l *locked) failStatistics(r *collector.Reading, err error) {
	f := collector.NewFault(l.key.name, err)
	if errors.Is(err, errOtherNamespace) {
		f.Reason = "other_namespace"
	}
	l.statistics.refused = f.Expected
	r.Fault(f)
}

var errOtherNamespace = errors.New("not the same interface; run in the network namespace that sysfs shows")

// identify makes sure that the interface that ethtool speaks of is the one in
// sysfs, which may be mounted from another network namespace: the driver must be
// on the same PCI function. Without one, the statistics are none that we know.
func (l *locked) identify() error {
	target, err := os.Readlink(filepath.Join(l.dir, "device"))
	address := filepath.Base(target)
	if err != nil || !isPCIAddress(address) {
		return nil
	}
	_, bus, err := l.statistics.device.Driver()
	if errors.Is(err, unix.ENODEV) {
		if _, gone := sysfs.Inode(l.dir); gone != nil {
			return err // removed just now
		}
	}
	if errors.Is(err, unix.ENODEV) || err == nil && bus != address {
		return fmt.Errorf("ethtool has %s at %q, sysfs at %s: %w", l.key.name, bus, address, errOtherNamespace)
	}
	return err
}

// isPCIAddress reports whether name is domain:bus:device.function.
func isPCIAddress(name string) bool {
	domain, rest, ok := strings.Cut(name, ":")
	if !ok || len(domain) < 4 || len(rest) != 7 || rest[2] != ':' || rest[5] != '.' {
		return false
	}
	return strings.Trim(domain+rest[:2]+rest[3:5]+rest[6:], "0123456789abcdef") == ""
}

// index finds the rows of a driver's statistics. Of several names for the same
// series, the row's first counts; of the same name twice, the first.
func (l *locked) index(names []string) {
	columns := l.statistics.columns[:0]
	for at, name := range names {
		m, known := l.table.statistics[name]
		if !known {
			continue
		}
		i := slices.IndexFunc(columns, func(c column) bool {
			return c.match.row == m.row && slices.Equal(c.match.values, m.values)
		})
		c := column{at: at, match: m}
		switch {
		case i < 0:
			c.labels = l.key.labels(m.values...)
			columns = append(columns, c)
		case m.rank < columns[i].match.rank:
			c.labels = columns[i].labels
			columns[i] = c
		}
	}
	l.statistics.columns = columns
}
