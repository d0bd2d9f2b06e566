package secret

import (
	"strings"
	"testing"
)

// TestHideUserinfo: no part of any password remains, and other URLs are unchanged.
func TestHideUserinfo(t *testing.T) {
	for text, want := range map[string]string{
		"http://h:1/p":                            "http://h:1/p",
		"http://h/p@v1":                           "http://h/p@v1",
		"see https://h/p, or a@b":                 "see https://h/p, or a@b",
		"http://b:pw@h:1":                         "http://h:1",
		"http://b:SL/ASH@h:1":                     "http://h:1",
		"http://b:p@ss/w@rd@h:1/x":                "http://h:1/x",
		"http://b:p,w@h1,https://c:q@h2/x":        "http://h1,https://h2/x",
		`parse "http://b:p/w@h:1": invalid port`:  `parse "http://h:1": invalid port`,
		"token@h http://u@h2 x":                   "token@h http://h2 x",
		"http://b:one@h1 and amqp+tls://c:two@h2": "http://h1 and amqp+tls://h2",
	} {
		if got := HideUserinfo(text, ""); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := HideUserinfo("http://b:p@h", "REMOVED"); got != "http://REMOVED@h" {
		t.Error(got)
	}
}

// FuzzHideUserinfo: the password of a URL between other texts never remains.
func FuzzHideUserinfo(f *testing.F) {
	f.Add("a ", "p/w@,:", " b")
	f.Fuzz(func(t *testing.T, before, password, after string) {
		password = strings.Map(func(r rune) rune {
			if r <= ' ' || strings.ContainsRune("\"'<>`", r) {
				return -1
			}
			return r
		}, password)
		if strings.Contains(password, "://") {
			return
		}
		got := HideUserinfo(before+" http://user:SECRET"+password+"SECRET@host:1 "+after, "")
		if strings.Count(got, "SECRET") > strings.Count(before+after, "SECRET") {
			t.Errorf("%q", got)
		}
	})
}
