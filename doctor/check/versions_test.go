package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/rail"
)

func TestOrderOfVersions(t *testing.T) {
	want := []string{"", "0.4.1", "1.9", "1.16.0", "1.16.1", "2.9.1", "2.21.5", "2.21.5.1", "10"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, rail.NaturalCompare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
