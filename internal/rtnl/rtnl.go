// Package rtnl asks the kernel for network interfaces over route netlink: one
// request where sysfs has a file for each number, of which each of the statistics
// makes the driver add up all of them. Only GET operations, which need no
// privilege.
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
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Link is one network interface.
type Link struct {
	Index     int
	Address   string // hardware address as sysfs prints it; empty where it has none or zeros
	OperState uint8  // RFC 2863, IF_OPER_* of include/uapi/linux/if.h

	numbers [numbers]uint64
	has     uint32 // a bit for each number that the kernel gave
}

// The operational states, IF_OPER_* of include/uapi/linux/if.h.
const (
	OperUnknown = 0
	OperUp      = 6
)

// statistics is how many numbers of struct rtnl_link_stats64 are used: those up
// to tx_carrier_errors. The others of a link follow.
const (
	statistics     = 18
	mtu            = statistics
	carrierChanges = statistics + 1
	carrierUp      = statistics + 2
	carrierDown    = statistics + 3
	numbers        = statistics + 4
)

// Index returns the place of the number that a file of class/net/<netdev> holds,
// for [Link.Number]; ok is false for a file that a link does not have.
func Index(file string) (i int, ok bool) {
	if name, found := strings.CutPrefix(file, "statistics/"); found {
		i = slices.Index([]string{"rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors",
			"rx_dropped", "tx_dropped", "multicast", "collisions", "rx_length_errors", "rx_over_errors",
			"rx_crc_errors",
			"rx_frame_errors", "rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors"}, name)
		return i, i >= 0
	}
	i = slices.Index([]string{"mtu", "carrier_changes", "carrier_up_count", "carrier_down_count"}, file)
	return statistics + i, i >= 0
}

// Number returns a number by its index; ok is false where the kernel did not give
// it.
func (l *Link) Number(i int) (v uint64, ok bool) { return l.numbers[i], l.has&(1<<i) != 0 }

func (l *Link) set(i int, v uint64) {
	l.numbers[i] = v
	l.has |= 1 << i
}

// Client is a socket for route netlink. Not safe for concurrent use; a request
// waits for the kernel's RTNL lock, for ever if need be.
type Client struct {
	fd       int
	sequence uint32
	buf      []byte
}

// Open opens a socket, of the network namespace of the calling thread.
func Open() (*Client, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a socket for route netlink: %w", err)
	}
	// An answer that got lost must not be waited for without end.
	timeout := unix.NsecToTimeval(time.Second.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("limit the wait for route netlink: %w", err)
	}
	return &Client{fd: fd, buf: make([]byte, 32<<10)}, nil
}

// Close closes the socket.
func (c *Client) Close() error { return unix.Close(c.fd) }

// batch is how many requests are sent at once: their answers must fit into the
// socket's buffer.
const batch = 16

// Links returns the interfaces of the given names, without those that do not
// exist. After an error the client is to be closed.
func (c *Client) Links(names []string) (map[string]*Link, error) {
	links := make(map[string]*Link, len(names))
	for len(names) > 0 {
		n := min(batch, len(names))
		if err := c.ask(names[:n], links); err != nil {
			return nil, fmt.Errorf("route netlink RTM_GETLINK: %w", err)
		}
		names = names[n:]
	}
	return links, nil
}

func (c *Client) ask(names []string, links map[string]*Link) error {
	first := c.sequence + 1
	request := c.buf[:0]
	for _, name := range names {
		c.sequence++
		request = appendRequest(request, c.sequence, name)
	}
	if err := unix.Sendto(c.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for left := len(names); left > 0; {
		n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
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

// appendRequest appends an RTM_GETLINK for a name: struct nlmsghdr, struct
// ifinfomsg, IFLA_EXT_MASK, IFLA_IFNAME.
func appendRequest(b []byte, sequence uint32, name string) []byte {
	const skipFamilyStatistics = 1 << 3 // RTEXT_FILTER_SKIP_STATS: those of IPv6
	le := binary.NativeEndian
	attr := 4 + len(name) + 1
	b = le.AppendUint32(b, uint32(unix.SizeofNlMsghdr+unix.SizeofIfInfomsg+8+align(attr)))
	b = le.AppendUint16(b, unix.RTM_GETLINK)
	b = le.AppendUint16(b, unix.NLM_F_REQUEST)
	b = le.AppendUint32(b, sequence)
	b = append(b, make([]byte, 4+unix.SizeofIfInfomsg)...) // from nobody; of the name below
	b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, 8), unix.IFLA_EXT_MASK), skipFamilyStatistics)
	b = le.AppendUint16(le.AppendUint16(b, uint16(attr)), unix.IFLA_IFNAME)
	b = append(b, name...)
	return append(b, make([]byte, 1+align(attr)-attr)...)
}

// decode returns the link in an answer, nil where there is no such interface.
func decode(msg []byte) (*Link, error) {
	const head = unix.SizeofNlMsghdr + unix.SizeofIfInfomsg
	le := binary.NativeEndian
	switch kind := le.Uint16(msg[4:]); {
	case kind == unix.NLMSG_ERROR && len(msg) >= unix.SizeofNlMsghdr+4:
		errno := unix.Errno(-int32(le.Uint32(msg[unix.SizeofNlMsghdr:])))
		if errno == unix.ENODEV {
			return nil, nil
		}
		return nil, errno
	case kind != unix.RTM_NEWLINK || len(msg) < head:
		return nil, unix.EBADMSG
	}
	l := &Link{Index: int(int32(le.Uint32(msg[unix.SizeofNlMsghdr+4:])))}
	for b := msg[head:]; len(b) >= 4; {
		size := int(le.Uint16(b))
		if size < 4 || size > len(b) {
			return nil, unix.EBADMSG
		}
		l.add(int(le.Uint16(b[2:])), b[4:size])
		b = b[min(align(size), len(b)):]
	}
	return l, nil
}

// add enters one attribute.
func (l *Link) add(kind int, data []byte) {
	number := func(i int) {
		if len(data) == 4 {
			l.set(i, uint64(binary.NativeEndian.Uint32(data)))
		}
	}
	switch kind {
	case unix.IFLA_ADDRESS:
		if len(bytes.Trim(data, "\x00")) > 0 {
			l.Address = net.HardwareAddr(data).String()
		}
	case unix.IFLA_OPERSTATE:
		if len(data) == 1 {
			l.OperState = data[0]
		}
	case unix.IFLA_MTU:
		number(mtu)
	case unix.IFLA_CARRIER_CHANGES:
		number(carrierChanges)
	case unix.IFLA_CARRIER_UP_COUNT:
		number(carrierUp)
	case unix.IFLA_CARRIER_DOWN_COUNT:
		number(carrierDown)
	case unix.IFLA_STATS64:
		for i := range min(statistics, len(data)/8) {
			l.set(i, binary.NativeEndian.Uint64(data[8*i:]))
		}
	}
}
