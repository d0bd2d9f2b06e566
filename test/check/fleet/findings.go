package main

import (
	"fmt"
	"strconv"
)

// findings are what the checks of the node find.
func (n node) findings() {
	for _, f := range []struct {
		check, severity string
		node, rail      int
		since           float64
	}{
		{"link_errors", "warning", slow, slowRail, slowSince},
		{"lossy_rail", "warning", slow, slowRail, slowSince},
		{"goodput_below_expected", "critical", slow, slowRail, slowSince},
		{"port_down", "critical", dead, deadRail, deadSince},
		{"gid_misbound", "critical", misbound, misboundRail, misboundSince},
	} {
		if f.node == n.n {
			n.gauge("finding", is(1), "check", f.check, "severity", f.severity, "subject", fmt.Sprint("rail ", f.rail),
				"rail", strconv.Itoa(f.rail)).only(func(t float64) bool { return n.before(t) < f.since-2 })
		}
	}
}
