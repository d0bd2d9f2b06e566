// Package terminal prepares text for people: cleaned, wrapped and coloured. Package text does that for machines.
package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/railscope/railscope/internal/secret"
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

// Plain cleans text from outside, such as names from a peer, a driver or an environment. It replaces characters
// that move the cursor, change the text direction or are invisible by a space. Invalid UTF-8 becomes U+FFFD. Users
// and passwords of URLs are removed.
func Plain(s string) string { return replace(s, ' ') }

// PlainName is like Plain with U+FFFD instead of the space, which could turn one name into another.
func PlainName(s string) string { return replace(s, '\uFFFD') }

// PlainLines applies Plain to each line of a text.
func PlainLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Plain(line)
	}
	return strings.Join(lines, "\n")
}

// Row joins the cells of a row for package tabwriter, each cleaned by PlainName, so that a cell cannot start
// another cell or line.
func Row(cells ...string) string {
	for i, cell := range cells {
		cells[i] = PlainName(cell)
	}
	return strings.Join(cells, "\t")
}

// replace hides before and after: a password may have what is replaced, and what is replaced may be what ends a URL.
func replace(s string, with rune) string {
	return secret.HideUserinfo(strings.Map(func(c rune) rune {
		if Shown(c) {
			return c
		}
		return with
	}, secret.HideUserinfo(s, "")), "")
}

// Writer cleans what is written by [PlainLines]. A text is one call, such as a line of a log.
type Writer struct{ io.Writer }

// Write implements [io.Writer].
func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, PlainLines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Shown reports whether a character is visible. unicode.IsPrint includes some invisible letters and marks.
func Shown(c rune) bool {
	return unicode.IsPrint(c) && !unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Count returns a number with its noun, in the plural unless the number is 1.
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Percent returns a fraction in percent, with a decimal below 10 %.
func Percent(part float64) string {
	if v := part * 100; v > 0 && v < 9.5 {
		return fmt.Sprintf("%.1f %%", v)
	}
	return fmt.Sprintf("%.0f %%", part*100)
}

// WriteJSON writes v as JSON that people can read as well: indented, without HTML escapes.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Wrap breaks a text at spaces into lines of at most width columns. A longer word gets its own line.
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

// Few lists names, at most four of them.
func Few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
