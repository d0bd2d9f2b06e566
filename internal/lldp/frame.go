// Package lldp receives and parses frames of the Link Layer Discovery Protocol (IEEE 802.1AB-2016), by which switches
// name themselves and their ports.
package lldp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"
	"unicode"
)

// Neighbor is the sender of a frame. Its texts are printable, valid UTF-8 of at most 255 bytes.
type Neighbor struct {
	Chassis string        `json:"chassis"` // chassis ID
	Port    string        `json:"port"`    // port ID
	System  string        `json:"system"`  // name of the system; empty if the frame has none
	About   string        `json:"about"`   // description of the port; empty if the frame has none
	Number  bool          `json:"number"`  // the port ID is a number or an address, and not the name of an interface
	Station bool          `json:"station"` // it says that it neither bridges nor routes
	TTL     time.Duration `json:"ttl"`     // how long the frame is valid; 0 if the sender is about to stop
}

// Name returns the name of the system, or its chassis ID.
func (n Neighbor) Name() string {
	if n.System != "" {
		return n.System
	}
	return n.Chassis
}

// PortName returns the name of the port: its ID or, if that is none that people know, its description.
func (n Neighbor) PortName() string {
	if n.Number && n.About != "" {
		return n.About
	}
	return n.Port
}

// Types of TLVs, 8.4.1.
const (
	typeEnd = iota
	typeChassis
	typePort
	typeTTL
	typeDescription
	typeSystem
	_
	typeCapabilities
)

// Subtypes of IDs, 8.5.2.2 and 8.5.3.2.
const (
	chassisMAC, chassisAddress       = 4, 5
	portMAC, portAddress, portNumber = 3, 4, 7
)

// forwards are the capabilities of a system that forwards frames or packets, 8.5.8.1: bridge, router, C-VLAN and S-VLAN
// component of a bridge.
const forwards = 1<<2 | 1<<4 | 1<<8 | 1<<9

var errFrame = errors.New("not a frame of LLDP")

// Parse parses what follows the Ethernet header. As 9.2.7.2 demands, it refuses a frame that does not begin with
// chassis ID, port ID and TTL. Other parts that are damaged are left out, and end the frame.
func Parse(b []byte) (Neighbor, error) {
	var n Neighbor
	for i := typeChassis; i <= typeTTL; i++ {
		kind, value, rest, ok := next(b)
		if !ok || kind != i || !n.mandatory(kind, value) {
			return Neighbor{}, errFrame
		}
		b = rest
	}
	for {
		kind, value, rest, ok := next(b)
		if !ok || kind == typeEnd {
			return n, nil
		}
		switch kind {
		case typeDescription:
			n.About = printable(value)
		case typeSystem:
			n.System = printable(value)
		case typeCapabilities:
			n.Station = len(value) >= 4 && binary.BigEndian.Uint16(value[2:])&forwards == 0
		}
		b = rest
	}
}

// next takes a TLV: 7 bits of type, 9 bits of length, and the value.
func next(b []byte) (kind int, value, rest []byte, ok bool) {
	if len(b) < 2 {
		return 0, nil, nil, false
	}
	head := binary.BigEndian.Uint16(b)
	size := int(head & 0x1ff)
	b = b[2:]
	if len(b) < size {
		return 0, nil, nil, false
	}
	return int(head >> 9), b[:size], b[size:], true
}

// mandatory takes a TLV that every frame has, and reports whether it is valid.
func (n *Neighbor) mandatory(kind int, value []byte) bool {
	if kind == typeTTL {
		if len(value) < 2 {
			return false
		}
		n.TTL = time.Duration(binary.BigEndian.Uint16(value)) * time.Second
		return true
	}
	if len(value) < 2 || len(value) > 256 {
		return false
	}
	subtype, id := value[0], value[1:]
	if kind == typeChassis {
		n.Chassis = identifier(id, subtype == chassisMAC, subtype == chassisAddress)
		return n.Chassis != ""
	}
	n.Port = identifier(id, subtype == portMAC, subtype == portAddress)
	n.Number = subtype == portMAC || subtype == portAddress || subtype == portNumber
	return n.Port != ""
}

// identifier returns an ID as text.
func identifier(id []byte, mac, address bool) string {
	switch {
	case mac && len(id) == 6:
		return net.HardwareAddr(id).String()
	case address: // a number of the family, and the address
		if a, ok := netip.AddrFromSlice(id[1:]); ok {
			return a.String()
		}
	}
	return printable(id)
}

// printable returns text with an underscore for each character that is not printable.
func printable(b []byte) string {
	text := strings.Trim(string(b[:min(len(b), 255)]), "\x00 ")
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, text)
}
