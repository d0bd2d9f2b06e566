// Package rdmanl queries the kernel's RDMA core over netlink for values that sysfs reports slowly or not at all:
// the hardware counters of a port in one request, for which sysfs needs a file and several firmware commands each,
// the network interface of a port, and the process that created each queue pair. It uses only GET operations, which
// need no privilege.
//
// Source: include/uapi/rdma/rdma_netlink.h, drivers/infiniband/core/nldev.c.
package rdmanl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// From include/uapi/rdma/rdma_netlink.h; golang.org/x/sys/unix has only the protocol number.
const (
	clientNLDEV = 5 << 10 // RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op)

	cmdGet      = 1
	cmdPortGet  = 5
	cmdSysGet   = 6
	cmdResQPGet = 10
	cmdStatGet  = 17

	attrDevIndex       = 1
	attrDevName        = 2
	attrPortIndex      = 3
	attrResQP          = 19
	attrResQPEntry     = 20
	attrResType        = 26
	attrResState       = 27
	attrResPID         = 28
	attrResKernName    = 29
	attrNdevName       = 51
	attrNetnsMode      = 66
	attrHWCounters     = 80
	attrHWCounterEntry = 81
	attrHWCounterName  = 82
	attrHWCounterValue = 83
	attrDevType        = 99 // Linux 6.11

	deviceTypeSMI = 1 // enum rdma_nl_dev_type
)

// MaxCounters limits the counters of one answer; bnxt_re, which has the most, has about a hundred.
const MaxCounters = 1024

// Counter is one hardware counter under the driver's name.
type Counter struct {
	Name  string
	Value uint64
}

// Client uses one socket, opened at the first request. Safe for concurrent use. Requests wait for one another, so
// use one client for each device that may hang.
type Client struct {
	dial    func() (*netlink.Conn, error)
	timeout time.Duration

	mu    sync.Mutex // protects all following fields
	conn  *netlink.Conn
	index map[string]uint32 // device name → kernel's index, from the last listing
	smi   map[string]bool   // devices of the type SMI, from the last listing
}

// New returns a client whose requests are answered within timeout or fail with os.ErrDeadlineExceeded. On a kernel
// without RDMA they fail with EPROTONOSUPPORT.
func New(timeout time.Duration) *Client {
	return newClient(timeout, func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_RDMA, nil) })
}

// receiveSize is the size of one read of a dump, the maximum that the kernel uses. The kernel walks the entries
// from the first one for every read, so a few large reads are much cheaper than many small ones.
const receiveSize = 32 << 10

// NewForDumps returns a client like [New], for long dumps ([Client.QueuePairs]).
func NewForDumps(timeout time.Duration) *Client {
	return newClient(timeout, func() (*netlink.Conn, error) {
		return netlink.Dial(unix.NETLINK_RDMA, &netlink.Config{MessageBufferSize: receiveSize})
	})
}

func newClient(timeout time.Duration, dial func() (*netlink.Conn, error)) *Client {
	return &Client{dial: dial, timeout: timeout}
}

// Close closes the socket; the next request opens it again.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked()
}

func (c *Client) closeLocked() {
	if c.conn != nil {
		c.conn.Close()
		c.conn, c.index, c.smi = nil, nil, nil
	}
}

// PortNetdev returns the network interface of a port. A port without one fails with os.ErrNotExist.
func (c *Client) PortNetdev(device string, port int) (name string, err error) {
	err = c.queryPort(cmdPortGet, device, port, func(data []byte) (err error) {
		name = unix.ByteSliceToString(nlattr.Last(data, attrNdevName, &err))
		return err
	})
	if err == nil && name == "" {
		err = fmt.Errorf("netdev of %s/%d: %w", device, port, os.ErrNotExist)
	}
	return name, err
}

// SMI reports whether a device is a sub-device that carries only subnet management packets (RDMA_DEVICE_TYPE_SMI).
// Kernels before 6.11 have none.
func (c *Client) SMI(device string) (smi bool, err error) {
	err = c.do(cmdGet, " for "+device, func() error {
		_, err := c.indexLocked(device)
		smi = c.smi[device]
		return err
	})
	return smi, err
}

// HWCounters appends a port's hardware counters to buf and returns it. It fails with EOPNOTSUPP or EINVAL if the
// driver cannot answer or the kernel is older than 5.3.
func (c *Client) HWCounters(buf []Counter, device string, port int) ([]Counter, error) {
	err := c.queryPort(cmdStatGet, device, port, func(data []byte) (err error) {
		buf, err = decodeCounters(buf, data)
		return err
	})
	return buf, err
}

