// Package status defines the JSON of /-/status: the state of a node as a running railscope knows it, for commands
// and scripts.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/terminal"
)

// Path is the path of the status, on the web port and on the socket of the state directory.
const Path = "/-/status"

// Version is the version of [Status]. Additions do not change it.
const Version = 1

// Limits of a status. Items beyond them are counted.
const (
	MaxPeers = 1000
	maxBytes = 8 << 20
)

// Levels of a [Verdict].
const (
	OK       = "ok"
	Warning  = "warning"
	Critical = "critical"
	Unknown  = "unknown" // no rails, or the node has not been examined
)

// Status is the response. Every key is always present; unknown values are null. Values are in base units.
type Status struct {
	Version         int              `json:"version"`
	Node            string           `json:"node"`
	Verdict         Verdict          `json:"verdict"`
	Railscope       Build            `json:"railscope"`
	Simulated       bool             `json:"simulated"` // true in railscope demo
	Started         time.Time        `json:"started"`
	At              time.Time        `json:"at"`
	Maintenance     bool             `json:"maintenance"`
	Examination     Examination      `json:"examination"`
	Rails           []Rail           `json:"rails"`
	RailsRead       *time.Time       `json:"rails_read"` // time at which the states and rates of rails were read
	Peers           []Peer           `json:"peers"`
	PeersDropped    int              `json:"peers_dropped"`
	Findings        []finding.Raised `json:"findings"` // the worst first, silenced ones last
	FindingsDropped int              `json:"findings_dropped"`
}

// Verdict is the state of the node in one sentence.
type Verdict struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Build describes the running program.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// Examination is the state of the node's examinations.
type Examination struct {
	At      *time.Time `json:"at"`      // end of the last examination; null: none has ended
	Seconds float64    `json:"seconds"` // duration of the last examination
	Error   *string    `json:"error"`   // reason why it has no result; null: it has one
	Done    int        `json:"done"`    // examinations with a result: after two, the active findings are known
	Unread  []string   `json:"unread"`  // checks that were skipped because their data could not be read
	// time at which hard facts were last read, for example by this request; null: never
	Hard    *time.Time     `json:"hard"`
	Classes []priority.Use `json:"classes"` // priorities of the rails
}

// Rail is a rail as of the last read.
type Rail struct {
	Name       string   `json:"name"`
	Device     string   `json:"device"`
	Port       string   `json:"port"`
	Netdev     string   `json:"netdev"`
	PCIAddress string   `json:"pci_address"`
	NUMANode   *string  `json:"numa_node"`
	State      *string  `json:"state"`
	Up         *bool    `json:"up"`
	Rate       *float64 `json:"rate_bytes_per_second"`
	Capacity   *float64 `json:"capacity_bytes_per_second"`
	Expected   *float64 `json:"expected_bytes_per_second"`
	MTU        *float64 `json:"mtu_bytes"`
	// last evidence of what the rail can carry, by a burst or by the traffic of jobs; null: none yet
	Proof       *proof.Proof `json:"proof"`
	Unused      bool         `json:"unused"`       // never up, and not expected to be up: no cable
	NotMeasured bool         `json:"not_measured"` // no counter for its bytes

	ProbeBytes
}

// ProbeBytes are the bytes on the wire of the probe's own transfers since the start, as initiator and responder; null:
// there is no probe.
type ProbeBytes struct {
	ProbeTransmit *uint64 `json:"probe_transmit_bytes"` // with those over TCP
	ProbeReceive  *uint64 `json:"probe_receive_bytes"`  // with those over TCP
	ProbeTCP      *uint64 `json:"probe_tcp_bytes"`      // both directions together
}

// Peer is a configured peer of the probe.
type Peer struct {
	Name string `json:"name"`
	Last *Round `json:"last_round"` // last round, including skipped ones; null: none yet
}

// Round is a round of the probe.
type Round struct {
	Start     time.Time         `json:"start"`
	Seconds   float64           `json:"seconds"`
	Outcome   string            `json:"outcome"`
	Transport string            `json:"transport"`
	Reason    *string           `json:"reason"` // null: RDMA worked
	Goodput   *float64          `json:"goodput_bytes_per_second"`
	Expected  *float64          `json:"expected_bytes_per_second"`
	Imbalance *float64          `json:"imbalance_ratio"`
	P50       *float64          `json:"latency_p50_seconds"` // latencies of the slowest rail
	P99       *float64          `json:"latency_p99_seconds"`
	Findings  []finding.Finding `json:"findings"` // findings of this round alone
}

// Examined reports whether findings are known: two examinations had a result.
func (s *Status) Examined() bool { return s.Examination.Done >= 2 }

// Rails holds numbers of rails.
type Rails struct {
	Up, All     int // rails that are not unused
	Unused      int
	NotMeasured int // NotMeasured: rails that are up and not measured
}

// String returns the numbers for people: "7 of 8 rails up, 2 unused, 1 not measured".
func (n Rails) String() string {
	text := terminal.Count(n.All, "rail") + " up"
	if n.Up < n.All {
		text = fmt.Sprintf("%d of %s", n.Up, text)
	}
	if n.Unused > 0 {
		text += fmt.Sprintf(", %d unused", n.Unused)
	}
	if n.NotMeasured > 0 {
		text += fmt.Sprintf(", %d not measured", n.NotMeasured)
	}
	return text
}

// Count counts the rails.
func (s *Status) Count() (n Rails) {
	for _, r := range s.Rails {
		if r.Unused {
			n.Unused++
			continue
		}
		n.All++
		if r.Up != nil && *r.Up {
			n.Up++
			if r.NotMeasured {
				n.NotMeasured++
			}
		}
	}
	return n
}

// Get requests the status at an address.
func Get(ctx context.Context, client *http.Client, address string, authorize func(*http.Request)) (*Status, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if authorize != nil {
		authorize(req)
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusNotFound:
		return nil, errors.New("no status at this address: another program, or an earlier version of railscope")
	case answer.StatusCode != http.StatusOK:
		text, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		return nil, fmt.Errorf("HTTP %d: %.200s", answer.StatusCode, text)
	case len(body) > maxBytes:
		return nil, fmt.Errorf("the status has more than %d bytes", maxBytes)
	}
	return Parse(body)
}

// Parse parses a status. It rejects other versions.
func Parse(body []byte) (*Status, error) {
	var s Status
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("invalid status: %w", err)
	}
	if s.Version != Version {
		return nil, fmt.Errorf("status version %d, this railscope reads %d: use the same version of railscope",
			s.Version, Version)
	}
	return &s, nil
}
