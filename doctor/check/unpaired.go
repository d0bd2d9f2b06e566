package check

import (
	"fmt"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// unpaired is the check for rails without a partner because the other node has fewer, or because they lead to a third
// node, in a round or between two nodes.
const unpaired = "unpaired"

// unpairedRails returns the finding about these rails. there and here are the numbers of rails on the two nodes.
func unpairedRails(names []string, peer string, there int, node string, here int) finding.Finding {
	verb := "is"
	if len(names) > 1 {
		verb = "are"
	}
	if there >= here {
		return finding.Finding{Subject: namedRails(names),
			Evidence: fmt.Sprintf("%s %s unpaired: no subnet in common with a free rail of %s, and other rails are "+
				"cabled crosswise", namedRails(names), verb, peer),
			Why: "Only rails with a partner carry traffic between the two nodes, and only these are judged.",
			Fix: []string{note("none if they lead to a third node, as in a ring without a switch; else give both " +
				"ends of each cable addresses in one subnet: railscope rails on both nodes")}}
	}
	return finding.Finding{Subject: namedRails(names),
		Evidence: fmt.Sprintf("%s %s unpaired: %s has %s, %s %d", namedRails(names), verb, peer,
			terminal.Count(there, "rail"), node, here),
		Why: "Only rails with a partner carry traffic between the two nodes, and only these are judged.",
		Fix: []string{note("none if %s has fewer rails on purpose; else compare railscope rails on both nodes. "+
			"Exclude rails that no peer has by rails.exclude in the configuration", peer)}}
}

func checkUnpaired(r *result.Result, report reporter) {
	if names := r.Unpaired(); len(names) > 0 {
		report(unpairedRails(names, r.Peer, r.PeerRails, "this node", len(r.Rails)))
	}
}

// checkPeerUnpaired leaves missing rails to the examination of their own node.
func checkPeerUnpaired(here, there *facts.Facts, report reporter) {
	for _, ends := range [][2]*facts.Facts{{here, there}, {there, here}} {
		more, fewer := ends[0], ends[1]
		if names := surplus(more, fewer); len(names) > 0 {
			out := unpairedRails(names, fewer.Node, len(fewer.Rails), more.Node, len(more.Rails))
			out.Node = more.Node
			report(out)
		}
	}
}

// surplus returns the names of a node's rails without a partner although nothing is wrong; see [rail.Surplus].
func surplus(node, other *facts.Facts) (names []string) {
	pairs := rail.Pairs(len(node.Rails), len(other.Rails),
		func(i, j int) bool { return node.Rails[i].Name == other.Rails[j].Name },
		func(i, j int) bool {
			return meet(node.Netdev(node.Rails[i].Netdev).Addresses, other.Netdev(other.Rails[j].Netdev).Addresses)
		})
	for _, i := range rail.Surplus(pairs, endsOf(node), endsOf(other)) {
		name := node.Rails[i].Name
		if !slices.ContainsFunc(other.Missing, func(m rail.Missing) bool { return m.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

func endsOf(f *facts.Facts) (ends []rail.End) {
	for _, r := range f.Rails {
		ends = append(ends, rail.End{Name: r.Name, Role: r.Role,
			Addressed: len(f.Netdev(r.Netdev).Addresses) > 0})
	}
	return ends
}
