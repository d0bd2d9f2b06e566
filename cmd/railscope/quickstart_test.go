package main

import (
	"os"
	"strings"
	"testing"
)

// TestQuickstartRights: the token of the quick start is root's, so whatever is
// to read it is run as root.
func TestQuickstartRights(t *testing.T) {
	text, err := os.ReadFile("../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	commands, inside := 0, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inside = line == "```sh"
		}
		if !inside || !strings.Contains(line, "railscope ") || !strings.Contains(line,
			"/etc/railscope/") || strings.HasPrefix(line, "head ") {
			continue
		}
		if commands++; !strings.HasPrefix(line, "sudo ") {
			t.Errorf("%s: it cannot read the token", line)
		}
	}
	if commands < 3 {
		t.Errorf("%d commands read the token or the configuration: this tests nothing", commands)
	}
}
