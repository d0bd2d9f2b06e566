package priority

import (
	"strings"
	"testing"
)

// TestTable: a running railscope completes what a command reads, and rails alike are one row.
func TestTable(t *testing.T) {
	use := func(rail, priority string, lossless bool, sent *float64, jobs ...string) Use {
		return Use{Rail: rail, Priority: priority, DSCP: map[string]string{"3": "24,26"}[priority], Lossless: &lossless,
			Sent: sent, Jobs: append([]string{}, jobs...)}
	}
	gigabit := new(125e6)
	probed := use("0", "3", true, gigabit, "1 process")
	probed.Probe = true
	for _, tc := range []struct {
		why           string
		here, running []Use
		want          string // cells, rows by |
	}{
		{"nothing", nil, nil, ""},
		{"rails alike", []Use{use("0", "3", true, nil, "job"), use("1", "3", true, nil, "job")}, nil,
			"3;24,26;yes;0,1;unknown;job"},
		{"what was sent is added up", nil, []Use{use("0", "0", false, gigabit), use("1", "0", false, gigabit)},
			"0;-;no;0,1;2 Gb/s;-"},
		{"unless one is unknown", nil, []Use{use("0", "0", false, gigabit), use("1", "0", false, nil),
			use("2", "0", false, gigabit)}, "0;-;no;0,1,2;unknown;-"},
		{"the probe beside a job", []Use{use("0", "3", true, nil, "job")},
			[]Use{probed, use("0", "0", false, gigabit)},
			"0;-;no;0;1 Gb/s;-|3;24,26;yes;0;1 Gb/s;job, the probe"},
		{"other jobs", []Use{use("0", "3", true, nil, "job"), use("1", "3", true, nil)}, nil,
			"3;24,26;yes;0;unknown;job|3;24,26;yes;1;unknown;-"},
		{"unknown", []Use{{Rail: "0", Jobs: []string{"job"}}}, nil, "unknown;-;unknown;0;unknown;job"},
	} {
		before := text(tc.here)
		if got := text(Complete(tc.here, tc.running)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
		if text(tc.here) != before {
			t.Errorf("%s: the input changed", tc.why)
		}
	}
}

func text(uses []Use) string {
	var rows []string
	for _, j := range Join(uses) {
		rows = append(rows, strings.Join(j.Cells(), ";"))
	}
	return strings.Join(rows, "|")
}
