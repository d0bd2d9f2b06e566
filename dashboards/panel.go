package dashboards

import "maps"

// panel is created by timeseries, stat, table and similar functions, and modified by its methods.
type panel struct {
	kind, title   string
	about, docs   string // content and meaning of bad values; page below docs/
	w, h          int    // width in columns of 24; height in lines of about 30 pixels
	targets       []target
	format        string // time_series, table or heatmap
	instant       bool   // only current values
	every         string // minimum step, for values that change rarely
	repeat        string // variable with one panel per value
	perLine       int    // number of repeated panels per line
	mapped        []object
	defaults      object // defaults of all fields
	custom        object // defaults of all fields, specific to this kind of panel
	overrides     []object
	options       object
	transforms    []object
	renamed, hide object // columns of a table
	order         object
}

// query adds a query; legend names its series.
func (p *panel) query(expr, legend string) *panel {
	p.targets = append(p.targets, target{expr, legend})
	return p
}

// size sets width in columns (of 24) and height in lines.
func (p *panel) size(w, h int) *panel { p.w, p.h = w, h; return p }

// unit sets a Grafana unit. If all values are 0, Grafana would end the axis at 100 in any unit; this sets a smaller
// maximum.
func (p *panel) unit(id string) *panel {
	p.defaults["unit"] = id
	if least := map[string]float64{"pps": 10, "eps": 1, perMinute: 1, perHour: 1, "none": 1, "short": 1, "bps": 1000,
		"percentunit": 0.01, "s": 1e-6}[id]; p.kind == "timeseries" && least > 0 {
		p.custom["axisSoftMax"] = least
	}
	return p
}

// upTo sets the end of the axis; higher values are cut off.
func (p *panel) upTo(high float64) *panel {
	delete(p.custom, "axisSoftMax")
	p.defaults["max"] = high
	return p
}

// Units of rare events.
const perMinute, perHour = "suffix:/min", "suffix:/h"

func (p *panel) from(low float64) *panel      { p.defaults["min"] = low; return p }
func (p *panel) decimals(n int) *panel        { p.defaults["decimals"] = n; return p }
func (p *panel) nothing(text string) *panel   { p.defaults["noValue"] = text; return p } // shown without values
func (p *panel) states(s ...state) *panel     { p.mapped = mappings(s); return p }
func (p *panel) atLeastEvery(d string) *panel { p.every = d; return p }

// colours sets the colour of values: base, and others from a given value.
func (p *panel) colours(base string, steps ...step) *panel {
	p.defaults["thresholds"] = thresholds(base, steps)
	p.defaults["color"] = object{"mode": "thresholds"}
	return p
}

// worseAbove and worseBelow colour values that should be low, or high: doubtful from the first threshold, bad from
// the second, near which alerts fire.
func (p *panel) worseAbove(doubtful, bad float64) *panel {
	return p.colours(green, from(doubtful, yellow), from(bad, red))
}

func (p *panel) worseBelow(doubtful, bad float64) *panel {
	return p.colours(red, from(bad, yellow), from(doubtful, green))
}

// scheme colours values between the minimum and the maximum.
func (p *panel) scheme(name string) *panel { p.defaults["color"] = object{"mode": name}; return p }

// eachOf repeats the panel for each value of a variable, side by side.
func (p *panel) eachOf(variable string, perLine int) *panel {
	p.repeat, p.perLine = variable, perLine
	return p
}

// leads adds links to all values.
func (p *panel) leads(links ...object) *panel { p.defaults["links"] = links; return p }

// style changes the series that match a regular expression.
func (p *panel) style(series string, props ...object) *panel {
	p.overrides = append(p.overrides, object{"matcher": object{"id": "byRegexp", "options": series},
		"properties": props})
	return p
}

// step is a colour that starts at a value.
type step struct {
	from   float64
	colour string
}

func from(value float64, colour string) step { return step{value, colour} }

func thresholds(base string, steps []step) object {
	list := []object{{"color": base, "value": nil}}
	for _, s := range steps {
		list = append(list, object{"color": s.colour, "value": s.from})
	}
	return object{"mode": "absolute", "steps": list}
}

// state is a named value.
type state struct {
	value        string
	name, colour string
}

func mappings(states []state) []object {
	options := object{}
	for i, s := range states {
		options[s.value] = object{"text": s.name, "color": s.colour, "index": i}
	}
	return []object{{"type": "value", "options": options}}
}

func prop(id string, value any) object { return object{"id": id, "value": value} }

// absent prevents missing values from getting the colour of the lowest values.
func (p *panel) absent() []object {
	switch p.kind {
	case "stat", "bargauge":
		text, ok := p.defaults["noValue"]
		if !ok {
			text = "no data"
		}
		return []object{special("null+nan", text)}
	case "table":
		if p.defaults["noValue"] != nil {
			return blank()
		}
		return []object{special("null+nan", "")}
	}
	return nil
}

// blank leaves cells without a value blank. Otherwise each would show the
// panel's noValue text; an empty text does not override it.
func blank() []object {
	const space = "\u00a0"
	return []object{special("null+nan", space), special("empty", space)}
}

func special(match string, text any) object {
	return object{"type": "special",
		"options": object{"match": match, "result": object{"text": text, "color": "transparent", "index": 9}}}
}

// dashed returns the style of a reference line: grey, dashed, not in the legend.
func dashed() []object {
	return []object{
		prop("custom.lineStyle", object{"fill": "dash", "dash": []int{10, 10}}),
		prop("custom.hideFrom", object{"legend": true, "tooltip": false, "viz": false}),
		prop("color", object{"mode": "fixed", "fixedColor": "text"}),
	}
}

func fixed(colour string) object { return prop("color", object{"mode": "fixed", "fixedColor": colour}) }

// dotted returns the style of a second kind of series in the colours of the first.
func dotted() object { return prop("custom.lineStyle", object{"fill": "dot", "dash": []int{0, 6}}) }

// below returns the style that draws series downwards, so that both directions share one axis.
func below() object { return prop("custom.transform", "negative-Y") }

func (p *panel) render(id, x, y int) object {
	var targets []object
	for i, t := range p.targets {
		targets = append(targets, p.renderTarget(i, t))
	}
	defaults := object{"custom": p.custom, "mappings": append(append([]object{}, p.mapped...), p.absent()...),
		"thresholds": thresholds("green", nil)}
	maps.Copy(defaults, p.defaults)
	out := object{
		"id": id, "type": p.kind, "title": p.title,
		"description":   p.about + "\n\n[" + p.docs + "](" + docsURL + p.docs + ")",
		"pluginVersion": pluginVersion, "datasource": source(), "gridPos": object{"x": x, "y": y, "w": p.w, "h": p.h},
		"targets": targets, "options": p.options,
		"fieldConfig": object{"defaults": defaults, "overrides": append(p.ofRails(), p.overrides...)},
	}
	if p.every != "" {
		out["interval"] = p.every
	}
	if transforms := p.allTransforms(); transforms != nil {
		out["transformations"] = transforms
	}
	if p.repeat != "" {
		out["repeat"], out["repeatDirection"], out["maxPerRow"] = p.repeat, "h", p.perLine
	}
	return out
}
