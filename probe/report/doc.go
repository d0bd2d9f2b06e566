// Package report prints the result of a round: a table for people, an object for scripts, and a progress bar.
package report
