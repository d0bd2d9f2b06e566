// Package netdev reads the network interfaces that the rails are on, and, where
// that is a bond, every member of it: what the kernel says of each, and the
// driver's ethtool statistics.
package netdev

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rtnl"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source is the source of network interfaces.
//
// Each interface is two devices: one for what the kernel says without a lock, one
// for what takes its RTNL lock (carrier, speed, ethtool), which anything that
// configures an interface holds and some drivers hold for long.
type Source struct {
	net    string // <sysfs>/class/net
	rails  func() ([]rail.Rail, error)
	budget time.Duration
	table  *table
	parts  *collector.Set[key, collector.Device]

	bonds   lane.Group[[]string]
	members map[string][]string // of each interface, when it last answered
	expires time.Time           // when the interfaces are asked again

	live    func(path string) bool // whether the kernel's answers are about the interfaces in sysfs
	ioctl   ethtool.Ioctl          // nil until a socket is open
	asking  lane.Group[map[string]*rtnl.Link]
	netlink *rtnl.Client                          // owned by the lane of asking; nil until it is open
	links   atomic.Pointer[map[string]*rtnl.Link] // of this Read, by name
}

// key is one of the two parts of an interface with the rails on it; the inode
// changes when the interface is recreated.
type key struct {
	name   string
	inode  uint64
	rails  string // names, one a line
	locked bool   // the part that takes the RTNL lock
}

// New returns the source of the interfaces below path (/sys) that the rails are
// on. An interface that has not answered within budget is left out until it does.
func New(path string, rails func() ([]rail.Rail, error), budget time.Duration) *Source {
	s := &Source{net: filepath.Join(path, "class/net"), rails: rails, budget: budget, table: newTable(),
		live: sysfs.Live}
	s.links.Store(&map[string]*rtnl.Link{})
	s.parts = collector.NewSet(budget, func(k key) string { return k.name }, func(k key) collector.Device {
		if k.locked {
			return newLocked(s, k)
		}
		return newUnlocked(s, k)
	})
	return s
}

// Ethtool makes the source ask ioctl for the driver's statistics, where the
// kernel knows nothing of the interfaces below path. It is called before the
// first Read, and returns the source.
func (s *Source) Ethtool(ioctl ethtool.Ioctl) *Source {
	s.ioctl = ioctl
	return s
}

// Name returns "netdev".
func (s *Source) Name() string { return "netdev" }

// Metrics returns the rows.
func (s *Source) Metrics() []*collector.Metric { return s.table.Metrics() }

// Read reads every interface; see [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	on, faults := s.interfaces()
	faults = append(faults, s.addMembers(on)...)
	faults = append(faults, s.openSocket()...)
	keys := make([]key, 0, 2*len(on))
	for _, name := range slices.Sorted(maps.Keys(on)) {
		inode, err := sysfs.Inode(filepath.Join(s.net, name))
		if err != nil {
			faults = append(faults, collector.NewFault(name, err))
			continue
		}
		slices.Sort(on[name])
		k := key{name: name, inode: inode, rails: strings.Join(slices.Compact(on[name]), "\n")}
		keys = append(keys, k)
		k.locked = true
		keys = append(keys, k)
	}
	s.askLinks(slices.Sorted(maps.Keys(on)))
	_, more := s.parts.Read(keys, emit)
	if len(keys) == 0 && len(faults) == 0 {
		return fmt.Errorf("no rail has a network interface: %w", collector.ErrAbsent)
	}
	return errors.Join(append(faults, more...)...)
}

