package fleet

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
)

// Headline summarizes the drift in one sentence.
func (d Drift) Headline() string {
	judged := 0
	for _, r := range d.Roles {
		if r.Judged {
			judged++
		}
	}
	scope := terminal.Count(d.Nodes, "node") + " in " + terminal.Count(judged, "role")
	switch {
	case d.Nodes == 0:
		return "No facts: Prometheus has no railscope_node_fact_info of these nodes."
	case len(d.Deviations) == 0:
		return "No node deviates: " + scope + "."
	}
	deviating := map[Node]bool{}
	for _, one := range d.Deviations {
		for _, n := range one.Nodes {
			deviating[n] = true
		}
	}
	verb := "deviate"
	if len(deviating) == 1 {
		verb = "deviates"
	}
	return fmt.Sprintf("%d of %s %s.", len(deviating), scope, verb)
}

// Good reports whether nodes were compared and none deviates.
func (d Drift) Good() bool { return d.Nodes > 0 && len(d.Deviations) == 0 }

// WriteJSON writes the drift for scripts.
func (d Drift) WriteJSON(w io.Writer) error { return terminal.WriteJSON(w, d) }

// WriteTable writes the drift for people.
func (d Drift) WriteTable(w io.Writer, color bool) error {
	p := grid.NewPrinter(w, color)
	p.Painted(d.Headline(), map[bool]string{true: terminal.Green, false: terminal.Red}[d.Good()])
	for _, why := range d.Failed {
		p.Item("not answered: " + why)
	}
	for _, r := range d.Roles {
		text := fmt.Sprintf("%s: %s", r.Name, terminal.Count(len(r.Nodes), "node"))
		if !r.Judged {
			text = terminal.Count(len(r.Nodes), "node") + " like no other, not compared: " + firstOf(r.Nodes)
		}
		p.Item(text)
	}
	role := ""
	for _, one := range d.Deviations {
		if one.Role != role {
			role = one.Role
			p.Line("")
			p.Painted(role, terminal.Yellow)
		}
		p.Item(fmt.Sprintf("%s: %s instead of %s (%d of %d nodes): %s", one.Subject, one.Value, one.Usual, one.Agree,
			one.Of, firstOf(one.Nodes)))
	}
	if len(d.Splits) > 0 {
		p.Line("")
		p.Painted("No deviation, but not alike", "")
	}
	for _, s := range d.Splits {
		p.Item(s.text())
	}
	if len(d.Changes) > 0 {
		p.Line("")
		p.Painted("Changes, the first one first (UTC)", "")
	}
	for _, c := range d.Changes {
		p.Item(fmt.Sprintf("%s to %s: %s from %s to %s: %s", c.After.UTC().Format(time.DateTime),
			c.Before.UTC().Format(time.DateTime), c.Subject, c.From, c.To, firstOf(c.Nodes)))
	}
	return p.Flush()
}

func (s Split) text() string {
	if len(s.Values) == 0 {
		return fmt.Sprintf("%s: no value that many of %d nodes have", s.Subject, s.Of)
	}
	var parts []string
	for _, v := range ranked(s.Values) {
		nodes := s.Values[v]
		on := fmt.Sprint(len(nodes))
		if s.Of <= maxNamed {
			on = firstOf(nodes)
		}
		parts = append(parts, v+" on "+on)
	}
	text := s.Subject + ": " + strings.Join(parts, ", ")
	if s.Of <= maxNamed {
		return text
	}
	return text + fmt.Sprintf(" of %s: a roll-out?", terminal.Count(s.Of, "node"))
}
