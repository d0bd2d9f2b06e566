package facts

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
)

// Network is what was read of the rails and of what they depend on.
type Network struct {
	RDMA        bool           `json:"rdma"`               // /sys/class/infiniband exists
	Hidden      bool           `json:"hidden"`             // it cannot be listed, and Unread says why
	RDMADevices []string       `json:"devices" max:"1024"` // in it; only if there is no rail
	Adapters    []Adapter      `json:"adapters"`           // that support RDMA; only if there is no rail
	Rails       []Rail         `json:"rails" max:"256"`
	LeftOut     string         `json:"left_out"`           // the first RDMA port that is not a rail, and why
	Netdevs     []Netdev       `json:"netdevs" max:"1024"` // of rails, of their bonds, and of those bonds' members
	Bonds       []Bond         `json:"bonds" max:"256"`    // over rails
	GPUs        []GPU          `json:"gpus" max:"256"`
	GPUsRead    bool           `json:"gpus_read"`         // false: not all were read, rather than absent
	NUMA        []Distance     `json:"numa" max:"65536"`  // of all pairs of NUMA nodes
	Paths       []Path         `json:"paths" max:"256"`   // of rails that share a subnet
	Others      []netip.Prefix `json:"others" max:"1024"` // addresses of the node's other interfaces
	Uptime      float64        `json:"uptime_seconds"`    // of the kernel; 0 unknown

	EmptyBonds []string `json:"empty_bonds,omitempty" max:"256"` // bonds that are up, and have no member

	Missing  []rail.Missing `json:"missing" max:"256"` // known rails that are absent
	Expected expect.Node    `json:"expected"`          // without figures that cannot be compared: not all could be read
}

// Rail is one RDMA port; see [rail.Rail] and [rail.Port].
type Rail struct {
	Name       string  `json:"name"`
	Device     string  `json:"device"`
	Port       int     `json:"port"`
	Netdev     string  `json:"netdev"`
	Role       string  `json:"role"`       // see [rail.Rail]
	LinkLayer  string  `json:"link_layer"` // Ethernet is RoCE; InfiniBand, iWARP
	Driver     string  `json:"driver"`
	Kind       string  `json:"kind"`     // driver and adapter type, to be configured alike; empty for software
	Provider   string  `json:"provider"` // of libibverbs for this device, for example mlx5; empty unknown
	Software   bool    `json:"software"`
	PCIAddress string  `json:"pci_address"`
	NUMANode   int     `json:"numa_node"` // -1 unknown
	Board      string  `json:"board"`     // the same for all functions of an adapter; empty unknown
	PortKey    string  `json:"port_key"`  // the same for all functions of a physical port; empty: unknown
	StateID    int     `json:"state_id"`  // enum ib_port_state; 0 unknown
	State      string  `json:"state"`
	PhysState  string  `json:"phys_state"`
	Rate       float64 `json:"rate"`     // bytes per second; 0 unknown, or the port is not active
	Received   *uint64 `json:"received"` // packets, of a port that is not active; nil unknown
	GIDs       []GID   `json:"gids"`
	GIDsRead   bool    `json:"gids_read"` // false: not read, rather than empty
	Link       *Link   `json:"link"`      // of the PCI function; nil: none, or unknown
	Slot       *Link   `json:"slot"`      // of the bridge above it

	Expected expect.Rail `json:"expected"` // what it should be
}

// GID is one used entry of a port's GID table.
type GID struct {
	rail.GID
	Own bool `json:"own"` // the interface is the rail's own; see [rail.Own]
}

// Link is one end of a PCIe link: what it runs at, which is known of the function only, and what it supports.
type Link struct {
	Address  string  `json:"address"`
	Speed    float64 `json:"speed"` // GT/s per lane
	Width    int     `json:"width"` // lanes
	MaxSpeed float64 `json:"max_speed"`
	MaxWidth int     `json:"max_width"`
}

// Adapter is a PCI function that supports RDMA.
type Adapter struct {
	Address string `json:"address"`
	Driver  string `json:"driver"` // kernel driver bound to it; empty: none
	Module  string `json:"module"` // kernel module that creates its RDMA device
}

// Netdev is one network interface. Pointers are nil if the kernel does not report the value.
type Netdev struct {
	Name      string         `json:"name"`
	Index     int            `json:"index"`
	Up        *bool          `json:"up"`      // administratively
	Carrier   *bool          `json:"carrier"` // unknown while it is not up
	MTU       int            `json:"mtu"`     // bytes; 0 unknown
	Master    string         `json:"master"`  // its bond or bridge
	Slot      string         `json:"slot"`    // PCI slot without the function; empty: none
	Ups       *uint64        `json:"carrier_ups"`
	Downs     *uint64        `json:"carrier_downs"`       // since it was created
	Addresses []netip.Prefix `json:"addresses" max:"256"` // except link-local ones
	Gateways  []netip.Prefix `json:"gateways" max:"256"`  // destinations that it reaches through a gateway

	// The effective values of net.ipv4.conf: the larger of all's and its own (IN_DEV_MAXCONF, IN_DEV_ORCONF).
	ARPIgnore   *int `json:"arp_ignore"`
	ARPAnnounce *int `json:"arp_announce"`
	ARPFilter   *int `json:"arp_filter"`
}

