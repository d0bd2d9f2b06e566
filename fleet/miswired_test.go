package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/fleet"
)

// TestMiswired: a rail is named if the nodes that are wired alike agree that it is elsewhere, and only then.
func TestMiswired(t *testing.T) {
	// wire wires nodes of a pod: rail i to leaf POD-i.
	wire := func(s fleet.State, cluster, pod string, nodes, rails int) {
		for n := range nodes {
			for r := range rails {
				s.Leaves[rail(cluster, pod, n, r)] = fmt.Sprint(pod, r)
			}
		}
	}
	for _, tc := range []struct {
		name string
		set  func(fleet.State)
		want string
	}{
		{"nothing known", func(fleet.State) {}, ""},
		{"as planned", func(s fleet.State) { wire(s, "a", "p", 8, 8); wire(s, "a", "q", 8, 8) }, ""},
		{"one cable in the next switch", func(s fleet.State) {
			wire(s, "a", "p", 8, 8)
			s.Leaves[rail("a", "p", 3, 5)] = "p6"
		}, "a/p3 rail 5 on p6, usual p5 (7 of 7)"},
		{"one cable in the other pod", func(s fleet.State) {
			wire(s, "a", "p", 8, 8)
			wire(s, "a", "q", 8, 8)
			s.Leaves[rail("a", "p", 3, 5)] = "q5"
		}, "a/p3 rail 5 on q5, usual p5 (7 of 7)"},
		{"two cables changed places", func(s fleet.State) {
			wire(s, "a", "p", 8, 2)
			s.Leaves[rail("a", "p", 3, 0)], s.Leaves[rail("a", "p", 3, 1)] = "p1", "p0"
		}, "a/p3 rail 0 on p1, usual p0 (7 of 7); a/p3 rail 1 on p0, usual p1 (7 of 7)"},
		{"the same fault at two nodes", func(s fleet.State) {
			wire(s, "a", "p", 9, 8)
			s.Leaves[rail("a", "p", 3, 5)], s.Leaves[rail("a", "p", 4, 5)] = "p6", "p6"
		}, "a/p3 rail 5 on p6, usual p5 (7 of 8); a/p4 rail 5 on p6, usual p5 (7 of 8)"},
		{"all rails of a node on the switch of its rack, but one", func(s fleet.State) {
			for n := range 5 {
				for r := range 8 {
					s.Leaves[rail("a", "p", n, r)], s.Leaves[rail("a", "q", n, r)] = "rack1", "rack2"
				}
			}
			s.Leaves[rail("a", "p", 3, 5)] = "rack2"
		}, "a/p3 rail 5 on rack2, usual rack1 (4 of 4)"},
		{"some rails are unknown", func(s fleet.State) {
			wire(s, "a", "p", 8, 8)
			s.Leaves[rail("a", "p", 3, 5)] = "p6"
			for r := range 3 {
				delete(s.Leaves, rail("a", "p", 3, r))
			}
		}, "a/p3 rail 5 on p6, usual p5 (7 of 7)"},
		{"one of two rails between pods: either could be wrong", func(s fleet.State) {
			wire(s, "a", "p", 30, 2)
			wire(s, "a", "q", 4, 2)
			s.Leaves[rail("a", "p", 3, 1)] = "q1"
		}, ""},
		{"a node of one rail", func(s fleet.State) {
			wire(s, "a", "p", 8, 1)
			s.Leaves[rail("a", "p", 3, 0)] = "q0"
		}, ""},
		{"too few equals", func(s fleet.State) {
			wire(s, "a", "p", 3, 8)
			s.Leaves[rail("a", "p", 2, 5)] = "p6"
		}, ""},
		{"half of the nodes are wired differently", func(s fleet.State) {
			wire(s, "a", "p", 8, 8)
			for n := range 4 {
				s.Leaves[rail("a", "p", n, 5)] = "p6"
			}
		}, ""},
		{"another cluster with the same names", func(s fleet.State) {
			wire(s, "a", "p", 8, 8)
			wire(s, "b", "p", 2, 8)
			s.Leaves[rail("b", "p", 0, 5)] = "p6"
		}, ""},
		{"no pattern", func(s fleet.State) {
			for n := range 40 {
				for r := range 8 {
					s.Leaves[rail("a", "p", n, r)] = fmt.Sprint("leaf-", (n*7+r*r*(n%5+1))%12)
				}
			}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fleet.NewState()
			tc.set(s)
			var got []string
			for _, m := range fleet.NewShown(s, fleet.Answers{}).Miswired {
				got = append(got, fmt.Sprintf("%s rail %s on %s, usual %s (%d of %d)", m.String(), m.Rail.Rail, m.Leaf,
					m.Usual, m.Agree, m.Equals))
			}
			if text := strings.Join(got, "; "); text != tc.want {
				t.Errorf("%q, want %q", text, tc.want)
			}
		})
	}
}

// TestMiswiredText: people see the first rails, programs see all, and drain sees none.
func TestMiswiredText(t *testing.T) {
	s := fleet.NewState()
	for n := range 100 {
		for r := range 8 {
			s.Leaves[rail("", "p", n, r)] = fmt.Sprint("leaf-", r)
		}
	}
	for n := range 20 {
		s.Leaves[rail("", "p", n, 0)] = "leaf-1"
	}
	shown := fleet.NewShown(s, fleet.Answers{})
	var table, page, drain strings.Builder
	for _, err := range []error{shown.WriteTable(&table, false), shown.WriteHTML(&page), shown.WriteDrain(&drain)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const first = "miswired: rail 0 of p0 is plugged into leaf-1, and that of 80 of 99 nodes wired alike into leaf-0"
	for name, text := range map[string]string{"table": table.String(), "page": page.String()} {
		text = strings.Join(strings.Fields(text), " ")
		if !strings.Contains(text, first) || strings.Count(text, "miswired: ") != 17 ||
			!strings.Contains(text, "miswired: 4 more") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	if len(shown.Miswired) != 20 || drain.Len() > 0 {
		t.Errorf("%d rails, drain %q", len(shown.Miswired), drain.String())
	}
	if !slices.IsSortedFunc(shown.Miswired, func(a, b fleet.Miswired) int { return a.Compare(b.Rail) }) {
		t.Error("not sorted")
	}
}

func rail(cluster, pod string, node, rail int) fleet.Rail {
	return fleet.Rail{Node: fleet.Node{Cluster: cluster, Name: fmt.Sprint(pod, node)}, Rail: fmt.Sprint(rail)}
}
