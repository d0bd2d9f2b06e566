// Package collector is where a value enters railscope: the vocabulary of passive
// readers, and what they share. Each source is a package below it. Nothing here
// knows Prometheus, writes to a device or changes a setting.
//
//	kernel, NVML → <source>.Source.Read → Sample{row, labels, value} → exporter
//
// A source has three files:
//
//   - table.go makes the rows, with [Table]: name, help, labels, and the kernel's
//     names for what the row is made of. A row is the only place where a metric
//     exists.
//   - source.go finds the devices that there are, gives each a key, and hands the
//     keys to a [Set], which opens, reads and closes the devices.
//   - device.go is one device: its files are kept open and read into a [Reading],
//     what hardly ever changes as [Facts].
//
// To add a counter, add a row to its source's table and a line to a fixture;
// CONTRIBUTING.md says how. To add a source, add a package and a line in
// cmd/railscope.
//
// These packages are importable because of where they lie; they make no promise to
// anyone but railscope.
package collector
