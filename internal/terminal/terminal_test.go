package terminal

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"rail 1 (mlx5_1), 3.5 µs → 2": "rail 1 (mlx5_1), 3.5 µs → 2",
		"\x1b[2Jgone\r\nover\a":       " [2Jgone  over ",
		"\u202egnp.exe \u2066x\u2069": " gnp.exe  x ",
		"\x9b31m\xff":                 "\ufffd31m\ufffd",
		"a\u200b\u200d\ufeffb\u00ad":  "a   b ",
		"\u115f\u3164\ufe0f\u034f":    "    ",
		"ask http://a:b/@c@h:1/x, é":  "ask http://h:1/x, é",
		"http://a:b\x00c@h":           "http://h",
	} {
		if got := Plain(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestPlainName: the replacement cannot be mistaken for a blank.
func TestPlainName(t *testing.T) {
	for in, want := range map[string]string{"östlich": "östlich", "eth0\n": "eth0\ufffd", "a\u200bb": "a\ufffdb",
		"a b": "a b", "\xff": "\ufffd"} {
		if got := PlainName(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestWriter: lines stay, and the caller's bytes are all written.
func TestWriter(t *testing.T) {
	var b strings.Builder
	text := []byte("url=http://a:b@h\nx\x1b[2J\n")
	if n, err := (Writer{&b}).Write(text); n != len(text) || err != nil || b.String() != "url=http://h\nx [2J\n" {
		t.Errorf("%d %v %q", n, err, b.String())
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{"0 rails": Count(0, "rail"), "1 rail": Count(1, "rail"),
		"2 rails": Count(2, "rail"), "1 process": Count(1, "process"), "3 processes": Count(3, "process")} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	for _, s := range []string{"rail 1, 3.5 µs", "\x1b[2J", "\u202e", "\xff\xfe", "\u200b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Plain(s)
		cut := utf8.RuneCountInString(got) != utf8.RuneCountInString(s)
		if !utf8.ValidString(got) || Plain(got) != got || cut && !strings.Contains(s, "://") {
			t.Errorf("%q became %q", s, got)
		}
		for _, c := range got {
			if unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
				t.Errorf("%q still has %U", got, c)
			}
		}
	})
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"", []string{""}},
		{"one two  three", []string{"one two", "three"}},
		{"µµµµ µµµ µ", []string{"µµµµ µµµ", "µ"}},
		{"a longerthanthat b", []string{"a", "longerthanthat", "b"}},
	} {
		if got := Wrap(c.in, 8); !slices.Equal(got, c.want) {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
	}
}

// TestFew: of more than four names, the rest is counted.
func TestFew(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "a, b, c, d": {"a", "b", "c", "d"},
		"a, b, c, d and 2 more": {"a", "b", "c", "d", "e", "f"}} {
		if got := Few(names); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}
