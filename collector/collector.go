// Package collector is where a value enters railscope: the vocabulary of the passive readers, and what they share. Each
// source is a package below it. Nothing here imports Prometheus, writes to a device or changes a setting.
//
//	kernel, NVML → <source>.Source.Read → Sample{row, labels, value} → exporter
//
// In a source, table.go makes the rows with [Table]; source.go finds the devices and passes their keys to a [Set],
// which opens, reads and closes them; device.go reads one device into a [Reading], and what rarely changes as [Facts].
// CONTRIBUTING.md describes how to add a counter or a source. The API may change at any time.
package collector

// Kind is the type of a metric.
type Kind int

// The kinds of metrics.
const (
	Counter   Kind = iota // only grows, except when its device is reset
	Gauge                 // goes up and down
	Untyped               // the kernel does not document which
	Histogram             // not in samples: the exporter keeps it
)

// Metric is one row of a source's table, the only place where a metric exists; lint and docs/metrics.md walk the rows.
type Metric struct {
	Name   string   // without the prefix railscope_
	Help   string   // one sentence: what it counts, and what a rising value means where that helps
	Kind   Kind     //
	Labels []string // names, in the order of Sample.Labels
	From   []Origin // the kernel's names for it; the first that a device has is used
	Ref    string   // where the meaning is documented: kernel file, specification
}

// Origin is one of the kernel's counters that a row is made of.
type Origin struct {
	Name      string  // the kernel's name: file name, ethtool string, NVML call
	Scale     float64 // factor to the base unit; 0 means 1
	Bits      int     // width where it is narrower than 64 bits; 0 means 64
	Saturates bool    // stays at its maximum instead of wrapping to 0
}

// Sample is one value of one row.
type Sample struct {
	Metric *Metric
	Labels []string // values for Metric.Labels; nobody changes them after the sample was emitted
	Value  float64  // in the base unit
}

// Source is one kind of hardware state.
type Source interface {
	// Name is the source's name in flags and in the source label.
	Name() string
	// Metrics returns the rows, always the same ones.
	Metrics() []*Metric
	// Read emits what can be read now. Everything else is in the error, one [*Fault] each, joined; samples and an error do
	// not exclude each other. The error wraps [ErrAbsent] when the machine has no such hardware. One goroutine at a time
	// calls it, and it returns in bounded time; emit is called until it returns, by one goroutine at a time.
	Read(emit func(Sample)) error
}

// GPUUse is the use of a GPU at one moment.
type GPUUse struct {
	Index     int
	Used      uint64 // bytes of memory in use, as gpu_memory_used_bytes
	UsedKnown bool
	Busy      bool // its utilisation is 10 % or more; without that figure: it has compute processes
	BusyKnown bool
}
