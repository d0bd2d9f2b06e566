package terminal

import "testing"

// TestRow: a name from outside cannot move the cursor or start another cell or line; line breaks of a text are
// kept.
func TestRow(t *testing.T) {
	if got := Row("a\x1b]0;x\x07", "b\tc\nd", "\u202ee"); got != "a\uFFFD]0;x\uFFFD\tb\uFFFDc\uFFFDd\t\uFFFDe" {
		t.Errorf("%q", got)
	}
	if got := PlainLines("a\x1b[1m\nb\r\n"); got != "a [1m\nb \n" {
		t.Errorf("%q", got)
	}
}
