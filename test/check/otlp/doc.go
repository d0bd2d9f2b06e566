// Package otlp tests that what railscope pushes arrives in Prometheus as a scrape does: by its own OTLP endpoint.
package otlp
