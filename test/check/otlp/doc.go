// Package otlp tests that series that railscope pushes arrive in Prometheus' OTLP endpoint as if they were scraped.
package otlp
