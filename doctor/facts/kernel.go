package facts

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rdmadev"
)

// Kernel answers what is in no file of sysfs or procfs. A nil function is not called. Interfaces are named by their
// index.
type Kernel struct {
	// Live reports that the files are the running kernel's: what they lack does not exist.
	Live bool
	// Addresses returns the addresses of every interface, with their subnets.
	Addresses func() (map[int][]netip.Prefix, error)
	// Path returns the interface by which a packet leaves; 0 if none.
	Path func(from, to netip.Addr) (index int, err error)
	// Gateways returns the IPv4 destinations that an interface reaches through a gateway.
	Gateways func(index int) ([]netip.Prefix, error)
	// PFC returns the priorities with PFC, one bit each.
	PFC func(netdev string) (uint8, error)
	// Pause returns whether an interface honors and sends global pause frames.
	Pause func(netdev string) (rx, tx bool, err error)
	// OpenDevice opens a device to read and write, and closes it.
	OpenDevice func(path string) error
	// RDMA finds the device nodes and the netdevs of RDMA devices.
	RDMA rdmadev.Finder
}

// runningKernel queries the kernel of this machine.
func runningKernel(sysfs string, timeout time.Duration) Kernel {
	k := rtnetlink{timeout}
	return Kernel{Live: true, Addresses: k.addresses, Path: k.path, Gateways: k.gateways, PFC: kernelPFC,
		Pause: kernelPause, OpenDevice: openDevice, RDMA: rdmadev.New(sysfs)}
}

// openDevice does what a program does first. No RDMA driver does more at open than register the caller.
func openDevice(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// maxPaths bounds the addresses of an interface, the other addresses, and the routes.
const maxPaths = 256

// readAddresses reads the addresses of the interfaces.
func (g *Gatherer) readAddresses(netdevs []Netdev) work {
	if g.kernel.Addresses == nil {
		return nil
	}
	netdevs = slices.Clone(netdevs)
	return func(r *reader) func(*Facts) {
		all, err := g.kernel.Addresses()
		if err != nil {
			r.say("addresses of the interfaces: %v", err)
		}
		for i := range netdevs {
			n := &netdevs[i]
			n.Addresses = bounded(slices.DeleteFunc(all[n.Index],
				func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() }))
			delete(all, n.Index)
		}
		others := bounded(slices.Concat(slices.Collect(maps.Values(all))...))
		return func(f *Facts) { f.Netdevs, f.Others = netdevs, others }
	}
}

// bounded returns the first prefixes in order.
func bounded(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, netip.Prefix.Compare)
	return list[:min(len(list), maxPaths)]
}

// readRoutes reads by which interface rails in one subnet send, and what each reaches through a gateway.
func (g *Gatherer) readRoutes(netdevs []Netdev, subnets []Subnet) work {
	if g.kernel.Path == nil || g.kernel.Gateways == nil {
		return nil
	}
	netdevs = slices.Clone(netdevs)
	return func(r *reader) func(*Facts) {
		var paths []Path
		for _, s := range subnets {
			for _, end := range s.Ends {
				from, to := end.Prefix.Addr(), s.other()
				if !to.IsValid() || len(paths) >= maxPaths {
					continue
				}
				index, err := g.kernel.Path(from, to)
				if err != nil {
					r.say("route from %s to %s: %v", from, to, err)
					continue
				}
				p := Path{From: from, To: to}
				if i := slices.IndexFunc(netdevs, func(n Netdev) bool { return n.Index == index }); i >= 0 {
					p.Netdev = netdevs[i].Name
				}
				paths = append(paths, p)
			}
		}
		for i := range netdevs {
			n := &netdevs[i]
			if n.Index == 0 || len(n.Addresses) == 0 {
				continue
			}
			var err error
			if n.Gateways, err = g.kernel.Gateways(n.Index); err != nil {
				r.say("routes of %s: %v", n.Name, err)
			}
		}
		return func(f *Facts) { f.Paths, f.Netdevs = paths, netdevs }
	}
}

// rtnetlink queries addresses and routes.
type rtnetlink struct{ timeout time.Duration }

// with calls do with a socket that has the timeout.
func (k rtnetlink) with(do func(*netlink.Handle) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.SetSocketTimeout(k.timeout); err != nil {
		return err
	}
	for range 3 { // a dump is interrupted when something changes meanwhile
		if err = do(h); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}

func (k rtnetlink) addresses() (all map[int][]netip.Prefix, err error) {
	err = k.with(func(h *netlink.Handle) error {
		list, err := h.AddrList(nil, netlink.FAMILY_ALL)
		all = map[int][]netip.Prefix{}
		for _, a := range list {
			if a.IPNet == nil {
				continue
			}
			length := a.Mask
			if a.Peer != nil { // whose subnet it is in
				length = a.Peer.Mask
			}
			if ip, ok := netip.AddrFromSlice(a.IP); ok {
				bits, _ := length.Size()
				all[a.LinkIndex] = append(all[a.LinkIndex], netip.PrefixFrom(ip.Unmap(), bits))
			}
		}
		return err
	})
	return all, err
}

func (k rtnetlink) path(from, to netip.Addr) (index int, err error) {
	err = k.with(func(h *netlink.Handle) error {
		list, err := h.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{SrcAddr: from.AsSlice()})
		switch {
		case errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH):
			return nil
		case err == nil && len(list) == 0:
			return errors.New("no answer")
		case err == nil:
			index = list[0].LinkIndex
		}
		return err
	})
	return index, err
}

func (k rtnetlink) gateways(index int) (list []netip.Prefix, err error) {
	err = k.with(func(h *netlink.Handle) error {
		// The kernel then sends only the routes of this interface, not a million others; before Linux 4.20 it cannot.
		_ = h.SetStrictCheck(true)
		list = nil
		all := &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_UNSPEC}
		return h.RouteListFilteredIter(netlink.FAMILY_V4, all, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			if throughGateway(r, index) {
				list = append(list, destination(r.Dst))
			}
			return len(list) < maxPaths
		})
	})
	return list, err
}

// throughGateway reports whether a route leaves by an interface to a gateway.
func throughGateway(r netlink.Route, index int) bool {
	by := func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex == index }
	return r.LinkIndex == index && (r.Gw != nil || r.Via != nil) || slices.ContainsFunc(r.MultiPath, by)
}

// destination is where a route leads; nil is everywhere.
func destination(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	ip, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits)
}
