package doctor

import (
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/text"
)

// untypable encloses, in a line that is being made, a name that cannot be typed.
// No text of ours has it, and none from outside is left with it.
const untypable = "\x00"

// shellWord is a name as one word of a line for a shell. Names come from the
// kernel or from a peer, and either allows more than a shell takes literally.
func shellWord(s string) string {
	if word, ok := text.ShellWord(s); ok {
		return word
	}
	return untypable + strconv.QuoteToASCII(s) + untypable
}

// command is one line for a shell.
func command(words ...string) string {
	for i, w := range words {
		words[i] = shellWord(w)
	}
	return strings.Join(words, " ")
}

// typable are the lines as they are printed. Commands with a name that cannot be
// typed are not: near it is another interface's name.
func typable(lines []string) []string {
	refused := ""
	out := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		if strings.HasPrefix(line, "#") {
			return false
		}
		if _, name, found := strings.Cut(line, untypable); found && refused == "" {
			refused, _, _ = strings.Cut(name, untypable)
		}
		return strings.Contains(line, untypable)
	})
	for i, line := range out {
		out[i] = printable(strings.ReplaceAll(line, untypable, ""))
	}
	if refused == "" {
		return out
	}
	// What is left belongs to the commands that are not there.
	out = slices.DeleteFunc(out, func(line string) bool { return !strings.HasPrefix(line, "#") })
	return append(out, note("no command is printed: the name %s has characters that cannot be typed; rename it, and run doctor again", refused))
}

// typed gives the findings of checks lines that can be typed.
func typed(list []Check) []Check {
	for i, c := range list {
		list[i].Run = func(f *Facts, found func(Finding)) { c.Run(f, typedFinding(found)) }
	}
	return list
}

// typedPeer is typed for checks of a pair.
func typedPeer(list []PeerCheck) []PeerCheck {
	for i, c := range list {
		list[i].Run = func(here, there *Facts, found func(Finding)) { c.Run(here, there, typedFinding(found)) }
	}
	return list
}

func typedFinding(found func(Finding)) func(Finding) {
	return func(f Finding) {
		f.Mend = typable(f.Mend)
		found(f)
	}
}

// printable is the text with U+FFFD for what would steer a terminal or cannot be
// seen, so that nobody takes it for another one.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if terminal.Shown(c) {
			return c
		}
		return '\uFFFD'
	}, s)
}

// clean makes a text that somebody else wrote fit to be shown: printable, and
// not long.
func clean(s string) string { return printable(s[:min(len(s), maxText)]) }
