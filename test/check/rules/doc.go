// Package rules checks the alerts and recording rules with Prometheus' own
// parser: that they name only metrics and labels that the exporter has, take
// counters as counters and keep the instance. It is in a module of its own,
// because it takes Prometheus itself. What needs no parser is tested beside the
// rules, and promtool runs them.
package rules
