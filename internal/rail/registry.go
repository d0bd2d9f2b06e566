package rail

import (
	"slices"
	"strconv"
)

// sighting is what one look saw of a port, or of a device that it knows less of.
type sighting struct {
	Record
	kind sightingKind
}

type sightingKind int

const (
	examinedPort sightingKind = iota
	unexamined                // a device that did not answer: its ports are not known
	excludedOne               // a device that Options.Include leaves out
)

// book knows rails again and numbers them. Not safe for concurrent use.
type book struct {
	records []*Record // in the order of their first sighting
}

// look is one look being entered into the book.
type look struct {
	book  *book
	seen  []sighting // in natural order
	of    []*Record  // of each sighting, nil while none is found; of a device that is not examined the first
	held  map[*Record]bool
	names map[string]string // "device/port" or "PCI address/port" → configured name
}

// enter finds the record of each port in seen, which is in natural order, makes
// records for those that are new, and returns the names in the same order. Taken
// are the PCI addresses of functions that a bond has made one device of.
func (b *book) enter(seen []sighting, names map[string]string, taken map[string]bool) ([]string, []Missing) {
	l := &look{book: b, seen: seen, of: make([]*Record, len(seen)), held: map[*Record]bool{}, names: names}
	l.dropAmbiguousGUIDs()
	l.match(func(s sighting, r *Record) bool { return atPlace(s, r) && agree(s, r) })
	l.match(func(s sighting, r *Record) bool { return !r.Reserved && sameGUID(s, r) })
	l.hold(func(s sighting, r *Record) bool { return s.NodeGUID != "" && s.NodeGUID == r.NodeGUID })
	l.hold(func(s sighting, r *Record) bool { return s.Place != "" && s.Place == r.Place })
	l.match(atPlace) // another GUID at the same place: the card was replaced
	l.hold(func(s sighting, r *Record) bool { return s.Device == r.Device && (s.Place == "" || r.Place == "") })
	l.match(byName)
	l.endReservations()
	l.update()
	l.number()
	l.resolveCollisions()
	result := l.name()
	missing := l.missing(taken, result)
	b.bound(l.held)
	return result, missing
}

// dropAmbiguousGUIDs clears GUIDs that several devices have now, as Soft-RoCE
// devices over the members of a bond do: they tell nobody apart.
func (l *look) dropAmbiguousGUIDs() {
	type key struct {
		guid string
		port int
	}
	count := map[key]int{}
	for i := range l.seen {
		s := &l.seen[i]
		s.NodeGUID = usableGUID(s.NodeGUID)
		count[key{s.NodeGUID, s.Port}]++
	}
	for i := range l.seen {
		if s := &l.seen[i]; count[key{s.NodeGUID, s.Port}] > 1 {
			for _, r := range l.book.records {
				if r.NodeGUID == s.NodeGUID {
					r.NodeGUID = ""
				}
			}
			s.NodeGUID = ""
		}
	}
}

// match finds the record of each port that has none yet, rather one that was
// there last.
func (l *look) match(fits func(sighting, *Record) bool) {
	for _, superseded := range []bool{false, true} {
		for i, s := range l.seen {
			if s.kind != examinedPort || l.of[i] != nil {
				continue
			}
			for _, r := range l.book.records {
				if r.Superseded == superseded && !l.held[r] && fits(s, r) {
					l.of[i], l.held[r] = r, true
					break
				}
			}
		}
	}
}

// atPlace reports whether the port is where the record's was. A reservation is
// for the first port of its device.
func atPlace(s sighting, r *Record) bool {
	return s.Place != "" && s.Place == r.Place && (s.Port == r.Port || r.Reserved)
}

// agree reports whether the GUIDs say nothing against it.
func agree(s sighting, r *Record) bool {
	return s.NodeGUID == "" || r.NodeGUID == "" || s.NodeGUID == r.NodeGUID
}

func sameGUID(s sighting, r *Record) bool {
	return s.NodeGUID != "" && s.NodeGUID == r.NodeGUID && s.Port == r.Port
}

// byName is for what has nothing but its name, and for a device of which nothing
// else was known when its number was reserved.
func byName(s sighting, r *Record) bool {
	if s.Device != r.Device || r.Place != "" || r.NodeGUID != "" {
		return false
	}
	return r.Reserved || s.Port == r.Port && s.Place == "" && s.NodeGUID == ""
}

// hold keeps the records of devices that could not be examined, or are excluded,
// whatever their port: rather of those that were there last.
func (l *look) hold(same func(sighting, *Record) bool) {
	for i, s := range l.seen {
		if s.kind == examinedPort || l.of[i] != nil {
			continue
		}
		for _, superseded := range []bool{false, true} {
			if l.of[i] != nil {
				break
			}
			l.holdOf(i, func(r *Record) bool { return r.Superseded == superseded && same(s, r) })
		}
	}
}

// holdOf keeps the records of the sighting at i.
func (l *look) holdOf(i int, fits func(*Record) bool) {
	for _, r := range l.book.records {
		if l.held[r] || !fits(r) {
			continue
		}
		l.held[r] = true
		if l.of[i] == nil {
			l.of[i] = r
		}
	}
}