// Bond is a bond that rails are on.
type Bond struct {
	Name       string   `json:"name"`
	Mode       string   `json:"mode"`
	Aggregator int      `json:"aggregator"` // the active one; 0: none, or not LACP
	Partner    string   `json:"partner"`    // address of its LACP partner, zeros without one; empty: unknown, or not LACP
	Members    []Member `json:"members" max:"64"`
	Log        []string `json:"log,omitempty" max:"8"` // what the driver wrote about its one device, the last first
}

// Member is an interface of a bond.
type Member struct {
	Name       string `json:"name"`
	Status     string `json:"status"`            // mii_status: up, down, going down, going back
	Aggregator int    `json:"aggregator"`        // 0: unknown, or not LACP
	VFs        int    `json:"virtual_functions"` // that its function has made
	ActorState *int   `json:"actor_state"`       // this side's LACP state bits, LACP_STATE_* in include/net/bond_3ad.h
}

// GPU is one GPU on PCI.
type GPU struct {
	Address  string `json:"address"`
	NUMANode int    `json:"numa_node"` // -1 unknown
	Link     *Link  `json:"link,omitempty"`
	Slot     *Link  `json:"slot,omitempty"` // of the bridge above it
}

// Distance is how far a NUMA node is from another, by the firmware's table (ACPI SLIT): 10 is the node itself.
type Distance struct {
	From  int `json:"from"`
	To    int `json:"to"`
	Value int `json:"value"`
}

// Path is the kernel's answer by which interface a packet leaves.
type Path struct {
	From   netip.Addr `json:"from"`
	To     netip.Addr `json:"to"`
	Netdev string     `json:"netdev"` // empty: none
}

// Find returns the facts of an interface; nil if it was not read.
func (f *Network) Find(name string) *Netdev {
	if i := slices.IndexFunc(f.Netdevs, func(n Netdev) bool { return n.Name == name }); i >= 0 {
		return &f.Netdevs[i]
	}
	return nil
}

// Netdev returns the facts of an interface, empty ones if it was not read.
func (f *Network) Netdev(name string) Netdev {
	if n := f.Find(name); n != nil {
		return *n
	}
	return Netdev{Name: name}
}

// BondOf returns the bond that a rail's interface is a member of; nil if none.
func (f *Network) BondOf(r *Rail) *Bond {
	member := func(m Member) bool { return m.Name == r.Netdev && r.Netdev != "" }
	for i := range f.Bonds {
		if slices.ContainsFunc(f.Bonds[i].Members, member) {
			return &f.Bonds[i]
		}
	}
	return nil
}

// Where returns the rails that match.
func (f *Network) Where(match func(*Rail) bool) (rails []*Rail) {
	for i := range f.Rails {
		if match(&f.Rails[i]) {
			rails = append(rails, &f.Rails[i])
		}
	}
	return rails
}

// RailsOn returns the rails whose interfaces are members of a bond.
func (f *Network) RailsOn(b *Bond) []*Rail {
	return f.Where(func(r *Rail) bool { return f.BondOf(r) == b })
}

// Hardware returns the rails that are PCI functions.
func (f *Network) Hardware() []*Rail {
	return f.Where(func(r *Rail) bool { return r.PCIAddress != "" })
}

// Separate reports whether the rail is not on a bond that cannot carry RDMA at all, which is a separate finding.
func (f *Network) Separate(r *Rail) bool {
	b := f.BondOf(r)
	return b == nil || BondCarriesRDMA(b.Mode) && len(f.RailsOn(b)) < 2
}

// Halves returns the other PCI functions of a rail's physical port that are on another PCIe link.
func (f *Network) Halves(r *Rail) []*Rail {
	return f.Where(func(t *Rail) bool {
		return t != r && r.PortKey != "" && t.PortKey == r.PortKey && rail.LinkKey(t.PCIAddress) != rail.LinkKey(r.PCIAddress)
	})
}

// WorkingHalf returns the half of the rail's port that works while this one cannot be used, or nil.
func (f *Network) WorkingHalf(r *Rail) *Rail {
	if unknown := r.StateID == 0 || r.Active() && !r.GIDsRead; unknown || r.Active() && r.Reachable() {
		return nil
	}
	for _, t := range f.Halves(r) {
		if t.Active() && t.Reachable() {
			return t
		}
	}
	return nil
}

