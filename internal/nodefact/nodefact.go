// Package nodefact is the form of what equal nodes should have in common: short texts that can be compared.
package nodefact

import "strings"

// Fact is what is known of a node about one subject.
type Fact struct{ Subject, Value string }

// Subjects of hardware. Nodes with the same models have one role.
const (
	Adapters = "adapters"
	GPUs     = "gpus"
)

// Part is a part of a value.
type Part struct{ Name, Value string }

// Join returns a value that [Fact.Parts] divides. Parts without a value are unknown.
func Join(parts []Part) string {
	var list []string
	for _, p := range parts {
		if p.Value != "" {
			list = append(list, p.Name+"="+strings.ReplaceAll(p.Value, ";", ","))
		}
	}
	return strings.Join(list, "; ")
}

// Parts divides a fact into those that are compared. Several settings in one value become one fact each, such as
// qos.pfc.
func (f Fact) Parts() (list []Fact) {
	for one := range strings.SplitSeq(f.Value, "; ") {
		name, value, ok := strings.Cut(one, "=")
		if !ok {
			return []Fact{f}
		}
		list = append(list, Fact{f.Subject + "." + name, value})
	}
	return list
}

// Whole returns the subject of the fact of which a fact may be a part.
func Whole(subject string) string {
	whole, _, _ := strings.Cut(subject, ".")
	return whole
}
