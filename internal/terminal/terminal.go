// Package terminal prepares text for people: cleaned, in lines that fit, coloured; package text does for machines.
package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Colours of a terminal (ECMA-48, SGR).
const (
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	Bold   = "\x1b[1m"
	Dim    = "\x1b[2m"
	Reset  = "\x1b[0m"
)

// Plain cleans text from outside, such as names from a peer, a driver or an environment: a space replaces what would
// move the cursor, turn the line around or be invisible. Invalid UTF-8 becomes U+FFFD.
func Plain(s string) string { return replace(s, ' ') }

// PlainName is Plain with U+FFFD instead of the space, which could turn one name into another.
func PlainName(s string) string { return replace(s, '\uFFFD') }

func replace(s string, with rune) string {
	return strings.Map(func(c rune) rune {
		if Shown(c) {
			return c
		}
		return with
	}, s)
}

// Shown reports whether a character is visible; unicode.IsPrint counts some invisible letters and marks.
func Shown(c rune) bool {
	return unicode.IsPrint(c) && !unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Count is a number with its noun, in the plural unless it is 1.
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Percent is a part in percent, with a decimal below 10 %.
func Percent(part float64) string {
	if v := part * 100; v > 0 && v < 9.5 {
		return fmt.Sprintf("%.1f %%", v)
	}
	return fmt.Sprintf("%.0f %%", part*100)
}

// Wrap breaks a text at spaces into lines of at most width columns. A longer word has a line of its own.
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
