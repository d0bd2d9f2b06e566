package dashboards

import "fmt"

// keep passes the selected data source, cluster, job and time on.
const keep = "${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}&${__url_time_range}"

// toNode links a value to its node. node is Grafana's expression for the name.
func toNode(node string) object {
	return object{"title": "This node", "url": fmt.Sprintf("/d/%s?var-instance=%s&%s", uid("node"), node, keep),
		"targetBlank": false}
}

// toRunbook links the name of an alert, without Railscope, to its page.
func toRunbook(alert string) object {
	return object{"title": "Runbook", "url": docsURL + "runbooks/Railscope" + alert + ".md", "targetBlank": true}
}

// toProbe links a value to the probe of a node and a peer.
func toProbe(node, peer string) object {
	return object{"title": "This probe", "url": fmt.Sprintf("/d/%s?var-instance=%s&var-peer=%s&%s", uid("probe"), node,
		peer, keep), "targetBlank": false}
}

// toRail links a value of a rail to its probe results.
func toRail() object { return toRailOf(ofInstance, "${__field.labels.rail}") }

func toRailOf(node, rail string) object {
	link := toProbe(node, everyPeer)
	link["url"] = link["url"].(string) + "&var-rail=" + rail
	return link
}

// Grafana's expressions for the labels of a series.
const (
	ofInstance = "${__field.labels.instance}"
	everyPeer  = "$__all"
)

// toCheck links a check to the list of all checks.
func toCheck() object {
	return object{"title": "Checks", "url": docsURL + "doctor.md#checks", "targetBlank": true}
}
