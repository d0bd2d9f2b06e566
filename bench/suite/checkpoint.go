package suite

// Percentiles are percentiles of the times of parts.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// PartSeconds holds the times of parts in both directions.
type PartSeconds struct {
	Save Percentiles `json:"save"`
	Load Percentiles `json:"load"`
}

// Checkpoint is what saving a checkpoint to one target, and loading it, took. Sizes are bytes.
type Checkpoint struct {
	Target             string      `json:"target"`
	Bytes              int64       `json:"bytes"`
	Streams            int         `json:"streams"`
	SaveSeconds        float64     `json:"save_seconds"`
	LoadSeconds        float64     `json:"load_seconds"`
	SaveBytesPerSecond float64     `json:"save_bytes_per_second"`
	LoadBytesPerSecond float64     `json:"load_bytes_per_second"`
	PartSeconds        PartSeconds `json:"part_seconds"`
	Cache              string      `json:"cache,omitempty"` // how a directory bypassed it: direct or advised
	Memory             bool        `json:"memory,omitempty"`
	Compressed         *Compressed `json:"compressed"` // nil: not measured
	Interfaces         []Interface `json:"interfaces"` // without the compressed checkpoint
	Failure            string      `json:"failure,omitempty"`
}

// Compressed is the same checkpoint, compressed by gzip while it is saved, and decompressed while it is loaded. Rates
// are those of its content.
type Compressed struct {
	Bytes              int64   `json:"bytes"` // size at the target
	SaveSeconds        float64 `json:"save_seconds"`
	LoadSeconds        float64 `json:"load_seconds"`
	SaveBytesPerSecond float64 `json:"save_bytes_per_second"`
	LoadBytesPerSecond float64 `json:"load_bytes_per_second"`
}

// Interface is the traffic of a network interface during the measurement, other traffic included.
type Interface struct {
	Name     string `json:"name"`
	Sent     int64  `json:"sent_bytes"`
	Received int64  `json:"received_bytes"`
	Rail     bool   `json:"rail"`
}
