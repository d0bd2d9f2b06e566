package dashboards

import (
	"bytes"
	"slices"
)

// Files returns the dashboards by file name, in two variants. provisioning/ has a variable for the data source and
// is mounted into Grafana. grafana.com/ is for manual upload and import; Grafana then asks for the data source
// once.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, d := range []*dashboard{fleet(), node(), probes()} {
		made := d.render()
		text, err := marshal(made)
		if err != nil {
			return nil, err
		}
		files["provisioning/"+uid(d.name)+".json"] = text
		text, err = forImport(made)
		if err != nil {
			return nil, err
		}
		files["grafana.com/"+uid(d.name)+".json"] = text
	}
	return files, nil
}

// forImport returns the variant for import, without the data source variable.
// It modifies made.
func forImport(made object) ([]byte, error) {
	made["__inputs"] = []object{{
		"name": "DS_PROMETHEUS", "label": "Prometheus", "description": "The Prometheus that scrapes railscope",
		"type":     "datasource",
		"pluginId": "prometheus", "pluginName": "Prometheus",
	}}
	requires := []object{
		{"type": "grafana", "id": "grafana", "name": "Grafana", "version": pluginVersion},
		{"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
	}
	for _, kind := range kindsOf(made["panels"].([]object)) {
		requires = append(requires, object{"type": "panel", "id": kind, "name": pluginNames[kind], "version": ""})
	}
	made["__requires"], made["__elements"] = requires, object{}
	templating := made["templating"].(object)
	templating["list"] = slices.DeleteFunc(slices.Clone(templating["list"].([]object)), func(v object) bool {
		return v["type"] == "datasource"
	})
	text, err := marshal(made)
	text = bytes.ReplaceAll(text, []byte("${datasource:queryparam}&"), nil)
	return bytes.ReplaceAll(text, []byte("${datasource}"), []byte("${DS_PROMETHEUS}")), err
}

// pluginNames are Grafana's names of panel kinds.
var pluginNames = map[string]string{
	"bargauge": "Bar gauge", "heatmap": "Heatmap", "stat": "Stat", "state-timeline": "State timeline", "table": "Table",
	"timeseries": "Time series",
}

// kindsOf returns the sorted kinds of all panels except rows.
func kindsOf(panels []object) []string {
	var kinds []string
	for _, p := range panels {
		if inner, ok := p["panels"].([]object); ok {
			kinds = append(kinds, kindsOf(inner)...)
			continue
		}
		kinds = append(kinds, p["type"].(string))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
