package rail

import (
	"slices"
	"strconv"
)

// sighting is what one scan found of a port, or of a device of which less is known.
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

// registry recognizes rails and numbers them. Not safe for concurrent use.
type registry struct {
	records []*Record // in the order of their first sighting
}

// matching matches the sightings of one scan with the records.
type matching struct {
	registry *registry
	seen     []sighting // in natural order
	of       []*Record  // of each sighting, nil while none is found; of a device that is not examined the first
	held     map[*Record]bool
	names    map[string]string // "device/port" or "PCI address/port" → configured name
}

// assign finds the record of each port in seen, which is in natural order, makes records for those that are new, and
// returns the names in the same order. Taken are the PCI addresses of functions that a bond has made one device of.
func (g *registry) assign(seen []sighting, names map[string]string, taken map[string]bool) ([]string, []Missing) {
	m := &matching{registry: g, seen: seen, of: make([]*Record, len(seen)), held: map[*Record]bool{}, names: names}
	m.dropAmbiguousGUIDs()
	m.match(func(s sighting, r *Record) bool { return atPlace(s, r) && agree(s, r) })
	m.match(func(s sighting, r *Record) bool { return !r.Reserved && sameGUID(s, r) })
	m.hold(func(s sighting, r *Record) bool { return s.NodeGUID != "" && s.NodeGUID == r.NodeGUID })
	m.hold(func(s sighting, r *Record) bool { return s.Place != "" && s.Place == r.Place })
	m.match(atPlace) // another GUID at the same place: the card was replaced
	m.hold(func(s sighting, r *Record) bool { return s.Device == r.Device && (s.Place == "" || r.Place == "") })
	m.match(byName)
	m.endReservations()
	m.update()
	m.number()
	m.resolveCollisions()
	result := m.name()
	missing := m.missing(taken, result)
	g.bound(m.held)
	return result, missing
}

