// Package blame tests the queries that railscope fleet sends to Prometheus: it evaluates them with Prometheus' own
// engine over the series of generated fleets.
package blame
