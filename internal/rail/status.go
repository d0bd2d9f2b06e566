package rail

import (
	"fmt"
	"path/filepath"
	"time"

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
	Transmit, Receive uint64 // bytes on the wire, with headers
	Retransmits       uint64 // events after which it retransmits; 0 if the driver does not count them
	Repeats           uint64 // events that show retransmission by the other end; likewise
	Slow              bool   // up to 2 s of traffic may be missing: drivers update an interface's statistics late
	At                time.Time
}

// eventNames are the counters of retransmits and of repeats: those of mlx5, irdma and bnxt, and of rxe
// (drivers/infiniband/sw/rxe/rxe_hw_counters.c).
var eventNames = [...][]string{
	{"local_ack_timeout_err", "packet_seq_err", "retry_exceeded_err", "rcvd_seq_err", "send_err", "completer_retry_err",
		"retransSegs", "to_retransmits", "seq_err_naks_rcvd"},
	{"out_of_sequence", "duplicate_request", "out_of_seq_request", "oos_drop_count", "dup_req"},
}

// Traffic reads the bytes, as [Port.Bytes] does, and the events. It leaves no file open.
func (p *Port) Traffic() (t Traffic, err error) {
	defer p.Close()
	t.At = time.Now()
	if t.Transmit, _, err = p.Bytes(Transmit); err != nil {
		return t, err
	}
	if t.Receive, _, err = p.Bytes(Receive); err != nil {
		return t, err
	}
	t.Slow = p.BytesShared()
	t.Retransmits, t.Repeats = p.countEvents(0, t.At), p.countEvents(1, t.At)
	return t, nil
}

// countEvents adds up the counters of one kind that the driver has.
func (p *Port) countEvents(kind int, now time.Time) (sum uint64) {
	if p.events[kind] == nil {
		for _, name := range eventNames[kind] {
			path := filepath.Join(p.dir(), "hw_counters", name)
			p.events[kind] = append(p.events[kind], &sysfs.Attr{Kept: sysfs.Kept{File: sysfs.File{Path: path}}})
		}
	}
	for _, counter := range p.events[kind] {
		n, _ := counter.Counter(now) // 0 on an error
		counter.Close()
		sum += n
	}
	return sum
}