// dropAmbiguousGUIDs clears GUIDs that several devices have now, as Soft-RoCE devices over the members of a bond do.
func (m *matching) dropAmbiguousGUIDs() {
	type key struct {
		guid string
		port int
	}
	count := map[key]int{}
	for i := range m.seen {
		s := &m.seen[i]
		s.NodeGUID = usableGUID(s.NodeGUID)
		count[key{s.NodeGUID, s.Port}]++
	}
	for i := range m.seen {
		if s := &m.seen[i]; count[key{s.NodeGUID, s.Port}] > 1 {
			for _, r := range m.registry.records {
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
func (m *matching) match(fits func(sighting, *Record) bool) {
	for _, superseded := range []bool{false, true} {
		for i, s := range m.seen {
			if s.kind != examinedPort || m.of[i] != nil {
				continue
			}
			for _, r := range m.registry.records {
				if r.Superseded == superseded && !m.held[r] && fits(s, r) {
					m.of[i], m.held[r] = r, true
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

// agree reports whether the GUIDs do not contradict.
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
func (m *matching) hold(same func(sighting, *Record) bool) {
	for i, s := range m.seen {
		if s.kind == examinedPort || m.of[i] != nil {
			continue
		}
		for _, superseded := range []bool{false, true} {
			if m.of[i] != nil {
				break
			}
			m.holdOf(i, func(r *Record) bool { return r.Superseded == superseded && same(s, r) })
		}
	}
}

// holdOf keeps the records of the sighting at i.
func (m *matching) holdOf(i int, fits func(*Record) bool) {
	for _, r := range m.registry.records {
		if m.held[r] || !fits(r) {
			continue
		}
		m.held[r] = true
		if m.of[i] == nil {
			m.of[i] = r
		}
	}
}

// endReservations drops those of devices that answered and have no rail, such as
// a virtual function.
func (m *matching) endReservations() {
	waiting := map[string]bool{}
	for _, s := range m.seen {
		if s.kind == unexamined {
			waiting[s.Device] = true
		}
	}
	m.registry.records = slices.DeleteFunc(m.registry.records, func(r *Record) bool {
		return r.Reserved && !m.held[r] && !waiting[r.Device]
	})
}

// update records what the ports are now.
func (m *matching) update() {
	for i, s := range m.seen {
		r := m.of[i]
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
		for _, other := range m.registry.records {
			if !m.held[other] && s.Place != "" && other.Place == s.Place && other.Port == s.Port {
				other.Superseded = true
			}
		}
	}
}

// number makes records of what is new.
func (m *matching) number() {
	for i, s := range m.seen {
		if m.of[i] != nil || s.kind == excludedOne {
			continue
		}
		r := &Record{}
		*r = s.Record
		r.Port, r.Reserved = max(s.Port, 1), s.kind == unexamined
		r.Number = m.free(m.configured(s.Record))
		m.of[i], m.held[r] = r, true
		m.registry.records = append(m.registry.records, r)
	}
}

// free is the least number that no rail has. One that the configuration gives as a
// name is its own only.
func (m *matching) free(own string) int {
	taken := map[string]bool{}
	for _, name := range m.names {
		taken[name] = name != own
	}
	for _, r := range m.registry.records {
		taken[strconv.Itoa(r.Number)] = true
	}
	n := 0
	for taken[strconv.Itoa(n)] {
		n++
	}
	return n
}

// configured is the name that rails.names gives a port, or nothing.
func (m *matching) configured(r Record) string {
	if name := m.names[Key(r.Device, r.Port)]; name != "" {
		return name
	}
	if name := m.names[Key(r.PCIAddress, r.Port)]; name != "" {
		return name
	}
	given := func(s sighting) bool { return Key(s.Device, max(s.Port, 1)) == r.Configured }
	if r.Configured == "" || slices.ContainsFunc(m.seen, given) {
		return ""
	}
	return m.names[r.Configured] // udev has renamed the device since
}

// resolveCollisions gives another number to a rail whose number the configuration
// gives as a name to another one.
func (m *matching) resolveCollisions() {
	given := map[string]bool{}
	for _, name := range m.names {
		given[name] = true
	}
	for _, r := range m.registry.records {
		if number := strconv.Itoa(r.Number); given[number] && m.configured(*r) != number {
			r.Number = m.free("")
		}
	}
}

// name returns the names of the sightings.
func (m *matching) name() []string {
	used := map[string]bool{}
	result := make([]string, len(m.seen))
	for i, s := range m.seen {
		r := m.of[i]
		if s.kind != examinedPort {
			continue
		}
		result[i] = strconv.Itoa(r.Number)
		if name := m.configured(*r); name != "" && !used[name] {
			result[i] = name
			if key := Key(r.Device, r.Port); m.names[key] != "" {
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
func (m *matching) missing(taken map[string]bool, present []string) (list []Missing) {
	known := map[string]bool{}
	for _, r := range m.registry.records {
		name := m.configured(*r)
		known[name] = true
		if name == "" || slices.Contains(present, name) {
			name = strconv.Itoa(r.Number)
		}
		if !m.held[r] && !r.Reserved && !(r.PCIAddress != "" && taken[r.PCIAddress]) {
			list = append(list, Missing{name, r.Device, r.Port, r.PCIAddress})
		}
	}
	for key, name := range m.names {
		device, port := splitKey(key)
		there := func(s sighting) bool { // perhaps by another name
			return (s.Device == device || s.PCIAddress == device) && (s.kind != examinedPort || s.Port == port)
		}
		if known[name] || taken[device] || slices.ContainsFunc(m.seen, there) {
			continue
		}
		gone := Missing{Name: name, Device: device, Port: port}
		if bdf.MatchString(device) {
			gone.Device, gone.PCIAddress = "", device
		}
		list = append(list, gone)
	}
	slices.SortFunc(list, func(a, b Missing) int { return naturalCompare(a.Name, b.Name) })
	return list
}

// bound forgets the oldest records of rails that are gone, when there are more than a node can have.
func (g *registry) bound(held map[*Record]bool) {
	for excess := len(g.records) - maxRecords; excess > 0; excess-- {
		i := slices.IndexFunc(g.records, func(r *Record) bool { return !held[r] })
		if i < 0 {
			return
		}
		g.records = slices.Delete(g.records, i, i+1)
	}
}

// list returns the records as they are now, those that can be read back, and not
// more than that.
func (g *registry) list() []Record {
	list := make([]Record, 0, len(g.records))
	for _, r := range g.records {
		if len(list) < maxRecords && r.check() == nil {
			list = append(list, *r)
		}
	}
	return list
}
