package page

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// formats are the functions of page.html.
func formats() template.FuncMap {
	return template.FuncMap{
		"fig": fig, "spark": spark, "percent": percent, "clock": clock, "stamp": stamp, "machine": machine, "ago": span,
		"join": strings.Join, "level": outcomeLevel, "oldest": oldest, "dirname": dirname,
		"flow": flowOf, "rate": rate, "persecond": perSecond, "part2": ofExpected, "rounds": roundsInWords,
		"times8": func(i int) int { return 8 * i }, "stripY": stripY, "stripH": stripHeight,
		"share": share, "speed": pcieSpeed, "micro": micro, "drawn": drawnPeers, "rest": restOfPeers, "tall": tall,
	}
}

// figure is a value as it is shown, and as /metrics has it.
type figure struct {
	Known         bool
	Value         string // as the exposition writes it
	Text, Metric  string
	Absent, Title string
}

// fig prepares a value for page.html. unit is rate, count, bytes, ratio, percent, perSecond or number.
func fig(v *float64, metric, unit string) figure {
	f := figure{Metric: metric, Absent: "unknown"}
	if metric != "" {
		f.Title = "railscope_" + metric
	}
	if v == nil {
		return f
	}
	f.Known, f.Value = true, strconv.FormatFloat(*v, 'g', -1, 64)
	switch unit {
	case "rate": // in bits, as links and bench have it; the value stays in bytes
		f.Text = decimal(*v*8, "", "k", "M", "G") + "b/s"
	case "count":
		f.Text = decimal(*v, "", "k", "M", "G", "T", "P", "E") + "B"
	case "bytes":
		f.Text = binary(*v)
	case "ratio":
		f.Text = strconv.FormatFloat(*v, 'f', 2, 64)
	case "percent":
		f.Text = percent(v)
	case "perSecond":
		f.Text = perSecond(*v)
	default:
		f.Text = strconv.FormatFloat(*v, 'f', -1, 64)
	}
	return f
}

// decimal writes three digits, and one of the prefixes for the unit that follows.
func decimal(v float64, prefixes ...string) string {
	i := 0
	for math.Abs(v) >= 999.5 && i < len(prefixes)-1 {
		v /= 1000
		i++
	}
	return digits(v, i == 0) + "\u00a0" + prefixes[i]
}

// binary writes bytes of memory.
func binary(v float64) string {
	prefixes := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for math.Abs(v) >= 1023.5 && i < len(prefixes)-1 {
		v /= 1024
		i++
	}
	return digits(v, i == 0) + "\u00a0" + prefixes[i]
}

