package expect

import (
	"cmp"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// reading holds the current values of a port; unknown or meaningless values are 0.
type reading struct {
	rate float64
	link rail.Link
	mtu  int
}

// common returns the values that two readings have in common. A single reading may be of a port that is not ready.
func (r reading) common(o reading) reading {
	r.rate, r.mtu = min(r.rate, o.rate), min(r.mtu, o.mtu)
	if better(r.link, o.link) {
		r.link = o.link
	}
	return r
}

func better(a, b rail.Link) bool { return a.BytesPerSecond() > b.BytesPerSecond() }

// find returns what is remembered of each rail, nil if nothing is, and its GUID, empty if it identifies no device. The
// finder recognizes ports by the same rule.
func (m *Memory) find(rails []rail.Rail) (ports []*Port, guids []string) {
	seen, known := make([]rail.Record, len(rails)), make([]*rail.Record, len(m.Ports))
	for i, r := range rails {
		seen[i] = rail.Record{Port: r.Port, Place: r.Place, NodeGUID: r.NodeGUID, Bond: r.Members > 0}
	}
	for i, p := range m.Ports {
		known[i] = &rail.Record{Port: p.Port, Place: p.Place, NodeGUID: p.NodeGUID, Bond: p.Bond}
	}
	for i, r := range rail.Recognize(seen, known) {
		ports, guids = append(ports, nil), append(guids, seen[i].NodeGUID)
		if at := slices.Index(known, r); at >= 0 && Hardware(rails[i]) {
			ports[i] = &m.Ports[at]
		}
	}
	return ports, guids
}

// expected returns the expectations of the rails, in their order.
func (m *Memory) expected(c Config, rails []rail.Rail) []Rail {
	list := make([]Rail, len(rails))
	known, _ := m.find(rails)
	for i, p := range known {
		if p != nil {
			list[i] = Rail{Rate: p.Rate.figure(), Link: p.Link.figure(), MTU: p.MTU.figure(), WasUp: p.Rate != nil}
		}
		if c.Rate > 0 {
			list[i].Rate = Figure[float64]{Value: c.Rate, Source: Configured}
		}
		if c.MTU > 0 {
			list[i].MTU = Figure[int]{Value: c.MTU, Source: Configured}
		}
	}
	return list
}

// learn raises the best values to those seen, and reports whether anything has changed.
func (m *Memory) learn(rails []rail.Rail, seen []reading, now time.Time) (changed bool) {
	known, guids := m.find(rails)
	var added []Port
	for i, r := range rails {
		if !Hardware(r) || r.Place == "" || seen[i] == (reading{}) {
			continue
		}
		p := known[i]
		if p == nil {
			added = append(added, Port{Port: r.Port, Bond: r.Members > 0})
			p = &added[len(added)-1]
		}
		before := *p
		p.Place, p.PCIAddress = r.Place, r.PCIAddress
		p.NodeGUID = cmp.Or(guids[i], p.NodeGUID)
		changed = p.learn(seen[i], now) || before != *p || changed
	}
	m.Ports = append(m.Ports, added...)
	for len(m.Ports) > maxPorts {
		present, _ := m.find(rails)
		m.drop(present)
	}
	return changed
}

// drop removes the absent port that was seen least recently; if all are present, the last of the list.
func (m *Memory) drop(present []*Port) {
	oldest := len(m.Ports) - 1
	for i := range m.Ports {
		if slices.Contains(present, &m.Ports[i]) {
			continue
		}
		if slices.Contains(present, &m.Ports[oldest]) || m.Ports[i].last().Before(m.Ports[oldest].last()) {
			oldest = i
		}
	}
	m.Ports = slices.Delete(m.Ports, oldest, oldest+1)
}

func (p Port) last() (last time.Time) {
	for _, t := range []time.Time{p.Rate.figure().Last, p.Link.figure().Last, p.MTU.figure().Last} {
		if t.After(last) {
			last = t
		}
	}
	return last
}

func (p *Port) learn(r reading, now time.Time) (changed bool) {
	rate := raise(&p.Rate, r.rate, func(a, b float64) bool { return a > b }, now)
	link := raise(&p.Link, r.link, better, now)
	mtu := raise(&p.MTU, r.mtu, func(a, b int) bool { return a > b }, now)
	return rate || link || mtu
}

// learnGPUs is like learn, for the addresses of the GPUs: the largest number seen is remembered.
func (m *Memory) learnGPUs(addresses []string, now time.Time) (changed bool) {
	switch {
	case len(addresses) == 0 || len(addresses) > maxGPUs:
	case m.GPUs == nil || len(addresses) > len(m.GPUs.Value):
		m.GPUs = &Seen[[]string]{Value: addresses, Since: now, Last: now}
		return true
	case len(addresses) == len(m.GPUs.Value) && (laterDay(now, m.GPUs.Last) || !slices.Equal(addresses, m.GPUs.Value)):
		m.GPUs.Value, m.GPUs.Last = addresses, now // bus numbers may shift
		return true
	}
	return false
}

// raise sets the best value to v if v is better, and the day on which it was last seen. It reports a change.
func raise[T comparable](best **Seen[T], v T, better func(a, b T) bool, now time.Time) bool {
	var none T
	switch b := *best; {
	case v == none:
	case b == nil || better(v, b.Value):
		*best = &Seen[T]{Value: v, Since: now, Last: now}
		return true
	case !better(b.Value, v) && laterDay(now, b.Last):
		b.Last = now
		return true
	}
	return false
}

// laterDay reports whether now is on a later day than last (UTC), so that an unchanged value is written once a day.
func laterDay(now, last time.Time) bool {
	const day = 24 * time.Hour
	return now.UTC().Truncate(day).After(last.UTC().Truncate(day))
}
