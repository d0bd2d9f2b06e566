package sampler

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// Bounds of what is watched.
const (
	maxBonds   = 64
	maxMembers = 64 // of a bond
	listEvery  = 5  // seconds between two looks for bonds and members
)

// Bond is how often a bond's links changed, or, with a Member, that member's.
type Bond struct {
	Name, Member string
	Links        Flaps // of the member: what the bond takes its link to be
	Active       Flaps // of the bond: which member is the active one
}

// bondBook is what was seen of bonds. The sampler's mutex protects it.
type bondBook struct {
	list []Bond // in order
}

func (b *bondBook) appendTo(to []Bond) []Bond { return append(to, b.list...) }

// bondWatch watches all bonds. It belongs to one goroutine.
type bondWatch struct {
	net   string
	open  func(string) file
	buf   []byte
	until int // looks until bonds and members are listed again
	bonds []*watchedBond
	past  map[string]*link // of bonds and members by name, so that those that come back go on
}

type watchedBond struct {
	name    string
	active  file
	link    *link
	is      string // the active member
	number  uint64 // changes with it
	members []*watchedMember
}

type watchedMember struct {
	name            string
	status, changes file
	opens           int
	link            *link
}

// watchBonds looks at all bonds every second until ctx is done.
func (s *Sampler) watchBonds(ctx context.Context) {
	w := &bondWatch{net: filepath.Join(s.opts.Sysfs, "class/net"), open: s.open, buf: make([]byte, 128), past: map[string]*link{}}
	defer w.close()
	s.everySecond(ctx, func() {
		list := w.look()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bonds.list = list
	})
}

// look looks at all bonds.
func (w *bondWatch) look() []Bond {
	if w.until--; w.until < 0 {
		w.until = listEvery - 1
		w.list()
	}
	now := time.Now()
	var list []Bond
	for _, b := range w.bonds {
		b.look(now, w.buf)
		list = append(list, Bond{Name: b.name, Active: b.link.Flaps})
		for _, m := range b.members {
			m.look(now, w.buf)
			list = append(list, Bond{Name: b.name, Member: m.name, Links: m.link.Flaps})
		}
	}
	return list
}

func (b *watchedBond) look(now time.Time, buf []byte) {
	content, err := b.active.Read(buf)
	if err != nil {
		return
	}
	name := bytes.TrimSpace(content)
	if len(name) == 0 {
		return // a mode without one, or just none: the next one is what counts
	}
	if string(name) != b.is {
		b.is = string(name)
		b.number++
	}
	b.link.look(now, false, false, b.number, true)
}

func (m *watchedMember) look(now time.Time, buf []byte) {
	var changes uint64
	status, err := m.status.Read(buf)
	stateOK := err == nil
	up := stateOK && string(bytes.TrimSpace(status)) == "up"
	content, err := m.changes.Read(buf)
	if err == nil {
		changes, err = sysfs.ParseUint(content)
		if m.opens != m.changes.Opens() {
			m.opens = m.changes.Opens()
			m.link.forget()
		}
	}
	m.link.look(now, up, stateOK, changes, err == nil)
}

// list finds the bonds that there are and their members.
func (w *bondWatch) list() {
	var names []string
	entries, _ := sysfs.List(w.net) // no such directory: no bonds
	for _, e := range entries {
		if len(names) < maxBonds && isBond(w.net, e.Name) {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	w.bonds = slices.DeleteFunc(w.bonds, func(b *watchedBond) bool {
		gone := !slices.Contains(names, b.name)
		if gone {
			b.close()
		}
		return gone
	})
	for i, name := range names {
		if i == len(w.bonds) || w.bonds[i].name != name {
			b := &watchedBond{name: name, active: w.open(filepath.Join(w.net, name, "bonding/active_slave")), link: w.linkOf(name)}
			b.number = b.link.carrier.value // go on from where the name was
			w.bonds = slices.Insert(w.bonds, i, b)
		}
		w.follow(w.bonds[i])
	}
}

// follow makes the members of a bond those that it has.
func (w *bondWatch) follow(b *watchedBond) {
	var names []string
	for _, name := range lowers(w.net, b.name) {
		if len(names) < maxMembers {
			names = append(names, name)
		}
	}
	if slices.EqualFunc(names, b.members, func(name string, m *watchedMember) bool { return name == m.name }) {
		return
	}
	for _, m := range b.members {
		m.close()
	}
	b.members = nil
	for _, name := range names {
		dir := filepath.Join(w.net, name)
		b.members = append(b.members, &watchedMember{name: name, link: w.linkOf(b.name + "/" + name),
			status: w.open(filepath.Join(dir, "bonding_slave/mii_status")), changes: w.open(filepath.Join(dir, "carrier_changes"))})
	}
}

func (w *bondWatch) linkOf(name string) *link {
	if w.past[name] == nil {
		w.past[name] = &link{}
	}
	return w.past[name]
}

func (w *bondWatch) close() {
	for _, b := range w.bonds {
		b.close()
	}
}

func (b *watchedBond) close() {
	b.active.Close()
	for _, m := range b.members {
		m.close()
	}
}

func (m *watchedMember) close() {
	m.status.Close()
	m.changes.Close()
}
