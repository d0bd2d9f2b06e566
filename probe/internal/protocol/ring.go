package protocol

import (
	"errors"
	"net/netip"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// ReservedByRing returns the key of a reservation by a ring or gate.
func ReservedByRing(id string) string { return "ring " + id }

// ReservedBy returns the key of an asker.
func (l *LeaseRequest) ReservedBy(from netip.Addr) string {
	if l.Reservation != "" {
		return ReservedByRing(l.Reservation)
	}
	return "peer " + from.String()
}

// RingTimeout is the limit for a member, from the request to its end.
const RingTimeout = time.Minute

// RingRequest asks a node to connect to its successor.
type RingRequest struct {
	Successor string `json:"successor"` // host:port, as spelled in the member's list of peers
	Alone     bool   `json:"alone"`     // no other node streams meanwhile: TCP is measured, too

	Reservation string `json:"reservation,omitempty"` // reservation ID of the ring; empty: an older railscope asks
}

// Check returns what is wrong with the message.
func (r *RingRequest) Check() error {
	if r.Successor == "" {
		return errors.New("no successor")
	}
	return CheckTexts(r.Successor, r.Reservation)
}

// RingReply is the answer of a connected member.
type RingReply struct {
	ID string `json:"id"`
}

// RingResult is what a member measured.
type RingResult struct {
	Goodput     float64          `json:"goodput_bytes_per_second"` // sum over all rails; 0: not measured
	TCP         float64          `json:"tcp_bytes_per_second"`     // best over numbers of streams; 0: not measured
	Rails       int              `json:"rails"`                    // rails that carried data
	AllRails    int              `json:"all_rails"`
	RailFailure *failure.Failure `json:"rail_failure,omitempty"` // first failure of a rail that carried none
	Failure     *failure.Failure `json:"failure,omitempty"`
}
