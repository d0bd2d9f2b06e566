// Package exporter exports the metrics; no other package imports Prometheus' client. docs/architecture.md lists its
// packages. This package has only the tests that need all of them.
package exporter