func digits(v float64, whole bool) string {
	switch {
	case whole && v == math.Trunc(v), math.Abs(v) >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case math.Abs(v) >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func perSecond(v float64) string {
	if v < 1 {
		return digits(v*60, false) + "/min"
	}
	return strings.ReplaceAll(decimal(v, "", "k", "M", "G")+"/s", "\u00a0/", "/")
}

func percent(v *float64) string {
	switch {
	case v == nil:
		return ""
	case *v > 0 && *v < 0.005:
		return "<1\u00a0%"
	}
	return strconv.FormatFloat(math.Round(*v*100), 'f', 0, 64) + "\u00a0%"
}

// share is a part in percent for the width of a bar.
func share(part, of *float64) string {
	if part == nil || of == nil || *of <= 0 {
		return "0"
	}
	return strconv.FormatFloat(math.Round(min(max(*part / *of, 0), 1)*1000)/10, 'f', -1, 64)
}

// tall is share of a whole that is 1.
func tall(part *float64) string {
	one := 1.
	return share(part, &one)
}

// micro writes a latency.
func micro(v *float64) string {
	if v == nil {
		return ""
	}
	if *v >= 0.001 {
		return digits(*v*1e3, false) + "\u00a0ms"
	}
	return digits(*v*1e6, false) + "\u00a0µs"
}

// pcieSpeed is the generation of a PCIe link.
func pcieSpeed(transfers *float64) string {
	if transfers == nil {
		return ""
	}
	generations := map[float64]string{2.5: "Gen1", 5: "Gen2", 8: "Gen3", 16: "Gen4", 32: "Gen5", 64: "Gen6"}
	if g := generations[*transfers/1e9]; g != "" {
		return g
	}
	return strconv.FormatFloat(*transfers/1e9, 'f', -1, 64) + "\u00a0GT/s"
}

// The drawing of the last two minutes: a unit for each second, and so high.
const sparkHeight = 32.

// sparkline is the path of a line and of the area below it.
type sparkline struct{ Line, Area string }

// spark draws the rates against the capacity, or against the highest of them where that is unknown. The last one is at
// the right edge; the line is broken where a rate is unknown.
func spark(recent []float64, capacity *float64) sparkline {
	top := 0.
	if capacity != nil {
		top = *capacity
	}
	for _, v := range recent {
		if !math.IsNaN(v) && capacity == nil {
			top = max(top, v)
		}
	}
	var line, area strings.Builder
	begun := -1
	first := recentSeconds - len(recent)
	end := func(x int) {
		if begun >= 0 {
			fmt.Fprintf(&area, "L%d %gL%d %gZ", x, sparkHeight, begun, sparkHeight)
		}
		begun = -1
	}
	last := ""
	for i, v := range recent {
		x := first + i + 1
		if math.IsNaN(v) || top <= 0 {
			end(x - 1)
			last = ""
			continue
		}
		y := strconv.FormatFloat(math.Round((sparkHeight-min(v/top, 1)*(sparkHeight-2))*10)/10, 'g', -1, 64)
		step := "L"
		if begun < 0 {
			begun, step = x, "M"
		}
		if next := i + 1; y == last && next < len(recent) && !math.IsNaN(recent[next]) && recent[next] == v {
			continue // in the middle of what is level
		}
		last = y
		fmt.Fprintf(&line, "%s%d %s", step, x, y)
		fmt.Fprintf(&area, "%s%d %s", step, x, y)
	}
	end(recentSeconds)
	return sparkline{line.String(), area.String()}
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("15:04:05")
}

// stamp is clock with the day.
func stamp(t time.Time) string { return t.Format("2 Jan 15:04:05") }

func machine(t time.Time) string { return t.Format(time.RFC3339) }

// span is a duration in its two largest units.
func span(from, to time.Time) string {
	d := to.Sub(from)
	switch {
	case d < 0:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

func dirname(d int) string { return directions()[d] }

// outcomeLevel is how well a round went.
func outcomeLevel(r Round) Level {
	switch r.Outcome {
	case "ok":
		return Good
	case "degraded", "fallback":
		return Warn
	case "failed":
		return Bad
	}
	return Idle
}

// oldest returns the rounds, oldest first.
func oldest(rounds []Round) []Round {
	list := make([]Round, len(rounds))
	for i, r := range rounds {
		list[len(rounds)-1-i] = r
	}
	return list
}

// outcomes counts the outcomes of rounds, in words.
func outcomes(rounds []Round) string {
	n := map[string]int{}
	for _, r := range rounds {
		n[r.Outcome]++
	}
	var words []string
	for _, o := range []string{"ok", "degraded", "fallback", "failed", "skipped"} {
		if n[o] > 0 {
			words = append(words, fmt.Sprintf("%d %s", n[o], o))
		}
	}
	return strings.Join(words, ", ")
}

// roundsInWords is how many rounds there are, and what they came to.
func roundsInWords(rounds []Round) string {
	if len(rounds) == 1 {
		return "round: " + outcomes(rounds)
	}
	return fmt.Sprintf("%d rounds: %s", len(rounds), outcomes(rounds))
}

// stripHeight and stripY draw worse rounds lower, since colour alone is not enough.
func stripHeight(r Round) int {
	return map[string]int{"ok": 14, "degraded": 10, "fallback": 7, "failed": 4, "skipped": 2}[r.Outcome]
}
func stripY(r Round) int { return 14 - stripHeight(r) }

// flow is a rail in one direction, as it is drawn.
type flow struct {
	Name, Metric string
	Traffic      Traffic
	Capacity     *float64
}

func flowOf(r Rail, direction int) flow {
	name := dirname(direction)
	return flow{name, "port_" + name + "_bytes_total", r.Traffic[direction], r.Capacity}
}

func rate(v *float64) string { return fig(v, "", "rate").Text }

func ofExpected(v, expected *float64) string {
	if *expected <= 0 {
		return ""
	}
	part := *v / *expected
	return percent(&part)
}

func drawnPeers(peers []Peer) []Peer { return peers[:min(len(peers), maxPeers)] }
func restOfPeers(peers []Peer) int   { return max(0, len(peers)-maxPeers) }
