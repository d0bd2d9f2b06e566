package facts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rdmadev"
)

// Kernel answers what no file of sysfs or procfs shows. A nil function is not
// asked. Interfaces are named by their index.
type Kernel struct {
	// Live reports that the files are the running kernel's: what they lack, it lacks.
	Live bool
	// Addresses returns those of every interface, with their subnets.
	Addresses func() (map[int][]netip.Prefix, error)
	// Path returns the interface by which a packet leaves; 0 if by none.
	Path func(from, to netip.Addr) (index int, err error)
	// Gateways returns the IPv4 destinations to which an interface has a route
	// through a gateway.
	Gateways func(index int) ([]netip.Prefix, error)
	// PFC returns the priorities with PFC, a bit each.
	PFC func(netdev string) (uint8, error)
	// Pause returns the global pause frames that an interface heeds and sends.
	Pause func(netdev string) (rx, tx bool, err error)
	// OpenDevice opens a device to read and write, and closes it.
	OpenDevice func(path string) error
	// RDMA finds the device nodes and the netdevs of RDMA devices.
	RDMA rdmadev.Finder
}

// runningKernel asks the kernel of this machine.
func runningKernel(sysfs string, timeout time.Duration) Kernel {
	k := rtnetlink{timeout}
	return Kernel{Live: true, Addresses: k.addresses, Path: k.path, Gateways: k.gateways, PFC: kernelPFC,
		Pause:      kernelPause,
		OpenDevice: openDevice, RDMA: rdmadev.New(sysfs)}
}

// openDevice does what a program would do first. No RDMA driver does more at
// open than note who came.
func openDevice(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// readAddresses reads the addresses of the interfaces.
func (g *Gatherer) readAddresses(netdevs []Netdev) work {
	if g.kernel.Addresses == nil {
		return nil
	}
	netdevs = slices.Clone(netdevs)
	return func(r *reader) func(*Facts) {
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
		return func(f *Facts) { f.Netdevs, f.Others = netdevs, others }
	}
}

// maxPaths bounds how many routes are asked for.
const maxPaths = 256

// readRoutes reads by which interface rails of one subnet send, and what each
// reaches through a gateway.
func (g *Gatherer) readRoutes(netdevs []Netdev, subnets []Subnet) work {
	if g.kernel.Path == nil || g.kernel.Gateways == nil {
		return nil
	}
	netdevs = slices.Clone(netdevs)
	return func(r *reader) func(*Facts) {
		var paths []Path
		for _, s := range subnets {
			for _, end := range s.Ends {
				to := s.other()
				if !to.IsValid() || len(paths) >= maxPaths {
					continue
				}
				index, err := g.kernel.Path(end.Prefix.Addr(), to)
				if err != nil {
					r.unread = append(r.unread, fmt.Sprintf("route from %s to %s: %v", end.Prefix.Addr(), to, err))
					continue
				}
				p := Path{From: end.Prefix.Addr(), To: to}
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
		return func(f *Facts) { f.Paths, f.Netdevs = paths, netdevs }
	}
}

// rtnetlink asks for addresses and routes.
type rtnetlink struct{ timeout time.Duration }

// with calls do with a socket that gives up after the timeout.
func (k rtnetlink) with(do func(*netlink.Handle) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.SetSocketTimeout(k.timeout); err != nil {
		return err
	}
	for range 3 { // until nothing changes meanwhile
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
		// So that the kernel sends the routes of this interface and not a million
		// others; before Linux 4.20 it cannot.
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
