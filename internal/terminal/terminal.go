// Package terminal prepares text for people: without what would steer the
// terminal away from it, in lines that fit, in colour where that is wanted.
package terminal

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Colours of a terminal (ECMA-48, select graphic rendition).
const (
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	Bold   = "\x1b[1m"
	Dim    = "\x1b[2m"
	Reset  = "\x1b[0m"
)

// Plain is s without what would move the cursor or turn the line around: names
// come from a peer, from the environment of a process, from a driver.
func Plain(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, s)
}

// Wrap breaks a text into lines of at most width columns, at blanks. A word that
// is longer has a line of its own.
func Wrap(s string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
