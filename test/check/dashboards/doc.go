// Package dashboards checks the committed Grafana dashboards: what Grafana's users expect, that every query parses
// and names only what the exporter has, and that every query of every panel returns data from a Prometheus storage
// with the exporter's expositions. It is a separate module because it depends on Prometheus itself.
package dashboards
