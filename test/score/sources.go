package main

import (
	"slices"
	"strings"

	"github.com/railscope/railscope/test/faults"
)

// source is some tests that plant faults.
type source struct {
	title string
	about string // what the faults are planted in, and what counts as named
	dir   string // module of the tests, from the root of the repository
	pkg   string
	run   string // regular expression of the tests
	// matrix is set if subtests without a line of their own are rows of the matrix of faults. Otherwise they plant a
	// fault each or, with healthy, none.
	matrix, healthy bool
	each            bool // the page has a row for each fault
}

// sources returns all tests that plant faults, but for the lab's.
func sources() []source {
	return []source{
		{
			title: "Faults of one node", dir: ".", pkg: "./cmd/railscope",
			run: "^(TestFaults|TestFaultsByHand)$", matrix: true, each: true,
			about: "The matrix of `test/faults`, planted in the files, netlink messages and kernel logs of " +
				"captured machines, which the real program reads. Named: the finding under its own name, on its " +
				"own part, within two examinations, with no further critical one, and alike on all surfaces.",
		},
		{
			title: "Faults between two nodes", dir: ".", pkg: "./cmd/railscope",
			run: "^TestFaultsOfRounds$", matrix: true, each: true,
			about: "The matrix, planted between two processes whose adapters are simulated, and found by rounds. " +
				"Named: as above, within three rounds; on a busy machine up to four times that.",
		},
		{
			title: "Queue pairs that fail", dir: ".", pkg: "./internal/fingerprint",
			run: "^TestWatch$",
			about: "Counters as they rose on real adapters ([Counters](counters.md)), replayed in virtual time at " +
				"any phase of the readings, several faults at once among them. Named: what is said, or that it " +
				"cannot be told apart.",
		},
		{
			title: "Machines", dir: ".", pkg: "./internal/machines",
			run: "^TestZoo$", healthy: true,
			about: "Each [machine](machines.md) that others have described. Accused: a rail, a port or a finding " +
				"differs from what that machine has.",
		},
		{
			title: "Days of healthy machines", dir: ".", pkg: "./internal/machines",
			run: "^TestDay$", healthy: true,
			about: "A day of ten machines in virtual time: jobs, reboots, new drivers, maintenance. Accused: any " +
				"finding that the day does not have.",
		},
		{
			title: "Alerts on those days", dir: "test/check", pkg: "./rules",
			run: "^TestDay$", healthy: true,
			about: "The same days, evaluated by Prometheus' own engine. Accused: an alert fires.",
		},
		{
			title: "Alerts of incidents", dir: "test/check", pkg: "./rules",
			run: "^TestIncidents$",
			about: "Incidents on 60 generated nodes, evaluated by Prometheus' own engine. Named: exactly the " +
				"alerts that [Alerts](alerts.md) lists, at their times.",
		},
		{
			title: "`fleet blame`", dir: ".", pkg: "./fleet",
			run: "^TestBlame$",
			about: "200 generated fleets of 10 to 1,000 nodes with 8 rails, 1 to 5 faults in each, 5 % of the " +
				"figures missing. Named: kind, node and rail, or leaf, or pair.",
		},
		{
			title: "`fleet blame` as recording rules", dir: "test/check", pkg: "./blame",
			run:   "^TestRules$",
			about: "24 generated fleets of 40 nodes with one fault, evaluated by Prometheus' own engine.",
		},
		{
			title: "`fleet drift`", dir: ".", pkg: "./fleet",
			run: "^TestDriftAtScale$",
			about: "1,000 generated nodes of four kinds, a roll-out that has reached 40 %, 5 % of the facts " +
				"unreadable. Named: node and subject.",
		},
		{
			title: "`fleet why`", dir: ".", pkg: "./fleet/why",
			run: "^TestPlanted$",
			about: "1,000 generated jobs on 4 to 64 nodes, with one fault or none. Named: the node is in the one " +
				"line with the likeliest cause.",
		},
		{
			title: "`fleet gate`", dir: ".", pkg: "./fleet/gate",
			run: "^(TestGate|TestLiarAboutRails|TestLargeGate)$", each: true,
			about: "Generated nodes with 8 rails in virtual time. Named: exactly the nodes to leave out, those " +
				"that are unknown, and the part to blame.",
		},
	}
}

// ofMatrix returns the row of the matrix that is planted in a subtest, and its place.
func ofMatrix(subtest string) (f faults.Fault, place int, ok bool) {
	list := faults.List()
	place = slices.IndexFunc(list, func(f faults.Fault) bool { return strings.ReplaceAll(f.Name, " ", "_") == subtest })
	if place < 0 {
		return f, 0, false
	}
	return list[place], place, true
}