// endReservations drops those of devices that answered and have no rail, such as
// a virtual function.
func (l *look) endReservations() {
	waiting := map[string]bool{}
	for _, s := range l.seen {
		if s.kind == unexamined {
			waiting[s.Device] = true
		}
	}
	l.book.records = slices.DeleteFunc(l.book.records, func(r *Record) bool {
		return r.Reserved && !l.held[r] && !waiting[r.Device]
	})
}

// update notes what the ports are now.
func (l *look) update() {
	for i, s := range l.seen {
		r := l.of[i]
		if s.kind != examinedPort || r == nil {
			continue
		}
		r.Device, r.Port, r.PCIAddress, r.Reserved, r.Superseded = s.Device, s.Port, s.PCIAddress, false, false
		if s.Place != "" {
			r.Place = s.Place
		}
		if s.NodeGUID != "" {
			r.NodeGUID = s.NodeGUID
		}
		for _, other := range l.book.records {
			if !l.held[other] && s.Place != "" && other.Place == s.Place && other.Port == s.Port {
				other.Superseded = true
			}
		}
	}
}

// number makes records of what is new.
func (l *look) number() {
	for i, s := range l.seen {
		if l.of[i] != nil || s.kind == excludedOne {
			continue
		}
		r := &Record{}
		*r = s.Record
		r.Port, r.Reserved = max(s.Port, 1), s.kind == unexamined
		r.Number = l.free(l.configured(s.Record))
		l.of[i], l.held[r] = r, true
		l.book.records = append(l.book.records, r)
	}
}

// free is the least number that nobody has. One that the configuration gives as a
// name is its own only.
func (l *look) free(own string) int {
	taken := map[string]bool{}
	for _, name := range l.names {
		taken[name] = name != own
	}
	for _, r := range l.book.records {
		taken[strconv.Itoa(r.Number)] = true
	}
	n := 0
	for taken[strconv.Itoa(n)] {
		n++
	}
	return n
}

// configured is the name that rails.names gives a port, or nothing.
func (l *look) configured(r Record) string {
	if name := l.names[Key(r.Device, r.Port)]; name != "" {
		return name
	}
	if name := l.names[Key(r.PCIAddress, r.Port)]; name != "" {
		return name
	}
	given := func(s sighting) bool { return Key(s.Device, max(s.Port, 1)) == r.Configured }
	if r.Configured == "" || slices.ContainsFunc(l.seen, given) {
		return ""
	}
	return l.names[r.Configured] // udev has renamed the device since
}

// resolveCollisions gives another number to a rail whose number the configuration
// gives as a name to another one.
func (l *look) resolveCollisions() {
	given := map[string]bool{}
	for _, name := range l.names {
		given[name] = true
	}
	for _, r := range l.book.records {
		if number := strconv.Itoa(r.Number); given[number] && l.configured(*r) != number {
			r.Number = l.free("")
		}
	}
}

// name returns the names of the sightings.
func (l *look) name() []string {
	used := map[string]bool{}
	result := make([]string, len(l.seen))
	for i, s := range l.seen {
		r := l.of[i]
		if s.kind != examinedPort {
			continue
		}
		result[i] = strconv.Itoa(r.Number)
		if name := l.configured(*r); name != "" && !used[name] {
			result[i] = name
			if key := Key(r.Device, r.Port); l.names[key] != "" {
				r.Configured = key
			}
		}
		used[result[i]] = true
	}
	return result
}

// missing returns the rails that are known and not there: the remembered ones,
// and those that have a name in the configuration and were never seen. One whose
// name a rail that is there has now, of present, goes by its number.
func (l *look) missing(taken map[string]bool, present []string) (list []Missing) {
	known := map[string]bool{}
	for _, r := range l.book.records {
		name := l.configured(*r)
		known[name] = true
		if name == "" || slices.Contains(present, name) {
			name = strconv.Itoa(r.Number)
		}
		if !l.held[r] && !r.Reserved && !(r.PCIAddress != "" && taken[r.PCIAddress]) {
			list = append(list, Missing{name, r.Device, r.Port, r.PCIAddress})
		}
	}
	for key, name := range l.names {
		device, port := splitKey(key)
		there := func(s sighting) bool { // perhaps by another name
			return (s.Device == device || s.PCIAddress == device) && (s.kind != examinedPort || s.Port == port)
		}
		if known[name] || taken[device] || slices.ContainsFunc(l.seen, there) {
			continue
		}
		m := Missing{Name: name, Device: device, Port: port}
		if bdf.MatchString(device) {
			m.Device, m.PCIAddress = "", device
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Missing) int { return naturalCompare(a.Name, b.Name) })
	return list
}

// bound forgets what has been there first, and is not there, when there is more
// than a node can have.
func (b *book) bound(held map[*Record]bool) {
	for excess := len(b.records) - maxRecords; excess > 0; excess-- {
		i := slices.IndexFunc(b.records, func(r *Record) bool { return !held[r] })
		if i < 0 {
			return
		}
		b.records = slices.Delete(b.records, i, i+1)
	}
}

// list returns the records as they are now, those that can be read back, and not
// more than that.
func (b *book) list() []Record {
	list := make([]Record, 0, len(b.records))
	for _, r := range b.records {
		if len(list) < maxRecords && r.check() == nil {
			list = append(list, *r)
		}
	}
	return list
}
