package rdmanl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/rdma/rdma_netlink.h, for resource tracking.
const (
	cmdSysGet   = 6
	cmdResQPGet = 10

	attrResQP       = 19
	attrResQPEntry  = 20
	attrResLQPN     = 21
	attrResType     = 26
	attrResState    = 27
	attrResPID      = 28
	attrResKernName = 29
	attrNetnsMode   = 66
)

// receiveSize is what one read of a dump has room for. The kernel fills as much
// as the reader has room for, and no more than this. It goes over the entries
// from the first one for every read, so few large reads are much cheaper than
// many small ones.
const receiveSize = 32 << 10

// ErrCut says that a dump was given up before its end: what it gave so far is
// not all there is. Always wrapped.
var ErrCut = errors.New("the dump was cut short")

// QPState is the state of a queue pair, enum ib_qp_state.
type QPState uint8

// RTS is the state in which a queue pair sends.
const RTS QPState = 3

var qpStates = [...]string{"reset", "init", "rtr", "rts", "sqd", "sqe", "err"}

// String returns the state's name in lower case.
func (s QPState) String() string {
	if int(s) < len(qpStates) {
		return qpStates[s]
	}
	return "state" + strconv.Itoa(int(s))
}

// QP is one queue pair of a device.
type QP struct {
	Number uint32
	Port   uint32 // 0 while it is not bound to one
	Type   uint8  // enum ib_qp_type; 2 is RC
	State  QPState
	Kernel bool // the kernel's own
	// PID is the thread that made the queue pair, as our pid namespace numbers
	// it; 0 when that thread has ended or is of a namespace that we do not see,
	// and for the kernel's.
	PID uint32
}

// QPLimits bound one dump.
type QPLimits struct {
	Time  time.Duration // 0: the client's timeout
	Pairs int           // 0: a million
}

// Devices returns the names of all RDMA devices of our network namespace, in
// the kernel's order.
func (c *Client) Devices() ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, err := c.devicesLocked()
	if err != nil {
		c.closeLocked()
		return nil, fmt.Errorf("RDMA netlink command %d: %w", cmdGet, err)
	}
	return names, nil
}

func (c *Client) devicesLocked() ([]string, error) {
	if err := c.openLocked(); err != nil {
		return nil, err
	}
	if err := c.listLocked(); err != nil {
		return nil, err
	}
	return c.names, nil
}

// SharedDevices reports whether every network namespace sees every device
// (rdma system: netns shared), and not only its own. Kernels that cannot say
// know no other way.
func (c *Client) SharedDevices() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared, err := c.sharedLocked()
	if err != nil {
		c.closeLocked()
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return true, nil
		}
		return false, fmt.Errorf("RDMA netlink command %d: %w", cmdSysGet, err)
	}
	return shared, nil
}

func (c *Client) sharedLocked() (bool, error) {
	if err := c.openLocked(); err != nil {
		return false, err
	}
	replies, err := c.executeLocked(cmdSysGet, 0, netlink.NewAttributeEncoder())
	if err != nil {
		return false, err
	}
	shared := true
	for _, m := range replies {
		err = errors.Join(err, walk(m.Data, func(typ uint16, value []byte) bool {
			if typ == attrNetnsMode && len(value) > 0 {
				shared = value[0] != 0
			}
			return true
		}))
	}
	return shared, err
}

// QueuePairs calls each for every queue pair of a device, the kernel's own too,
// as they come: nothing is gathered, so that a device with hundreds of
// thousands costs no memory. It needs no privilege. On adapters the kernel asks
// the firmware about each one, so do not ask often. A dump that is longer than
// the limits fails with [ErrCut], one that takes longer with that and
// os.ErrDeadlineExceeded; what each got until then is right.
func (c *Client) QueuePairs(device string, limits QPLimits, each func(QP)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limits.Pairs <= 0 {
		limits.Pairs = 1 << 20
	}
	if err := c.queuePairsLocked(device, limits, each); err != nil {
		c.closeLocked() // the rest of a dump must not be taken for the next answer
		return fmt.Errorf("RDMA netlink command %d for %s: %w", cmdResQPGet, device, err)
	}
	return nil
}

