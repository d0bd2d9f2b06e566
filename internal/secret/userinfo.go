package secret

import (
	"regexp"
	"strings"
)

// scheme matches the beginning of a URL.
var scheme = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://`)

// HideUserinfo replaces the user and the password of each URL in a text, up to the last "@" before a space, a quote
// or the next URL: unescaped passwords may contain "/", "@" or ",". A path with "@" and a preceding ":" may be
// hidden as well.
func HideUserinfo(text, with string) string {
	if !strings.Contains(text, "://") { // nearly always
		return text
	}
	var b strings.Builder
	for {
		at := scheme.FindStringIndex(text)
		if at == nil {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:at[1]])
		text = text[at[1]:]
		end := len(text)
		if next := scheme.FindStringIndex(text); next != nil { // before other ends: the time stays linear
			end = next[0]
		}
		if i := strings.IndexAny(text[:end], " \t\r\n\"'<>`"); i >= 0 {
			end = i
		}
		last := strings.LastIndexByte(text[:end], '@')
		if last < 0 || !hasUserinfo(text[:last]) {
			continue
		}
		if with != "" {
			with = strings.TrimSuffix(with, "@") + "@"
		}
		b.WriteString(with)
		text = text[last+1:]
	}
}

// hasUserinfo reports whether the text between the scheme and an "@" may be a user and a password, and not a host
// and a path.
func hasUserinfo(s string) bool {
	return !strings.Contains(s, "/") || strings.Contains(s, ":")
}
