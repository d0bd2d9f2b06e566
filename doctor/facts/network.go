package facts

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
)

// Network is what was read of the rails and of what they depend on.
type Network struct {
	RDMA        bool           `json:"rdma"`     // the kernel has RDMA: /sys/class/infiniband exists
	Hidden      bool           `json:"hidden"`   // it cannot be listed, and Unread says why
	RDMADevices []string       `json:"devices"`  // in it; only if there is no rail
	Adapters    []Adapter      `json:"adapters"` // that support RDMA; only if there is no rail
	Rails       []Rail         `json:"rails"`
	LeftOut     []LeftOut      `json:"left_out"`
	Netdevs     []Netdev       `json:"netdevs"` // of rails, of the bonds over them, and of those bonds' members
	Bonds       []Bond         `json:"bonds"`   // over rails
	GPUs        []GPU          `json:"gpus"`
	NUMA        []NUMANode     `json:"numa"`
	Paths       []Path         `json:"paths"`          // of rails that share a subnet
	Others      []netip.Prefix `json:"others"`         // addresses of the node's other interfaces
	Uptime      float64        `json:"uptime_seconds"` // of the kernel; 0 unknown
}

// Rail is one RDMA port; see [rail.Rail] and [rail.Status].
type Rail struct {
	Name       string  `json:"name"`
	Device     string  `json:"device"`
	Port       int     `json:"port"`
	Netdev     string  `json:"netdev"`
	LinkLayer  string  `json:"link_layer"` // Ethernet is RoCE; InfiniBand, iWARP
	Driver     string  `json:"driver"`
	Software   bool    `json:"software"`
	PCIAddress string  `json:"pci_address"`
	NUMANode   int     `json:"numa_node"` // -1 unknown
	Board      string  `json:"board"`     // one for all functions of an adapter; empty unknown
	PortKey    string  `json:"port_key"`  // one for all functions of a physical port; empty: no other has it
	StateID    int     `json:"state_id"`  // enum ib_port_state; 0 unknown
	State      string  `json:"state"`
	PhysState  string  `json:"phys_state"`
	Rate       float64 `json:"rate"`     // bytes per second; 0 unknown
	Received   *uint64 `json:"received"` // packets, of a port that is not ACTIVE; nil unknown
	GIDs       []GID   `json:"gids"`
	GIDsRead   bool    `json:"gids_read"` // false: not read, rather than empty
	Link       *Link   `json:"link"`      // of the PCI function; nil: none, or unknown
	Slot       *Link   `json:"slot"`      // of the bridge above it

	// Kind is driver and type of adapter: rails of one kind should be configured
	// alike; empty for a software device. Provider is what libibverbs calls its
	// part for this device, for example mlx5; empty if not known. See [Facts.MarshalJSON].
	Kind     string `json:"-"`
	Provider string `json:"-"`
}

// GID is one used entry of a port's GID table.
type GID struct {
	Index  int        `json:"index"`
	Addr   netip.Addr `json:"addr"`
	Type   string     `json:"type"`
	Netdev string     `json:"netdev"`
	Own    bool       `json:"own"` // the interface is the rail's own; see [rail.Own]
}

// Link is one end of a PCIe link: what it is and what it could be.
type Link struct {
	Address  string  `json:"address"`
	Speed    float64 `json:"speed"` // GT/s of one lane
	Width    int     `json:"width"` // lanes
	MaxSpeed float64 `json:"max_speed"`
	MaxWidth int     `json:"max_width"`
}

// LeftOut is an RDMA port that is not a rail.
type LeftOut struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Reason string `json:"reason"`
}

// Adapter is a PCI function that supports RDMA.
type Adapter struct {
	Address string `json:"address"`
	Driver  string `json:"driver"` // kernel driver bound to it; empty: none
	Module  string `json:"module"` // kernel module that makes an RDMA device of it
}

// Netdev is one network interface. Pointers are nil if the kernel does not
// report the value.
type Netdev struct {
	Name      string         `json:"name"`
	Index     int            `json:"index"`
	Up        *bool          `json:"up"`      // administratively
	Carrier   *bool          `json:"carrier"` // unknown while it is not up
	MTU       int            `json:"mtu"`     // bytes; 0 unknown
	Master    string         `json:"master"`  // its bond or bridge
	Slot      string         `json:"slot"`    // PCI slot without the function; empty: none
	Ups       *uint64        `json:"carrier_ups"`
	Downs     *uint64        `json:"carrier_downs"` // since it was created
	Addresses []netip.Prefix `json:"addresses"`     // except link-local ones
	Gateways  []netip.Prefix `json:"gateways"`      // what it has a route to through a gateway

	// What holds for it of net.ipv4.conf: the larger of all's and its own
	// (include/linux/inetdevice.h, IN_DEV_MAXCONF, IN_DEV_ORCONF).
	ARPIgnore   *int `json:"arp_ignore"`
	ARPAnnounce *int `json:"arp_announce"`
	ARPFilter   *int `json:"arp_filter"`
}