func decodeCounters(buf []Counter, data []byte) (_ []Counter, err error) {
	for list := range nlattr.Of(data, attrHWCounters, &err) {
		for entry := range nlattr.Of(list, attrHWCounterEntry, &err) {
			if len(buf) >= MaxCounters {
				return buf, fmt.Errorf("more than %d counters in one answer", MaxCounters)
			}
			n := Counter{Name: unix.ByteSliceToString(nlattr.Last(entry, attrHWCounterName, &err))}
			if value := nlattr.Last(entry, attrHWCounterValue, &err); len(value) == 8 {
				n.Value = binary.NativeEndian.Uint64(value)
			} else if value != nil {
				return buf, nlattr.ErrSize
			}
			buf = append(buf, n)
		}
	}
	return buf, err
}

// do opens the socket and calls request with mu held. After an error it closes the socket: a late answer must not
// be taken for the next one, nor an old index for that of a new device.
func (c *Client) do(cmd uint16, device string, request func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.conn == nil {
		c.conn, err = c.dial()
	}
	if err == nil {
		err = c.conn.SetDeadline(time.Now().Add(c.timeout))
	}
	if err == nil {
		err = request()
	}
	if err != nil {
		c.closeLocked()
		return fmt.Errorf("RDMA netlink command %d%s: %w", cmd, device, err)
	}
	return nil
}

// queryPort sends one request about a port and decodes the answer. It lists the devices first if the kernel's index
// of the device is not known.
func (c *Client) queryPort(cmd uint16, device string, port int, decode func(data []byte) error) error {
	return c.do(cmd, fmt.Sprintf(" for %s/%d", device, port), func() error {
		index, err := c.indexLocked(device)
		if err != nil {
			return err
		}
		ae := netlink.NewAttributeEncoder()
		ae.Uint32(attrDevIndex, index)
		ae.Uint32(attrPortIndex, uint32(port))
		replies, err := c.executeLocked(cmd, 0, ae)
		if err != nil {
			return err
		}
		for _, m := range replies {
			if !isAbout(m.Data, device) {
				return unix.ENODEV // the index now belongs to another device
			}
			if err := decode(m.Data); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Client) indexLocked(device string) (uint32, error) {
	if _, known := c.index[device]; !known {
		if _, err := c.listLocked(); err != nil {
			return 0, err
		}
	}
	index, known := c.index[device]
	if !known {
		return 0, unix.ENODEV
	}
	return index, nil
}

// listLocked reads names and indices of all devices (RDMA_NLDEV_CMD_GET, dump).
func (c *Client) listLocked() (names []string, err error) {
	replies, err := c.executeLocked(cmdGet, netlink.Dump, netlink.NewAttributeEncoder())
	if err != nil {
		return nil, err
	}
	c.index, c.smi = make(map[string]uint32, len(replies)), map[string]bool{}
	for _, m := range replies {
		index, name := nlattr.Last(m.Data, attrDevIndex, &err),
			unix.ByteSliceToString(nlattr.Last(m.Data, attrDevName, &err))
		kind := nlattr.Last(m.Data, attrDevType, &err)
		if err == nil && index != nil && len(index) != 4 {
			err = nlattr.ErrSize
		}
		if err != nil {
			return nil, err
		}
		c.index[name], c.smi[name] = number(index), number(kind) == deviceTypeSMI
		names = append(names, name)
	}
	return names, nil
}

func (c *Client) executeLocked(
	cmd uint16, flags netlink.HeaderFlags, ae *netlink.AttributeEncoder,
) ([]netlink.Message, error) {
	m, err := message(cmd, flags, ae)
	if err != nil {
		return nil, err
	}
	return c.conn.Execute(m)
}

func message(cmd uint16, flags netlink.HeaderFlags, ae *netlink.AttributeEncoder) (netlink.Message, error) {
	data, err := ae.Encode()
	header := netlink.Header{Type: netlink.HeaderType(clientNLDEV + cmd), Flags: netlink.Request | flags}
	return netlink.Message{Header: header, Data: data}, err
}

// isAbout reports whether an answer is about device; every answer of nldev names its device (fill_nldev_handle).
func isAbout(data []byte, device string) (ok bool) {
	var err error
	for name := range nlattr.Of(data, attrDevName, &err) {
		ok = ok || string(bytes.TrimRight(name, "\x00")) == device
	}
	return ok && err == nil
}

// number decodes the kernel's u8 and u32.
func number(value []byte) uint32 {
	switch len(value) {
	case 1:
		return uint32(value[0])
	case 4:
		return binary.NativeEndian.Uint32(value)
	}
	return 0
}
