// Package exporter is where a metric leaves railscope; nothing else knows Prometheus. docs/architecture.md lists its
// packages. exporter itself has the tests that need all of them.
package exporter
