package rail

import (
	"fmt"
	"testing"
)

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
