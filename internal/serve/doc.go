// Package serve wires a node: it makes sources, probe, examination and web port of a machine and a configuration, as
// tasks that run beside each other. Commands that look at a machine once use its [Host].
package serve
