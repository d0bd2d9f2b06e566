package text

import (
	"strings"

	"github.com/railscope/railscope/internal/terminal"
)

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
