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

// TestSurplus: rails that have no partner because the other node has fewer rails.
func TestSurplus(t *testing.T) {
	for _, tc := range []struct {
		why           string
		pairs         []int
		roles, theirs []string
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
		if got := fmt.Sprint(Surplus(tc.pairs, tc.roles, tc.theirs)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
	}
}
