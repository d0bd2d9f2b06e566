package collector

import (
	"math"
	"slices"
)

// Table is the rows of a source, in the order in which they are described. A
// source makes it once:
//
//	port := t.Group(refABI, "rail", "device", "port")
//	t.up = port.Gauge("port_up", "1 while the port is ACTIVE, 0 in any other state.", collector.From("state")...)
//	t.mtu = port.With("kind").Gauge("port_mtu_bytes", "…", collector.From("mtu")...)
type Table struct{ rows []*Metric }

// Metrics returns the rows, always the same ones; see [Source].
func (t *Table) Metrics() []*Metric { return t.rows }

// Group starts a group of rows: labels are the names of the labels that all of
// them have, ref is where their meaning is written.
func (t *Table) Group(ref string, labels ...string) Group {
	return Group{table: t, ref: ref, labels: labels}
}

// Group adds rows to a table that have labels and a reference in common.
type Group struct {
	table  *Table
	ref    string
	labels []string
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

// Counter adds a row of values that only grow; its name ends in _total.
func (g Group) Counter(name, help string, from ...Origin) *Metric {
	return g.add(Counter, name, help, from)
}

// Gauge adds a row of values that go up and down.
func (g Group) Gauge(name, help string, from ...Origin) *Metric {
	return g.add(Gauge, name, help, from)
}

// Untyped adds a row of values of which the kernel does not say what they are.
func (g Group) Untyped(name, help string, from ...Origin) *Metric {
	return g.add(Untyped, name, help, from)
}

// Histogram adds a row of which the exporter keeps the values.
func (g Group) Histogram(name, help string, from ...Origin) *Metric {
	return g.add(Histogram, name, help, from)
}

func (g Group) add(kind Kind, name, help string, from []Origin) *Metric {
	m := &Metric{Name: name, Help: help, Kind: kind, Labels: g.labels, From: from, Ref: g.ref}
	g.table.rows = append(g.table.rows, m)
	return m
}

// From makes the origins of a row that is made of 64-bit numbers in the base
// unit: the kernel's names for it, of which the first that a device has is used.
func From(names ...string) []Origin { return Scaled(0, names...) }

// Scaled is [From] for numbers that scale turns into the base unit.
func Scaled(scale float64, names ...string) []Origin {
	list := make([]Origin, len(names))
	for i, name := range names {
		list[i] = Origin{Name: name, Scale: scale}
	}
	return list
}

// Value turns what the kernel says into the base unit. It divides where the
// scale is a fraction, so that 3 microseconds are 3e-06 and not
// 2.9999999999999997e-06.
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
