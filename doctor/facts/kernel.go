package facts

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/rdmanl"
)

// Kernel answers queries beyond files. A nil function is not called. Interfaces are identified by their index.
type Kernel struct {
	Live bool           // the files are the running kernel's: what they lack does not exist
	RDMA rdmadev.Finder // finds device nodes and netdevs of RDMA devices

	Addresses  func() (map[int][]netip.Prefix, error)           // addresses of every interface, with their subnets
	Path       func(from, to netip.Addr) (index int, err error) // interface by which a packet leaves; 0 if none
	Gateways   func(index int) ([]netip.Prefix, error)          // IPv4 destinations reached through a gateway
	DCB        func(netdev string) (DCB, error)                 // priorities of packets, and PFC
	Pause      func(netdev string) (rx, tx bool, err error)     // whether global pause frames are honored, and sent
	LinkReason func(netdev string) (string, error)              // why an interface has no link; empty if unknown
	OpenDevice func(path string) error                          // opens a device for reading and writing, and closes it

	// QueuePairs calls each for every queue pair of a device. The kernel queries the firmware about each of them.
	QueuePairs func(device string, limits rdmanl.QPLimits, each func(rdmanl.QP)) error
	// UCXInfo runs ucx_info -d; path is empty if it is not installed.
	UCXInfo func(context.Context) (path, output string, err error)
}

func runningKernel(sysfs string, timeout time.Duration) Kernel {
	k := rtnetlink{timeout}
	return Kernel{Live: true, Addresses: k.addresses, Path: k.path, Gateways: k.gateways, DCB: kernelDCB,
		Pause: kernelPause, LinkReason: ethtool.ReadLinkReason, OpenDevice: openDevice, RDMA: rdmadev.New(sysfs),
		UCXInfo:    runUCXInfo,
		QueuePairs: rdmanl.NewForDumps(timeout).QueuePairs}
}

// openDevice opens a device, as a program does first. On open, RDMA drivers only register the caller.
func openDevice(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// maxPaths bounds the addresses of an interface, the other addresses, and the routes.
const maxPaths = 256

// readAddresses reads the addresses of interfaces, and their routes within shared subnets and through gateways.
func (g *Gatherer) readAddresses(n Network) work {
	if g.kernel.Addresses == nil {
		return nil
	}
	n.Netdevs = slices.Clone(n.Netdevs)
	return func(r *reader) func(*Facts) {
		all, err := g.kernel.Addresses()
		if err != nil {
			r.say("addresses of the interfaces: %v", err)
		}
		for i := range n.Netdevs {
			d := &n.Netdevs[i]
			d.Addresses = bounded(slices.DeleteFunc(all[d.Index],
				func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() }))
			delete(all, d.Index)
		}
		n.Others = bounded(slices.Concat(slices.Collect(maps.Values(all))...))
		if g.kernel.Path != nil && g.kernel.Gateways != nil {
			g.readRoutes(r, &n)
		}
		return func(f *Facts) { f.Netdevs, f.Others, f.Paths = n.Netdevs, n.Others, n.Paths }
	}
}

func bounded(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, netip.Prefix.Compare)
	return list[:min(len(list), maxPaths)]
}

func (g *Gatherer) readRoutes(r *reader, n *Network) {
	for _, s := range n.Subnets() {
		for _, end := range s.Ends {
			from, to := end.Prefix.Addr(), s.other()
			if !to.IsValid() || len(n.Paths) >= maxPaths {
				continue
			}
			index, err := g.kernel.Path(from, to)
			if err != nil {
				r.say("route from %s to %s: %v", from, to, err)
				continue
			}
			p := Path{From: from, To: to}
			if i := slices.IndexFunc(n.Netdevs, func(d Netdev) bool { return d.Index == index }); i >= 0 {
				p.Netdev = n.Netdevs[i].Name
			}
			n.Paths = append(n.Paths, p)
		}
	}
	for i := range n.Netdevs {
		d := &n.Netdevs[i]
		if d.Index == 0 || len(d.Addresses) == 0 {
			continue
		}
		var err error
		d.Gateways, err = g.kernel.Gateways(d.Index)
		if err != nil {
			r.say("routes of %s: %v", d.Name, err)
		}
	}
}

type rtnetlink struct{ timeout time.Duration }

// with calls do with a netlink handle that has the timeout.
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
			mask := a.Mask
			if a.Peer != nil { // the subnet is the peer's
				mask = a.Peer.Mask
			}
			all[a.LinkIndex] = append(all[a.LinkIndex], prefix(a.IP, mask))
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
		// With this the kernel sends only the routes of this interface, not a million others. Before Linux 4.20 it
		// cannot.
		_ = h.SetStrictCheck(true)
		list = nil
		all := &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_UNSPEC}
		return h.RouteListFilteredIter(netlink.FAMILY_V4, all, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if r.Dst != nil {
				to = prefix(r.Dst.IP, r.Dst.Mask)
			}
			if throughGateway(r, index) {
				list = append(list, to)
			}
			return len(list) < maxPaths
		})
	})
	return list, err
}

func throughGateway(r netlink.Route, index int) bool {
	by := func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex == index }
	return r.LinkIndex == index && (r.Gw != nil || r.Via != nil) || slices.ContainsFunc(r.MultiPath, by)
}

// prefix converts an address and its mask, as the kernel sends them.
func prefix(address net.IP, mask net.IPMask) netip.Prefix {
	ip, _ := netip.AddrFromSlice(address)
	bits, _ := mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits)
}
