package doctor

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ip is a line that calls ip with words, of which blanks separate those that
// are fixed and each %s is one that is not.
func ip(format string, args ...string) string {
	words := []string{"ip"}
	for w := range strings.FieldsSeq(format) {
		if w == "%s" {
			w, args = args[0], args[1:]
		}
		words = append(words, w)
	}
	return command(words...)
}

// bounce takes an interface down and up, in one line: after the first of two
// nobody who is logged in over it could type the second.
func bounce(netdev string) []string {
	return []string{note("what goes over %s stops meanwhile, and routes and IPv6 addresses that were set on it by hand are lost", netdev),
		ip("link set dev %s down", netdev) + " && " + ip("link set dev %s up", netdev)}
}

// note is a line that a shell passes over.
func note(format string, args ...any) string {
	return "# " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
}

// addressFor returns the lines that give a rail's interface an IPv4 address:
// one after the pattern of the other rails, where there is one.
func (f *RailFacts) addressFor(r *Rail) []string {
	p, like, ok := f.propose(r)
	if !ok {
		return []string{note("give %s an IPv4 address in a subnet of its own, which the same rail of the other nodes shares: ip address add ADDRESS/LENGTH dev %s", r.Netdev, shellWord(r.Netdev))}
	}
	return []string{
		note("%s goes on from the address of %s; if your plan has another for it, take that one", p, like),
		ip("address add %s dev %s", p.String(), r.Netdev),
	}
}

// propose works out an address for a rail: as many subnets above that of the
// nearest rail that has one as the rail is after it, with this node's place in
// the subnet; and the next one that is free, when that is taken.
func (f *RailFacts) propose(r *Rail) (p netip.Prefix, like *Rail, ok bool) {
	at, base := -1, netip.Prefix{}
	for i := range f.Rails {
		if &f.Rails[i] == r {
			at = i
		}
	}
	distance := 0
	for i := range f.Rails {
		d := at - i
		list := f.netdev(f.Rails[i].Netdev).ipv4()
		if i == at || len(list) == 0 || list[0].Bits() < 8 || list[0].Bits() > 30 || like != nil && abs(distance) <= abs(d) {
			continue
		}
		like, base, distance = &f.Rails[i], list[0], d
	}
	if like == nil || at < 0 {
		return p, nil, false
	}
	for try := range 64 {
		if p, ok = above(base, distance+try); ok && !f.taken(p) {
			return p, like, true
		}
	}
	return p, nil, false
}

func abs(n int) int { return max(n, -n) }

// above is the address with the same place in a subnet that is n subnets away.
func above(p netip.Prefix, n int) (netip.Prefix, bool) {
	a := p.Addr().As4()
	v := int64(binary.BigEndian.Uint32(a[:])) + int64(n)<<(32-p.Bits())
	if v < 1<<24 || v >= 224<<24 {
		return netip.Prefix{}, false
	}
	binary.BigEndian.PutUint32(a[:], uint32(v))
	return netip.PrefixFrom(netip.AddrFrom4(a), p.Bits()), true
}

// taken tells whether an interface of this node has an address in the subnet.
func (f *RailFacts) taken(p netip.Prefix) bool {
	for _, o := range f.Others {
		if o.Overlaps(p) {
			return true
		}
	}
	for _, n := range f.Netdevs {
		for _, o := range n.Addresses {
			if o.Overlaps(p) {
				return true
			}
		}
	}
	return false
}

// has tells whether an interface of the node has the address.
func (f *RailFacts) has(a netip.Addr) bool {
	here := func(p netip.Prefix) bool { return p.Addr() == a }
	return slices.ContainsFunc(f.Others, here) || slices.ContainsFunc(f.Netdevs, func(n Netdev) bool { return slices.ContainsFunc(n.Addresses, here) })
}

// String is the rail for people.
func (r *Rail) String() string {
	s := fmt.Sprintf("rail %s (%s", r.Name, r.Device)
	if r.Port > 1 {
		s += fmt.Sprintf(" port %d", r.Port)
	}
	if r.Netdev != "" {
		s += ", " + r.Netdev
	}
	return s + ")"
}

// names lists rails for people.
func names(rails []*Rail) string {
	var list []string
	for _, r := range rails {
		list = append(list, r.String())
	}
	return enumerate(list)
}

// enumerate is a list in words.
func enumerate(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// gigabits prints bytes per second as people name rates.
func gigabits(bytesPerSecond float64) string {
	return fmt.Sprintf("%.4g Gb/s", bytesPerSecond*8/1e9)
}