// Bond is a bond that rails are on.
type Bond struct {
	Name       string `json:"name"`
	Mode       string `json:"mode"`
	Aggregator int    `json:"aggregator"` // the active one; 0: none, or not LACP
	// system address of its LACP partner, zeros where nobody is heard; empty: unknown, or not LACP
	Partner string   `json:"partner"`
	Members []Member `json:"members"`
}

// Member is an interface of a bond.
type Member struct {
	Name       string `json:"name"`
	Status     string `json:"status"`      // mii_status: up, down, going down, going back
	Aggregator int    `json:"aggregator"`  // 0: unknown, or not LACP
	ActorState *int   `json:"actor_state"` // LACP state bits of our side, LACP_STATE_* in include/net/bond_3ad.h
}

// GPU is one GPU on PCI.
type GPU struct {
	Address  string `json:"address"`
	NUMANode int    `json:"numa_node"` // -1 unknown
}

// NUMANode is a node of memory and processors, with how far it is from others.
type NUMANode struct {
	ID        int        `json:"id"`
	Distances []Distance `json:"distances"`
}

// Distance is how far a NUMA node is, by the firmware's table (ACPI SLIT): 10 is
// the node itself.
type Distance struct {
	To    int `json:"to"`
	Value int `json:"value"`
}

// Path is the kernel's answer by which interface a packet leaves.
type Path struct {
	From   netip.Addr `json:"from"`
	To     netip.Addr `json:"to"`
	Netdev string     `json:"netdev"` // empty: by none
}

// Bounds on what a peer may send.
const (
	maxRails   = 256
	maxNetdevs = 1024
	maxGIDs    = 4096
	maxMembers = maxNetdevs // of all bonds together
	maxIPs     = 256        // addresses of one interface, or routes by it
	maxUnread  = 256
)

// bounded refuses facts that no railscope would send.
func (f *Facts) bounded() error {
	for _, n := range []struct {
		what     string
		is, most int
	}{
		{"rails", len(f.Rails), maxRails}, {"ports left out", len(f.LeftOut), maxNetdevs},
		{"devices", len(f.RDMADevices), maxNetdevs}, {"interfaces", len(f.Netdevs), maxNetdevs},
		{"bonds", len(f.Bonds), maxRails}, {"GPUs", len(f.GPUs), maxRails},
		{"NUMA nodes", len(f.NUMA), maxRails},
		{"addresses", len(f.Others), maxNetdevs}, {"paths", len(f.Paths), maxRails * maxRails},
	} {
		if n.is > n.most {
			return fmt.Errorf("%d %s: the most are %d", n.is, n.what, n.most)
		}
	}
	members := 0
	for _, b := range f.Bonds {
		members += len(b.Members)
	}
	if members > maxMembers {
		return fmt.Errorf("%d members of bonds: the most are %d", members, maxMembers)
	}
	for _, n := range f.NUMA {
		if len(n.Distances) > maxRails {
			return fmt.Errorf("%d distances of NUMA node %d: the most are %d", len(n.Distances), n.ID, maxRails)
		}
	}
	for _, n := range f.Netdevs {
		if most := max(len(n.Addresses), len(n.Gateways)); most > maxIPs {
			return fmt.Errorf("%d addresses or routes of %.20q: the most are %d", most, n.Name, maxIPs)
		}
	}
	for _, r := range f.Rails {
		if len(r.GIDs) > maxGIDs {
			return fmt.Errorf("%d GIDs of rail %.20q: the most are %d", len(r.GIDs), r.Name, maxGIDs)
		}
	}
	return nil
}

// Netdev returns the facts of an interface; of one that was not read they are
// empty.
func (f *Network) Netdev(name string) Netdev {
	for _, n := range f.Netdevs {
		if n.Name == name {
			return n
		}
	}
	return Netdev{Name: name}
}

// BondOf returns the bond that a rail's interface is a member of; nil if none.
func (f *Network) BondOf(r *Rail) *Bond {
	for i := range f.Bonds {
		if slices.ContainsFunc(f.Bonds[i].Members, func(m Member) bool {
			return m.Name == r.Netdev && r.Netdev != ""
		}) {
			return &f.Bonds[i]
		}
	}
	return nil
}

// RailsOn returns the rails whose interfaces are members of a bond.
func (f *Network) RailsOn(b *Bond) (rails []*Rail) {
	for i := range f.Rails {
		if f.BondOf(&f.Rails[i]) == b {
			rails = append(rails, &f.Rails[i])
		}
	}
	return rails
}

// Separate reports whether the rail is on no bond that is wrong for RDMA as a
// whole, which is one finding of its own.
func (f *Network) Separate(r *Rail) bool {
	b := f.BondOf(r)
	return b == nil || BondCarriesRDMA(b.Mode) && len(f.RailsOn(b)) < 2
}

// Halves returns the other PCI functions of a rail's physical port, on another
// PCIe link.
func (f *Network) Halves(r *Rail) (twins []*Rail) {
	for i := range f.Rails {
		if t := &f.Rails[i]; t != r && r.PortKey != "" && t.PortKey == r.PortKey &&
			rail.LinkKey(t.PCIAddress) != rail.LinkKey(r.PCIAddress) {
			twins = append(twins, t)
		}
	}
	return twins
}

