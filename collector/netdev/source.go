// Package netdev reads the interfaces of the rails and the members of bonds: the kernel's files and ethtool
// statistics.
package netdev

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rtnl"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source is the source of network interfaces.
//
// Each interface is two devices. One reads what the kernel reports without a lock. The other reads what takes the
// RTNL lock (carrier, speed, ethtool), which is held while an interface is configured, by some drivers for long. Its
// module is a third one.
type Source struct {
	*table
	net    string // <sysfs>/class/net
	rails  func() ([]rail.Rail, error)
	budget time.Duration
	parts  *collector.Set[key, collector.Device]

	bonds   lane.Group[[]string]
	members map[string][]string // members of each interface at its last answer
	expires time.Time           // members are listed again after this time

	live    func(path string) bool // reports whether sysfs is the running kernel's
	ioctl   ethtool.Ioctl          // nil until a socket is open
	fec     readFEC                // nil if ioctl is not the kernel's: FEC is then read from the statistics only
	module  readModule             // nil if modules are not read
	asking  lane.Group[map[string]*rtnl.Link]
	netlink rtnl.Client                           // owned by the lane of the netlink requests
	links   atomic.Pointer[map[string]*rtnl.Link] // links of this Read, by name
}

// key is one of the parts of an interface with the rails on it; the inode changes when the interface is recreated.
type key struct {
	name  string
	inode uint64
	rails string // rail names, one per line
	part  part
}

type part int

const (
	unlockedPart part = iota
	lockedPart        // what takes the RTNL lock
	opticsPart
)

// New returns the source of the rails' interfaces below path (/sys). An interface that is slower than budget is
// skipped. ioctl answers for a captured tree; nil asks the kernel.
func New(path string, rails func() ([]rail.Rail, error), budget time.Duration, ioctl ethtool.Ioctl) *Source {
	s := &Source{net: filepath.Join(path, "class/net"), rails: rails, budget: budget, table: newTable(),
		live: sysfs.Live, ioctl: ioctl}
	s.links.Store(&map[string]*rtnl.Link{})
	s.parts = collector.NewSet(budget, func(k key) string { return k.name }, func(k key) collector.Device {
		files, labels := collector.NewFiles(s.net, k.name), collector.RailLabels(k.rails, k.name)
		switch k.part {
		case lockedPart:
			return &locked{table: s.table, key: k, labels: labels, files: files, ioctl: s.ioctl, fec: s.fec}
		case opticsPart:
			return &optics{table: s.table, key: k, labels: labels, files: files, ioctl: s.ioctl, module: s.module}
		}
		return &unlocked{source: s, name: k.name, labels: labels, files: files}
	})
	return s
}

// ReadModules makes the source read temperature and optical power of modules, which needs CAP_NET_ADMIN. It must be
// called before the first Read.
func (s *Source) ReadModules() { s.module = ethtool.ReadModule }

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	on, faults := s.interfaces()
	faults = append(faults, s.addMembers(on)...)
	if s.ioctl == nil && s.live(s.net) {
		if socket, err := ethtool.Open(); err != nil {
			faults = append(faults, collector.NewFault("", err))
		} else {
			s.ioctl, s.fec = socket.Ioctl, ethtool.ReadFEC
		}
	}
	keys := make([]key, 0, 3*len(on))
	names := slices.Sorted(maps.Keys(on))
	for _, name := range names {
		inode, err := sysfs.Inode(filepath.Join(s.net, name))
		if err != nil {
			faults = append(faults, collector.NewFault(name, err))
			continue
		}
		slices.Sort(on[name])
		k := key{name: name, inode: inode, rails: strings.Join(slices.Compact(on[name]), "\n")}
		for k.part = range opticsPart {
			keys = append(keys, k)
		}
		if s.module != nil && s.fec != nil { // without fec, the tree is not the kernel's
			k.part = opticsPart
			keys = append(keys, k)
		}
	}
	s.askLinks(names)
	_, more := s.parts.Read(keys, emit)
	if len(keys) == 0 && len(faults) == 0 {
		return fmt.Errorf("no rail has a network interface: %w", collector.ErrAbsent)
	}
	return errors.Join(append(faults, more...)...)
}

func (s *Source) interfaces() (on map[string][]string, faults []error) {
	rails, faults := collector.Rails(s.rails)
	on = make(map[string][]string)
	for _, r := range rails {
		switch {
		case r.Netdev == "":
		case !sysfs.ValidNetdev(r.Netdev):
			err := fmt.Errorf("invalid interface name %.40q", r.Netdev)
			faults = append(faults, &collector.Fault{Device: r.Device, Reason: sysfs.ReasonInvalid, Err: err})
		default:
			on[r.Netdev] = append(on[r.Netdev], r.Name)
		}
	}
	return on, faults
}

func (s *Source) addMembers(on map[string][]string) (faults []error) {
	names := slices.Sorted(maps.Keys(on))
	known := slices.Equal(names, slices.Sorted(maps.Keys(s.members)))
	if now := time.Now(); !known || !now.Before(s.expires) {
		s.expires = now.Add(collector.FactsEvery)
		faults = s.findMembers(names)
		if faults != nil {
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

// findMembers lists the members of each interface. A bond that does not answer keeps its last members.
func (s *Source) findMembers(names []string) (faults []error) {
	members := make(map[string][]string, len(names))
	for _, res := range s.bonds.Run(s.budget/2, names, func(name string) []string {
		return rail.BondMembers(filepath.Join(s.net, name))
	}) {
		if res.State != lane.Done {
			faults = append(faults, collector.LaneFault(res.Key, res.State,
				fmt.Errorf("list members of a bond: %w", res.Err)))
			res.Value = s.members[res.Key]
		}
		members[res.Key] = res.Value
	}
	s.members = members
	return faults
}

// askLinks reads the interfaces by netlink if sysfs is this machine's. If the kernel does not answer because the
// RTNL lock is held, the files are read; most of them take no lock.
func (s *Source) askLinks(names []string) {
	links := map[string]*rtnl.Link{}
	if len(names) > 0 && s.live(s.net) {
		read := func(string) map[string]*rtnl.Link {
			links, _ := s.netlink.Links(names) // empty after an error
			return links
		}
		if res := s.asking.Run(s.budget/2, []string{"links"}, read)[0]; res.State == lane.Done {
			links = res.Value
		}
	}
	s.links.Store(&links)
}
