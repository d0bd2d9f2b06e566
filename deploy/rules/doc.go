// Package rules makes of the alerts and recording rules that are checked in
// beside it what else is said of them: the PrometheusRule for Kubernetes, and
// the table in docs/alerts.md. node.yml and probe.yml are the source; this
// package reads them, and its tests hold what every alert must have. What needs
// Prometheus' own parser is in the module test/check.
package rules