// WorkingHalf returns the half of the rail's port that works while this one
// cannot be used; nil if this one can, or neither.
func (f *Network) WorkingHalf(r *Rail) *Rail {
	if unknown := r.StateID == 0 || r.Active() && !r.GIDsRead; unknown || r.Active() && r.Quality() >= OwnIPv6 {
		return nil
	}
	for _, t := range f.Halves(r) {
		if t.Active() && t.Quality() >= OwnIPv6 {
			return t
		}
	}
	return nil
}

// Unused reports whether nobody meant to use the port: the second port of an
// adapter whose first is used, which has no address and never had a link.
func (f *Network) Unused(r *Rail) bool {
	used, known := f.used(r)
	return known && !used && strings.Trim(r.Board, "0:") != "" && slices.ContainsFunc(f.Rails, func(o Rail) bool {
		used, _ := f.used(&o)
		return used && o.Board == r.Board
	})
}

// used reports whether a port works, once did, or has an address. A port without
// an interface (InfiniBand) that received nothing, not even from the subnet
// manager, never had a link.
func (f *Network) used(r *Rail) (used, known bool) {
	n := f.Netdev(r.Netdev)
	links := n.Ups
	if links == nil && r.StateID == stateDown {
		links = r.Received
	}
	return r.Active() || links != nil && *links > 0 || len(n.Addresses) > 0, links != nil
}

// stateDown is that of a port without a link (enum ib_port_state,
// include/rdma/ib_verbs.h).
const stateDown = 1

// Active reports whether the port carries data.
func (r *Rail) Active() bool { return r.StateID == rail.StateActive }

// Ethernet reports whether the rail speaks RoCE.
func (r *Rail) Ethernet() bool { return r.LinkLayer == "Ethernet" }

// RoCEMTU is what the kernel derives from the interface's MTU, bytes.
func (r *Rail) RoCEMTU(netdev int) int {
	return rail.Rail{Software: r.Software}.ActiveMTU(netdev)
}

// Quality says what the best GID of a rail is good for; the higher the better.
type Quality int

// The qualities.
const (
	NoGID     Quality = iota
	OnlyV1            // RoCE v1 only
	LinkLocal         // RoCE v2, but no address that another subnet, or NCCL, would accept
	Elsewhere         // RoCE v2 over IPv4, on another interface
	OwnIPv6
	OwnIPv4
)

// BestGID returns the GID that a connection would use.
func (r *Rail) BestGID() (GID, Quality) {
	table := make([]rail.GID, len(r.GIDs))
	for i, g := range r.GIDs {
		table[i] = rail.GID{Index: g.Index, Addr: g.Addr, Type: g.Type, Netdev: g.Netdev}
	}
	own := func(netdev string) bool {
		return slices.ContainsFunc(r.GIDs, func(g GID) bool { return g.Netdev == netdev && g.Own })
	}
	c := rail.ChooseGID(table, r.LinkLayer, own)
	if !c.OK {
		return GID{}, NoGID
	}
	g := r.GIDs[slices.IndexFunc(r.GIDs, func(g GID) bool { return g.Index == c.GID.Index })]
	switch {
	case g.Type != rail.TypeRoCEv2:
		return g, OnlyV1
	case g.Addr.Unmap().IsLinkLocalUnicast():
		return g, LinkLocal
	case !g.Own:
		return g, Elsewhere
	case g.Addr.Is4In6():
		return g, OwnIPv4
	}
	return g, OwnIPv6
}

// Quality is that of the best GID.
func (r *Rail) Quality() Quality {
	if !r.Ethernet() {
		return OwnIPv4 // InfiniBand has no such difference
	}
	_, q := r.BestGID()
	return q
}

// IPv4 returns the IPv4 addresses of an interface, with their subnets.
func (n Netdev) IPv4() (list []netip.Prefix) {
	for _, p := range n.Addresses {
		if p.Addr().Is4() {
			list = append(list, p)
		}
	}
	return list
}

// BondCarriesRDMA reports whether drivers make one RDMA device of a bond of this
// mode (drivers/net/ethernet/mellanox/mlx5/core/lag, drivers/infiniband/hw/bnxt_re).
func BondCarriesRDMA(mode string) bool {
	return mode == "" || mode == "active-backup" || mode == "balance-xor" || mode == "802.3ad"
}

// Hardware returns the rails that are PCI functions.
func (f *Network) Hardware() (list []*Rail) {
	for i := range f.Rails {
		if f.Rails[i].PCIAddress != "" {
			list = append(list, &f.Rails[i])
		}
	}
	return list
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

// Subnets returns those of active rails, by interface: two rails on one are one
// end.
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

// other is an address of the subnet that no rail has, to ask for the route to;
// invalid if there is none.
func (s Subnet) other() netip.Addr {
	for a := s.Prefix.Addr().Next(); s.Prefix.Contains(a); a = a.Next() {
		if !slices.ContainsFunc(s.Ends, func(e End) bool { return e.Prefix.Addr() == a }) {
			return a
		}
	}
	return netip.Addr{}
}
