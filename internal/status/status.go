// Package status is the JSON of /-/status: what a running railscope knows of its node, for commands and scripts.
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
)

// Path is where a status is, on the web port and on the socket of the state directory.
const Path = "/-/status"

// Version is the form of [Status]. Additions do not change it.
const Version = 1

// Bounds of a status. What is beyond them is counted.
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

// Status is the answer. Every key is always present; what is unknown is null. Figures are in base units.
type Status struct {
	Version         int              `json:"version"`
	Node            string           `json:"node"`
	Verdict         Verdict          `json:"verdict"`
	Railscope       Build            `json:"railscope"`
	Simulated       bool             `json:"simulated"` // by railscope demo
	Started         time.Time        `json:"started"`
	At              time.Time        `json:"at"`
	Maintenance     bool             `json:"maintenance"`
	Examination     Examination      `json:"examination"`
	Rails           []Rail           `json:"rails"`
	RailsRead       *time.Time       `json:"rails_read"` // when the states and rates of rails were read
	Peers           []Peer           `json:"peers"`
	PeersDropped    int              `json:"peers_dropped"`
	Findings        []finding.Raised `json:"findings"` // the worst first, silenced ones last
	FindingsDropped int              `json:"findings_dropped"`
}

// Verdict is the node in one sentence.
type Verdict struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Build is what runs.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// Examination is how the node was examined.
type Examination struct {
	At      *time.Time `json:"at"`      // end of the last one; null: none has ended
	Seconds float64    `json:"seconds"` // that it took
	Error   *string    `json:"error"`   // why it has no result; null: it has one
	Done    int        `json:"done"`    // examinations with a result: after two, what stands is known
	Unread  []string   `json:"unread"`  // what could not be read, and is therefore not judged
}

// Rail is a rail, as it was read last.
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
}

// Peer is a peer of the probe, as configured.
type Peer struct {
	Name string `json:"name"`
	Last *Round `json:"last_round"` // skipped ones included; null: none yet
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
	P50       *float64          `json:"latency_p50_seconds"` // of the slowest rail
	P99       *float64          `json:"latency_p99_seconds"`
	Findings  []finding.Finding `json:"findings"` // of this round alone
}

// Examined reports whether findings are known: two examinations have ended with a result.
func (s *Status) Examined() bool { return s.Examination.Done >= 2 }

// RailsUp is how many rails are up, of how many.
func (s *Status) RailsUp() (up, all int) {
	for _, r := range s.Rails {
		if r.Up != nil && *r.Up {
			up++
		}
	}
	return up, len(s.Rails)
}

// Get asks for the status at an address.
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
		return nil, errors.New("no status there: another program, or an earlier version of railscope")
	case answer.StatusCode != http.StatusOK:
		text, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		return nil, fmt.Errorf("HTTP %d: %.200s", answer.StatusCode, text)
	case len(body) > maxBytes:
		return nil, fmt.Errorf("a status of more than %d bytes", maxBytes)
	}
	return Parse(body)
}

// Parse reads a status. It refuses other versions.
func Parse(body []byte) (*Status, error) {
	var s Status
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("invalid status: %w", err)
	}
	if s.Version != Version {
		return nil, fmt.Errorf("status version %d, this railscope reads %d: use the same version of railscope", s.Version,
			Version)
	}
	return &s, nil
}
