// Package demo evaluates the alerts on the data that railscope demo serves: a healthy demo raises none, and each
// trouble raises those that docs/demo.md names. It is a separate module because it depends on Prometheus itself.
package demo
