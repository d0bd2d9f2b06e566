package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/config"
)

// TestSilence: a silence has a check, a reason and an end; a date ends with its day.
func TestSilence(t *testing.T) {
	c, err := config.Parse("f.yml", []byte("findings:\n  silence:\n"+
		"  - {check: mtu_low, subject: rail 3, reason: storage network, until: 2027-01-31}\n"+
		"  - {check: numa_far, reason: one processor, until: 2027-01-31T08:00:00+01:00}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Silence{
		{Check: "mtu_low", Subject: "rail 3", Reason: "storage network", Place: "f.yml:3",
			Until: config.Until{Time: time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)}},
		{Check: "numa_far", Reason: "one processor", Place: "f.yml:4",
			Until: config.Until{Time: time.Date(2027, 1, 31, 7, 0, 0, 0, time.UTC)}},
	}
	if diff := cmp.Diff(want, c.Findings.Silence); diff != "" {
		t.Error(diff)
	}
	const form = "{check: mtu_low, subject: rail 3, reason: storage network, until: 2027-01-31}"
	const what = "a check with a reason and an end, such as "
	for text, want := range map[string]string{
		"[{reason: a, until: 2027-01-31}]":             `an item of findings.silence without check; write ` + form,
		"[{check: a, until: 2027-01-31}]":              `an item of findings.silence without reason; write ` + form,
		"[{check: a, reason: ' ', until: 2027-01-31}]": `an item of findings.silence without reason; write ` + form,
		"[{check: a, reason: b}]":                      `an item of findings.silence without until; write ` + form,
		"[{check: a, reason: b, until: soon}]":         "must be " + what + form + `, not "soon"`,
		"[{check: a, reason: b, unti: 2027-01-31}]":    `in an item of findings.silence; did you mean "until"?`,
		"{check: a}": `findings.silence must be a list, such as [` + form + `], not keys with values`,
		"[a]":        "an item of findings.silence must be " + what,
		"[{check: [a], reason: b, until: 2027-01-31}]":    "must be " + what,
		`[{check: a, reason: "b\a", until: 2027-01-31}]`:  `reason of an item of findings.silence must be printable text of`,
		"[" + strings.Repeat("{check: a},", 101) + "]":    `findings.silence: 101 items; at most 100 are allowed`,
		"[{check: a, reason: b, until: 2027-01-31, c: }]": `unknown key "c" in an item of findings.silence`,
	} {
		_, err := config.Parse("f.yml", []byte("findings:\n  silence: "+text+"\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "f.yml:2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
