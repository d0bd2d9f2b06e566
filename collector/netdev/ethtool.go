package netdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

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
	at        int // index in the driver's values
	statistic statistic
	labels    [][]string
}

func (s *statistics) close() {
	if s.device != nil {
		_ = s.device.Close() // nothing was written to it
		s.device = nil
	}
}

// readStatistics emits what ethtool reports. That an interface has no statistics is reported once.
func (l *locked) readStatistics(r *collector.Reading) {
	s := &l.statistics
	if s.refused {
		return
	}
	values, err := l.fetchStatistics()
	if err != nil {
		f := collector.NewFault(l.key.name, err)
		if errors.Is(err, errOtherNamespace) {
			f.Reason = "other_namespace"
		}
		s.refused = s.device != nil && f.Expected
		r.Fault(f)
		return
	}
	for _, c := range s.columns {
		r.Record(c.statistic.row, c.statistic.origin.Value(values[c.at]), nil, c.labels...)
	}
}

func (l *locked) fetchStatistics() (values []uint64, err error) {
	s := &l.statistics
	if s.device == nil {
		if s.device, err = ethtool.NewDevice(l.key.name, l.ioctl); err != nil {
			return nil, err
		}
	}
	if !s.identified {
		if err := l.identify(); err != nil {
			return nil, err
		}
		s.identified = true
	}
	return s.device.Read(l.index)
}

var (
	errOtherNamespace = errors.New("not the same interface; run in the network namespace that sysfs shows")
	pciAddress        = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$`)
)

// identify verifies that ethtool's interface is the one in sysfs, which may be mounted from another network namespace:
// the driver must be on the same PCI function. An interface without one has no statistics of the table.
func (l *locked) identify() error {
	target, err := os.Readlink(filepath.Join(l.dir, "device"))
	address := filepath.Base(target)
	if err != nil || !pciAddress.MatchString(address) {
		return nil
	}
	_, bus, err := l.statistics.device.Driver()
	if errors.Is(err, unix.ENODEV) && sysfs.Exists(l.dir) != nil {
		return err // removed just now
	}
	if errors.Is(err, unix.ENODEV) || err == nil && bus != address {
		return fmt.Errorf("ethtool has %s at %q, sysfs at %s: %w", l.key.name, bus, address, errOtherNamespace)
	}
	return err
}

// index finds the rows of a driver's statistics. Of several names for the same series, the row's first is used; of the
// same name twice, the first.
func (l *locked) index(names []string) {
	columns := l.statistics.columns[:0]
	for at, name := range names {
		m, known := l.table.statistics[name]
		if !known {
			continue
		}
		i := slices.IndexFunc(columns, func(c column) bool {
			return c.statistic.row == m.row && slices.Equal(c.statistic.values, m.values)
		})
		if i < 0 {
			columns = append(columns, column{at, m, l.key.labels(m.values...)})
		} else if m.rank < columns[i].statistic.rank {
			columns[i].at, columns[i].statistic = at, m
		}
	}
	l.statistics.columns = columns
}
