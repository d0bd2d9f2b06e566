package doctor

import (
	"fmt"
	"strings"
)

// Docs returns the tables of docs/doctor.md, made of nothing but the checks.
func Docs() string {
	var b strings.Builder
	b.WriteString("### Of one node\n\n| check | finds |\n|---|---|\n")
	for _, c := range Checks() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.ID, strings.ReplaceAll(c.About, "|", `\|`))
	}
	b.WriteString("\n### Of two nodes\n\n| check | finds |\n|---|---|\n")
	for _, c := range PeerChecks() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.ID, strings.ReplaceAll(c.About, "|", `\|`))
	}
	fmt.Fprintf(&b, "| `%s` | the peer does not answer, refuses, is too old, or tells facts of another form |\n", peerUnanswered)
	return b.String()
}
