package collector

import (
	"math"
	"slices"
)

// Table is the rows of a source, in the order in which they are described. A source makes it once:
//
//	port := t.Group(refABI, "rail", "device", "port")
//	t.up = port.Gauge("port_up", "1 while the port is ACTIVE, 0 in any other state.", "state")
//	t.mtu = port.With("kind").Gauge("port_mtu_bytes", "…", "mtu")
type Table struct {
	Source string // its name
	rows   []*Metric
}

// Name implements [Source].
func (t *Table) Name() string { return t.Source }

// Metrics implements [Source].
func (t *Table) Metrics() []*Metric { return t.rows }

// Group starts a group of rows that have labels in common. ref is where their meaning is documented.
func (t *Table) Group(ref string, labels ...string) Group {
	return Group{table: t, ref: ref, labels: labels}
}

// Group adds rows with common labels and a common reference to a table.
type Group struct {
	table  *Table
	ref    string
	labels []string
	from   []Origin
}

// With is the group with more labels.
func (g Group) With(labels ...string) Group {
	g.labels = slices.Concat(g.labels, labels)
	return g
}

// Ref is the group with another reference.
func (g Group) Ref(ref string) Group {
	g.ref = ref
	return g
}

// From is the group whose rows have these origins first, and then their own names.
func (g Group) From(origins ...Origin) Group {
	g.from = slices.Concat(g.from, origins)
	return g
}

// Scaled is [Group.From] for a number that scale converts to the base unit.
func (g Group) Scaled(scale float64, name string) Group {
	return g.From(Origin{Name: name, Scale: scale})
}

// Counter adds a row of values that only grow; its name ends in _total. Like the following methods it takes the
// kernel's names for 64-bit numbers in the base unit, of which the first that a device has is used.
func (g Group) Counter(name, help string, from ...string) *Metric {
	return g.add(Counter, name, help, from)
}

// Gauge adds a row of values that go up and down.
func (g Group) Gauge(name, help string, from ...string) *Metric {
	return g.add(Gauge, name, help, from)
}

// Untyped adds a row of values whose type the kernel does not document.
func (g Group) Untyped(name, help string, from ...string) *Metric {
	return g.add(Untyped, name, help, from)
}

// Histogram adds a row whose values the exporter keeps.
func (g Group) Histogram(name, help string, from ...string) *Metric {
	return g.add(Histogram, name, help, from)
}

func (g Group) add(kind Kind, name, help string, from []string) *Metric {
	m := &Metric{Name: name, Help: help, Kind: kind, Labels: g.labels, From: slices.Clone(g.from), Ref: g.ref}
	for _, name := range from {
		m.From = append(m.From, Origin{Name: name})
	}
	g.table.rows = append(g.table.rows, m)
	return m
}

// Value converts the kernel's number to the base unit. It divides by a scale below 1: 3 µs are 3e-06, not 2.99…97e-06.
func (o Origin) Value(raw uint64) float64 {
	switch {
	case o.Scale == 0:
		return float64(raw)
	case o.Scale < 1:
		return float64(raw) / math.Round(1/o.Scale)
	}
	return float64(raw) * o.Scale
}

// Bool is 1 for true and 0 for false.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
