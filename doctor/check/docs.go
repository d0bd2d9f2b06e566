package check

import (
	"fmt"
	"strings"
)

// PeerUnanswered is the check of findings that a peer could not be asked.
const PeerUnanswered = "peer"

// Docs returns the tables of docs/doctor.md, made of nothing but the checks.
func Docs() string {
	var b strings.Builder
	row := func(id, about string) { fmt.Fprintf(&b, "| `%s` | %s |\n", id, strings.ReplaceAll(about, "|", `\|`)) }
	b.WriteString("### Of one node\n\n| check | finds |\n|---|---|\n")
	for _, c := range Checks() {
		row(c.ID, c.About)
	}
	b.WriteString("\n### Of two nodes\n\n| check | finds |\n|---|---|\n")
	for _, c := range PeerChecks() {
		row(c.ID, c.About)
	}
	row(PeerUnanswered, "the peer does not answer, refuses, is too old, or speaks another version of facts")
	return b.String()
}
