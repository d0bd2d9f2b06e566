package doctor

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kernel is what the running kernel is asked that no file says. Interfaces are
// named by their index.
type kernel interface {
	// Addresses are those of every interface, with their subnets.
	Addresses() (map[int][]netip.Prefix, error)
	// Path is by which interface a packet leaves; 0 when by none.
	Path(from, to netip.Addr) (index int, err error)
	// Gateways are the IPv4 destinations that an interface has a route to
	// through a gateway.
	Gateways(index int) ([]netip.Prefix, error)
}

// askAddresses learns the addresses of the interfaces.
func (g *Gatherer) askAddresses(netdevs []Netdev) work {
	netdevs = slices.Clone(netdevs)
	return func(r *reader) func(*RailFacts) {
		all, err := g.kernel.Addresses()
		if err != nil {
			r.unread = append(r.unread, fmt.Sprintf("addresses of the interfaces: %v", err))
		}
		for i := range netdevs {
			for _, p := range all[netdevs[i].Index] {
				if !p.Addr().IsLinkLocalUnicast() {
					netdevs[i].Addresses = append(netdevs[i].Addresses, p)
				}
			}
			slices.SortFunc(netdevs[i].Addresses, netip.Prefix.Compare)
			netdevs[i].Addresses = netdevs[i].Addresses[:min(len(netdevs[i].Addresses), maxIPs)]
			delete(all, netdevs[i].Index)
		}
		var others []netip.Prefix
		for _, list := range all {
			others = append(others, list...)
		}
		slices.SortFunc(others, netip.Prefix.Compare)
		others = others[:min(len(others), maxPaths)]
		return func(f *RailFacts) { f.Netdevs, f.Others = netdevs, others }
	}
}

// maxPaths bounds how many routes are asked for.
const maxPaths = 256

// askRoutes learns by which interface rails of one subnet send, and what each
// reaches through a gateway.
func (g *Gatherer) askRoutes(f *RailFacts) work {
	netdevs, asked := slices.Clone(f.Netdevs), f.subnets()
	return func(r *reader) func(*RailFacts) {
		var paths []Path
		for _, s := range asked {
			for _, end := range s.ends {
				to := s.other()
				if !to.IsValid() || len(paths) >= maxPaths {
					continue
				}
				index, err := g.kernel.Path(end.prefix.Addr(), to)
				if err != nil {
					r.unread = append(r.unread, fmt.Sprintf("route from %s to %s: %v", end.prefix.Addr(), to, err))
					continue
				}
				p := Path{From: end.prefix.Addr(), To: to}
				if i := slices.IndexFunc(netdevs, func(n Netdev) bool { return n.Index == index }); i >= 0 {
					p.Netdev = netdevs[i].Name
				}
				paths = append(paths, p)
			}
		}
		for i := range netdevs {
			var err error
			if netdevs[i].Index == 0 || len(netdevs[i].Addresses) == 0 {
				continue
			}
			if netdevs[i].Gateways, err = g.kernel.Gateways(netdevs[i].Index); err != nil {
				r.unread = append(r.unread, fmt.Sprintf("routes of %s: %v", netdevs[i].Name, err))
			}
		}
		return func(f *RailFacts) { f.Paths, f.Netdevs = paths, netdevs }
	}
}

// rtnetlink asks the running kernel (include/uapi/linux/rtnetlink.h). It has its
// own few lines because the libraries that speak it cannot give a lookup its
// source address, or bring much else.
type rtnetlink struct{ timeout time.Duration }

// Sizes of what comes before the attributes of a message.
const (
	sizeofIfAddrmsg = unix.SizeofIfAddrmsg
	sizeofRtMsg     = unix.SizeofRtMsg
)

// ask sends one request and returns the bodies of the answers that are of type
// reply and at least head bytes long.
func (k rtnetlink) ask(request, reply netlink.HeaderType, flags netlink.HeaderFlags, strict bool, data []byte, head int) ([][]byte, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Strict: strict})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(k.timeout)); err != nil {
		return nil, err
	}
	replies, err := c.Execute(netlink.Message{Header: netlink.Header{Type: request, Flags: netlink.Request | flags}, Data: data})
	if err != nil {
		return nil, err
	}
	var bodies [][]byte
	for _, m := range replies {
		if m.Header.Type == reply && len(m.Data) >= head {
			bodies = append(bodies, m.Data)
		}
	}
	return bodies, nil
}

