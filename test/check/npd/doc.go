// Package npd runs the recipe for node-problem-detector with its custom plugin monitor. It is a separate module
// because it depends on node-problem-detector.
package npd
