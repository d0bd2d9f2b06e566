package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/test/faults"
)

// TestFaultsComplete: each check has a fault that it must find, or a reason why it has none.
func TestFaultsComplete(t *testing.T) {
	found := map[string]bool{}
	for _, f := range faults.List() {
		for _, want := range append(slices.Clone(f.Beside), f.Want) {
			if words := strings.Fields(strings.ReplaceAll(want, ",", " ")); len(words) > 1 {
				found[words[1]] = true
			}
		}
	}
	exempt, names := faults.Exempt(), check.Names()
	for _, name := range names {
		if found[name] == (exempt[name] != "") {
			t.Errorf("%s: has a fault: %t, exempt: %q", name, found[name], exempt[name])
		}
	}
	for name := range exempt {
		if !slices.Contains(names, name) {
			t.Errorf("%s is exempt, and no check", name)
		}
	}
}