// interfaces returns the interfaces that rails are on, with their rails.
func (s *Source) interfaces() (on map[string][]string, faults []error) {
	rails, err := s.rails()
	if len(rails) == 0 && err != nil && !errors.Is(err, os.ErrNotExist) {
		// one that could not be examined is the rdma source's to report
		faults = append(faults, collector.NewFault("", fmt.Errorf("find the rails: %w", err)))
	}
	on = make(map[string][]string)
	for _, r := range rails {
		if r.Netdev == "" {
			continue
		}
		if !sysfs.ValidNetdev(r.Netdev) {
			err := fmt.Errorf("%.40q is not the name of an interface", r.Netdev)
			faults = append(faults, &collector.Fault{Device: r.Device, Reason: sysfs.ReasonInvalid, Err: err})
			continue
		}
		on[r.Netdev] = append(on[r.Netdev], r.Name)
	}
	return on, faults
}

// addMembers adds the members of every bond in on, with the rails of the bond.
func (s *Source) addMembers(on map[string][]string) (faults []error) {
	names := slices.Sorted(maps.Keys(on))
	known := len(s.members) == len(names) && !slices.ContainsFunc(names, func(name string) bool {
		_, known := s.members[name]
		return !known
	})
	if now := time.Now(); !known || !now.Before(s.expires) {
		s.expires = now.Add(collector.FactsEvery)
		if faults = s.findMembers(names); faults != nil {
			s.expires = time.Time{}
		}
	}
	for _, name := range names {
		for _, member := range s.members[name] {
			on[member] = append(on[member], on[name]...)
		}
	}
	return faults
}

// findMembers asks each interface for its members. A bond that does not answer
// keeps those that it had: they have lanes of their own.
func (s *Source) findMembers(names []string) (faults []error) {
	members := make(map[string][]string, len(names))
	for _, res := range s.bonds.Run(s.budget/2, names, func(name string) []string {
		return bondMembers(filepath.Join(s.net, name))
	}) {
		if res.State != lane.Done {
			err := fmt.Errorf("list members of a bond: %w", res.Err)
			faults = append(faults, &collector.Fault{Device: res.Key, Reason: sysfs.ReasonTimeout, Err: err})
			res.Value = s.members[res.Key]
		}
		members[res.Key] = res.Value
	}
	s.members = members
	return faults
}

// bondMembers returns the members of the interface in dir where it is a bond. It
// goes by the links in the directory, because reading bonding/slaves waits for
// the RTNL lock.
func bondMembers(dir string) (members []string) {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, "bonding"), &st) != nil {
		return nil
	}
	entries, err := sysfs.List(dir)
	if err != nil {
		return nil // reading the interface itself gives the error
	}
	for _, e := range entries {
		name, found := strings.CutPrefix(e.Name, "lower_")
		if !found {
			name, found = strings.CutPrefix(e.Name, "slave_") // before Linux 3.18
		}
		if found && sysfs.ValidNetdev(name) {
			members = append(members, name)
		}
	}
	return members
}

// openSocket opens the socket for ethtool, once, where sysfs is this machine's.
func (s *Source) openSocket() []error {
	if s.ioctl != nil || !s.live(s.net) {
		return nil
	}
	socket, err := ethtool.Open()
	if err != nil {
		return []error{collector.NewFault("", err)}
	}
	s.ioctl = socket.Ioctl
	return nil
}

// askLinks asks the kernel for the interfaces by netlink, where sysfs is this
// machine's. Where it does not answer, because something holds the RTNL lock, the
// files are read, of which most take no lock.
func (s *Source) askLinks(names []string) {
	links := map[string]*rtnl.Link{}
	if len(names) > 0 && s.live(s.net) {
		read := func(string) map[string]*rtnl.Link { return s.readLinks(names) }
		if res := s.asking.Run(s.budget/2, []string{"links"}, read)[0]; res.State == lane.Done {
			links = res.Value
		}
	}
	s.links.Store(&links)
}

// readLinks returns the interfaces by name, none after an error.
func (s *Source) readLinks(names []string) map[string]*rtnl.Link {
	if s.netlink == nil {
		c, err := rtnl.Open()
		if err != nil {
			return nil
		}
		s.netlink = c
	}
	links, err := s.netlink.Links(names)
	if err != nil {
		_ = s.netlink.Close() // nothing was written to it
		s.netlink = nil
	}
	return links
}
