package rail

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// StateActive is the state of a port that carries data (enum ib_port_state,
// IB_PORT_ACTIVE).
const StateActive = 4

// Status is what a port and what it hangs on say at one moment. What they do
// not say is 0.
type Status struct {
	StateID   int    // enum ib_port_state
	State     string // the same in the kernel's words, for example "4: ACTIVE"
	NetdevMTU int    // bytes
	Limits    Limits
	GIDs      []GID
}

// Status reads what the rail says now, from the tree at sysfsRoot. It opens and
// closes each file but those of the GID table, which the caller keeps: it is for
// a look now and then, a scrape keeps its files open. Error is that of the
// port's state, without which nothing else is known.
func (r Rail) Status(sysfsRoot string, table *GIDTable) (Status, error) {
	var s Status
	port := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port))
	text, err := sysfs.ReadString(port, "state")
	if err != nil {
		return s, err
	}
	number, _, _ := strings.Cut(text, ":")
	if s.StateID, err = strconv.Atoi(number); err != nil {
		return s, &sysfs.Error{Path: filepath.Join(port, "state"), Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%q is not a state", text)}
	}
	s.State, s.Limits.Active = text, s.StateID == StateActive
	if text, err := sysfs.ReadString(port, "rate"); err == nil {
		s.Limits.Rate, _ = ParseRate(text)
	}
	if r.PCIAddress != "" {
		s.Limits.LinkKey = LinkKey(r.PCIAddress)
		speed, _ := sysfs.ReadString(r.Dir, "device/current_link_speed")
		width, _ := sysfs.ReadUint(r.Dir, "device/current_link_width")
		if gt, err := ParseLinkSpeed(speed); err == nil && width > 0 && width <= 64 {
			s.Limits.Link = Link{GigaTransfers: gt, Width: int(width)}.BytesPerSecond()
		}
	}
	if r.Netdev != "" {
		dir := filepath.Join(sysfsRoot, "class/net", r.Netdev)
		id, _ := sysfs.ReadString(dir, "phys_switch_id")
		name, _ := sysfs.ReadString(dir, "phys_port_name")
		s.Limits.PortKey = r.PortKey(id, name)
		if mtu, err := sysfs.ReadUint(dir, "mtu"); err == nil && mtu <= 1<<20 {
			s.NetdevMTU = int(mtu)
		}
	}
	s.GIDs, _ = table.Read() // what cannot be read cannot be used
	if len(s.GIDs) == 0 {
		table.Close() // another device may have taken the place of this one: read all of it
		s.GIDs, _ = table.Read()
	}
	return s, nil
}

// Traffic is what a rail has carried since its device or interface came up.
type Traffic struct {
	Transmit, Receive uint64    // bytes on the wire, headers and all
	Retransmits       uint64    // events after which something is sent again; 0 where the driver does not count them
	Repeats           uint64    // likewise events that show that something was sent to it again
	Slow              bool      // what was carried a moment before may be missing: some drivers refresh an interface's statistics by a timer, every second or two
	At                time.Time // when it was read
}

// Traffic reads the rail's byte counters: those of the port
// (counters/port_xmit_data, in units of 4 bytes), of the driver (EFA's
// hw_counters/tx_bytes), or, for a software device, those of its interface,
// which count TCP as well.
func (r Rail) Traffic(sysfsRoot string) (Traffic, error) {
	port := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port))
	t := Traffic{At: time.Now()}
	var err error
	read := func(scale uint64, elem ...string) (v uint64) {
		if err == nil {
			v, err = sysfs.ReadUint(elem...)
		}
		return v * scale
	}
	switch {
	case exists(port, "counters/port_xmit_data"):
		t.Transmit, t.Receive = read(4, port, "counters/port_xmit_data"), read(4, port, "counters/port_rcv_data")
	case exists(port, "hw_counters/tx_bytes"):
		t.Transmit, t.Receive = read(1, port, "hw_counters/tx_bytes"), read(1, port, "hw_counters/rx_bytes")
	case r.Netdev != "":
		dir := filepath.Join(sysfsRoot, "class/net", r.Netdev, "statistics")
		t.Slow = true
		t.Transmit, t.Receive = read(1, dir, "tx_bytes"), read(1, dir, "rx_bytes")
	default:
		return t, &sysfs.Error{Path: port, Reason: sysfs.ReasonVanished, Err: fmt.Errorf("%s counts no bytes", r)}
	}
	// mlx5, irdma and bnxt; rxe (drivers/infiniband/sw/rxe/rxe_hw_counters.c).
	sum := func(names ...string) (all uint64) {
		for _, name := range names {
			if n, err := sysfs.ReadUint(port, "hw_counters", name); err == nil {
				all += n
			}
		}
		return all
	}
	t.Retransmits = sum("local_ack_timeout_err", "packet_seq_err", "retry_exceeded_err", "rcvd_seq_err", "send_err", "completer_retry_err", "retransSegs", "to_retransmits", "seq_err_naks_rcvd")
	t.Repeats = sum("out_of_sequence", "duplicate_request", "out_of_seq_request", "oos_drop_count", "dup_req")
	return t, err
}
