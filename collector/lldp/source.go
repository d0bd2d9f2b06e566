// Package lldp receives what switches announce about themselves: what each rail is plugged into.
//
//	packet socket → helper process: frame → source.go: neighbor of an interface → Read → collector.Sample
//	                                                                            → Leaf → rail_leaf_info
package lldp

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lldp"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Intervals of [Source.Run].
const (
	tendEvery    = 5 * time.Second  // interfaces are listed
	restartAfter = 30 * time.Second // a helper that ended is started again
)

// maxNeighbors bounds the neighbors of an interface.
const maxNeighbors = 4

// Source knows the neighbors of the rails. Safe for concurrent use, but [Source.Run] and [Source.Read] have one caller
// each.
type Source struct {
	*table
	net     string // <sysfs>/class/net
	rails   func() ([]rail.Rail, error)
	command []string                     // starts the helper
	open    func() (*lldp.Socket, error) // [lldp.Open]

	mu         sync.Mutex // protects all following fields
	interfaces map[int]*netdev
	err        error // why nothing is received; nil: it is
}

// netdev is an interface of rails, or a member of a bond that is one.
type netdev struct {
	name  string
	rails []string
	ups   uint64    // carrier_up_count
	again time.Time // last time at which the carrier was found to have come back
	list  []neighbor
}

type neighbor struct {
	lldp.Neighbor
	at time.Time // last frame
}

// New returns the source of the rails whose interfaces are below path (/sys). command starts the helper.
func New(path string, rails func() ([]rail.Rail, error), command ...string) *Source {
	return &Source{table: newTable(), net: filepath.Join(path, "class/net"), rails: rails, command: command,
		open: lldp.Open, interfaces: map[int]*netdev{}}
}

// Run listens until ctx is done.
func (s *Source) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.listen(ctx)
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		select {
		case <-time.After(restartAfter):
		case <-ctx.Done():
		}
	}
}

// listen listens by one helper, until it has ended or ctx is done.
func (s *Source) listen(ctx context.Context) error {
	h, err := start(s.command, s.open)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.err = nil
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.tend(ctx, h)
	return h.receive(s.note)
}

// tend keeps the interfaces current, and ends the helper when ctx is done.
func (s *Source) tend(ctx context.Context, h *helper) {
	defer h.stop()
	joined := map[int]bool{}
	for {
		found := s.find()
		s.update(found, time.Now())
		for index := range found {
			if !joined[index] && h.join(index) != nil {
				return
			}
			joined[index] = true
		}
		for index := range joined {
			if found[index] == nil {
				delete(joined, index) // its index may be used again
			}
		}
		select {
		case <-time.After(tendEvery):
		case <-ctx.Done():
			return
		}
	}
}

// find lists the interfaces of the rails and of the members of bonds, by index. Those that cannot be read are left out.
func (s *Source) find() map[int]*netdev {
	rails, _ := s.rails() // sources that read them report an error
	on := map[string][]string{}
	for _, r := range rails {
		if r.Netdev == "" || !sysfs.ValidNetdev(r.Netdev) {
			continue
		}
		for _, name := range append(rail.BondMembers(filepath.Join(s.net, r.Netdev)), r.Netdev) {
			on[name] = append(on[name], r.Name)
		}
	}
	found := map[int]*netdev{}
	for name, rails := range on {
		index, err := sysfs.ReadUint(s.net, name, "ifindex")
		if err != nil {
			continue
		}
		slices.Sort(rails)
		n := &netdev{name: name, rails: slices.Compact(rails)}
		n.ups, _ = sysfs.ReadUint(s.net, name, "carrier_up_count") // 0 before Linux 4.16
		found[int(index)] = n
	}
	return found
}

// update replaces the interfaces by those that were found, which keep what they heard.
func (s *Source) update(found map[int]*netdev, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for index, n := range found {
		if before := s.interfaces[index]; before != nil && before.name == n.name {
			n.list, n.again = before.list, before.again
			if n.ups != before.ups {
				n.again = now
			}
		}
	}
	s.interfaces = found
}

// note takes a frame.
func (s *Source) note(h heard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.interfaces[h.Index]
	if n == nil {
		return
	}
	one := neighbor{h.Neighbor, time.Now()}
	n.list = slices.DeleteFunc(n.list, func(o neighbor) bool { return o.Chassis == one.Chassis && o.Port == one.Port })
	if len(n.list) == maxNeighbors {
		n.list = n.list[1:] // the one that has been silent for longest
	}
	n.list = append(n.list, one)
}

// current returns the neighbors of an interface. A switch that has become silent may have died, and the cable is still
// in it: its name is kept until another one is heard, or the carrier came back and the frame's TTL passed.
func (n *netdev) current(now time.Time) (list []lldp.Neighbor) {
	if len(n.list) == 0 {
		return nil
	}
	last := n.list[len(n.list)-1].at
	for _, one := range n.list {
		valid := one.TTL
		switch {
		case last.Sub(one.at) > valid: // another one is heard
		case one.at.Before(n.again) && !last.Before(n.again):
		case one.at.Before(n.again) && now.Sub(n.again) > valid:
		default:
			list = append(list, one.Neighbor)
		}
	}
	return list
}

// Leaf returns the switch that a rail is plugged into; empty: not known, or there are several, or it is a station. The
// name of a bond's is that of both of its switches.
func (s *Source) Leaf(railName string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, n := range s.interfaces {
		if !slices.Contains(n.rails, railName) {
			continue
		}
		list := n.current(time.Now())
		if len(list) > 1 {
			return ""
		}
		for _, one := range list {
			if one.Station {
				return ""
			}
			names = append(names, one.Name())
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "+")
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, n := range s.interfaces {
		seen := map[[2]string]bool{} // two neighbors may give the same names
		for _, one := range n.current(now) {
			key := [2]string{one.Name(), one.PortName()}
			if seen[key] {
				continue
			}
			seen[key] = true
			for _, name := range n.rails {
				emit(collector.Sample{Metric: s.neighbor, Labels: []string{name, n.name, key[0], key[1]}, Value: 1})
			}
		}
	}
	switch {
	case s.err != nil:
		return collector.NewFault("", s.err)
	case len(s.interfaces) == 0:
		return fmt.Errorf("no rail has a network interface: %w", collector.ErrAbsent)
	}
	return nil
}
