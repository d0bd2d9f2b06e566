package collector

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Netdev reads the network interfaces that the rails are on, and, where that is
// a bond, every member of it: sysfs, and the driver's ethtool statistics.
//
// Each interface has two lanes: one for what the kernel tells without a lock,
// one for what takes its RTNL lock (carrier, speed, ethtool), which anything
// that configures an interface holds and some drivers hold for long.
type Netdev struct {
	net    string // <sysfs>/class/net
	rails  func() ([]rail.Rail, error)
	budget time.Duration
	rows   []netdevRow
	table  []Metric
	index  map[string]netdevMatch

	finders lane.Group[[]string]
	lanes   lane.Group[*laneRead]
	members map[string][]string // of each interface, when it last said

	live  func(path string) bool // whether ethtool speaks of the interfaces in sysfs
	ioctl ethtool.Ioctl          // nil until a socket is open
	mu    sync.Mutex
	open  map[string]netdevReader // by lane key
}

var _ Source = (*Netdev)(nil)

// netdevReader is the state of one lane, touched only inside it.
type netdevReader interface {
	read(rails []string) *laneRead
	close()
}

// lockedSuffix marks the key of an interface's second lane; no interface's name
// has a slash.
const lockedSuffix = "/locked"

// NewNetdev returns the source of the interfaces below path (/sys) that the
// rails are on. An interface that has not answered within budget is left out
// until it does.
func NewNetdev(path string, rails func() ([]rail.Rail, error), budget time.Duration) *Netdev {
	n := &Netdev{net: filepath.Join(path, "class/net"), rails: rails, budget: budget, rows: netdevRows(), live: sysfs.Live, open: make(map[string]netdevReader)}
	n.table, n.index = netdevTable(n.rows)
	return n
}

// Ethtool makes the source ask ioctl for the driver's statistics, where the
// kernel knows nothing of the interfaces below path. It is called before the
// first Read, and returns the source.
func (n *Netdev) Ethtool(ioctl ethtool.Ioctl) *Netdev {
	n.ioctl = ioctl
	return n
}

// Name returns "netdev".
func (n *Netdev) Name() string { return "netdev" }

// Metrics returns the rows.
func (n *Netdev) Metrics() []*Metric { return rowPointers(n.table) }

// Read reads every interface; see [Source].
func (n *Netdev) Read(emit func(Sample)) error {
	rails, err := n.rails()
	var faults []error
	if len(rails) == 0 && err != nil && !errors.Is(err, os.ErrNotExist) { // one that could not be examined is the rdma source's to report
		faults = append(faults, NewFault("", fmt.Errorf("find the rails: %w", err)))
	}
	on := make(map[string][]string) // names of the rails on each interface
	for _, r := range rails {
		if r.Netdev == "" {
			continue
		}
		if !validNetdev(r.Netdev) {
			faults = append(faults, &Fault{Device: r.Device, Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%.40q is not the name of an interface", r.Netdev)})
			continue
		}
		on[r.Netdev] = append(on[r.Netdev], r.Name)
	}
	faults = append(faults, n.addMembers(on)...)
	faults = append(faults, n.openSocket()...)
	keys := make([]string, 0, 2*len(on))
	for _, name := range slices.Sorted(maps.Keys(on)) {
		slices.Sort(on[name])
		on[name] = slices.Compact(on[name])
		keys = append(keys, name, name+lockedSuffix)
	}
	n.retire(keys)
	if len(keys) == 0 && len(faults) == 0 {
		return fmt.Errorf("no rail has a network interface: %w", ErrAbsent)
	}
	results := n.lanes.Run(n.budget, keys, func(key string) *laneRead {
		return n.reader(key).read(on[netdevOf(key)])
	})
	faults = append(faults, laneEmit(results, netdevOf, emit)...)
	return errors.Join(faults...)
}

func netdevOf(key string) string { return strings.TrimSuffix(key, lockedSuffix) }

// addMembers adds the members of every bond in on, with the rails of the bond.
// A bond that does not answer keeps those that it had: they have lanes of their own.
func (n *Netdev) addMembers(on map[string][]string) (faults []error) {
	members := make(map[string][]string, len(on))
	defer func() { n.members = members }()
	results := n.finders.Run(n.budget/2, slices.Sorted(maps.Keys(on)), func(name string) []string {
		return bondLowers(filepath.Join(n.net, name))
	})
	for _, res := range results {
		if res.State != lane.Done {
			faults = append(faults, &Fault{Device: res.Key, Reason: sysfs.ReasonTimeout, Err: fmt.Errorf("look for members of a bond: %w", res.Err)})
			res.Value = n.members[res.Key]
		}
		members[res.Key] = res.Value
		for _, member := range res.Value {
			on[member] = append(on[member], on[res.Key]...)
		}
	}
	return faults
}

// bondLowers returns the members of the interface in dir where it is a bond. It
// goes by the links in the directory, because reading bonding/slaves waits for
// the RTNL lock.
func bondLowers(dir string) (members []string) {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, "bonding"), &st) != nil {
		return nil
	}
	entries, err := sysfs.List(dir)
	if err != nil {
		return nil // the interface's own lane tells
	}
	for _, e := range entries {
		name, found := strings.CutPrefix(e.Name, "lower_")
		if !found {
			name, found = strings.CutPrefix(e.Name, "slave_") // before Linux 3.18
		}
		if found && validNetdev(name) {
			members = append(members, name)
		}
	}
	return members
}

// openSocket opens the socket for ethtool, once, where sysfs is this machine's.
func (n *Netdev) openSocket() []error {
	if n.ioctl != nil || !n.live(n.net) {
		return nil
	}
	s, err := ethtool.Open()
	if err != nil {
		return []error{NewFault("", err)}
	}
	n.ioctl = s.Ioctl
	return nil
}

// reader returns the state of a lane, made at its first read.
func (n *Netdev) reader(key string) netdevReader {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.open[key]
	if r == nil {
		if name, locked := strings.CutSuffix(key, lockedSuffix); locked {
			r = newNetdevLocked(n, name)
		} else {
			r = newNetdevFiles(n, name)
		}
		n.open[key] = r
	}
	return r
}

// retire closes what belongs to interfaces that no rail is on any more, inside
// their lanes, because a read that hangs there still holds it.
func (n *Netdev) retire(keys []string) {
	var gone []string
	n.mu.Lock()
	for key := range n.open {
		if !slices.Contains(keys, key) {
			gone = append(gone, key)
		}
	}
	n.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	n.lanes.Run(n.budget, gone, func(key string) *laneRead {
		n.mu.Lock()
		r := n.open[key]
		delete(n.open, key)
		n.mu.Unlock()
		r.close()
		return nil
	})
}
