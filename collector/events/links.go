package events

import (
	"net/netip"

	"github.com/railscope/railscope/internal/rtnl"
)

// Bounds of what is remembered: a node with thousands of containers has as many interfaces.
const (
	maxLinks     = 16384
	maxAddresses = 1024 // addresses per interface
	maxRelated   = 64   // a bridge of containers has hundreds of ports
)

// links are the interfaces of this network namespace, as last announced.
type links struct {
	byIndex map[int]*link
	members map[int][]int // interfaces of each bond or bridge; nil: to be found again
}

type link struct {
	rtnl.Interface
	addresses map[netip.Prefix]bool
}

func newLinks() *links { return &links{byIndex: map[int]*link{}} }

// take notes a change, and returns what it means, and the interfaces above and below, also those of before.
func (l *links) take(c rtnl.Change) (events []Event, above, below []string) {
	index := c.Address.Index
	if c.Interface != nil {
		index = c.Interface.Index
	}
	above, below = l.above(index), l.below(index)
	events = l.apply(c)
	return events, append(above, l.above(index)...), append(below, l.below(index)...)
}

// apply notes a change, and returns what it means for the rails of the interface. Of an announcement that repeats what
// is known, as the kernel sends them at each change of any attribute, that is nothing.
func (l *links) apply(c rtnl.Change) (events []Event) {
	if c.Interface == nil {
		return l.applyAddress(c)
	}
	now := *c.Interface
	known := l.byIndex[now.Index]
	if known == nil || known.Master != now.Master || c.Removed {
		l.members = nil
	}
	switch {
	case c.Removed:
		delete(l.byIndex, now.Index)
		if known != nil && known.Carrier {
			events = append(events, LinkDown)
		}
		return events
	case known == nil && len(l.byIndex) < maxLinks:
		l.byIndex[now.Index] = &link{Interface: now, addresses: map[netip.Prefix]bool{}}
		if now.Carrier {
			events = append(events, LinkUp)
		}
	case known != nil:
		switch {
		case now.Carrier && !known.Carrier:
			events = append(events, LinkUp)
		case !now.Carrier && known.Carrier:
			events = append(events, LinkDown)
		}
		known.Interface = now
	}
	if now.Failover {
		events = append(events, BondFailover)
	}
	return events
}

func (l *links) applyAddress(c rtnl.Change) []Event {
	known := l.byIndex[c.Address.Index]
	switch {
	case known == nil:
		return nil
	case c.Removed:
		delete(known.addresses, c.Address.Prefix)
		return []Event{AddressRemoved}
	case known.addresses[c.Address.Prefix] || len(known.addresses) >= maxAddresses:
		return nil // a new lifetime
	}
	known.addresses[c.Address.Prefix] = true
	return []Event{AddressAdded}
}

// above returns the names of an interface and of the bond to which it belongs: its carrier matters to both.
func (l *links) above(index int) []string {
	return l.walk(index, func(one *link) []int { return []int{one.Master} })
}

// below returns the names of an interface, of the one below a VLAN, and of the members of a bond: RDMA devices of all
// of them have the addresses in their GID tables.
func (l *links) below(index int) []string {
	return l.walk(index, func(one *link) []int { return append([]int{one.Lower}, l.membersOf(one.Index)...) })
}

func (l *links) walk(index int, next func(*link) []int) (names []string) {
	for pending := []int{index}; len(pending) > 0 && len(names) < maxRelated; pending = pending[1:] {
		if one := l.byIndex[pending[0]]; one != nil {
			names = append(names, one.Name)
			pending = append(pending, next(one)...)
		}
	}
	return names
}

func (l *links) membersOf(index int) []int {
	if l.members == nil {
		l.members = map[int][]int{}
		for i, one := range l.byIndex {
			if one.Master != 0 {
				l.members[one.Master] = append(l.members[one.Master], i)
			}
		}
	}
	return l.members[index]
}
