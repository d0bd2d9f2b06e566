// Package rtnl reads network interfaces over route netlink. One request replaces many files of sysfs, for each of
// which the driver sums all statistics. It uses only GET operations, which need no privilege.
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

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// Link is one network interface.
type Link struct {
	Index     int
	Address   string // hardware address in sysfs's format; empty if there is none or it is zero
	OperState uint8  // RFC 2863, IF_OPER_* of include/uapi/linux/if.h

	numbers [numbers]uint64
	has     uint32 // one bit for each number that the kernel reported
}

// Operational states, IF_OPER_* of include/uapi/linux/if.h.
const (
	OperUnknown = 0
	OperUp      = 6
)

// Indices of a link's numbers: those of struct rtnl_link_stats64 up to tx_carrier_errors, then those of two
// attributes.
const (
	statistics = 18
	numbers    = statistics + 2
)

// Index returns the index for [Link.Number] of the number that a file of class/net/<netdev> holds; ok is false for
// a file that a link does not have.
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
type Client struct{ conn *netlink.Conn }

// receiveSize is more than one interface needs: virtual functions are not asked for.
const receiveSize = 16 << 10

// answerTime is how long to wait for an answer: one that the kernel could not queue is lost.
const answerTime = time.Second

// Close closes the socket; the next request opens it again.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *Client) open() (err error) {
	if c.conn == nil {
		c.conn, err = netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{MessageBufferSize: receiveSize})
	}
	return err
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

// query sends a request for each name. The kernel answers in their order.
func (c *Client) query(names []string, links map[string]*Link) error {
	requests := make([]netlink.Message, len(names))
	for i, name := range names {
		requests[i] = request(name)
	}
	requests, err := c.conn.SendMessages(requests)
	if err == nil {
		err = c.conn.SetReadDeadline(time.Now().Add(answerTime))
	}
	for i := 0; i < len(names) && err == nil; i++ {
		var answers []netlink.Message
		answers, err = c.conn.Receive()
		if errors.Is(err, unix.ENODEV) {
			err = nil
			continue
		}
		if err == nil {
			err = netlink.Validate(requests[i], answers)
		}
		if err == nil && (len(answers) != 1 || answers[0].Header.Type != unix.RTM_NEWLINK) {
			err = unix.EBADMSG
		}
		if err == nil {
			links[names[i]], err = decode(answers[0].Data)
		}
	}
	return err
}

func request(name string) netlink.Message {
	const skipFamilyStatistics = 1 << 3 // RTEXT_FILTER_SKIP_STATS: no IPv6 statistics
	// The attributes are short, so that encoding them cannot fail.
	attributes, _ := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.IFLA_EXT_MASK, Data: binary.NativeEndian.AppendUint32(nil, skipFamilyStatistics)},
		{Type: unix.IFLA_IFNAME, Data: append([]byte(name), 0)}})
	return netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request},
		Data: append(make([]byte, unix.SizeofIfInfomsg), attributes...)} // struct ifinfomsg: the name says which
}

// decode returns the link in the data of an answer.
func decode(data []byte) (l *Link, err error) {
	if len(data) < unix.SizeofIfInfomsg {
		return nil, unix.EBADMSG
	}
	l = &Link{Index: int(int32(binary.NativeEndian.Uint32(data[4:])))}
	for typ, value := range nlattr.All(data[unix.SizeofIfInfomsg:], &err) {
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
