// Package report prints what a round of the probe came to: a table for people,
// an object for scripts, and a line that says how far a round has come.
package report
