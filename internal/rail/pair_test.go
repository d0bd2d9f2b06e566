package rail

import (
	"fmt"
	"strings"
	"testing"
)

// TestPairs: rails are paired by name and subnet, then by subnet, then by name, and each has one partner.
func TestPairs(t *testing.T) {
	for _, tc := range []struct {
		why         string
		here, there []string // name and subnet of each rail
		want        string
	}{
		{"the same order", []string{"0 a", "1 b"}, []string{"0 a", "1 b"}, "[0 1]"},
		{"another order", []string{"0 a", "1 b"}, []string{"1 b", "0 a"}, "[1 0]"},
		{"crossed cables", []string{"0 a", "1 b"}, []string{"0 b", "1 a"}, "[1 0]"},
		{"one subnet", []string{"0 a", "1 a"}, []string{"1 a", "0 a"}, "[1 0]"},
		{"one subnet, other names", []string{"0 a", "1 a"}, []string{"8 a", "9 a"}, "[0 1]"},
		{"routed", []string{"0 a", "1 b"}, []string{"1 d", "0 c"}, "[1 0]"},
		{"fewer there", []string{"0 a", "1 b"}, []string{"1 b"}, "[-1 0]"},
		{"fewer here", []string{"1 b"}, []string{"0 a", "1 b"}, "[1]"},
		{"nothing in common", []string{"0 a"}, []string{"1 b"}, "[-1]"},
	} {
		same := func(part int) func(i, j int) bool {
			return func(i, j int) bool { return strings.Fields(tc.here[i])[part] == strings.Fields(tc.there[j])[part] }
		}
		if got := fmt.Sprint(Pairs(len(tc.here), len(tc.there), same(0), same(1))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
	}
}

// TestSurplus: rails that have no partner because the other node has fewer rails, or because they lead to a third node.
func TestSurplus(t *testing.T) {
	for _, tc := range []struct {
		why           string
		pairs         []int
		roles, theirs []string // roles of rails 0, 1, …
		want          string
	}{
		{"all paired", []int{0, 1}, []string{Compute, Compute}, []string{Compute, Compute}, "[]"},
		{"fewer", []int{-1, 0, -1}, []string{Compute, Compute, Compute}, []string{Compute}, "[0 2]"},
		{"none paired", []int{-1, -1}, []string{Compute, Compute}, []string{"storage"}, "[]"},
		{"as many", []int{0, -1}, []string{Compute, Compute}, []string{Compute, "storage"}, "[]"},
		{"one is left there", []int{0, -1, -1}, []string{Compute, Compute, Compute}, []string{Compute, Compute}, "[]"},
		{"one of another role is left there", []int{0, -1, -1}, []string{Compute, Compute, "storage"},
			[]string{Compute, "storage"}, "[1]"},
		{"one of unknown role is left there", []int{0, -1, -1}, []string{Compute, Compute, "storage"},
			[]string{Compute, ""}, "[]"},
	} {
		ends := func(roles []string) (list []End) {
			for i, role := range roles {
				list = append(list, End{Name: fmt.Sprint(i), Role: role})
			}
			return list
		}
		if got := fmt.Sprint(Surplus(tc.pairs, ends(tc.roles), ends(tc.theirs))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
	}
}

// TestThirdNode: in a ring of three nodes with crossed cables, the rails to the third one have no partner, which is no
// fault. A rail without an address may be the partner.
func TestThirdNode(t *testing.T) {
	ends := func(names ...string) (list []End) {
		for _, name := range names {
			bare, ok := strings.CutSuffix(name, "-")
			list = append(list, End{Name: bare, Role: Compute, Addressed: !ok})
		}
		return list
	}
	for _, tc := range []struct {
		why         string
		pairs       []int
		own, theirs []End
		want        string
	}{
		{"a ring", []int{1, -1, 3, -1}, ends("0", "1", "2", "3"), ends("0", "1", "2", "3"), "[1 3]"},
		{"the same from the other end", []int{-1, 0, -1, 2}, ends("0", "1", "2", "3"), ends("0", "1", "2", "3"), "[0 2]"},
		{"a rail of the peer without an address", []int{1, -1}, ends("0", "1"), ends("0-", "1"), "[]"},
		{"our rail without an address", []int{1, -1}, ends("0", "1-"), ends("0", "1"), "[]"},
		{"other names and other subnets", []int{0, -1}, ends("0", "1"), ends("a", "b"), "[]"},
		{"nothing paired", []int{-1, -1}, ends("0", "1"), ends("0", "1"), "[]"},
	} {
		if got := fmt.Sprint(Surplus(tc.pairs, tc.own, tc.theirs)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
	}
}
