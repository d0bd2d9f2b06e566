package result

import (
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// Loss is the packet loss of a rail over the bursts of a round, from the counters of both ends.
type Loss struct {
	Retransmits uint64 // retransmission events: sequence errors that the peer reported, timeouts
	// PeerEvents are packets that arrived out of sequence, or twice: after one loss, all that were in flight. nil:
	// the peer did not report them.
	PeerEvents *uint64
	Packets    int64 // packets that the rail sent meanwhile, others' included, at the path MTU
	Bursts     int   // bursts with retransmissions
}

// Rate returns the number of retransmission events per packet.
func (l *Loss) Rate() float64 {
	if l.Packets == 0 {
		return 0
	}
	return float64(l.Retransmits) / float64(l.Packets)
}

// RailKind is what rails must have in common for their latencies to be compared.
type RailKind struct {
	Group    rail.Group
	Software bool // a software device at either end
}

// Uneven is the latency of a rail that is longer than it should be. All times are those of the fastest write of a
// round.
type Uneven struct {
	Latency  time.Duration
	Siblings time.Duration // latency of the other rails; 0: there are none
	Before   time.Duration // latency of this rail in earlier rounds; 0: unknown
}
