package rules

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const resource = `# Generated from conditions-node.yml, conditions-probe.yml and alerts.yml by ` +
	"`make docs`" + `. DO NOT EDIT.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: railscope
  labels:
    app.kubernetes.io/name: railscope
spec:
  groups:
`

// PrometheusRule returns the rules of the [Sources] in dir as a resource of the Prometheus operator. It keeps their
// text, with comments and quotes, and indents it.
func PrometheusRule(dir string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(resource)
	for _, name := range Sources() {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		_, groups, ok := strings.Cut("\n"+string(text), "\ngroups:\n")
		if !ok {
			return nil, fmt.Errorf("%s: line `groups:` not found", name)
		}
		for line := range strings.Lines(groups) {
			if line != "\n" {
				out.WriteString("  ")
			}
			out.WriteString(line)
		}
	}
	return out.Bytes(), nil
}

// Markers of the table in docs/alerts.md.
const begin, end = "<!-- generated: make docs -->\n", "<!-- end of what is generated -->\n"

// Table returns page with a table of the alerts of the [Sources] in dir. An alert's meaning is the first sentence of
// its runbook in runbooks.
func Table(page []byte, dir, runbooks string) ([]byte, error) {
	all, err := Load(dir)
	if err != nil {
		return nil, err
	}
	var t strings.Builder
	t.WriteString("| alert | severity | for | meaning |\n|---|---|---|---|\n")
	severities, waits := map[string][]string{}, map[string][]string{}
	for _, r := range all {
		severities[r.Alert] = append(severities[r.Alert], r.Labels["severity"])
		waits[r.Alert] = append(waits[r.Alert], r.For)
	}
	seen := map[string]bool{"": true}
	for _, r := range all {
		if seen[r.Alert] {
			continue
		}
		seen[r.Alert] = true
		text, err := os.ReadFile(filepath.Join(runbooks, r.Alert+".md"))
		if err != nil {
			return nil, err
		}
		means, err := meaning(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s.md: %w", r.Alert, err)
		}
		fmt.Fprintf(&t, "| [%s](runbooks/%[1]s.md) | %s | %s | %s |\n", r.Alert,
			strings.Join(severities[r.Alert], ", "), strings.Join(slices.Compact(waits[r.Alert]), ", "), means)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return nil, fmt.Errorf("markers %q and %q not found", begin, end)
	}
	return []byte(before + begin + t.String() + end + after), nil
}

// meaning returns the first sentence of a runbook's section Meaning.
func meaning(runbook string) (string, error) {
	_, text, ok := strings.Cut(runbook, "\n## Meaning\n\n")
	if !ok {
		return "", fmt.Errorf("heading \"## Meaning\" not found")
	}
	text, _, _ = strings.Cut(text, "\n\n")
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", " ")
	if first, _, ok := strings.Cut(text, ". "); ok {
		text = first + "."
	}
	return strings.ReplaceAll(text, "|", `\|`), nil
}
