// Package rtnl reads network interfaces over route netlink: one request, where sysfs has a file for each number, and
// the driver adds up all statistics for each of them. Only GET operations, which need no privilege.
//
// Source: include/uapi/linux/if_link.h, net/core/rtnetlink.c.
package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// Link is one network interface.
type Link struct {
	Index     int
	Address   string // hardware address as sysfs prints it; empty if there is none or it is zero
	OperState uint8  // RFC 2863, IF_OPER_* of include/uapi/linux/if.h

	numbers [numbers]uint64
	has     uint32 // a bit for each number that the kernel reported
}

// The operational states, IF_OPER_* of include/uapi/linux/if.h.
const (
	OperUnknown = 0
	OperUp      = 6
)

// The numbers of a link: those of struct rtnl_link_stats64 up to tx_carrier_errors, then those of two attributes.
const (
	statistics = 18
	numbers    = statistics + 2
)

// Index returns the place of the number that a file of class/net/<netdev> holds, for [Link.Number]; ok is false for a
// file that a link does not have.
func Index(file string) (i int, ok bool) {
	i = slices.Index([]string{"statistics/rx_packets", "statistics/tx_packets", "statistics/rx_bytes",
		"statistics/tx_bytes", "statistics/rx_errors", "statistics/tx_errors", "statistics/rx_dropped",
		"statistics/tx_dropped", "statistics/multicast", "statistics/collisions", "statistics/rx_length_errors",
		"statistics/rx_over_errors", "statistics/rx_crc_errors", "statistics/rx_frame_errors",
		"statistics/rx_fifo_errors", "statistics/rx_missed_errors", "statistics/tx_aborted_errors",
		"statistics/tx_carrier_errors", "carrier_changes", "carrier_down_count"}, file)
	return i, i >= 0
}

// Number returns a number by its index; ok is false if the kernel did not report it.
func (l *Link) Number(i int) (v uint64, ok bool) { return l.numbers[i], l.has&(1<<i) != 0 }

// Client uses a socket in the network namespace of the thread that opens it, at the first request. The zero value is
// ready to use. Not safe for concurrent use; a request waits for the kernel's RTNL lock, without limit.
type Client struct {
	fd       int // file descriptor + 1, so that the zero value is closed
	sequence uint32
	buf      []byte
}

func (c *Client) open() error {
	if c.fd != 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	c.fd, c.buf = fd+1, make([]byte, 32<<10)
	timeout := unix.NsecToTimeval(time.Second.Nanoseconds()) // an answer may be lost
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return fmt.Errorf("set the timeout: %w", err)
	}
	return nil
}

// Close closes the socket; the next request opens it again.
func (c *Client) Close() {
	if c.fd != 0 {
		unix.Close(c.fd - 1)
		c.fd = 0
	}
}

// batch is how many requests are sent at once: their answers must fit into the socket's buffer.
const batch = 16

// Links returns the interfaces of the given names that exist.
func (c *Client) Links(names []string) (map[string]*Link, error) {
	links := make(map[string]*Link, len(names))
	err := c.open()
	for some := range slices.Chunk(names, batch) {
		if err == nil {
			err = c.query(some, links)
		}
	}
	if err != nil {
		c.Close() // a late answer must not be taken for the next one
		return nil, fmt.Errorf("route netlink RTM_GETLINK: %w", err)
	}
	return links, nil
}

func (c *Client) query(names []string, links map[string]*Link) error {
	first := c.sequence + 1
	request := c.buf[:0]
	for _, name := range names {
		c.sequence++
		request = appendRequest(request, c.sequence, name)
	}
	if err := unix.Sendto(c.fd-1, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for left := len(names); left > 0; {
		n, _, err := unix.Recvfrom(c.fd-1, c.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		for msg := c.buf[:n]; len(msg) >= unix.SizeofNlMsghdr; left-- {
			size := int(binary.NativeEndian.Uint32(msg))
			if size < unix.SizeofNlMsghdr || size > len(msg) {
				return unix.EBADMSG
			}
			i := binary.NativeEndian.Uint32(msg[8:]) - first
			if i >= uint32(len(names)) {
				return unix.EBADMSG
			}
			link, err := decode(msg[:size])
			if err != nil {
				return err
			}
			if link != nil {
				links[names[i]] = link
			}
			msg = msg[min(align(size), len(msg)):]
		}
	}
	return nil
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// appendRequest appends an RTM_GETLINK for a name: struct nlmsghdr, struct ifinfomsg, IFLA_EXT_MASK, IFLA_IFNAME.
func appendRequest(b []byte, sequence uint32, name string) []byte {
	const skipFamilyStatistics = 1 << 3 // RTEXT_FILTER_SKIP_STATS: those of IPv6
	ne := binary.NativeEndian
	attr := 4 + len(name) + 1
	b = ne.AppendUint32(b, uint32(unix.SizeofNlMsghdr+unix.SizeofIfInfomsg+8+align(attr)))
	b = ne.AppendUint16(b, unix.RTM_GETLINK)
	b = ne.AppendUint16(b, unix.NLM_F_REQUEST)
	b = ne.AppendUint32(b, sequence)
	b = append(b, make([]byte, 4+unix.SizeofIfInfomsg)...) // no sender; the interface is named below
	b = ne.AppendUint32(ne.AppendUint16(ne.AppendUint16(b, 8), unix.IFLA_EXT_MASK), skipFamilyStatistics)
	b = ne.AppendUint16(ne.AppendUint16(b, uint16(attr)), unix.IFLA_IFNAME)
	b = append(b, name...)
	return append(b, make([]byte, 1+align(attr)-attr)...)
}

// decode returns the link in an answer, nil if there is no such interface.
func decode(msg []byte) (*Link, error) {
	const head = unix.SizeofNlMsghdr + unix.SizeofIfInfomsg
	ne := binary.NativeEndian
	switch kind := ne.Uint16(msg[4:]); {
	case kind == unix.NLMSG_ERROR && len(msg) >= unix.SizeofNlMsghdr+4:
		errno := unix.Errno(-int32(ne.Uint32(msg[unix.SizeofNlMsghdr:])))
		if errno == unix.ENODEV {
			return nil, nil
		}
		return nil, errno
	case kind != unix.RTM_NEWLINK || len(msg) < head:
		return nil, unix.EBADMSG
	}
	l := &Link{Index: int(int32(ne.Uint32(msg[unix.SizeofNlMsghdr+4:])))}
	var err error
	for typ, value := range nlattr.All(msg[head:], &err) {
		l.setAttribute(typ, value)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Link) setAttribute(kind uint16, data []byte) {
	switch kind {
	case unix.IFLA_ADDRESS:
		if len(bytes.Trim(data, "\x00")) > 0 {
			l.Address = net.HardwareAddr(data).String()
		}
	case unix.IFLA_OPERSTATE:
		if len(data) == 1 {
			l.OperState = data[0]
		}
	case unix.IFLA_STATS64:
		for i := range min(statistics, len(data)/8) {
			l.set(i, binary.NativeEndian.Uint64(data[8*i:]))
		}
	default:
		others := [...]uint16{unix.IFLA_CARRIER_CHANGES, unix.IFLA_CARRIER_DOWN_COUNT}
		if i := slices.Index(others[:], kind); i >= 0 && len(data) == 4 {
			l.set(statistics+i, uint64(binary.NativeEndian.Uint32(data)))
		}
	}
}

func (l *Link) set(i int, v uint64) {
	l.numbers[i] = v
	l.has |= 1 << i
}
