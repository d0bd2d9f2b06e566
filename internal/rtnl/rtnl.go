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

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Link is one network interface.
type Link struct {
	Name      string
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

// The numbers of a link: those of struct rtnl_link_stats64 up to tx_carrier_errors, then others.
const (
	mtu = iota + 18
	carrierChanges
	carrierUp
	carrierDown
	numbers
)

// Index returns the place of a file of class/net/<netdev> for [Link.Number]; ok is false if a link lacks it.
func Index(file string) (i int, ok bool) {
	i = slices.Index([]string{"statistics/rx_packets", "statistics/tx_packets", "statistics/rx_bytes",
		"statistics/tx_bytes", "statistics/rx_errors", "statistics/tx_errors", "statistics/rx_dropped",
		"statistics/tx_dropped", "statistics/multicast", "statistics/collisions", "statistics/rx_length_errors",
		"statistics/rx_over_errors", "statistics/rx_crc_errors", "statistics/rx_frame_errors",
		"statistics/rx_fifo_errors", "statistics/rx_missed_errors", "statistics/tx_aborted_errors",
		"statistics/tx_carrier_errors", "mtu", "carrier_changes", "carrier_up_count", "carrier_down_count"}, file)
	return i, i >= 0
}

// Number returns a number by its index; ok is false if the kernel did not report it.
func (l *Link) Number(i int) (v uint64, ok bool) { return l.numbers[i], l.has&(1<<i) != 0 }

// Client uses a socket in the network namespace of the thread that opens it, at the first request. The zero value is
// ready to use. Not safe for concurrent use; a request waits for the kernel's RTNL lock, without limit.
type Client struct{ conn *netlink.Conn }

// Close closes the socket; the next request opens it again.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

const (
	batch      = 16          // requests that are sent at once: their answers must fit into the socket's buffer
	answerTime = time.Second // for an answer, which may be lost
)

// Links returns the interfaces of the given names that exist.
func (c *Client) Links(names []string) (links map[string]*Link, err error) {
	if c.conn == nil {
		c.conn, err = netlink.Dial(unix.NETLINK_ROUTE, nil)
	}
	links = make(map[string]*Link, len(names))
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
	requests := make([]netlink.Message, len(names))
	for i, name := range names {
		requests[i] = request(name)
	}
	if _, err := c.conn.SendMessages(requests); err != nil {
		return err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	for range names {
		answers, err := c.conn.Receive()
		if err != nil && !errors.Is(err, unix.ENODEV) { // there is no such interface
			return err
		}
		for _, m := range answers {
			link, err := decode(m)
			if err != nil {
				return err
			}
			links[link.Name] = link
		}
	}
	return nil
}

// request is an RTM_GETLINK for a name: struct ifinfomsg, IFLA_EXT_MASK, IFLA_IFNAME.
func request(name string) netlink.Message {
	const skipFamilyStatistics = 1 << 3 // RTEXT_FILTER_SKIP_STATS: those of IPv6
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(unix.IFLA_EXT_MASK, skipFamilyStatistics)
	ae.String(unix.IFLA_IFNAME, name)
	attributes, _ := ae.Encode() // fails only for more than 64 KiB
	return netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request},
		Data: append(make([]byte, unix.SizeofIfInfomsg), attributes...)} // the name selects the interface
}

func decode(m netlink.Message) (*Link, error) {
	if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
		return nil, unix.EBADMSG
	}
	l := &Link{Index: int(int32(binary.NativeEndian.Uint32(m.Data[4:])))}
	ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfInfomsg:])
	if err != nil {
		return nil, err
	}
	for ad.Next() {
		l.setAttribute(ad)
	}
	return l, ad.Err()
}

func (l *Link) setAttribute(ad *netlink.AttributeDecoder) {
	switch ad.Type() {
	case unix.IFLA_IFNAME:
		l.Name = ad.String()
	case unix.IFLA_ADDRESS:
		if address := ad.Bytes(); len(bytes.Trim(address, "\x00")) > 0 {
			l.Address = net.HardwareAddr(address).String()
		}
	case unix.IFLA_OPERSTATE:
		l.OperState = ad.Uint8()
	case unix.IFLA_MTU:
		l.set(mtu, uint64(ad.Uint32()))
	case unix.IFLA_CARRIER_CHANGES:
		l.set(carrierChanges, uint64(ad.Uint32()))
	case unix.IFLA_CARRIER_UP_COUNT:
		l.set(carrierUp, uint64(ad.Uint32()))
	case unix.IFLA_CARRIER_DOWN_COUNT:
		l.set(carrierDown, uint64(ad.Uint32()))
	case unix.IFLA_STATS64:
		data := ad.Bytes()
		for i := range min(mtu, len(data)/8) {
			l.set(i, binary.NativeEndian.Uint64(data[8*i:]))
		}
	}
}

func (l *Link) set(i int, v uint64) {
	l.numbers[i] = v
	l.has |= 1 << i
}
