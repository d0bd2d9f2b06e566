// Package text cleans text for machines: label values and words of a shell. Package terminal does that for people.
package text

import (
	"strings"

	"github.com/railscope/railscope/internal/terminal"
)

// MaxLabel is the maximum length of a label in bytes.
const MaxLabel = 128

// Label returns s as a label value of at most [MaxLabel] bytes: every character outside [A-Za-z0-9._:\[\]-], and
// every invalid byte, becomes _. It is for names that others choose and that appear in queries and terminals.
func Label(s string) string {
	s = strings.Map(func(c rune) rune {
		if strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:[]-", c) {
			return c
		}
		return '_'
	}, terminal.PlainName(s))
	return s[:min(len(s), MaxLabel)]
}

// plainInShell are the characters that have no special meaning at any position of a word in any POSIX shell.
const plainInShell = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+:,./-"

// ShellWord returns s as one word of a POSIX shell, quoted where necessary. ok is false for text that cannot be
// typed or seen: do not print a command with it, because any spelling would name something else.
func ShellWord(s string) (word string, ok bool) {
	if strings.ContainsFunc(s, func(c rune) bool { return !terminal.Shown(c) || c == '\uFFFD' }) {
		return "", false
	}
	// A = has no special meaning except at the beginning, where zsh expands the word.
	if s != "" && s[0] != '=' && strings.Trim(s, plainInShell+"=") == "" {
		return s, true
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'", true
}