func (c *Client) queuePairsLocked(device string, limits QPLimits, each func(QP)) error {
	if _, err := c.devicesLocked(); err != nil { // a fresh index: it is one small question beside a dump
		return err
	}
	index, known := c.index[device]
	if !known {
		return unix.ENODEV
	}
	if limits.Time > 0 {
		if err := c.conn.SetDeadline(time.Now().Add(limits.Time)); err != nil {
			return err
		}
	}
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(attrDevIndex, index)
	data, err := ae.Encode()
	if err != nil {
		return err
	}
	// Execute would gather the whole dump.
	req, err := c.conn.Send(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(clientNLDEV + cmdResQPGet),
			Flags: netlink.Request | netlink.Dump},
		Data: data,
	})
	if err != nil {
		return err
	}
	count, begun := 0, false
	for m, err := range c.conn.ReceiveIter() {
		if err != nil {
			if begun {
				err = fmt.Errorf("%w after %d queue pairs: %w", ErrCut, count, err)
			}
			return err
		}
		begun = true
		if err := c.acceptLocked(m, req, device, limits.Pairs, &count, each); err != nil {
			c.conn.Close() // else the iterator would read the rest of it, to throw it away
			return err
		}
	}
	return nil
}

// acceptLocked takes one message of a dump.
func (c *Client) acceptLocked(m, req netlink.Message, device string, most int, count *int, each func(QP)) error {
	switch {
	case m.Header.Sequence != req.Header.Sequence:
		return errors.New("an answer to another question")
	case !names(m.Data, device):
		return unix.ENODEV // the index has passed to another device
	}
	cut := false
	err := decodeQueuePairs(m.Data, func(qp QP) bool {
		if *count == most {
			cut = true
			return false
		}
		*count++
		each(qp)
		return true
	})
	if cut {
		return fmt.Errorf("%w: more than %d queue pairs", ErrCut, most)
	}
	return err
}

// decodeQueuePairs calls each for every queue pair of one message of a dump, until it
// returns false.
func decodeQueuePairs(data []byte, each func(QP) bool) error {
	var bad error
	err := walk(data, func(typ uint16, table []byte) bool {
		if typ != attrResQP {
			return true
		}
		more := true
		err := walk(table, func(typ uint16, entry []byte) bool {
			if typ != attrResQPEntry {
				return true
			}
			var qp QP
			if bad = decodeQP(entry, &qp); bad != nil {
				return false
			}
			more = each(qp)
			return more
		})
		bad = errors.Join(bad, err)
		return more && bad == nil
	})
	return errors.Join(bad, err)
}

func decodeQP(entry []byte, qp *QP) error {
	return walk(entry, func(typ uint16, value []byte) bool {
		switch typ {
		case attrPortIndex:
			qp.Port = number(value)
		case attrResLQPN:
			qp.Number = number(value)
		case attrResType:
			qp.Type = uint8(number(value))
		case attrResState:
			qp.State = QPState(number(value))
		case attrResPID:
			qp.PID = number(value)
		case attrResKernName:
			qp.Kernel = true
		}
		return true
	})
}

// number reads the kernel's u8 and u32.
func number(value []byte) uint32 {
	switch len(value) {
	case 1:
		return uint32(value[0])
	case 4:
		return binary.NativeEndian.Uint32(value)
	}
	return 0
}

var errAttribute = errors.New("an attribute does not fit into the message")

// walk calls fn for each attribute of b, until it returns false. Unlike the
// library's decoder it leaves nothing behind for the garbage collector.
func walk(b []byte, fn func(typ uint16, value []byte) bool) error {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlAttr {
			return errAttribute
		}
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return errAttribute
		}
		typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if !fn(typ, b[unix.SizeofNlAttr:length]) {
			return nil
		}
		b = b[min(len(b), (length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return nil
}
