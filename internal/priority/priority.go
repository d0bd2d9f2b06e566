// Package priority describes what the priorities of a node's adapters carry.
package priority

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/units"
)

// Use is one priority of one rail: a traffic class as adapter and switch see it.
type Use struct {
	Rail     string `json:"rail"`
	Priority string `json:"priority"` // 0 to 7; empty: the adapter does not show how it sorts their packets
	DSCP     string `json:"dscp"`     // DSCPs that lead to it, such as "24,26"; empty: none, or unknown
	Lossless *bool  `json:"lossless"` // PFC is on; null: unknown
	// what the physical port sent on average over 10 minutes, whoever uses it; null: not counted, or no railscope runs
	Sent  *float64 `json:"bytes_per_second"`
	Jobs  []string `json:"jobs"`  // processes whose settings lead to it
	Probe bool     `json:"probe"` // the packets of the probe's last round were in it
}

// Joined is what several rails have alike.
type Joined struct {
	Use            // Use is that of the first rail, but Sent is the sum of all: nil if that of one is unknown
	Rails []string // names of the rails
}

// Complete adds to uses what a running railscope knows: what was sent, where the probe is, and other priorities. It may
// not name processes, as uses does.
func Complete(uses, running []Use) []Use {
	uses = slices.Clone(uses)
	for _, r := range running {
		i := slices.IndexFunc(uses, func(u Use) bool { return u.Rail == r.Rail && u.Priority == r.Priority })
		if i < 0 {
			uses = append(uses, r)
			continue
		}
		uses[i].Sent, uses[i].Probe = r.Sent, r.Probe
	}
	return uses
}

// Cells returns the cells of a row of a table for people: priority, DSCPs, whether it is lossless, rails, the bits sent
// per second, and by whom it is used.
func (j Joined) Cells() []string {
	lossless := "unknown"
	if j.Lossless != nil {
		lossless = map[bool]string{true: "yes", false: "no"}[*j.Lossless]
	}
	sent := "unknown"
	if j.Sent != nil {
		sent = units.Gigabits(*j.Sent)
	}
	users := slices.Clone(j.Jobs)
	if j.Probe {
		users = append(users, "the probe")
	}
	return []string{cmp.Or(j.Priority, "unknown"), cmp.Or(j.DSCP, "-"), lossless, strings.Join(j.Rails, ","), sent,
		cmp.Or(strings.Join(users, ", "), "-")}
}

// Join joins the uses of rails that treat a priority alike, in the order of priorities.
func Join(uses []Use) (list []Joined) {
	alike := func(a, b Use) bool {
		a.Rail, a.Sent, b.Rail, b.Sent = "", nil, "", nil
		return reflect.DeepEqual(a, b)
	}
	for _, u := range uses {
		i := slices.IndexFunc(list, func(j Joined) bool { return alike(j.Use, u) })
		switch {
		case i < 0:
			list = append(list, Joined{u, []string{u.Rail}})
			continue
		case list[i].Sent == nil || u.Sent == nil:
			list[i].Sent = nil
		default:
			list[i].Sent = new(*list[i].Sent + *u.Sent)
		}
		list[i].Rails = append(list[i].Rails, u.Rail)
	}
	slices.SortStableFunc(list, func(a, b Joined) int { return strings.Compare(a.Priority, b.Priority) })
	return list
}
