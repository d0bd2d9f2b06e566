// Package dashboards makes the Grafana dashboards: fleet, node and probe, one
// file each that reads like a description of what is to be seen. The JSON that
// Grafana gets is checked in, in provisioning/ and grafana.com/; a test
// compares it with what Files returns, and `make dashboards` writes it anew.
// That every query parses, names only metrics that the rows have and returns
// something is tested in test/check/dashboards, a module of its own, because that
// takes Prometheus itself.
package dashboards
