package text

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/railscope/railscope/internal/terminal"
)

var label = regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]{1,128}$`)

func TestLabel(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"spark-02":                       "spark-02",
		"[fd00::2]:10092":                "[fd00::2]:10092",
		"mlx5_0":                         "mlx5_0",
		"a b\n\x00c\x7f":                 "a_b__c_",
		"\u202egpu\u2066-01\u200b\ufeff": "_gpu_-01__",
		"gpu-é\xff\xfe":                  "gpu-___",
		`{}"\/$'`:                        "_______",
		strings.Repeat("x", 128):         strings.Repeat("x", 128),
		strings.Repeat("x", 129):         strings.Repeat("x", 128),
		strings.Repeat("é", 1000):        strings.Repeat("_", 128),
	} {
		if got := Label(in); got != want {
			t.Errorf("Label(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzLabel(f *testing.F) {
	for _, s := range []string{"", "spark-02", "a\nb", "\u202ex", "\xff", strings.Repeat("é", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Label(s)
		if s == "" && got == "" {
			return
		}
		if !label.MatchString(got) || Label(got) != got {
			t.Errorf("Label(%q) = %q", s, got)
		}
		if label.MatchString(s) && got != s {
			t.Errorf("Label(%q) = %q, though nothing was wrong with it", s, got)
		}
		if !label.MatchString(s) && len(got) < min(utf8.RuneCountInString(s), MaxLabel) {
			t.Errorf("Label(%q) = %q: characters are missing", s, got)
		}
	})
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"":             "''",
		"eth0":         "eth0",
		"VAR=a,b:1":    "VAR=a,b:1",
		"=ls":          "'=ls'",
		"~root":        "'~root'",
		"a b":          "'a b'",
		"it's":         `'it'\''s'`,
		"$(reboot)`x`": "'$(reboot)`x`'",
		"*?[a]{b,c}!#": "'*?[a]{b,c}!#'",
		"rail-é":       "'rail-é'",
	} {
		if got, ok := ShellWord(in); got != want || !ok {
			t.Errorf("ShellWord(%q) = %s, %v, want %s", in, got, ok, want)
		}
	}
	for _, in := range []string{"a\nb", "a\rb", "\x1b[2J", "a\x00b", "\x7f", "eth\u202e0", "eth\u200b0", "eth0\u2066",
		"\xff", "eth\ufffd", "\u00a0x", "\u2028", "\u115f"} {
		if got, ok := ShellWord(in); ok {
			t.Errorf("ShellWord(%q) = %s, want none", in, got)
		}
	}
}

// FuzzShellWord: a shell parses the word as the original text.
func FuzzShellWord(f *testing.F) {
	for _, s := range []string{"", "-n", "eth0", "it's", "a b", "$(x)", `\`, "*", "~", "é", "a\nb", "%s%n", "=x",
		"'", "''"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		word, ok := ShellWord(s)
		if !ok {
			return
		}
		if terminal.Plain(word) != word {
			t.Fatalf("%q is not fit for a terminal", word)
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+word).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q as %s became %q: %v", s, word, out, err)
		}
	})
}
