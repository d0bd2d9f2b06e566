package dashboards

import (
	"bytes"
	"encoding/json"
	"strings"
)

// object is a piece of Grafana's JSON, the classic dashboard schema.
type object = map[string]any

// 39 is the schema of Grafana 10.4, the oldest maintained release. Later
// releases migrate it on load.
const (
	schemaVersion = 39
	pluginVersion = "10.4.0"
	docsURL       = "https://github.com/railscope/railscope/blob/main/docs/"
)

// dashboard is a dashboard before layout.
type dashboard struct {
	name, title, about string // name is part of the uid and of the file name
	variables          []object
	sections           []section
}

// section is a row of the dashboard and the panels under it.
type section struct {
	title  string
	folded bool // collapsed, so that it sends no queries until it is opened
	panels []*panel
}

func (d *dashboard) section(title string, panels ...*panel) *dashboard {
	d.sections = append(d.sections, section{title: title, panels: panels})
	return d
}

func (d *dashboard) folded(title string, panels ...*panel) *dashboard {
	d.sections = append(d.sections, section{title: title, folded: true, panels: panels})
	return d
}

func uid(name string) string { return "railscope-" + name }

// render returns the dashboard in Grafana's format. The output is reproducible: no date, no version counter.
func (d *dashboard) render() object {
	return object{
		"id": nil, "uid": uid(d.name), "title": d.title, "description": d.about, "tags": []string{"railscope", "rdma"},
		"schemaVersion": schemaVersion, "version": 1, "editable": false, "fiscalYearStartMonth": 0, "graphTooltip": 1,
		"liveNow": false,
		"refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "timepicker": object{}, "timezone": "",
		"weekStart":   "",
		"templating":  object{"list": d.variables},
		"annotations": object{"list": d.annotations()},
		"links":       topLinks(),
		"panels":      layOut(d.sections),
	}
}

// annotations returns Grafana's own, and a line where an alert started to fire. Marking the whole duration would
// hide the panels.
func (d *dashboard) annotations() []object {
	now := selectors.Replace(firing)
	if len(d.variables) > len(ofAll()) {
		now = strings.Replace(now, "}", `, instance=~"$instance|"}`, 1)
	}
	started := now + ` unless ` + now + ` offset 1m`
	return []object{
		{
			"builtIn": 1, "datasource": object{"type": "grafana", "uid": "-- Grafana --"}, "enable": true, "hide": true,
			"iconColor": "rgba(0, 211, 255, 1)", "name": "Annotations & Alerts", "type": "dashboard",
		},
		{
			"datasource": source(), "enable": true, "hide": false, "iconColor": "red", "name": "Alert started",
			"expr": started, "step": "60s", "target": object{"expr": started, "interval": "60s", "refId": "Anno"},
			"titleFormat": "{{alertname}}", "textFormat": "",
			// in a text, Grafana would show the names of labels that an alert lacks
			"tagKeys":         "severity,instance,rail,peer",
			"useValueForTime": false,
		},
	}
}

// topLinks returns links to the other dashboards that keep the selection.
func topLinks() []object {
	return []object{
		{
			"type": "dashboards", "tags": []string{"railscope"}, "title": "railscope", "asDropdown": false,
			"includeVars": true, "keepTime": true,
			"targetBlank": false, "icon": "external link", "tooltip": "", "url": "",
		},
		{
			"type": "link", "title": "Documentation", "url": docsURL + "dashboards.md", "asDropdown": false,
			"includeVars": false, "keepTime": false,
			"targetBlank": true, "icon": "doc", "tooltip": "", "tags": []string{},
		},
	}
}

// source returns the selected data source.
func source() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// marshal returns readable JSON: indented, PromQL without escapes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}
