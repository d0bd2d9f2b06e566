// Package rdmanl asks the kernel's RDMA core over netlink what sysfs says
// slowly or not at all: the hardware counters of a port in one request, where
// sysfs needs a file and several firmware commands for each, the network
// interface a port belongs to, and which process made which queue pairs. Only
// GET operations, which need no privilege.
//
// Source: include/uapi/rdma/rdma_netlink.h, drivers/infiniband/core/nldev.c.
package rdmanl

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/rdma/rdma_netlink.h; golang.org/x/sys/unix has only the
// protocol number.
const (
	clientNLDEV = 5 << 10 // RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op)

	cmdGet     = 1
	cmdPortGet = 5
	cmdStatGet = 17

	attrDevIndex       = 1
	attrDevName        = 2
	attrPortIndex      = 3
	attrNdevName       = 51
	attrHWCounters     = 80
	attrHWCounterEntry = 81
	attrHWCounterName  = 82
	attrHWCounterValue = 83
)

// MaxCounters bounds how many counters one answer may hold; bnxt_re, which has
// the most, has about a hundred.
const MaxCounters = 1024

// Counter is one hardware counter under the driver's own name.
type Counter struct {
	Name  string
	Value uint64
}

// Client talks to the kernel over one socket, opened at the first question.
// Safe for concurrent use; questions wait for one another, so give each thing
// that may hang a client of its own.
type Client struct {
	dial    func() (*netlink.Conn, error)
	timeout time.Duration

	mu    sync.Mutex // protects all following fields
	conn  *netlink.Conn
	index map[string]uint32 // device name → kernel's index, of the last listing
	names []string          // of the devices, in the same listing
}

// New returns a client whose questions are answered within timeout or fail with
// os.ErrDeadlineExceeded. A kernel without RDMA fails with EPROTONOSUPPORT.
func New(timeout time.Duration) *Client {
	return newClient(timeout, func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_RDMA, nil) })
}

// NewForDumps is [New] for a client that is asked for long dumps
// ([Client.QueuePairs]).
func NewForDumps(timeout time.Duration) *Client {
	return newClient(timeout, func() (*netlink.Conn, error) {
		return netlink.Dial(unix.NETLINK_RDMA, &netlink.Config{MessageBufferSize: receiveSize})
	})
}

func newClient(timeout time.Duration, dial func() (*netlink.Conn, error)) *Client {
	return &Client{dial: dial, timeout: timeout}
}

// Close closes the socket; the next question opens it again.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked()
}

func (c *Client) closeLocked() {
	if c.conn != nil {
		c.conn.Close()
		c.conn, c.index, c.names = nil, nil, nil
	}
}

// PortNetdev returns the network interface of a port. A port without one fails
// with os.ErrNotExist.
func (c *Client) PortNetdev(device string, port int) (string, error) {
	var name string
	err := c.ask(cmdPortGet, device, port, func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() == attrNdevName {
				name = ad.String()
			}
		}
		return ad.Err()
	})
	if err == nil && name == "" {
		err = fmt.Errorf("netdev of %s/%d: %w", device, port, os.ErrNotExist)
	}
	return name, err
}

// HWCounters appends a port's hardware counters to buf and returns it. A driver
// that cannot answer fails with EOPNOTSUPP or EINVAL, a kernel before 5.3 too.
func (c *Client) HWCounters(buf []Counter, device string, port int) ([]Counter, error) {
	err := c.ask(cmdStatGet, device, port, func(ad *netlink.AttributeDecoder) (err error) {
		buf, err = decodeCounters(buf, ad)
		return err
	})
	return buf, err
}

// decodeCounters finds the nested list of counters in an answer.
func decodeCounters(buf []Counter, ad *netlink.AttributeDecoder) ([]Counter, error) {
	for ad.Next() {
		if ad.Type() != attrHWCounters {
			continue
		}
		ad.Nested(func(list *netlink.AttributeDecoder) error {
			for list.Next() {
				if list.Type() != attrHWCounterEntry {
					continue
				}
				if len(buf) >= MaxCounters {
					return fmt.Errorf("more than %d counters in one answer", MaxCounters)
				}
				list.Nested(func(entry *netlink.AttributeDecoder) error {
					var n Counter
					for entry.Next() {
						switch entry.Type() {
						case attrHWCounterName:
							n.Name = entry.String()
						case attrHWCounterValue:
							n.Value = entry.Uint64()
						}
					}
					buf = append(buf, n)
					return nil
				})
			}
			return nil
		})
	}
	return buf, ad.Err()
}

// ask sends one request about a port and hands the answer's attributes to
// decode. When the kernel's index of the device is not known, or no longer
// right, it lists the devices first.
func (c *Client) ask(cmd uint16, device string, port int, decode func(*netlink.AttributeDecoder) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.askLocked(cmd, device, port, decode)
	if err != nil {
		c.closeLocked() // a late answer must not be taken for the next one's, nor an old index for the new device's
		return fmt.Errorf("RDMA netlink command %d for %s/%d: %w", cmd, device, port, err)
	}
	return nil
}

func (c *Client) askLocked(cmd uint16, device string, port int, decode func(*netlink.AttributeDecoder) error) error {
	if err := c.openLocked(); err != nil {
		return err
	}
	index, known := c.index[device]
	if !known {
		if err := c.listLocked(); err != nil {
			return err
		}
		if index, known = c.index[device]; !known {
			return unix.ENODEV
		}
	}
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(attrDevIndex, index)
	ae.Uint32(attrPortIndex, uint32(port))
	replies, err := c.executeLocked(cmd, 0, ae)
	if err != nil {
		return err
	}
	for _, m := range replies {
		if !names(m.Data, device) {
			return unix.ENODEV // the index has passed to another device
		}
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return err
		}
		if err := decode(ad); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) openLocked() error {
	if c.conn == nil {
		conn, err := c.dial()
		if err != nil {
			return err
		}
		c.conn = conn
	}
	return c.conn.SetDeadline(time.Now().Add(c.timeout))
}

// listLocked learns the indices of all devices (RDMA_NLDEV_CMD_GET, dump).
func (c *Client) listLocked() error {
	replies, err := c.executeLocked(cmdGet, netlink.Dump, netlink.NewAttributeEncoder())
	if err != nil {
		return err
	}
	c.index = make(map[string]uint32, len(replies))
	c.names = nil
	for _, m := range replies {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return err
		}
		var index uint32
		var name string
		for ad.Next() {
			switch ad.Type() {
			case attrDevIndex:
				index = ad.Uint32()
			case attrDevName:
				name = ad.String()
			}
		}
		if err := ad.Err(); err != nil {
			return err
		}
		c.index[name] = index
		c.names = append(c.names, name)
	}
	return nil
}

func (c *Client) executeLocked(
	cmd uint16, flags netlink.HeaderFlags, ae *netlink.AttributeEncoder,
) ([]netlink.Message, error) {
	data, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	return c.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(clientNLDEV + cmd), Flags: netlink.Request | flags},
		Data:   data,
	})
}

// names reports whether an answer is about device; every answer of nldev says
// whom it is about (fill_nldev_handle).
func names(data []byte, device string) bool {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return false
	}
	for ad.Next() {
		if ad.Type() == attrDevName {
			return ad.String() == device
		}
	}
	return false
}
