// Package exporter is where a metric leaves railscope, and the only package
// that knows Prometheus. It reads the sources when it is scraped, each with a
// time budget, keeps their values in a table of series and serves that.
//
//	collector.Source.Read → Scraper → Table → /metrics
package exporter
