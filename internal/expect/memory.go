package expect

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// reading is what a port is now; what is not known, or has no meaning, is 0.
type reading struct {
	rate float64
	link rail.Link
	mtu  int
}

// common is what two readings agree on at least. What is seen once may be a port that is not ready.
func (r reading) common(o reading) reading {
	r.rate, r.mtu = min(r.rate, o.rate), min(r.mtu, o.mtu)
	if better(r.link, o.link) {
		r.link = o.link
	}
	return r
}

func better(a, b rail.Link) bool { return a.BytesPerSecond() > b.BytesPerSecond() }

// find returns what is remembered of each rail, nil if nothing is. A port is recognised as the finder recognises it
// ([rail.Record]): by its place, else by its GUID, else by its place although the card is another one.
func (m *Memory) find(rails []rail.Rail) []*Port {
	of, held, guids := make([]*Port, len(rails)), make([]bool, len(m.Ports)), guidsOf(rails)
	match := func(fits func(place, guid string, p *Port) bool) {
		for i := range rails {
			r := &rails[i]
			if of[i] != nil || !Hardware(*r) {
				continue
			}
			for j := range m.Ports {
				p := &m.Ports[j]
				if !held[j] && p.Port == r.Port && p.Bond == (r.Members > 0) && fits(r.Place, guids[i], p) {
					of[i], held[j] = p, true
					break
				}
			}
		}
	}
	match(func(place, guid string, p *Port) bool {
		return p.Place == place && (guid == "" || p.NodeGUID == "" || p.NodeGUID == guid)
	})
	match(func(_, guid string, p *Port) bool { return guid != "" && p.NodeGUID == guid })
	match(func(place, _ string, p *Port) bool { return p.Place == place })
	return of
}

// guidsOf returns the node GUID of each rail, empty if it does not identify one device.
func guidsOf(rails []rail.Rail) []string {
	guids, device := make([]string, len(rails)), map[string]string{}
	for i := range rails {
		r := &rails[i]
		if strings.Trim(r.NodeGUID, "0:") == "" {
			continue
		}
		guids[i] = strings.ToLower(r.NodeGUID)
		if other, known := device[guids[i]]; known && other != r.Device {
			device[guids[i]] = "" // several have it
			continue
		}
		device[guids[i]] = r.Device
	}
	for i := range guids {
		if device[guids[i]] != rails[i].Device {
			guids[i] = ""
		}
	}
	return guids
}

// expected returns what is expected of the rails, in their order.
func (m *Memory) expected(c Config, rails []rail.Rail) []Rail {
	list := make([]Rail, len(rails))
	for i, p := range m.find(rails) {
		if p != nil {
			list[i] = Rail{Rate: p.Rate.figure(), Link: p.Link.figure(), MTU: p.MTU.figure()}
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

// learn raises the best to what was seen of the rails, and reports whether anything has changed.
func (m *Memory) learn(rails []rail.Rail, seen []reading, now time.Time) (changed bool) {
	known, guids := m.find(rails), guidsOf(rails)
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
		m.drop(m.find(rails))
	}
	return changed
}

// drop drops the absent port that was seen least recently; without one, the last of the list.
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

// learnGPUs is learn for the addresses of the GPUs. The most that were seen are remembered.
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

// raise sets the best to v if v is better, and the day on which it was seen last. It reports a change.
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

// laterDay reports whether it is a later day (UTC). The file is not written more often for a value that stays.
func laterDay(now, last time.Time) bool {
	const day = 24 * time.Hour
	return now.UTC().Truncate(day).After(last.UTC().Truncate(day))
}
