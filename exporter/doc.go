// Package exporter is where a metric leaves railscope; nothing else knows Prometheus. Its packages:
//
//	table    the series, their text, and the formats of client_golang
//	scrape   reads the sources within a time budget: collector.Source.Read → Scraper → Table
//	probe    the source of what rounds found
//	sampler  the source of what the sampler counts
//	http     the web port: GET /metrics → Scraper.Exposition → Table.AppendText
//	page     the live page
//
// exporter itself has the tests that need all of them.
package exporter
