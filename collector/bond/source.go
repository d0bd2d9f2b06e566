// Package bond reads the kernel's bonding driver: sysfs, and /proc/net/bonding
// for what is nowhere else.
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
	sysfs, procfs string
	rails         func() ([]rail.Rail, error)
	table         *table
	bonds         *collector.Set[key, *bond]
}

// key is a bond; the inode changes when it is recreated.
type key struct {
	name  string
	inode uint64
}

// New returns the source of the bonds below sysfs (/sys) and procfs (/proc).
// rails returns which RDMA ports there are. A bond that has not answered within
// budget is left out until it does.
func New(sysfs, procfs string, rails func() ([]rail.Rail, error), budget time.Duration) *Source {
	s := &Source{sysfs: sysfs, procfs: procfs, rails: rails, table: newTable()}
	s.bonds = collector.NewSet(budget, func(k key) string { return k.name }, s.open)
	return s
}

// Name returns "bond".
func (s *Source) Name() string { return "bond" }

// Metrics returns the rows.
func (s *Source) Metrics() []*collector.Metric { return s.table.Metrics() }

// Read reads every bond; see [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	names, faults := s.names()
	if len(names) == 0 {
		s.bonds.Close()
		if faults == nil {
			return fmt.Errorf("no bond in %s: %w", s.sysfs, collector.ErrAbsent)
		}
		return errors.Join(faults...)
	}
	rails, err := s.rails()
	if len(rails) == 0 && err != nil && !errors.Is(err, os.ErrNotExist) {
		// one that could not be examined is the rdma source's to report
		faults = append(faults, collector.NewFault("", fmt.Errorf("find the rails on bonds: %w", err)))
	}
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

// names returns the bonds of this network namespace. No file means that the
// driver is not loaded, an empty one that there is no bond.
func (s *Source) names() (names []string, faults []error) {
	path := filepath.Join(s.sysfs, "class/net/bonding_masters")
	text, err := sysfs.ReadString(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, []error{collector.NewFault("", err)}
	}
	for name := range strings.FieldsSeq(text) {
		switch {
		case name == "++more++": // what the kernel writes when its page is full
			err := errors.New("more bonds than the kernel lists")
			err = &sysfs.Error{Path: path, Reason: sysfs.ReasonTooLarge, Err: err}
			faults = append(faults, collector.NewFault("", err))
		case !sysfs.ValidNetdev(name):
			err := sysfs.Invalid(path, []byte(name), "not the name of an interface")
			faults = append(faults, collector.NewFault("", err))
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), faults
}

// emitRails emits which of the rails are on a bond.
func (s *Source) emitRails(b *bond, rails []rail.Rail, emit func(collector.Sample)) {
	for _, r := range rails {
		on := r.Netdev
		if r.Netdev == b.name {
			on = ""
		} else if !slices.ContainsFunc(b.members, func(m *member) bool { return m.name == r.Netdev }) {
			continue
		}
		labels := []string{b.name, r.Name, r.Device, strconv.Itoa(r.Port), on}
		emit(collector.Sample{Metric: s.table.onRail, Labels: labels, Value: 1})
	}
}
