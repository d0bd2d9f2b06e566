package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
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

// ip is a line that calls ip with words, of which blanks separate those that are
// fixed and each %s is one that is not.
func ip(format string, args ...string) string {
	words := []string{"ip"}
	for w := range strings.FieldsSeq(format) {
		if w == "%s" {
			w, args = args[0], args[1:]
		}
		words = append(words, w)
	}
	return command(words...)
}

// bounce takes an interface down and up, in one line: after the first of two
// nobody who is logged in over it could type the second.
func bounce(netdev string) []string {
	return []string{note("interrupts what goes over %s, and loses routes and IPv6 addresses that were added to it by "+
		"hand", netdev),
		ip("link set dev %s down", netdev) + " && " + ip("link set dev %s up", netdev)}
}

// note is a line that a shell ignores.
func note(format string, args ...any) string {
	return "# " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
}

// typable are the lines as they are printed. If a name in them cannot be typed,
// no command is left: anything near it is another interface's name.
func typable(lines []string) []string {
	refused := ""
	for _, line := range lines {
		if _, name, found := strings.Cut(line, untypable); found && refused == "" && !strings.HasPrefix(line, "#") {
			refused, _, _ = strings.Cut(name, untypable)
		}
	}
	out := []string{}
	for _, line := range lines {
		if refused == "" || strings.HasPrefix(line, "#") {
			out = append(out, facts.Printable(strings.ReplaceAll(line, untypable, "")))
		}
	}
	if refused != "" {
		out = append(out, note("no command is printed: the name %s has characters that cannot be typed; rename it, "+
			"and "+
			"run doctor again", refused))
	}
	return out
}

// enumerate is a list in words.
func enumerate(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// listed is enumerate for a list that may be long.
func listed(names []string) string {
	const most = 16
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return enumerate(names)
}

// counted is a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// namesOf lists rails for people.
func namesOf(rails []*facts.Rail) string {
	var list []string
	for _, r := range rails {
		list = append(list, r.String())
	}
	return enumerate(list)
}

// railsOf is namesOf for rails that may be many.
func railsOf(rails []*facts.Rail) string {
	if len(rails) == 1 {
		return rails[0].String()
	}
	var names, devices []string
	for _, r := range rails {
		names, devices = append(names, r.Name), append(devices, r.Device)
	}
	return fmt.Sprintf("rails %s (%s)", listed(names), listed(devices))
}

// gigabits prints bytes per second as people name rates.
func gigabits(bytesPerSecond float64) string {
	return fmt.Sprintf("%.4g Gb/s", bytesPerSecond*8/1e9)
}
