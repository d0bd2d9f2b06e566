package dashboards

import "fmt"

// keep takes along what is chosen: data source, job, time.
const keep = "${datasource:queryparam}&${job:queryparam}&${__url_time_range}"

// toNode leads from a value to its node. node is Grafana's for the node's name.
func toNode(node string) object {
	return object{"title": "This node", "url": fmt.Sprintf("/d/%s?var-instance=%s&%s", uid("node"), node, keep), "targetBlank": false}
}

// toProbe leads from a value to the probe of a node and a peer.
func toProbe(node, peer string) object {
	return object{"title": "This probe", "url": fmt.Sprintf("/d/%s?var-instance=%s&var-peer=%s&%s", uid("probe"), node, peer, keep), "targetBlank": false}
}

// toRail leads from a value of a rail to what the probe says of it.
func toRail() object { return toRailOf(ofInstance, "${__field.labels.rail}") }

func toRailOf(node, rail string) object {
	link := toProbe(node, everyPeer)
	link["url"] = link["url"].(string) + "&var-rail=" + rail
	return link
}

// What Grafana calls the labels of a series.
const (
	ofInstance = "${__field.labels.instance}"
	everyPeer  = "$__all"
)
