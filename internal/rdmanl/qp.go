package rdmanl

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// ErrCut is returned, always wrapped, if a dump ended early: its queue pairs are incomplete.
var ErrCut = errors.New("the dump was cut short")

// QPState is the state of a queue pair, enum ib_qp_state.
type QPState uint8

// RTR is the first state in which a queue pair receives, RTS the first in which it also sends.
const (
	RTR QPState = 2
	RTS QPState = 3
)

// String returns the state's name in lower case.
func (s QPState) String() string {
	states := [...]string{"reset", "init", "rtr", "rts", "sqd", "sqe", "err"}
	if int(s) < len(states) {
		return states[s]
	}
	return "state" + strconv.Itoa(int(s))
}

// QP is one queue pair of a device.
type QP struct {
	Port   uint32 // 0 while it is not bound to one
	State  QPState
	Kernel bool // it belongs to the kernel
	// Connected means that its type has one peer, unlike the datagram queue pairs of management.
	Connected bool
	// PID is the thread that created the queue pair, in our PID namespace; 0 if that thread has ended or is in a
	// namespace that we do not see, and for queue pairs of the kernel.
	PID uint32
}

// QPLimits limit one dump.
type QPLimits struct {
	Time  time.Duration // 0: the client's timeout
	Pairs int           // 0: a million
}

// Devices returns the names of all RDMA devices of our network namespace, in the kernel's order.
func (c *Client) Devices() (names []string, err error) {
	err = c.do(cmdGet, "", func() (err error) {
		names, err = c.listLocked()
		return err
	})
	return names, err
}

// SharedDevices reports whether every network namespace sees every device (rdma system: netns shared), and not only its
// own. Kernels that do not support the request only have that mode.
func (c *Client) SharedDevices() (shared bool, err error) {
	shared = true
	err = c.do(cmdSysGet, "", func() error {
		replies, err := c.executeLocked(cmdSysGet, 0, netlink.NewAttributeEncoder())
		for _, m := range replies {
			if mode := nlattr.Last(m.Data, attrNetnsMode, &err); mode != nil {
				shared = number(mode) != 0
			}
		}
		return err
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return true, nil
	}
	return shared && err == nil, err
}

// QueuePairs calls each for every queue pair of a device, including the kernel's, as they arrive, so that any number
// needs no memory. Do not call it often: adapters query the firmware for each one. A dump that exceeds the limits fails
// with [ErrCut], a slow one also with os.ErrDeadlineExceeded; the queue pairs until then are valid.
func (c *Client) QueuePairs(device string, limits QPLimits, each func(QP)) error {
	if limits.Pairs <= 0 {
		limits.Pairs = 1 << 20
	}
	return c.do(cmdResQPGet, " for "+device, func() error { return c.queuePairsLocked(device, limits, each) })
}

func (c *Client) queuePairsLocked(device string, limits QPLimits, each func(QP)) error {
	c.index = nil // a new index is cheap compared with a dump
	index, err := c.indexLocked(device)
	if err != nil {
		return err
	}
	if limits.Time > 0 {
		if err := c.conn.SetDeadline(time.Now().Add(limits.Time)); err != nil {
			return err
		}
	}
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(attrDevIndex, index)
	req, err := message(cmdResQPGet, netlink.Dump, ae)
	if err != nil {
		return err
	}
	req, err = c.conn.Send(req)
	if err != nil { // Execute would collect the whole dump
		return err
	}
	count, begun := 0, false
	limited := func(qp QP) error {
		if count == limits.Pairs {
			return fmt.Errorf("%w: more than %d queue pairs", ErrCut, limits.Pairs)
		}
		count++
		each(qp)
		return nil
	}
	for m, err := range c.conn.ReceiveIter() {
		if err != nil {
			if begun {
				err = fmt.Errorf("%w after %d queue pairs: %w", ErrCut, count, err)
			}
			return err
		}
		begun = true
		switch {
		case m.Header.Sequence != req.Header.Sequence:
			err = errors.New("an answer to another request")
		case !isAbout(m.Data, device):
			err = unix.ENODEV // the index now belongs to another device
		default:
			err = decodeQueuePairs(m.Data, limited)
		}
		if err != nil {
			c.conn.Close() // otherwise the iterator would read the rest and discard it
			return err
		}
	}
	return nil
}

// decodeQueuePairs calls each for every queue pair of one message of a dump, until each returns an error.
func decodeQueuePairs(data []byte, each func(QP) error) (err error) {
	for table := range nlattr.Of(data, attrResQP, &err) {
		for entry := range nlattr.Of(table, attrResQPEntry, &err) {
			qp := decodeQP(entry, &err)
			if err == nil {
				err = each(qp)
			}
		}
	}
	return err
}

func decodeQP(entry []byte, err *error) (qp QP) {
	for typ, value := range nlattr.All(entry, err) {
		switch typ {
		case attrPortIndex:
			qp.Port = number(value)
		case attrResType: // enum ib_qp_type: RC, UC, XRC_INI, XRC_TGT
			typ := number(value)
			qp.Connected = typ == 2 || typ == 3 || typ == 9 || typ == 10
		case attrResState:
			qp.State = QPState(number(value))
		case attrResPID:
			qp.PID = number(value)
		case attrResKernName:
			qp.Kernel = true
		}
	}
	return qp
}
