package tcp

import (
	"maps"
	"net"
	"net/netip"
	"slices"
)

// How many connections may wait for their proof: in all, and from one address.
const (
	maxUnproven     = 64
	maxUnprovenFrom = maxUnproven / 2
)

// waiting are the connections without a proof, oldest first. When it is full, the oldest one of the address with the
// most is closed: a flood displaces itself, and a holder of the key needs only a moment. Not safe for concurrent use.
type waiting []unproven

type unproven struct {
	conn *net.TCPConn
	from netip.Prefix
}

// add appends a connection, and returns the one to close for it; nil while there is room.
func (w *waiting) add(c *net.TCPConn) (displaced *net.TCPConn) {
	u := unproven{c, origin(c)}
	count := map[netip.Prefix]int{}
	for _, o := range *w {
		count[o.from]++
	}
	i := -1
	switch {
	case count[u.from] >= maxUnprovenFrom:
		i = slices.IndexFunc(*w, func(o unproven) bool { return o.from == u.from })
	case len(*w) >= maxUnproven:
		most := slices.Max(slices.Collect(maps.Values(count)))
		i = slices.IndexFunc(*w, func(o unproven) bool { return count[o.from] == most })
	}
	if i >= 0 {
		displaced = (*w)[i].conn
		*w = slices.Delete(*w, i, i+1)
	}
	*w = append(*w, u)
	return displaced
}

// remove removes a connection, and reports whether it was waiting.
func (w *waiting) remove(c *net.TCPConn) bool {
	before := len(*w)
	*w = slices.DeleteFunc(*w, func(o unproven) bool { return o.conn == c })
	return len(*w) < before
}

// origin returns a connection's remote address; of IPv6 its /64, all addresses of which one host may have.
func origin(c *net.TCPConn) netip.Prefix {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := at.AddrPort().Addr().Unmap().WithZone("")
	p, _ := addr.Prefix(min(addr.BitLen(), 64)) // bits fit
	return p
}
