package rail

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/sysfs"
)

// Status is the state of a port at one moment. Unknown figures are 0.
type Status struct {
	StateID   int    // enum ib_port_state
	State     string // as the kernel prints it, for example "4: ACTIVE"
	NetdevMTU int    // bytes
	Limits    Limits
	GIDs      []GID
}

// stateNames are the kernel's names of enum ib_port_state (drivers/infiniband/core/sysfs.c, state_show).
var stateNames = [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

// StateName returns a port state as the kernel prints it, for example "4: ACTIVE".
func StateName(state int) string {
	if state < 0 || state >= len(stateNames) {
		return fmt.Sprintf("%d: UNKNOWN", state)
	}
	return fmt.Sprintf("%d: %s", state, stateNames[state])
}

// Status reads all but the bytes, and leaves no file open. The error is that of the state, without which nothing else
// is known.
func (p *Port) Status() (Status, error) {
	defer p.Close()
	state, err := p.State()
	if err != nil {
		return Status{}, err
	}
	s := Status{StateID: state, State: StateName(state), Limits: p.LimitsIn(state)}
	if mtu, _, err := p.MTU(); err == nil && mtu <= 1<<20 {
		s.NetdevMTU = mtu
	}
	s.GIDs, _ = p.gids.Read() // what cannot be read cannot be used
	return s, nil
}

// Traffic is what a rail carried since its device or interface came up.
type Traffic struct {
	Transmit, Receive uint64 // bytes on the wire of this function, with headers
	Retransmits       uint64 // events after which it retransmits; 0 if the driver does not count them
	Repeats           uint64 // events that show retransmission by the other end; likewise
	CountsRetransmits bool   // the driver does
	CountsRepeats     bool   // likewise

	// Port is the bytes of the physical port by direction: also of virtual functions and TCP. Where the driver does not
	// count these (Physical is false), it is those of this function.
	Port       [Directions]uint64
	Physical   bool
	Generation int // Port of another generation cannot be compared

	Period time.Duration // up to so much of the traffic may be missing: the counters do not move more often
	At     time.Time
}

// MeanTraffic is what a rail has carried on average over some seconds, in bytes per second by direction.
type MeanTraffic struct {
	Rate     [Directions]float64 // of this function
	Port     [Directions]float64 // of the physical port: also of virtual functions and TCP
	Physical bool                // Port is known
	Over     time.Duration       // all of it was within this time before now
}

// Carried is what a rail had carried at one moment since the start. It never steps back.
type Carried struct {
	Bytes   [Directions]uint64
	Own     [Directions]uint64  // of these, the bytes of this node's own measurements
	Settled bool                // none was under way, or has just ended: Bytes has all of Own
	Seconds [Directions]float64 // covered by Bytes

	Group    Group
	Capacity float64 // last known one, bytes per second; 0 if none
}

// Since returns what the rail has carried in one direction since an earlier moment without own measurements, in bytes,
// and in how many seconds. It is negative while Bytes lags behind Own.
func (c Carried) Since(before Carried, direction int) (bytes int64, seconds float64) {
	own := c.Own[direction] - before.Own[direction]
	return int64(c.Bytes[direction] - before.Bytes[direction] - own), c.Seconds[direction] - before.Seconds[direction]
}

// eventNames are the counters of retransmits and of repeats: those of mlx5, irdma, bnxt and ionic, and of rxe
// (drivers/infiniband/sw/rxe/rxe_hw_counters.c). Ionic's firmware spells out of sequence so.
var eventNames = [...][]string{
	{"local_ack_timeout_err", "packet_seq_err", "retry_exceeded_err", "rcvd_seq_err", "send_err", "completer_retry_err",
		"retransSegs", "to_retransmits", "seq_err_naks_rcvd", "tx_rdma_ack_timeout", "req_rx_pkt_seq_err"},
	{"out_of_sequence", "duplicate_request", "out_of_seq_request", "oos_drop_count", "dup_req", "resp_rx_outouf_seq",
		"resp_rx_dup_request"},
}

// UseStatistics lets Traffic read the bytes of the physical port from the driver's statistics.
func (p *Port) UseStatistics(ioctl ethtool.Ioctl) {
	if ioctl != nil && p.netdev != "" && p.rail.LinkLayer == "Ethernet" && !p.rail.Software {
		p.statistics = NewStatistics(p.sysfs, p.rail.Netdev, ioctl)
	}
}

// Traffic reads the bytes, as [Port.Bytes] does, those of the physical port, and the events. It leaves no file open.
func (p *Port) Traffic() (t Traffic, err error) {
	defer p.closeFiles()
	t.At = time.Now()
	if t.Transmit, _, err = p.Bytes(Transmit); err != nil {
		return t, err
	}
	if t.Receive, _, err = p.Bytes(Receive); err != nil {
		return t, err
	}
	t.Port, t.Period = [Directions]uint64{Receive: t.Receive, Transmit: t.Transmit}, p.bytesPeriod()
	if p.statistics != nil {
		if s, ok := p.statistics.Read(); ok && s.HasPhysical {
			t.Port, t.Physical, t.Generation, t.Period = s.Physical, true, s.Generation, max(t.Period, s.Period)
		}
	}
	t.Period = p.pace.note(t.Port[Transmit]+t.Port[Receive], t.At, t.Period)
	t.Retransmits, t.CountsRetransmits = p.countEvents(0, t.At)
	t.Repeats, t.CountsRepeats = p.countEvents(1, t.At)
	return t, nil
}

// bytesPeriod is how often the bytes of the function change at least under load. A read of most drivers asks the
// adapter (process_mad, get_hw_stats), unless the kernel has cached the answer.
func (p *Port) bytesPeriod() time.Duration {
	switch {
	case p.BytesShared():
		return sharedPeriod
	case strings.HasPrefix(p.rail.Driver, "bnxt"): // what the adapter writes to memory once a second (bnxt.c, bnxt_timer)
		return time.Second
	}
	return p.BytesAge()
}

// sharedPeriod is that of an interface's counters: some drivers update them every 2 s.
const sharedPeriod = 2 * time.Second

// pace is how often a counter is seen to move.
type pace struct {
	value        uint64
	last, before time.Time     // of the last two readings
	moved        bool          // between these two
	seen         time.Duration // shortest time in which it moved twice; 0: never
}

// note notes a reading, and returns the period of the counter: the one that is known of its driver, or less if it has
// moved more often.
func (p *pace) note(value uint64, at time.Time, known time.Duration) time.Duration {
	moved := !p.last.IsZero() && value != p.value
	if twice := at.Sub(p.before); moved && p.moved && (p.seen == 0 || twice < p.seen) {
		p.seen = twice
	}
	p.value, p.last, p.before, p.moved = value, at, p.last, moved
	if p.seen > 0 {
		return min(known, p.seen)
	}
	return known
}

// countEvents adds up the counters of one kind that the driver has; known is false if it has none.
func (p *Port) countEvents(kind int, now time.Time) (sum uint64, known bool) {
	if p.events[kind] == nil {
		for _, name := range eventNames[kind] {
			path := filepath.Join(p.dir(), "hw_counters", name)
			p.events[kind] = append(p.events[kind], &sysfs.Attr{File: sysfs.File{Path: path}})
		}
	}
	for _, counter := range p.events[kind] {
		n, err := counter.Counter(now) // 0 on an error
		counter.Close()
		sum, known = sum+n, known || err == nil
	}
	return sum, known
}
