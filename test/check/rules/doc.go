// Package rules checks the alerts and recording rules with Prometheus' own parser: they name only metrics and
// labels that the exporter has, treat counters as counters and keep the instance. It is a separate module because
// it depends on Prometheus itself. Tests that need no parser are beside the rules, and promtool runs them.
package rules
