// Package dashboards checks the Grafana dashboards, as they are checked in:
// what Grafana's users expect of one, that every query parses and names only
// what the exporter has, and that every query of every panel returns something
// from a storage of Prometheus that holds the exporter's expositions. It is in
// a module of its own, because it takes Prometheus itself.
package dashboards
