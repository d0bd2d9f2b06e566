package tcp

import (
	"maps"
	"net"
	"net/netip"
	"slices"
)

// How many connections may wait to prove themselves: in all, and from one
// address.
const (
	maxUnproven     = 64
	maxUnprovenFrom = maxUnproven / 2
)

// waiting are the connections that have not proved themselves yet, oldest first.
// When there is no room the oldest one goes of the address that has the most: a
// flood displaces itself, and whoever holds the key needs only a moment. Not
// safe for concurrent use.
type waiting []unproven

type unproven struct {
	conn *net.TCPConn
	from netip.Prefix
}

// add lets a connection wait, and returns the one that has to go for it, nil
// while there is room.
func (w *waiting) add(c *net.TCPConn) (gone *net.TCPConn) {
	u := unproven{c, origin(c)}
	count := map[netip.Prefix]int{}
	for _, o := range *w {
		count[o.from]++
	}
	goes := -1
	switch {
	case count[u.from] >= maxUnprovenFrom:
		goes = slices.IndexFunc(*w, func(o unproven) bool { return o.from == u.from })
	case len(*w) >= maxUnproven:
		most := slices.Max(slices.Collect(maps.Values(count)))
		goes = slices.IndexFunc(*w, func(o unproven) bool { return count[o.from] == most })
	}
	if goes >= 0 {
		gone = (*w)[goes].conn
		*w = slices.Delete(*w, goes, goes+1)
	}
	*w = append(*w, u)
	return gone
}

// remove ends the waiting of a connection, and reports whether it waited.
func (w *waiting) remove(c *net.TCPConn) bool {
	i := slices.IndexFunc(*w, func(o unproven) bool { return o.conn == c })
	if i < 0 {
		return false
	}
	*w = slices.Delete(*w, i, i+1)
	return true
}

// origin is the address from which a connection comes; of IPv6 its /64, of which
// one host has all addresses.
func origin(c *net.TCPConn) netip.Prefix {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := at.AddrPort().Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // bits fit
	return p
}
