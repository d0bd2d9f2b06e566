// Package demo runs railscope demo and puts what it serves before the alerts: a
// healthy demo raises none, and each trouble those that docs/demo.md names. It is
// in a module of its own, because it takes Prometheus itself.
package demo
