// Package rules generates the PrometheusRule for Kubernetes and the table in docs/alerts.md from the rules in
// conditions-node.yml, conditions-probe.yml and alerts.yml, and prints them with other thresholds. Its tests check the
// requirements on alerts; tests with Prometheus' parser are in the module test/check.
package rules
