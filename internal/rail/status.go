package rail

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/sysfs"
)

// Status is the state of a port at one moment. Unknown values are 0.
type Status struct {
	StateID   int    // enum ib_port_state
	State     string // in the kernel's format, for example "4: ACTIVE"
	NetdevMTU int    // bytes
	Limits    Limits
	Use       Use
	GIDs      []GID
}

// stateNames are the kernel's names of enum ib_port_state (drivers/infiniband/core/sysfs.c, state_show).
var stateNames = [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

// StateName returns a port state in the kernel's format, for example "4: ACTIVE".
func StateName(state int) string {
	if state < 0 || state >= len(stateNames) {
		return fmt.Sprintf("%d: UNKNOWN", state)
	}
	return fmt.Sprintf("%d: %s", state, stateNames[state])
}

// Status reads everything except the bytes, and leaves no file open. The error is that of the state, without which
// no other value is known.
func (p *Port) Status() (Status, error) {
	defer p.Close()
	state, err := p.State()
	if err != nil {
		return Status{}, err
	}
	s := Status{StateID: state, State: StateName(state), Limits: p.LimitsIn(state), Use: p.Use(state)}
	if mtu, _, err := p.MTU(); err == nil && mtu <= 1<<20 {
		s.NetdevMTU = mtu
	}
	s.GIDs, _ = p.gids.Read() // GIDs that cannot be read cannot be used
	return s, nil
}

// Traffic holds the counters of a rail since its device or interface came up.
type Traffic struct {
	Transmit, Receive uint64 // bytes on the wire of this function, with headers
	Retransmits       uint64 // events after which it retransmits; 0 if the driver does not count them
	Repeats           uint64 // events that show retransmission by the other end; 0 if not counted
	CountsRetransmits bool   // the driver counts Retransmits
	CountsRepeats     bool   // the driver counts Repeats

	// Port is the bytes of the physical port by direction, including virtual functions and TCP. If the driver does
	// not count these (Physical is false), it is the bytes of this function.
	Port       [Directions]uint64
	Physical   bool
	Generation int // values of Port of different generations cannot be compared

	Period time.Duration // Port may lack the traffic of this period, because the counters are updated less often
	At     time.Time
}

// MeanTraffic is the mean traffic of a rail over some seconds, in bytes per second by direction.
type MeanTraffic struct {
	Rate     [Directions]float64 // traffic of this function
	Port     [Directions]float64 // traffic of the physical port, including virtual functions and TCP
	Physical bool                // Port is known
	Over     time.Duration       // all of it was measured within this time before now
}

// Carried is the total traffic of a rail since the start, at one moment. It never decreases.
type Carried struct {
	Bytes   [Directions]uint64
	Own     [Directions]uint64  // bytes of this node's own measurements, included in Bytes
	Settled bool                // Bytes includes all of Own: no own measurement is under way or ended just now
	Seconds [Directions]float64 // seconds that Bytes covers

	Group    Group
	Capacity float64 // last known capacity, bytes per second; 0 if none
}

// Since returns the bytes that the rail has carried in one direction since an earlier moment, without own
// measurements, and the seconds that they cover. The bytes are negative while Bytes lags behind Own.
func (c Carried) Since(before Carried, direction int) (bytes int64, seconds float64) {
	own := c.Own[direction] - before.Own[direction]
	return int64(c.Bytes[direction] - before.Bytes[direction] - own), c.Seconds[direction] - before.Seconds[direction]
}

// eventNames are the counters of retransmits and of repeats: those of mlx5, irdma, bnxt and ionic, and of rxe
// (drivers/infiniband/sw/rxe/rxe_hw_counters.c). The misspelt name is that of ionic's firmware.
var eventNames = [...][]string{
	{"local_ack_timeout_err", "packet_seq_err", "retry_exceeded_err", "rcvd_seq_err", "send_err", "completer_retry_err",
		"retransSegs", "to_retransmits", "seq_err_naks_rcvd", "tx_rdma_ack_timeout", "req_rx_pkt_seq_err"},
	{"out_of_sequence", "duplicate_request", "out_of_seq_request", "oos_drop_count", "dup_req", "resp_rx_outouf_seq",
		"resp_rx_dup_request"},
}

// UseStatistics makes Traffic read the bytes of the physical port from the driver's statistics.
func (p *Port) UseStatistics(ioctl ethtool.Ioctl) {
	if ioctl != nil && p.netdev != "" && p.rail.LinkLayer == "Ethernet" && !p.rail.Software {
		p.statistics = NewStatistics(p.sysfs, p.rail.Netdev, ioctl)
	}
}

// Traffic reads the bytes (see [Port.Bytes]), those of the physical port, and the events. It leaves no file open.
func (p *Port) Traffic() (t Traffic, err error) {
	defer p.closeFiles()
	t.At = time.Now()
	t.Transmit, _, err = p.Bytes(Transmit)
	if err == nil {
		t.Receive, _, err = p.Bytes(Receive)
	}
	if err != nil && (p.statistics == nil || !errors.Is(err, ErrUncounted)) {
		return t, err
	}
	t.Port = [Directions]uint64{Receive: t.Receive, Transmit: t.Transmit}
	t.Period = max(p.BytesPeriod(), p.BytesAge())
	if p.BytesShared() {
		t.Period = sharedPeriod // two reads must cover at least this time
	}
	if p.statistics != nil {
		if s, ok := p.statistics.Read(); ok && s.HasPhysical {
			t.Port, t.Physical, t.Generation, t.Period = s.Physical, true, s.Generation, max(t.Period, s.Period)
		}
	}
	if err != nil && !t.Physical {
		return t, err
	}
	if err != nil { // the bytes of all functions and protocols are at least those of this function
		t.Transmit, t.Receive, err = t.Port[Transmit], t.Port[Receive], nil
	}
	t.Period, _ = p.pace.Note(t.Port[Transmit]+t.Port[Receive], t.At, t.Period)
	t.Retransmits, t.CountsRetransmits = p.countEvents(0, t.At)
	t.Repeats, t.CountsRepeats = p.countEvents(1, t.At)
	return t, nil
}

// countEvents sums the counters of one kind that the driver has; known is false if it has none.
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
