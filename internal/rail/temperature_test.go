package rail

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfstest"
)

// TestTemperatures: sensors of the adapter and of its module, and errors of the adapter's sensors. Based on
// mlx5/core/hwmon.c and bnxt_hwmon.c.
func TestTemperatures(t *testing.T) {
	const asic = `
-- hwmon/hwmon3/temp1_input --
58125
-- hwmon/hwmon3/temp1_label --
asic
-- hwmon/hwmon3/temp1_crit --
105000
-- hwmon/hwmon3/temp1_highest --
71000
`
	chip := Temperature{Sensor: "asic", Celsius: 58.125, Critical: 105}
	for _, tt := range []struct {
		name, tree string
		want       []Temperature
		errs       int
	}{
		{"no sensors", "-- vendor --\n0x15b3\n", nil, 0},
		{"mlx5", asic + "-- hwmon/hwmon3/temp2_label --\nModule0\n-- hwmon/hwmon3/temp2_input --\n-1500\n",
			[]Temperature{chip, {Sensor: "Module0", Module: true, Celsius: -1.5}}, 0},
		{"a copper cable", asic + "-- hwmon/hwmon3/temp2_label --\nModule0\n-- hwmon/hwmon3/temp2_input --\n0\n",
			[]Temperature{chip}, 0},
		{"a module that does not answer", asic + "-- hwmon/hwmon3/temp2_label --\nModule0\n-- hwmon/hwmon3/temp2_input --\n" +
			"9000000\n", []Temperature{chip}, 0},
		{"an adapter that tells nonsense", asic + "-- hwmon/hwmon3/temp2_input --\nhot\n-- hwmon/hwmon3/temp3_input --\n0\n",
			[]Temperature{chip, {Sensor: "temp3"}}, 1},
		{"bnxt", "-- hwmon/hwmon0/temp1_input --\n61000\n-- hwmon/hwmon0/temp1_max --\n95000\n",
			[]Temperature{{Sensor: "temp1", Celsius: 61, Critical: 95}}, 0},
	} {
		root := sysfstest.Write(t, t.TempDir(), []byte(tt.tree))
		got, errs := ReadTemperatures(root.Dir)
		if diff := cmp.Diff(tt.want, got); diff != "" || len(errs) != tt.errs {
			t.Errorf("%s: %v, -want +got:\n%s", tt.name, errs, diff)
		}
	}
}
