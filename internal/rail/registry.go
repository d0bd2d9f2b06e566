package rail

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// sighting is a port that a scan found, or a device whose ports are unknown.
type sighting struct {
	Record
	kind sightingKind
}

type sightingKind int

const (
	examinedPort   sightingKind = iota
	unexamined                  // a device that did not answer: its ports are unknown
	excludedDevice              // a device that Options.Include excludes
)

// registry recognizes rails and numbers them. Not safe for concurrent use.
type registry struct {
	records []*Record // in the order of the first sighting
}

type matching struct {
	registry *registry
	seen     []sighting // in natural order of device and port
	of       []*Record  // record of each sighting, nil until it is found; for a device, that of the first port
	held     map[*Record]bool
	names    map[string]string // "device/port" or "PCI address/port" → configured name
}

// absence holds reasons for which known rails may be absent without a fault.
type absence struct {
	bonded  map[string]bool // PCI addresses of functions of a bond's device
	leftOut []LeftOut       // ports that exist and are not rails
}

func (a absence) explains(r *Record) bool {
	return r.Synthetic || r.PCIAddress != "" && a.bonded[r.PCIAddress] ||
		slices.ContainsFunc(a.leftOut, func(l LeftOut) bool { return l.Device == r.Device && l.Port == r.Port })
}

// assign finds the record of each sighting, adds records for new ports, and returns the ports' names in the order
// of seen, empty for other sightings.
func (g *registry) assign(seen []sighting, names map[string]string, absent absence) ([]string, []Missing) {
	m := newMatching(g, seen)
	m.names = names
	m.match(ports, samePort)
	m.match(ports, sameGUIDPort)
	m.match(devices, sameGUID)
	m.match(devices, func(s sighting, r *Record) bool { return s.Place != "" && s.Place == r.Place })
	m.match(ports, atPlace) // another GUID at the same place: the card was replaced
	m.match(devices, func(s sighting, r *Record) bool {
		return s.Device == r.Device && (s.Place == "" || r.Place == "")
	})
	m.match(ports, sameName)
	m.endReservations()
	m.update()
	m.number()
	m.resolveCollisions()
	result := m.name()
	missing := m.missing(absent, result)
	g.bound(m.held)
	return result, missing
}

// Recognize returns the known port of each one seen, or nil: the port at its place, unless their GUIDs differ, else the
// port with its GUID, else the port at its place: its card was replaced. It clears GUIDs in seen of no single device.
func Recognize(seen []Record, known []*Record) []*Record {
	sightings := make([]sighting, len(seen))
	for i, r := range seen {
		sightings[i].Record = r
	}
	m := newMatching(&registry{records: known}, sightings)
	for _, fits := range []func(sighting, *Record) bool{samePort, sameGUIDPort, atPlace} {
		m.match(ports, fits)
	}
	for i, s := range sightings {
		seen[i].NodeGUID = s.NodeGUID
	}
	return m.of
}

func newMatching(g *registry, seen []sighting) *matching {
	m := &matching{registry: g, seen: seen, of: make([]*Record, len(seen)), held: map[*Record]bool{}}
	m.dropAmbiguousGUIDs()
	return m
}

// dropAmbiguousGUIDs clears GUIDs that several devices have, such as Soft-RoCE devices over the members of a bond.
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

const ports, devices = true, false // what a match is for

// match assigns matching records to sightings, present ones first: one to a port, all to a device of unknown ports.
func (m *matching) match(ports bool, fits func(sighting, *Record) bool) {
	for _, superseded := range []bool{false, true} {
		for i, s := range m.seen {
			if m.of[i] != nil || ports != (s.kind == examinedPort) {
				continue
			}
			for _, r := range m.registry.records {
				if r.Superseded != superseded || m.held[r] || !fits(s, r) {
					continue
				}
				m.held[r] = true
				if m.of[i] == nil {
					m.of[i] = r
				}
				if ports {
					break
				}
			}
		}
	}
}

// atPlace reports whether the port is at the record's place. A reservation is for the first port of its device.
func atPlace(s sighting, r *Record) bool {
	return s.Place != "" && s.Place == r.Place && s.Bond == r.Bond && (s.Port == r.Port || r.Reserved)
}

func samePort(s sighting, r *Record) bool { return atPlace(s, r) && guidsAgree(s, r) }

func sameGUIDPort(s sighting, r *Record) bool {
	return !r.Reserved && sameGUID(s, r) && s.Port == r.Port && s.Bond == r.Bond
}

func sameGUID(s sighting, r *Record) bool { return s.NodeGUID != "" && s.NodeGUID == r.NodeGUID }

func guidsAgree(s sighting, r *Record) bool {
	return s.NodeGUID == "" || r.NodeGUID == "" || s.NodeGUID == r.NodeGUID
}

