package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestQuickstartRights: the token of the quick start belongs to root, so all commands that read it run as root.
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
		commands++
		if !strings.HasPrefix(line, "sudo ") {
			t.Errorf("%s: it cannot read the token", line)
		}
	}
	if commands < 3 {
		t.Errorf("%d commands read the token or the configuration: this tests nothing", commands)
	}
}

// TestBothProgramsInstalled: every page that installs railscope by hand also installs the program beside it.
func TestBothProgramsInstalled(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if !slices.Contains(words, "railscope") || !strings.Contains(line, "bin/") ||
				!slices.ContainsFunc(words,
					func(w string) bool { return slices.Contains([]string{"install", "cp", "mv"}, w) }) {
				continue
			}
			found++
			if !slices.Contains(words, "railscope-bench") {
				t.Errorf("%s: %s", page, line)
			}
		}
	}
	if found < 2 {
		t.Errorf("%d lines install railscope: this tests nothing", found)
	}
}
