package dashboards

// Variables in order: each query depends on the previous variables. Every dashboard has the first three.

// ofAll returns the variables of dashboards for all nodes. These use series that are recorded per cluster.
func ofAll() []object { return common() }

// ofOne returns the variables of dashboards for one or a few nodes. There is no All: Grafana would open with it and
// draw hundreds of lines in each panel.
func ofOne(more ...object) []object {
	node := values("instance", "Node", allNodes)
	node["includeAll"] = false
	delete(node, "allValue")
	delete(node, "current")
	return append(append(common(), node), more...)
}

const allNodes = `label_values(railscope_build_info{cluster=~"$cluster", job=~"$job"}, instance)`

func common() []object {
	return []object{
		{
			"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "regex": "",
			"refresh": 1, "hide": 0,
			"multi": false, "includeAll": false, "skipUrlSync": false, "options": []object{},
		},
		cluster(),
		values("job", "Job", `label_values(railscope_build_info{cluster=~"$cluster"}, job)`),
	}
}

// cluster is empty if no series has the label: its only value is then All.
func cluster() object {
	v := values("cluster", "Cluster", `label_values(railscope_build_info, cluster)`)
	v["allValue"] = ".*"
	return v
}

func railVariable() object {
	return values("rail", "Rail",
		`label_values(railscope_rail_info{cluster=~"$cluster", job=~"$job", instance=~"$instance"}, rail)`)
}

// probedRailVariable uses the rails of the probe, which may include a missing rail.
func probedRailVariable() object {
	return values("rail", "Rail", `label_values(railscope_probe_rail_up{cluster=~"$cluster", job=~"$job", `+
		`instance=~"$instance", peer=~"$peer"}, rail)`)
}

func peerVariable() object {
	return values("peer", "Peer",
		`label_values(railscope_probe_rounds_total{cluster=~"$cluster", job=~"$job", instance=~"$instance"}, peer)`)
}

// values returns a variable with the values of a label. Several values or All can be selected.
func values(name, label, query string) object {
	return object{
		"name": name, "label": label, "type": "query", "datasource": source(), "definition": query,
		"query":   object{"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
		"refresh": 2, "sort": 3, "regex": "", "hide": 0, "multi": true, "includeAll": true, "allValue": ".+",
		"skipUrlSync": false,
		"options":     []object{}, "current": object{"selected": true, "text": []string{"All"},
			"value": []string{"$__all"}},
	}
}
