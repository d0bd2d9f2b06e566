// Package record watches what the rails of this node carry while a command runs, and says what they did.
package record

import (
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// Version is that of the form of a [Record].
const Version = 1

// Record is what was seen. Rates are bytes per second, sizes bytes, times seconds; nil is not known.
type Record struct {
	Version     int               `json:"version"`
	Command     []string          `json:"command"`
	Start       time.Time         `json:"start"`
	Seconds     float64           `json:"seconds"`
	ExitCode    int               `json:"exit_code"`
	Verdict     string            `json:"verdict"` // one sentence
	Good        bool              `json:"good"`    // all rails of the job carried, evenly
	Rails       []Rail            `json:"rails"`
	Imbalance   *float64          `json:"imbalance_ratio"` // 1 − the smallest share of what the rails carried
	Processes   []Process         `json:"processes"`       // with queue pairs, most of them first
	GPUs        []Memory          `json:"gpus"`
	Host        *Memory           `json:"host"`
	Collectives *Collectives      `json:"collectives"` // by NCCL Inspector
	Environment map[string]string `json:"environment"` // that NCCL and UCX read
	Notes       []string          `json:"notes"`       // what was not seen, and why
}

// Rail is what one rail carried.
type Rail struct {
	Rail     string    `json:"rail"`
	Device   string    `json:"device"`
	Netdev   string    `json:"netdev"`
	Role     string    `json:"role"`
	LineRate *float64  `json:"line_rate_bytes_per_second"`
	Transmit Direction `json:"transmit"`
	Receive  Direction `json:"receive"`
	Pairs    int       `json:"queue_pairs"` // connected, the most at one time, of all processes
	TCP      *int64    `json:"tcp_bytes"`   // in both directions; nil: not told apart from RDMA
	Series   []Point   `json:"series"`

	group  rail.Group
	broken bool // nothing is known of it
}

// Direction is one direction of a rail.
type Direction struct {
	Wire    *int64  `json:"wire_bytes"` // by RDMA, with headers
	Packets *int64  `json:"packets"`
	Payload *int64  `json:"payload_bytes"` // estimated: Wire without the headers of Packets
	Peak    float64 `json:"peak_bytes_per_second"`
}

// Point is the mean of a time, in bytes per second on the wire.
type Point struct {
	At       float64 `json:"seconds"` // of its end, since the start
	Transmit float64 `json:"transmit"`
	Receive  float64 `json:"receive"`
}

// Process is one name of processes with queue pairs.
type Process struct {
	Name  string         `json:"name"`
	Pairs map[string]int `json:"queue_pairs"` // by rail, the most at one time
}

// Memory is memory in use.
type Memory struct {
	Name   string `json:"name"`
	Before int64  `json:"before_bytes"`
	Most   int64  `json:"most_bytes"`
}

// carried is the payload of a rail in both directions, or what comes nearest to it.
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
