package main

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/deploy/rules"
)

// TestRules: the printed file has other thresholds and no disabled alert, and unknown names are refused with the known.
func TestRules(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string // in what was printed, or to standard error
	}{
		{"as shipped", nil, 0, "  - name: railscope.gpu\n"},
		{"a threshold", []string{"--set=goodput_ratio=0.6"}, 0,
			"- record: railscope:threshold:goodput_ratio\n        expr: vector(0.6)\n"},
		{"a small one", []string{"--set=retransmissions_ratio=1e-7"}, 0, "expr: vector(0.0000001)\n"},
		{"an alert", []string{"--disable=RailscopeDiscards"}, 0,
			"- record: railscope:disabled\n        expr: vector(1)\n        labels: {fault: Discards}\n"},
		{"an unknown threshold", []string{"--set=goodput=1"}, exitMisuse,
			`unknown threshold "goodput"; the thresholds are ack_timeouts_per_minute, boot_grace_seconds, busy_time_ratio, `},
		{"no number", []string{"--set=goodput_ratio=much"}, exitMisuse,
			`--set must be a threshold and a number, such as goodput_ratio=0.6, not "goodput_ratio=much"`},
		{"not finite", []string{"--set=goodput_ratio=inf"}, exitMisuse,
			"threshold goodput_ratio must be a finite number, not +Inf"},
		{"an unknown alert", []string{"--disable=RailscopeRailGone"}, exitMisuse,
			`unknown alert "RailscopeRailGone"; the alerts and groups are RailscopeBondDegraded, RailscopeDiscards, `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, said strings.Builder
			cmd := command(t, nil, append([]string{"rules"}, tc.args...)...)
			cmd.Stdout, cmd.Stderr = &out, &said
			_ = cmd.Run() // the exit code is checked
			if got := cmd.ProcessState.ExitCode(); got != tc.code || !strings.Contains(out.String()+said.String(), tc.says) {
				t.Errorf("exit %d, want %d; it said %s%s\nwant %s", got, tc.code, said.String(),
					out.String()[:min(out.Len(), 500)], tc.says)
			}
			var file rules.File
			if err := yaml.Unmarshal([]byte(out.String()), &file); err != nil {
				t.Fatal(err)
			}
			for _, g := range file.Groups {
				for _, r := range g.Rules {
					if len(tc.args) > 0 && tc.args[0] == "--disable="+r.Alert {
						t.Errorf("%s is still there", r.Alert)
					}
				}
			}
		})
	}
}
