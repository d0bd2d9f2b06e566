package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/text"
)

// untypable encloses a name that cannot be typed, until the line is printed; no other text has it.
const untypable = "\x00"

// shellWord is a name as one word for a shell. Kernels and peers allow more than a shell takes literally.
func shellWord(s string) string {
	if word, ok := text.ShellWord(s); ok {
		return word
	}
	return untypable + strconv.QuoteToASCII(s) + untypable
}

// sh is one line for a shell, in which each argument is quoted as a word.
func sh(format string, args ...any) string {
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = shellWord(fmt.Sprint(a))
	}
	return fmt.Sprintf(format, words...)
}

func note(format string, args ...any) string {
	return "# " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
}

// bounce takes an interface down and up, in one line: a user who is logged in over it could not type the second.
func bounce(netdev string) []string {
	return []string{
		note("interrupts traffic over %s, and loses routes and IPv6 addresses that were added to it by hand", netdev),
		sh("ip link set dev %s down && ip link set dev %s up", netdev, netdev)}
}

// typable are the lines as printed, without any command if one has a name that cannot be typed.
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
			out = append(out, terminal.PlainName(strings.ReplaceAll(line, untypable, "")))
		}
	}
	if refused != "" {
		out = append(out, note("no command is printed: the name %s has characters that cannot be typed; rename it, and "+
			"run doctor again", refused))
	}
	return out
}

// listed is a list in words, cut if it is long.
func listed[T any](list []T) string {
	const most = 16
	var words []string
	for _, v := range list[:min(len(list), most)] {
		words = append(words, fmt.Sprint(v))
	}
	switch n := len(words) - 1; {
	case len(list) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(words, ", "), len(list)-most)
	case n > 0:
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

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

func gigabits(bytesPerSecond float64) string { return fmt.Sprintf("%.4g Gb/s", bytesPerSecond*8/1e9) }
