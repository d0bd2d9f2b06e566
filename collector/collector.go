package collector

// Kind is what a metric's value means to the one who reads it.
type Kind int

// The kinds of metrics.
const (
	Counter   Kind = iota // only grows, except when its device is reset
	Gauge                 // goes up and down
	Untyped               // the kernel does not say which
	Histogram             // how often which value was seen; not in samples, the exporter keeps it
)

// Metric is one row of a source's table, the only place where a metric exists:
// describing, collecting, linting and docs/metrics.md all walk the rows.
type Metric struct {
	Name   string   // without the prefix railscope_
	Help   string   // one sentence: what it counts, and what a rising value means where that helps
	Kind   Kind     //
	Labels []string // names, in the order of Sample.Labels
	From   []Origin // the kernel's names for it; the first that a device has is used
	Ref    string   // where the meaning is written: kernel file, specification
}

// Origin is one of the kernel's counters that a row is made of.
type Origin struct {
	Name      string  // the kernel's name: file name, ethtool string, NVML call
	Scale     float64 // factor to the base unit; 0 means 1
	Bits      int     // width where it is narrower than 64 bits; 0 means 64
	Saturates bool    // stays at its greatest value rather than wrap to 0
}

// Sample is one value of one row.
type Sample struct {
	Metric *Metric
	Labels []string // values for Metric.Labels; not changed by anyone after it was emitted
	Value  float64  // in the base unit
}

// Source is one kind of hardware state.
type Source interface {
	// Name is the source's name in flags and in the source label.
	Name() string
	// Metrics returns the rows, always the same ones.
	Metrics() []*Metric
	// Read emits what can be read now. What cannot is in the error, one
	// [*Fault] each, joined; the two do not exclude each other. It returns an
	// error for which errors.Is(err, ErrAbsent) holds when the machine has no
	// such hardware. It is called by one goroutine at a time and returns in
	// bounded time; emit may be called until it returns, by one goroutine at a
	// time.
	Read(emit func(Sample)) error
}
