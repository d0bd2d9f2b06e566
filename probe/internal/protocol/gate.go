package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// GateTimeout is the limit of one visit.
const GateTimeout = 40 * time.Second

// maxSpellings bounds the addresses by which a gate names a peer.
const maxSpellings = 16

// GateRequest asks a node to try its rails with a peer.
type GateRequest struct {
	// Peers are addresses of one peer, host:port: its name and what that resolves to. The first one that is among the
	// node's own peers is used.
	Peers       []string `json:"peers"`
	Burst       bool     `json:"burst,omitempty"` // measure each rail alone; else only whether it carries RDMA
	Reservation string   `json:"reservation"`     // ID of the gate, for which the node is reserved
}

// Check returns what is wrong with the message.
func (g *GateRequest) Check() error {
	switch {
	case len(g.Peers) == 0 || len(g.Peers) > maxSpellings:
		return fmt.Errorf("%d addresses of a peer: must be 1 to %d", len(g.Peers), maxSpellings)
	case g.Reservation == "":
		return errors.New("no reservation")
	}
	return CheckTexts(append(g.Peers, g.Reservation)...)
}

// maxGoodput bounds a rate that a node reports, in bytes per second.
const maxGoodput = 1e15

// CheckVisit refuses what no railscope reports, and cleans what becomes messages.
func CheckVisit(v *result.Visit) error {
	if len(v.Rails) > worker.MaxRails {
		return fmt.Errorf("%d rails: the limit is %d", len(v.Rails), worker.MaxRails)
	}
	if v.Failure != nil {
		Sanitize(v.Failure, failure.StageHello)
	}
	texts, seen := []string{v.Peer}, map[string]bool{}
	for _, r := range v.Rails {
		if r.Rail == "" || seen[r.Rail] {
			return fmt.Errorf("a rail without a unique name: %.40q", r.Rail)
		}
		seen[r.Rail] = true
		texts = append(texts, r.Rail, r.Leaf)
		for _, f := range []*failure.Failure{r.Failure, r.Left} {
			if f != nil {
				Sanitize(f, failure.StageReach)
			}
		}
		for _, rate := range []*float64{r.Goodput, r.Expected} {
			if rate != nil && !(*rate >= 0 && *rate < maxGoodput) {
				return fmt.Errorf("%v bytes per second of rail %.40q", *rate, r.Rail)
			}
		}
	}
	return CheckTexts(texts...)
}
