// Package collector is where a reading enters railscope: passive readers, one
// hardware source per file, each a table of rows and a Read below it. Nothing
// here knows Prometheus, nothing here writes to a device or changes a setting.
//
//	kernel, NVML → <source>.go Read → Sample{row, labels, value} → exporter
//
// To add a counter, add a row to its source's table and a line to a fixture;
// CONTRIBUTING.md says how. To add a source, add a file and a line in
// cmd/railscope.
//
// The packages at the top level are importable because of where they lie; they
// make no promise to anyone but railscope.
package collector
