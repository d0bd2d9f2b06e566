package rtnl

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// Change is a message about an interface or an address of one: an announcement of the kernel, or an entry of a listing.
type Change struct {
	Removed   bool
	Interface *Interface // nil: the message is about an address
	Address   Address
}

// Interface is what an interface is, and how it is stacked on others.
type Interface struct {
	Index    int
	Name     string
	Master   int  // index of the bond, bridge or team to which it belongs; 0: none
	Lower    int  // index of the interface below, for example of a VLAN; 0: none
	Carrier  bool // IFF_LOWER_UP
	Failover bool // the message announces that a bond uses another member (IFLA_EVENT_BONDING_FAILOVER)
}

// Address is an address of an interface.
type Address struct {
	Index  int
	Prefix netip.Prefix
}

// ParseChange decodes the data of a message of type RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR or RTM_DELADDR. ok is false
// for another one, for one about a bridge's port, and for a malformed one.
func ParseChange(kind uint16, data []byte) (c Change, ok bool) {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		c.Interface, ok = decodeInterface(data)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		c.Address, ok = decodeAddress(data)
	}
	c.Removed = kind == unix.RTM_DELLINK || kind == unix.RTM_DELADDR
	return c, ok
}

func decodeInterface(data []byte) (*Interface, bool) {
	if len(data) < unix.SizeofIfInfomsg || data[0] != unix.AF_UNSPEC {
		return nil, false
	}
	const bondingFailover = 3 // enum of include/uapi/linux/if_link.h
	i := &Interface{Index: int(int32(binary.NativeEndian.Uint32(data[4:]))),
		Carrier: binary.NativeEndian.Uint32(data[8:])&unix.IFF_LOWER_UP != 0}
	var err error
	elsewhere := false // the interface below is in another network namespace
	for kind, value := range nlattr.All(data[unix.SizeofIfInfomsg:], &err) {
		number := 0
		if len(value) == 4 {
			number = int(int32(binary.NativeEndian.Uint32(value)))
		}
		switch kind {
		case unix.IFLA_IFNAME:
			i.Name = unix.ByteSliceToString(value)
		case unix.IFLA_MASTER:
			i.Master = number
		case unix.IFLA_LINK:
			i.Lower = number
		case unix.IFLA_LINK_NETNSID:
			elsewhere = true
		case unix.IFLA_EVENT:
			i.Failover = number == bondingFailover
		}
	}
	if elsewhere {
		i.Lower = 0
	}
	return i, err == nil && i.Name != ""
}

func decodeAddress(data []byte) (a Address, ok bool) {
	if len(data) < unix.SizeofIfAddrmsg {
		return a, false
	}
	a.Index = int(binary.NativeEndian.Uint32(data[4:]))
	var err error
	var local, address []byte
	for kind, value := range nlattr.All(data[unix.SizeofIfAddrmsg:], &err) {
		switch kind {
		case unix.IFA_LOCAL: // A point-to-point interface has the peer's in IFA_ADDRESS.
			local = value
		case unix.IFA_ADDRESS:
			address = value
		}
	}
	if local == nil {
		local = address
	}
	ip, known := netip.AddrFromSlice(local)
	if known {
		a.Prefix = netip.PrefixFrom(ip, int(data[1]))
	}
	return a, err == nil && a.Prefix.IsValid()
}

// listTime limits a listing, which waits for the kernel's RTNL lock.
const listTime = 2 * time.Second

// List returns all interfaces, and then all addresses. It uses a socket of its own.
func List() (list []Change, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("route netlink: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(listTime)); err != nil {
		return nil, err
	}
	for _, kind := range []netlink.HeaderType{unix.RTM_GETLINK, unix.RTM_GETADDR} {
		answers, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: kind,
			Flags: netlink.Request | netlink.Dump}, Data: make([]byte, unix.SizeofIfInfomsg)})
		if err != nil {
			return nil, fmt.Errorf("route netlink listing %d: %w", kind, err)
		}
		for _, m := range answers {
			if c, ok := ParseChange(uint16(m.Header.Type), m.Data); ok {
				list = append(list, c)
			}
		}
	}
	return list, nil
}