// Unused reports whether the port is a used adapter's second one, without an address, that never had a link.
func (f *Network) Unused(r *Rail) bool {
	used, known := f.used(r)
	return known && !used && strings.Trim(r.Board, "0:") != "" && slices.ContainsFunc(f.Rails, func(o Rail) bool {
		used, _ := f.used(&o)
		return used && o.Board == r.Board
	})
}

// used reports whether a port works, once did, or has an address. A port without an interface (InfiniBand) that
// received nothing, not even from the subnet manager, never had a link.
func (f *Network) used(r *Rail) (used, known bool) {
	n := f.Netdev(r.Netdev)
	links := n.Ups
	if links == nil && r.StateID == 1 { // IB_PORT_DOWN of include/rdma/ib_verbs.h
		links = r.Received
	}
	return r.Active() || links != nil && *links > 0 || len(n.Addresses) > 0, links != nil
}

// Active reports whether the port carries data.
func (r *Rail) Active() bool { return r.StateID == rail.StateActive }

// Ethernet reports whether the rail speaks RoCE.
func (r *Rail) Ethernet() bool { return r.LinkLayer == "Ethernet" }

// RoCEMTU is what the kernel derives from the interface's MTU, bytes.
func (r *Rail) RoCEMTU(netdev int) int { return rail.Rail{Software: r.Software}.ActiveMTU(netdev) }

// BestGID returns the GID that a connection would use.
func (r *Rail) BestGID() rail.Choice {
	table, own := make([]rail.GID, len(r.GIDs)), map[string]bool{}
	for i, g := range r.GIDs {
		table[i] = g.GID
		own[g.Netdev] = own[g.Netdev] || g.Own
	}
	return rail.ChooseGID(table, r.LinkLayer, func(netdev string) bool { return own[netdev] })
}

// Reachable reports whether the rail has a GID of an own address; InfiniBand needs none.
func (r *Rail) Reachable() bool { return !r.Ethernet() || r.BestGID().Rank >= rail.OwnIPv6 }

// IPv4 returns the IPv4 addresses of an interface, with their subnets.
func (n Netdev) IPv4() (list []netip.Prefix) {
	for _, p := range n.Addresses {
		if p.Addr().Is4() {
			list = append(list, p)
		}
	}
	return list
}

// BondCarriesRDMA reports whether drivers make one RDMA device of a bond of this mode (mlx5/core/lag, bnxt_re).
func BondCarriesRDMA(mode string) bool {
	return mode == "" || mode == "active-backup" || mode == "balance-xor" || mode == "802.3ad"
}

// String is the rail for people.
func (r *Rail) String() string { return fmt.Sprintf("%s (%s)", r.Subject(), r.Where()) }

// Subject is the rail as the subject of a finding.
func (r *Rail) Subject() string { return "rail " + r.Name }

// Where names the rail's device and interface.
func (r *Rail) Where() string {
	s := r.Device
	if r.Port > 1 {
		s += fmt.Sprintf(" port %d", r.Port)
	}
	if r.Netdev != "" {
		s += ", " + r.Netdev
	}
	return s
}

// Subnet is an IPv4 subnet in which several rails of this node have an address.
type Subnet struct {
	Prefix netip.Prefix
	Ends   []End
}

// End is a rail in a subnet.
type End struct {
	Rail   *Rail
	Prefix netip.Prefix // its address
}

// Subnets returns the subnets that active rails share, with one end per interface.
func (f *Network) Subnets() []Subnet {
	var all []Subnet
	seen := map[string]bool{}
	for i := range f.Rails {
		r := &f.Rails[i]
		if !r.Active() || !r.Ethernet() || seen[r.Netdev] {
			continue
		}
		seen[r.Netdev] = true
		for _, p := range f.Netdev(r.Netdev).IPv4() {
			at := slices.IndexFunc(all, func(s Subnet) bool { return s.Prefix.Overlaps(p) })
			if at < 0 {
				all, at = append(all, Subnet{Prefix: p.Masked()}), len(all)
			}
			all[at].Ends = append(all[at].Ends, End{r, p})
		}
	}
	return slices.DeleteFunc(all, func(s Subnet) bool {
		return !slices.ContainsFunc(s.Ends, func(e End) bool { return e.Rail.Netdev != s.Ends[0].Rail.Netdev })
	})
}

// other is an address of the subnet that no rail has, to query the route to; invalid if all are taken.
func (s Subnet) other() netip.Addr {
	for a := s.Prefix.Addr().Next(); s.Prefix.Contains(a); a = a.Next() {
		if !slices.ContainsFunc(s.Ends, func(e End) bool { return e.Prefix.Addr() == a }) {
			return a
		}
	}
	return netip.Addr{}
}
