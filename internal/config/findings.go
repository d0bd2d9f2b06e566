package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/terminal"
)

// Findings says which findings are known.
type Findings struct {
	Silence []Silence
}

// Silence hides a finding that an operator knows about. This package does not verify that the check exists.
type Silence struct {
	Check   string `yaml:"check"`
	Subject string `yaml:"subject"` // empty: any
	Reason  string `yaml:"reason"`
	Until   Until  `yaml:"until"`

	Place string `yaml:"-"` // file and line
}

// Until is the end of a silence: a time, or a date, which stands for its end in UTC.
type Until struct{ time.Time }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (u *Until) UnmarshalText(b []byte) error {
	if day, err := time.Parse(time.DateOnly, string(b)); err == nil {
		u.Time = day.AddDate(0, 0, 1)
		return nil
	}
	at, err := time.Parse(time.RFC3339, string(b))
	u.Time = at
	return err
}

// Limits of silences.
const (
	maxSilences   = 100
	maxSilentText = 200 // bytes of a subject or a reason
)

const silenceForm = "{check: mtu_low, subject: rail 3, reason: storage network, until: 2027-01-31}"

func silenceKey(v *[]Silence) Key {
	return Key{Name: "findings.silence", Form: "list of {check, subject, reason, until}",
		Bounds: fmt.Sprintf("%d at most", maxSilences), want: "a list, such as [" + silenceForm + "]",
		into: v, item: "a check with a reason and an end, such as " + silenceForm,
		About: "Known findings to silence. They are shown with the reason, and do not count in `railscope_finding`, " +
			"alerts, the log, the verdict and `railscope check`. `check` is a [name](doctor.md#checks), `subject` " +
			"such as `rail 3`; without it all subjects match. `until` is a date, until its end in UTC, or a time " +
			"such as 2027-01-31T08:00:00+01:00. One that has expired is logged at the start."}
}

// checkSilences rejects silences without check, reason or end.
func (d *document) checkSilences(list []Silence) error {
	const path = "findings.silence"
	if n := d.nodes[path]; len(list) > maxSilences {
		return d.errorf(n, "%s: %d items; at most %d are allowed", path, len(list), maxSilences)
	}
	for i := range list {
		s, n := &list[i], resolve(d.nodes[path].Content[i])
		s.Place = fmt.Sprintf("%s:%d", d.file, n.Line)
		missing := ""
		switch {
		case s.Check == "":
			missing = "check"
		case strings.TrimSpace(s.Reason) == "":
			missing = "reason"
		case s.Until.IsZero():
			missing = "until"
		}
		if missing != "" {
			return d.errorf(n, "an item of %s without %s; write %s", path, missing, silenceForm)
		}
		for key, text := range map[string]string{"subject": s.Subject, "reason": s.Reason} {
			if len(text) > maxSilentText || terminal.Plain(text) != text {
				return d.errorf(n, "%s of an item of %s must be printable text of at most %d bytes", key, path,
					maxSilentText)
			}
		}
	}
	return nil
}