// sameName matches a port without place and GUID, as all are while the kernel adds the device, and a reservation that
// was made without them.
func sameName(s sighting, r *Record) bool {
	switch {
	case s.Device != r.Device:
		return false
	case r.Reserved:
		return r.Place == "" && r.NodeGUID == ""
	}
	return s.Port == r.Port && s.Bond == r.Bond && s.Place == "" && s.NodeGUID == ""
}

// endReservations drops reservations of devices that answered and have no rail, such as virtual functions.
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

func (m *matching) update() {
	for i, s := range m.seen {
		r := m.of[i]
		if s.kind != examinedPort || r == nil {
			continue
		}
		r.Device, r.Port, r.PCIAddress, r.Synthetic = s.Device, s.Port, s.PCIAddress, s.Synthetic
		r.Reserved, r.Superseded = false, false
		r.Place, r.NodeGUID = cmp.Or(s.Place, r.Place), cmp.Or(s.NodeGUID, r.NodeGUID)
		for _, other := range m.registry.records {
			if !m.held[other] && s.Place != "" && other.Place == s.Place && other.Port == s.Port {
				other.Superseded = true
			}
		}
	}
}

func (m *matching) number() {
	for i, s := range m.seen {
		if m.of[i] != nil || s.kind == excludedDevice {
			continue
		}
		r := s.Record
		r.Port, r.Reserved = max(s.Port, 1), s.kind == unexamined
		r.Number = m.free(m.configured(s.Record))
		m.of[i], m.held[&r] = &r, true
		m.registry.records = append(m.registry.records, &r)
	}
}

// free returns the lowest number that is neither used nor a configured name, except the port's own name.
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

func (m *matching) configured(r Record) string {
	if name := cmp.Or(m.names[Key(r.Device, r.Port)], m.names[Key(r.PCIAddress, r.Port)]); name != "" {
		return name
	}
	given := func(s sighting) bool { return Key(s.Device, max(s.Port, 1)) == r.Configured }
	if r.Configured == "" || slices.ContainsFunc(m.seen, given) {
		return ""
	}
	return m.names[r.Configured] // udev renamed the device
}

// resolveCollisions renumbers a rail whose number equals the configured name of another one.
func (m *matching) resolveCollisions() {
	given := slices.Collect(maps.Values(m.names))
	for _, r := range m.registry.records {
		if number := strconv.Itoa(r.Number); slices.Contains(given, number) && m.configured(*r) != number {
			r.Number = m.free("")
		}
	}
}

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

// missing returns the known rails that are absent: remembered ones, and those that were never seen but have a
// configured name. If its name is among present, the names in use, a remembered rail is listed by its number.
func (m *matching) missing(absent absence, present []string) (list []Missing) {
	known := map[string]bool{}
	for _, r := range m.registry.records {
		name := m.configured(*r)
		known[name] = true
		if name == "" || slices.Contains(present, name) {
			name = strconv.Itoa(r.Number)
		}
		if !m.held[r] && !r.Reserved && !absent.explains(r) {
			list = append(list, Missing{name, r.Device, r.Port, r.PCIAddress})
		}
	}
	for key, name := range m.names {
		device, port := splitKey(key)
		there := func(s sighting) bool { // possibly under another name
			return (s.Device == device || s.PCIAddress == device) && (s.kind != examinedPort || s.Port == port)
		}
		leftOut := func(l LeftOut) bool { return l.Device == device && l.Port == port }
		if known[name] || absent.bonded[device] || slices.ContainsFunc(m.seen, there) ||
			slices.ContainsFunc(absent.leftOut, leftOut) {
			continue
		}
		gone := Missing{Name: name, Device: device, Port: port}
		if bdf.MatchString(device) {
			gone.Device, gone.PCIAddress = "", device
		}
		list = append(list, gone)
	}
	slices.SortFunc(list, func(a, b Missing) int { return NaturalCompare(a.Name, b.Name) })
	return list
}

// bound drops the oldest records of absent rails if there are too many.
func (g *registry) bound(held map[*Record]bool) {
	for excess := len(g.records) - maxRecords; excess > 0; excess-- {
		i := slices.IndexFunc(g.records, func(r *Record) bool { return !held[r] })
		if i < 0 {
			return
		}
		g.records = slices.Delete(g.records, i, i+1)
	}
}

// away returns the devices of fast paths that the hypervisor has currently removed.
func (g *registry) away(present []Rail) (devices []string) {
	for _, r := range g.records {
		here := func(o Rail) bool { return o.Device == r.Device }
		if r.Synthetic && !slices.ContainsFunc(present, here) {
			devices = append(devices, r.Device)
		}
	}
	return devices
}

// list returns the records that [CheckRecords] accepts.
func (g *registry) list() []Record {
	list := make([]Record, 0, len(g.records))
	for _, r := range g.records {
		if len(list) < maxRecords && r.check() == nil {
			list = append(list, *r)
		}
	}
	return list
}
