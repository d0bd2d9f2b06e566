package dashboards

// timeseries shows values over time. docs is the page with details.
func timeseries(title, docs, about string) *panel {
	return &panel{
		kind: "timeseries", title: title, about: about, docs: docs, w: 8, h: 8, format: "time_series",
		defaults: object{"color": object{"mode": "palette-classic"}},
		custom: object{
			"drawStyle": "line", "lineWidth": 1, "lineInterpolation": "linear", "fillOpacity": 0,
			"gradientMode": "none", "showPoints": "auto", "pointSize": 4,
			"spanNulls": false, "axisPlacement": "auto", "axisLabel": "", "axisBorderShow": false,
			"axisCenteredZero": false, "barAlignment": 0,
			"scaleDistribution": object{"type": "linear"}, "stacking": object{"mode": "none", "group": "A"},
			"thresholdsStyle": object{"mode": "off"},
			"hideFrom":        object{"legend": false, "tooltip": false, "viz": false}, "insertNulls": false,
		},
		options: object{
			"legend": object{"displayMode": "table", "placement": "bottom", "showLegend": true,
				"calcs": []string{"lastNotNull", "max"}, "sortBy": "Max", "sortDesc": true},
			"tooltip": object{"mode": "multi", "sort": "desc", "maxHeight": 600},
		},
	}
}

// lowest sorts the legend by minimum, for values where small is bad. A legend has
// room for three series.
func (p *panel) lowest() *panel {
	legend := p.options["legend"].(object)
	legend["calcs"], legend["sortBy"], legend["sortDesc"] = []string{"lastNotNull", "min"}, "Min", false
	return p
}

// lowestNow sorts the legend by current value.
func (p *panel) lowestNow() *panel {
	legend := p.options["legend"].(object)
	legend["sortBy"], legend["sortDesc"] = "Last *", false
	return p
}

// stacked stacks the series, for values whose sum matters.
func (p *panel) stacked() *panel {
	p.custom["stacking"], p.custom["fillOpacity"] = object{"mode": "normal", "group": "A"}, 30
	return p
}

// limits draws the thresholds as lines.
func (p *panel) limits() *panel {
	p.custom["thresholdsStyle"] = object{"mode": "dashed"}
	p.defaults["color"] = object{"mode": "palette-classic"}
	return p
}

// stat shows one current value.
func stat(title, docs, about string) *panel {
	return &panel{
		kind: "stat", title: title, about: about, docs: docs, w: 3, h: 4, format: "time_series", instant: true,
		defaults: object{"color": object{"mode": "thresholds"}}, custom: object{},
		options: object{
			"colorMode": "background", "graphMode": "none", "justifyMode": "center", "orientation": "auto",
			"textMode": "auto", "wideLayout": true,
			"showPercentChange": false, "reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "",
				"values": false},
		},
	}
}

// bars shows current values side by side.
func bars(title, docs, about string) *panel {
	return &panel{
		kind: "bargauge", title: title, about: about, docs: docs, w: 8, h: 8, format: "time_series", instant: true,
		defaults: object{"color": object{"mode": "thresholds"}}, custom: object{},
		options: object{
			"displayMode": "gradient", "orientation": "horizontal", "showUnfilled": true, "valueMode": "color",
			"namePlacement": "auto", "sizing": "auto",
			"minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 300,
			"legend": object{"showLegend": false, "displayMode": "list", "placement": "bottom",
				"calcs": []string{}},
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		},
	}
}

// heatmap shows the distribution of values over time.
func heatmap(title, docs, about, unit string) *panel {
	return &panel{
		kind: "heatmap", title: title, about: about, docs: docs, w: 12, h: 9, format: "heatmap",
		defaults: object{"unit": unit},
		custom: object{"scaleDistribution": object{"type": "linear"},
			"hideFrom": object{"legend": false, "tooltip": false, "viz": false}},
		options: object{
			"calculate": false, "cellGap": 1, "showValue": "never", "rowsFrame": object{"layout": "auto"},
			"filterValues": object{"le": 1e-9},
			"color": object{"mode": "scheme", "scheme": "Turbo", "scale": "exponential", "exponent": 0.5,
				"fill": "dark-orange", "reverse": false, "steps": 64},
			"yAxis":  object{"axisPlacement": "left", "reverse": false, "unit": unit},
			"legend": object{"show": true}, "tooltip": object{"mode": "single", "showColorScale": true,
				"yHistogram": true},
			"exemplars": object{"color": "rgba(255,0,255,0.7)"}, "cellValues": object{"unit": "short"},
		},
	}
}

// timeline shows states over time, one row per series.
func timeline(title, docs, about string, states ...state) *panel {
	return &panel{
		kind: "state-timeline", title: title, about: about, docs: docs, w: 12, h: 8, format: "time_series",
		mapped: mappings(states), defaults: object{"color": object{"mode": "thresholds"}},
		custom: object{
			"fillOpacity": 70, "lineWidth": 0, "hideFrom": object{"legend": false, "tooltip": false, "viz": false},
		},
		options: object{
			"alignValue": "left", "mergeValues": true, "rowHeight": 0.85, "showValue": "auto",
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": false, "calcs": []string{}},
			"tooltip": object{"mode": "single", "sort": "none"},
		},
	}
}