func (k rtnetlink) Addresses() (map[int][]netip.Prefix, error) {
	bodies, err := k.ask(unix.RTM_GETADDR, unix.RTM_NEWADDR, netlink.Dump, false, make([]byte, sizeofIfAddrmsg), sizeofIfAddrmsg)
	if err != nil {
		return nil, err
	}
	all := map[int][]netip.Prefix{}
	for _, b := range bodies {
		p, index, err := decodeAddress(b)
		if err != nil {
			return all, err
		}
		if p.IsValid() {
			all[index] = append(all[index], p)
		}
	}
	return all, nil
}

// decodeAddress decodes struct ifaddrmsg: family u8, prefix length u8, flags u8,
// scope u8, interface u32. IFA_LOCAL is the interface's own address where
// IFA_ADDRESS is the other end's.
func decodeAddress(b []byte) (netip.Prefix, int, error) {
	ad, err := netlink.NewAttributeDecoder(b[sizeofIfAddrmsg:])
	if err != nil {
		return netip.Prefix{}, 0, err
	}
	var local, address netip.Addr
	for ad.Next() {
		switch ad.Type() {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(ad.Bytes())
		}
	}
	if !local.IsValid() {
		local = address
	}
	return netip.PrefixFrom(local, int(b[1])), int(binary.NativeEndian.Uint32(b[4:])), ad.Err()
}

func (k rtnetlink) Path(from, to netip.Addr) (int, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.RTA_SRC, from.AsSlice())
	ae.Bytes(unix.RTA_DST, to.AsSlice())
	data, err := routeRequest(ae, from.BitLen(), to.BitLen())
	if err != nil {
		return 0, err
	}
	bodies, err := k.ask(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, 0, false, data, sizeofRtMsg)
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return 0, nil
	}
	if err != nil || len(bodies) == 0 {
		return 0, cmp.Or(err, errors.New("no answer"))
	}
	r, err := decodeRoute(bodies[0])
	return r.index, err
}

func (k rtnetlink) Gateways(index int) ([]netip.Prefix, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(unix.RTA_OIF, uint32(index))
	data, err := routeRequest(ae, 0, 0)
	if err != nil {
		return nil, err
	}
	// Strict, so that the kernel sends the routes of this interface and not a
	// million others.
	bodies, err := k.ask(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, netlink.Dump, true, data, sizeofRtMsg)
	if err != nil {
		return nil, err
	}
	var list []netip.Prefix
	for _, b := range bodies[:min(len(bodies), maxPaths)] {
		r, err := decodeRoute(b)
		if err != nil {
			return list, err
		}
		if r.gateway && (r.index == index || r.index == 0) {
			list = append(list, r.to)
		}
	}
	return list, nil
}

// routeRequest encodes struct rtmsg: family u8, lengths of destination and
// source u8 each, five more u8, flags u32.
func routeRequest(ae *netlink.AttributeEncoder, src, dst int) ([]byte, error) {
	attributes, err := ae.Encode()
	head := make([]byte, sizeofRtMsg)
	head[0], head[1], head[2] = unix.AF_INET, byte(dst), byte(src)
	return append(head, attributes...), err
}

// route is what is used of an answer about one.
type route struct {
	to      netip.Prefix
	index   int // 0: several, or none
	gateway bool
}

func decodeRoute(b []byte) (r route, err error) {
	ad, err := netlink.NewAttributeDecoder(b[sizeofRtMsg:])
	if err != nil {
		return r, err
	}
	to := netip.IPv4Unspecified()
	for ad.Next() {
		switch ad.Type() {
		case unix.RTA_DST:
			to, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.RTA_OIF:
			r.index = int(ad.Uint32())
		case unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_MULTIPATH:
			r.gateway = true
		}
	}
	r.to = netip.PrefixFrom(to, int(b[1]))
	return r, ad.Err()
}
