// Package blame tests that railscope fleet asks Prometheus the right questions: it evaluates them with Prometheus' own
// engine over the series of generated fleets.
package blame
