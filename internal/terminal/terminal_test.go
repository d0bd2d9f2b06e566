package terminal

import (
	"slices"
	"testing"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"rail 1 (mlx5_1), 3.5 µs → 2": "rail 1 (mlx5_1), 3.5 µs → 2",
		"\x1b[2Jgone\r\nover\a":       " [2Jgone  over ",
		"\u202egnp.exe \u2066x\u2069": " gnp.exe  x ",
		"\x9b31m\xff":                 "\ufffd31m\ufffd",
	} {
		if got := Plain(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
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
