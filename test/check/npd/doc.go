// Package npd runs the recipe for node-problem-detector with its own custom plugin monitor. It is a module of its own,
// because it takes node-problem-detector.
package npd
