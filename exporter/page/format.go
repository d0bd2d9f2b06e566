package page

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
)

func formats() template.FuncMap {
	return template.FuncMap{
		"fig": fig, "is": is, "rate": rate, "ratio": ratio, "percent": percent, "share": share, "micro": micro,
		"persecond": perSecond, "speed": pcieSpeed, "spark": spark, "strip": strip, "level": outcomeLevel,
		"severity": level, "others": func(list []string) int { return max(0, len(list)-1) },
		"rounds": roundsInWords, "clock": clock, "ago": span, "join": strings.Join, "line": terminal.Plain,
		"stamp":   func(t time.Time) string { return t.Format("2 Jan 15:04:05") },
		"machine": func(t time.Time) string { return t.Format(time.RFC3339) },
		"drawn":   func(peers []Peer) []Peer { return peers[:min(len(peers), maxPeers)] },
		"classes": priority.Join,
		"rest":    func(peers []Peer) int { return max(0, len(peers)-maxPeers) },
	}
}

// figure is a value as people read it, and as the exposition writes it.
type figure struct {
	Known               bool
	Value, Text, Metric string
}

// fig prepares a value for page.html. unit is rate, count, bytes, ratio, percent, or empty for a plain number.
func fig(v *float64, metric, unit string) figure {
	if v == nil {
		return figure{Metric: metric}
	}
	f := figure{Known: true, Value: strconv.FormatFloat(*v, 'g', -1, 64), Metric: metric}
	switch unit {
	case "rate":
		f.Text = rate(v)
	case "count":
		f.Text = scaled(*v, 1000, "B", "kB", "MB", "GB", "TB", "PB", "EB")
	case "bytes":
		f.Text = scaled(*v, 1024, "B", "KiB", "MiB", "GiB", "TiB")
	case "ratio":
		f.Text = strconv.FormatFloat(*v, 'f', 2, 64)
	case "percent":
		f.Text = percent(v)
	default:
		f.Text = strconv.FormatFloat(*v, 'f', -1, 64)
	}
	return f
}

// scaled writes three digits, in the largest unit below the value.
func scaled(v, base float64, units ...string) string {
	i := 0
	for math.Abs(v) >= base-0.5 && i < len(units)-1 {
		v /= base
		i++
	}
	return digits(v, i == 0) + "\u00a0" + units[i]
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

// rate writes bytes per second in bits, the unit of links and bench.
func rate(v *float64) string { return scaled(*v*8, 1000, "b/s", "kb/s", "Mb/s", "Gb/s") }

func perSecond(v float64) string {
	if v < 1 {
		return digits(v*60, false) + "/min"
	}
	return strings.ReplaceAll(scaled(v, 1000, "/s", "k/s", "M/s", "G/s"), "\u00a0/", "/")
}

func ratio(part, whole *float64) *float64 {
	if part == nil || whole == nil || *whole <= 0 {
		return nil
	}
	return new(*part / *whole)
}

func percent(ratio *float64) string {
	switch {
	case ratio == nil:
		return ""
	case *ratio > 0 && *ratio < 0.005:
		return "<1\u00a0%"
	}
	return strconv.FormatFloat(math.Round(*ratio*100), 'f', 0, 64) + "\u00a0%"
}

func share(ratio *float64) string {
	if ratio == nil {
		return "0"
	}
	return strconv.FormatFloat(math.Round(min(max(*ratio, 0), 1)*1000)/10, 'f', -1, 64)
}

func micro(v *float64) string {
	if *v >= 0.001 {
		return digits(*v*1e3, false) + "\u00a0ms"
	}
	return digits(*v*1e6, false) + "\u00a0µs"
}

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

// sparkHeight is the height of the drawing of the last two minutes; a second is one unit wide.
const sparkHeight = 32.

// sparkline holds the path of a line and of the area below it.
type sparkline struct{ Line, Area string }

// spark draws rates relative to the capacity, or to the highest rate. The latest rate is on the right; unknown
// rates are gaps.
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
	begun, last := -1, ""
	end := func(x int) {
		if begun >= 0 {
			fmt.Fprintf(&area, "L%d %gL%d %gZ", x, sparkHeight, begun, sparkHeight)
		}
		begun, last = -1, ""
	}
	for i, v := range recent {
		x := recentSeconds - len(recent) + i + 1
		if math.IsNaN(v) || top <= 0 {
			end(x - 1)
			continue
		}
		y := strconv.FormatFloat(math.Round((sparkHeight-min(v/top, 1)*(sparkHeight-2))*10)/10, 'g', -1, 64)
		step := "L"
		if begun < 0 {
			begun, step = x, "M"
		}
		if y == last && i+1 < len(recent) && recent[i+1] == v {
			continue // in the middle of a level section
		}
		last = y
		fmt.Fprintf(&line, "%s%d %s", step, x, y)
		fmt.Fprintf(&area, "%s%d %s", step, x, y)
	}
	end(recentSeconds)
	return sparkline{line.String(), area.String()}
}

func clock(t time.Time) string { return t.Format("15:04:05") }

func span(from, to time.Time) string { return units.Span(to.Sub(from)) }

func outcomeLevel(r Round) Level {
	levels := map[string]Level{"ok": Good, "degraded": Warn, "fallback": Warn, "failed": Bad}
	return cmp.Or(levels[r.Outcome], Idle)
}

func roundsInWords(rounds []Round) string {
	n := map[string]int{}
	for _, r := range rounds {
		n[r.Outcome]++
	}
	var words []string
	for _, o := range []string{"ok", "degraded", "reached", "fallback", "failed", "skipped"} {
		if n[o] > 0 {
			words = append(words, fmt.Sprintf("%d %s", n[o], o))
		}
	}
	head := "round: "
	if len(rounds) != 1 {
		head = fmt.Sprintf("%d rounds: ", len(rounds))
	}
	return head + strings.Join(words, ", ")
}

type bar struct {
	Level        Level
	X, Y, Height int
}

// strip draws rounds, oldest first. Worse rounds are lower, because colour alone is not enough.
func strip(rounds []Round) (bars []bar) {
	heights := map[string]int{"ok": 14, "degraded": 10, "reached": 12, "fallback": 7, "failed": 4, "skipped": 2}
	for _, r := range slices.Backward(rounds) {
		h := heights[r.Outcome]
		bars = append(bars, bar{outcomeLevel(r), 8 * len(bars), 14 - h, h})
	}
	return bars
}
