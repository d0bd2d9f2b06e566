package rail

import "math"

// ImbalancedAbove is the imbalance above which rails count as imbalanced: one carries less than 75 % of the best.
const ImbalancedAbove = 0.25

// Group is a set of rails that are compared: those with one role, one link layer and one highest rate so far, so
// that a port that trains down stays in its group. Rails of unknown rate (0) join the largest group with their role
// and link layer.
type Group struct {
	Role      string
	LinkLayer string
	Rate      float64 // bytes per second
}

// Load is the traffic of one rail.
type Load struct {
	Group    Group
	Rate     float64 // bytes per second
	Capacity float64 // bytes per second; 0 if unknown
}

// Imbalance returns the highest of [Imbalances]. known is false if there is none.
func Imbalance(loads []Load) (imbalance float64, known bool) {
	for _, of := range Imbalances(loads) {
		imbalance, known = max(imbalance, of), true
	}
	return imbalance, known
}

// Imbalances returns 1 − the smallest share, by role; a role without a share in [Shares] is absent. One rail at 61
// % of the others gives 0.39, one without traffic gives 1, for any number of rails.
func Imbalances(loads []Load) map[string]float64 {
	list := map[string]float64{}
	for i, share := range Shares(loads) {
		if role := loads[i].Group.Role; !math.IsNaN(share) {
			list[role] = max(list[role], 1-share)
		}
	}
	return list
}

// Shares returns each rail's load ÷ capacity relative to the best rail of its group: 1 for the best, 0 for one
// without traffic. It is NaN for a rail that is alone in its group or in a group without traffic, and for a rail of
// unknown capacity if capacities of others in its group are known.
func Shares(loads []Load) []float64 {
	shares := make([]float64, len(loads))
	groups := map[Group][]int{}
	for i, l := range loads {
		shares[i] = math.NaN()
		groups[l.Group] = append(groups[l.Group], i)
	}
	join(groups)
	for _, members := range groups {
		if len(members) > 1 {
			compare(loads, members, shares)
		}
	}
	return shares
}

// join moves rails of unknown rate to the largest group of their link layer; of two equally large groups, to the
// faster one.
func join(groups map[Group][]int) {
	for unknown, members := range groups {
		if unknown.Rate > 0 {
			continue
		}
		largest, most := Group{}, 0
		for g, of := range groups {
			bigger := len(of) > most || len(of) == most && g.Rate > largest.Rate
			if g.Role == unknown.Role && g.LinkLayer == unknown.LinkLayer && g.Rate > 0 && bigger {
				largest, most = g, len(of)
			}
		}
		if most > 0 {
			groups[largest] = append(groups[largest], members...)
			delete(groups, unknown)
		}
	}
}

// compare sets the shares of a group. With fewer than two known capacities, its members count as equal.
func compare(loads []Load, members []int, shares []float64) {
	capacities, moved := 0, false
	for _, i := range members {
		if known(loads[i].Capacity) {
			capacities++
		}
		moved = moved || known(loads[i].Rate)
	}
	if !moved {
		return
	}
	best := 0.0
	for _, i := range members {
		switch l := loads[i]; {
		case !known(l.Rate):
			shares[i] = 0
		case capacities < 2:
			shares[i] = l.Rate
		case known(l.Capacity):
			shares[i] = l.Rate / l.Capacity
		}
		if shares[i] > best { // false for NaN
			best = shares[i]
		}
	}
	for _, i := range members {
		if best > 0 {
			shares[i] /= best
		}
	}
}

func known(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
