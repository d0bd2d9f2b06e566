// Package dashboards generates the Grafana dashboards fleet, node and probe, one file each. The generated JSON is
// committed as provisioning/ and grafana.com/. A test compares it with the output of Files; `make dashboards`
// regenerates it. The module test/check/dashboards validates the queries with Prometheus' own code.
package dashboards
