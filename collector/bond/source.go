// Package bond reads the kernel's bonding driver: sysfs, and /proc/net/bonding for what sysfs does not have.
package bond

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source is the source of the bonds of this network namespace.
type Source struct {
	*table
	sysfs, procfs string
	rails         func() ([]rail.Rail, error)
	bonds         *collector.Set[key, *bond]
}

// key is a bond; the inode changes when it is recreated.
type key struct {
	name  string
	inode uint64
}

// New returns the source of the bonds below sysfs and procfs. A bond that does not answer within budget is skipped.
func New(sysfs, procfs string, rails func() ([]rail.Rail, error), budget time.Duration) *Source {
	s := &Source{table: newTable(), sysfs: sysfs, procfs: procfs, rails: rails}
	s.bonds = collector.NewSet(budget, func(k key) string { return k.name }, s.open)
	return s
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	names, faults := s.names()
	if len(names) == 0 {
		s.bonds.Close()
		if faults == nil {
			return fmt.Errorf("no bond in %s: %w", s.sysfs, collector.ErrAbsent)
		}
		return errors.Join(faults...)
	}
	rails, more := collector.Rails(s.rails)
	faults = append(faults, more...)
	var keys []key
	for _, name := range names {
		inode, err := sysfs.Inode(filepath.Join(s.sysfs, "class/net", name, "bonding"))
		if err != nil {
			faults = append(faults, collector.NewFault(name, err))
			continue
		}
		keys = append(keys, key{name, inode})
	}
	answered, more := s.bonds.Read(keys, emit)
	for _, b := range answered {
		s.emitRails(b, rails, emit)
	}
	return errors.Join(append(faults, more...)...)
}

// names returns the bonds of this network namespace. Without bonding_masters, the driver is not loaded.
func (s *Source) names() (names []string, faults []error) {
	path := filepath.Join(s.sysfs, "class/net/bonding_masters")
	text, err := sysfs.ReadString(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		faults = append(faults, err)
	}
	for name := range strings.FieldsSeq(text) {
		switch {
		case name == "++more++": // the kernel writes this if the list exceeds its page
			err := errors.New("more bonds than the kernel lists")
			faults = append(faults, &sysfs.Error{Path: path, Reason: sysfs.ReasonTooLarge, Err: err})
		case !sysfs.ValidNetdev(name):
			faults = append(faults, sysfs.Invalid(path, []byte(name), "not an interface name"))
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), faults
}

func (s *Source) emitRails(b *bond, rails []rail.Rail, emit func(collector.Sample)) {
	for _, r := range rails {
		on := r.Netdev
		if r.Netdev == b.name {
			on = ""
		} else if !slices.ContainsFunc(b.members, func(m *member) bool { return m.name == r.Netdev }) {
			continue
		}
		labels := []string{b.name, r.Name, r.Device, strconv.Itoa(r.Port), on}
		emit(collector.Sample{Metric: s.onRail, Labels: labels, Value: 1})
	}
}
