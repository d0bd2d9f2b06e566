// Package record observes what the rails of this node carry while a command runs, and summarizes it.
package record

import (
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// Version is the version of the JSON form of a [Record].
const Version = 1

// Record is the result of a recording. Rates are in bytes per second, sizes in bytes, times in seconds; nil means
// unknown.
type Record struct {
	Version  int       `json:"version"`
	Command  []string  `json:"command"`
	Start    time.Time `json:"start"`
	Seconds  float64   `json:"seconds"`
	ExitCode int       `json:"exit_code"`
	Verdict  string    `json:"verdict"` // one sentence
	Good     bool      `json:"good"`    // all rails of the job carried data, evenly
	Rails    []Rail    `json:"rails"`
	// Probe is the bytes of railscope's own rounds, which are left out; nil if unknown.
	Probe *int64 `json:"probe_bytes,omitempty"`
	// Imbalance is 1 − the smallest rail's share of what the rails carried.
	Imbalance *float64  `json:"imbalance_ratio"`
	Processes []Process `json:"processes"` // processes with queue pairs, those with most first
	GPUs      []Memory  `json:"gpus"`
	Host      *Memory   `json:"host"`
	FromNCCL
	Environment map[string]string `json:"environment"` // variables that NCCL and UCX read
	Notes       []string          `json:"notes"`       // data that could not be read, and why
}

// Rail is the traffic of one rail.
type Rail struct {
	Rail     string    `json:"rail"`
	Device   string    `json:"device"`
	Netdev   string    `json:"netdev"`
	Role     string    `json:"role"`
	LineRate *float64  `json:"line_rate_bytes_per_second"`
	Transmit Direction `json:"transmit"`
	Receive  Direction `json:"receive"`
	Pairs    int       `json:"queue_pairs"` // maximum of connected queue pairs of all processes
	TCP      *int64    `json:"tcp_bytes"`   // both directions; nil if not distinguished from RDMA
	Series   []Point   `json:"series"`

	group  rail.Group
	broken bool // nothing is known of it
	noTCP  bool // its interface does not count what TCP carried
}

// Direction is the traffic of a rail in one direction.
type Direction struct {
	Wire    *int64  `json:"wire_bytes"` // RDMA, with headers
	Packets *int64  `json:"packets"`
	Payload *int64  `json:"payload_bytes"` // estimated: Wire without the headers of Packets
	Peak    float64 `json:"peak_bytes_per_second"`
}

// Point is the mean rate of an interval, in bytes per second on the wire.
type Point struct {
	At       float64 `json:"seconds"` // end of the interval, since the start
	Transmit float64 `json:"transmit"`
	Receive  float64 `json:"receive"`
}

// Process stands for all processes of one name with queue pairs.
type Process struct {
	Name  string         `json:"name"`
	Pairs map[string]int `json:"queue_pairs"` // maximum by rail
}

// Memory is the memory in use.
type Memory struct {
	Name   string `json:"name"`
	Before int64  `json:"before_bytes"`
	Most   int64  `json:"most_bytes"`
}

// carried returns the payload of a rail in both directions, or the closest known count.
func (r Rail) carried() (sum int64) {
	for _, d := range []Direction{r.Transmit, r.Receive} {
		switch {
		case d.Payload != nil:
			sum += *d.Payload
		case d.Wire != nil:
			sum += *d.Wire
		}
	}
	return sum
}
