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

// Plain is s with a blank for what would move the cursor, turn the line around
// or not be seen at all: names come from a peer, from the environment of a
// process, from a driver. Bytes that are not UTF-8 become U+FFFD.
func Plain(s string) string {
	return strings.Map(func(c rune) rune {
		if Shown(c) {
			return c
		}
		return ' '
	}, s)
}

// Shown reports whether people see the character where it stands: it is none
// that controls, and none that is invisible. Unicode's default ignorable ones
// are letters or marks in part, and so count as printable.
func Shown(c rune) bool {
	return unicode.IsPrint(c) && !unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
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
