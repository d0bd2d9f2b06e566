package bench

import (
	"slices"
	"strings"

	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/probe/result"
)

// ratios compares all rails with the best single rail, and one rail with one TCP stream over it.
func ratios(rows []suite.Row) []suite.Ratio {
	list := []suite.Ratio{}
	add := func(name string, row, of suite.Row) {
		if row.Goodput != nil && of.Goodput != nil && *of.Goodput > 0 {
			list = append(list, suite.Ratio{Name: name, Row: row.Name, Of: of.Name, Ratio: *row.Goodput / *of.Goodput})
		}
	}
	for _, row := range rows {
		what, all := strings.CutPrefix(row.Name, allRails)
		var best suite.Row
		for _, r := range rows {
			if all && len(row.Rails) > 1 && len(r.Rails) == 1 && r.Goodput != nil && r.Memory == row.Memory &&
				r.Name == "rail "+r.Rails[0]+", "+what && (best.Goodput == nil || *r.Goodput > *best.Goodput) {
				best = r
			}
		}
		add("all ÷ one rail", row, best)
	}
	for _, tcp := range rows {
		if tcp.Transport != string(result.TCP) || tcp.Streams != 1 || len(tcp.Rails) != 1 {
			continue
		}
		name := "rail " + tcp.Rails[0] + ", WRITE"
		if i := slices.IndexFunc(rows, func(row suite.Row) bool { return row.Name == name }); i >= 0 {
			add("one rail ÷ TCP", rows[i], tcp)
		}
	}
	return list
}

// allRails is the prefix of the names of rows of all rails.
const allRails = "all rails, "
