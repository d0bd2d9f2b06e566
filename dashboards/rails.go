package dashboards

import (
	"regexp"
	"strconv"
	"strings"
)

// perRail, perGPU, toPeer and railTo name series. The node comes last because legends are cut at the end and most
// series have the same node.
func perRail(what string) string { return named("rail {{rail}}", what) }
func perGPU(what string) string  { return named("GPU {{gpu}}", what) }
func toPeer(what string) string  { return named(what, "→ {{peer}}") }
func railTo(what string) string  { return perRail(strings.TrimSpace(what + " → {{peer}}")) }

func named(of, what string) string {
	if what != "" {
		of += " " + what
	}
	return of + " · {{instance}}"
}

// railColours returns the colours of rails 0 to 15. Other rails get Grafana's.
func railColours() []string {
	return []string{"#5794F2", "#FF9830", "#73BF69", "#B877D9", "#E0B400", "#F2495C", "#37C8BE", "#E377C2", "#A16946",
		"#8AB8FF", "#A8B820", "#FFA6B0", "#8F3BB8", "#1F60C4", "#37872D", "#C4162A"}
}

// ofRails gives each rail a colour, and each further query its own line style, because its series have the same
// colours. Series that the panel styles itself keep the solid line.
func (p *panel) ofRails() []object {
	named := func(t target) bool { return strings.HasPrefix(t.legend, "rail {{rail}} ") }
	if p.kind != "timeseries" || len(p.targets) == 0 || !named(p.targets[0]) {
		return []object{}
	}
	var colours, strokes panel
	for i, c := range railColours() { // the label may be rail0 instead of 0
		colours.style(`rail [^\d ]*`+strconv.Itoa(i)+` .*`, fixed(c))
	}
	line := func(dash ...int) object { return prop("custom.lineStyle", object{"fill": "dash", "dash": dash}) }
	stroke := []object{dotted(), line(12, 6), line(4, 6)}
	for i, t := range p.targets[1:] {
		if named(t) && !p.styles(t.legend) {
			strokes.style(seriesOf(t.legend), stroke[i])
		}
	}
	return append(colours.overrides, strokes.overrides...)
}

// seriesOf returns the regular expression for the series that a legend names.
func seriesOf(legend string) string {
	parts := strings.Split(regexp.MustCompile(`{{\w+}}`).ReplaceAllString(legend, "\x00"), "\x00")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return strings.Join(parts, ".*")
}

// styles reports whether the panel styles the series of this legend.
func (p *panel) styles(legend string) bool {
	for _, o := range p.overrides {
		m := o["matcher"].(object)
		if m["id"] == "byRegexp" && regexp.MustCompile("^(?:"+m["options"].(string)+")$").MatchString(legend) {
			return true
		}
	}
	return false
}
