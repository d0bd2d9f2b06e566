// Package text cleans text for machines, label values and words of a shell; package terminal does for people.
package text

import (
	"strings"

	"github.com/railscope/railscope/internal/terminal"
)

// MaxLabel is the maximum length of a label in bytes.
const MaxLabel = 128

// Label returns s as a label value: every character outside of [A-Za-z0-9._:\[\]-], and invalid byte, becomes _, at
// most [MaxLabel] bytes in all. It is for names that others choose and that end up in queries and terminals.
func Label(s string) string {
	s = strings.Map(func(c rune) rune {
		if strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:[]-", c) {
			return c
		}
		return '_'
	}, s)
	return s[:min(len(s), MaxLabel)]
}

// plainInShell are the characters without a meaning in any POSIX shell, wherever they are in a word.
const plainInShell = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+:,./-"

// ShellWord returns s as one word of a POSIX shell, quoted where necessary. ok is false for text that cannot be typed
// or seen: do not print a command with it, as any spelling would name something else.
func ShellWord(s string) (word string, ok bool) {
	if terminal.Plain(s) != s || strings.ContainsRune(s, '\uFFFD') {
		return "", false
	}
	// A = is plain anywhere but at the beginning, where zsh expands the word.
	if s != "" && s[0] != '=' && strings.Trim(s, plainInShell+"=") == "" {
		return s, true
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'", true
}
