package main

import (
	"strings"
	"testing"
)

// TestCompare: a missing, wrong or unknown value is found, and equal values are accepted.
func TestCompare(t *testing.T) {
	const state = `node_infiniband_state_id{device="mlx5_0",port="1"} 4` + "\n"
	for _, tc := range []struct{ name, theirs, ours, wrong string }{
		{"equal", state, `railscope_port_state_id{rail="0",device="mlx5_0",port="1"} 4`, ""},
		{"other value", state, `railscope_port_state_id{rail="0",device="mlx5_0",port="1"} 1`,
			`node_infiniband_state_id{device="mlx5_0", port="1"}: 4, but railscope_port_state_id is 1`},
		{"other port", state, `railscope_port_state_id{rail="0",device="mlx5_0",port="2"} 4`, "no such series"},
		{"no family", state, `railscope_port_up{rail="0",device="mlx5_0",port="1"} 1`, "no such series"},
		{"rounded down", `node_infiniband_lifespan_seconds{device="mlx5_0",port="1"} 1`,
			`railscope_port_lifespan_seconds{rail="0",device="mlx5_0",port="1"} 1.102`, ""},
		{"rounded up", `node_infiniband_lifespan_seconds{device="mlx5_0",port="1"} 2`,
			`railscope_port_lifespan_seconds{rail="0",device="mlx5_0",port="1"} 1.102`, "is 1.102"},
		{"only lifespan is rounded", state, `railscope_port_state_id{rail="0",device="mlx5_0",port="1"} 4.5`, "is 4.5"},
		{"bond", `node_bonding_active{master="bond0"} 2`, `railscope_bond_members_up{bond="bond0"} 2`, ""},
		{"unknown", `node_infiniband_new_total{device="mlx5_0",port="1"} 2`, "", "in no row"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			values, wrong, err := compare(strings.NewReader(tc.theirs+"\n"), strings.NewReader(tc.ours+"\n"))
			if err != nil || values != 1 {
				t.Fatalf("%d values, error %v", values, err)
			}
			if got := strings.Join(wrong, "\n"); (tc.wrong == "") != (got == "") || !strings.Contains(got, tc.wrong) {
				t.Errorf("got %q, want %q", got, tc.wrong)
			}
		})
	}
}

func TestTwinsAreDistinct(t *testing.T) {
	theirs, ours := map[string]bool{}, map[string]bool{}
	for _, tw := range twins {
		if theirs[tw.theirs] || ours[tw.ours] {
			t.Errorf("%s and %s: one of them is in the table twice", tw.theirs, tw.ours)
		}
		theirs[tw.theirs], ours[tw.ours] = true, true
	}
}
