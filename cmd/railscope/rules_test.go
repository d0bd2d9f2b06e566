package main

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/deploy/rules"
)

// TestRules: the printed file has other thresholds and no disabled alert. Unknown names are refused, and the error
// lists the known ones.
func TestRules(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string // text in the output, or on standard error
	}{
		{"as shipped", nil, 0, "  - name: railscope.gpu\n"},
		{"a threshold", []string{"--set=goodput_ratio=0.6"}, 0,
			"- record: railscope:threshold:goodput_ratio\n        expr: vector(0.6)\n"},
		{"a small one", []string{"--set=retransmissions_ratio=1e-7"}, 0, "expr: vector(0.0000001)\n"},
		{"an alert", []string{"--disable=RailscopeDiscards"}, 0,
			"- record: railscope:disabled\n        expr: vector(1)\n        labels: {fault: Discards}\n"},
		{"a group", []string{"--disable=railscope.gpu"}, 0, "labels: {fault: GPULost}\n"},
		{"an unknown threshold", []string{"--set=goodput=1"}, exitMisuse,
			`unknown threshold "goodput"; the thresholds are ack_timeouts_per_minute, boot_grace_seconds, busy_time_ratio, `},
		{"no number", []string{"--set=goodput_ratio=much"}, exitMisuse,
			`--set must be a threshold and a number, such as goodput_ratio=0.6, not "goodput_ratio=much"`},
		{"not finite", []string{"--set=goodput_ratio=inf"}, exitMisuse,
			"threshold goodput_ratio must be a number from 0 to 1, not +Inf"},
		{"no ratio", []string{"--set=goodput_ratio=7"}, exitMisuse,
			"threshold goodput_ratio must be a number from 0 to 1, not 7"},
		{"twice", []string{"--set=goodput_ratio=0.6", "--set=goodput_ratio=0.7"}, exitMisuse,
			"--set names goodput_ratio twice"},
		{"an unknown alert", []string{"--disable=RailscopeRailGone"}, exitMisuse,
			`unknown alert "RailscopeRailGone"; the alerts and groups are RailscopeBondDegraded, RailscopeDiscards, `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, said strings.Builder
			cmd := command(t, nil, append([]string{"rules"}, tc.args...)...)
			cmd.Stdout, cmd.Stderr = &out, &said
			_ = cmd.Run() // the exit code is checked
			if got := cmd.ProcessState.ExitCode(); got != tc.code || !strings.Contains(out.String()+said.String(),
				tc.says) {
				t.Errorf("exit %d, want %d; it said %s%s\nwant %s", got, tc.code, said.String(),
					out.String()[:min(out.Len(), 500)], tc.says)
			}
			var file rules.File
			if err := yaml.Unmarshal([]byte(out.String()), &file); err != nil {
				t.Fatal(err)
			}
			for _, g := range file.Groups {
				if len(tc.args) > 0 && strings.HasPrefix("--disable="+g.Name, tc.args[0]) {
					t.Errorf("group %s is still there", g.Name)
				}
				for _, r := range g.Rules {
					if len(tc.args) > 0 && tc.args[0] == "--disable="+r.Alert {
						t.Errorf("%s is still there", r.Alert)
					}
				}
			}
		})
	}
}
