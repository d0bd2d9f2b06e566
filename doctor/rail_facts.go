package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
)

// RailFacts is what was read of rails and of what they hang on.
type RailFacts struct {
	RDMA     bool           `json:"rdma"`     // the kernel has RDMA: /sys/class/infiniband is there
	Hidden   bool           `json:"hidden"`   // it cannot be listed, and Unread says why
	Devices  []string       `json:"devices"`  // in it; only where there is no rail
	Adapters []Adapter      `json:"adapters"` // that could do RDMA; only looked for where there is no rail
	Rails    []Rail         `json:"rails"`
	LeftOut  []LeftOut      `json:"left_out"`
	Netdevs  []Netdev       `json:"netdevs"` // of rails, of the bonds over them, and of those bonds' members
	Bonds    []Bond         `json:"bonds"`   // over rails
	GPUs     []GPU          `json:"gpus"`
	NUMA     []NUMANode     `json:"numa"`
	Paths    []Path         `json:"paths"`          // of rails whose subnets are one
	Others   []netip.Prefix `json:"others"`         // addresses of the node's other interfaces
	Uptime   float64        `json:"uptime_seconds"` // of the kernel; 0 unknown
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
	GIDsRead   bool    `json:"gids_read"` // tells a table that is empty from one that was not read
	Link       *Link   `json:"link"`      // of the PCI function; nil: none, or unknown
	Slot       *Link   `json:"slot"`      // of the bridge above it
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

// Adapter is a PCI function that could do RDMA.
type Adapter struct {
	Address string `json:"address"`
	Driver  string `json:"driver"` // kernel driver bound to it; empty: none
	Module  string `json:"module"` // kernel module that makes an RDMA device of it
}

// Netdev is one network interface. Pointers are nil where the kernel does not
// tell.
type Netdev struct {
	Name      string         `json:"name"`
	Index     int            `json:"index"`
	Up        *bool          `json:"up"`      // administratively
	Carrier   *bool          `json:"carrier"` // unknown while it is not up
	MTU       int            `json:"mtu"`     // bytes; 0 unknown
	Master    string         `json:"master"`  // bond or bridge that it belongs to
	Slot      string         `json:"slot"`    // PCI slot without the function; empty: none
	Ups       *uint64        `json:"carrier_ups"`
	Downs     *uint64        `json:"carrier_downs"` // since it was made
	Addresses []netip.Prefix `json:"addresses"`     // without link-local ones
	Gateways  []netip.Prefix `json:"gateways"`      // what it has a route to through a gateway

	// What holds for it of net.ipv4.conf: the larger of all's and its own
	// (include/linux/inetdevice.h, IN_DEV_MAXCONF, IN_DEV_ORCONF).
	ARPIgnore   *int `json:"arp_ignore"`
	ARPAnnounce *int `json:"arp_announce"`
	ARPFilter   *int `json:"arp_filter"`
}

// Bond is a bond that rails are on.
type Bond struct {
	Name       string   `json:"name"`
	Mode       string   `json:"mode"`
	Aggregator int      `json:"aggregator"` // the active one; 0: none, or not LACP
	Partner    string   `json:"partner"`    // system address of its LACP partner, zeros where nobody is heard; empty: unknown, or not LACP
	Members    []Member `json:"members"`
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

// Bounds on what a peer may tell.
const (
	maxRails   = 256
	maxNetdevs = 1024
	maxGIDs    = 4096
	maxMembers = maxNetdevs // of all bonds together
	maxIPs     = 256        // addresses of one interface, or routes by it
	maxUnread  = 256
)

// check refuses facts that no railscope would tell.
func (f *RailFacts) check() error {
	for _, n := range []struct {
		what     string
		is, most int
	}{{"rails", len(f.Rails), maxRails}, {"ports left out", len(f.LeftOut), maxNetdevs}, {"devices", len(f.Devices), maxNetdevs}, {"interfaces", len(f.Netdevs), maxNetdevs}, {"bonds", len(f.Bonds), maxRails},
		{"GPUs", len(f.GPUs), maxRails}, {"NUMA nodes", len(f.NUMA), maxRails}, {"addresses", len(f.Others), maxNetdevs}, {"paths", len(f.Paths), maxRails * maxRails}} {
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

// netdev returns the facts of an interface; of one that was not read they are
// empty.
func (f *RailFacts) netdev(name string) Netdev {
	for _, n := range f.Netdevs {
		if n.Name == name {
			return n
		}
	}
	return Netdev{Name: name}
}

// memberOf returns the bond that a rail's interface is a member of, with a
// device of its own still; nil when it is of none.
func (f *RailFacts) memberOf(r *Rail) *Bond {
	for i := range f.Bonds {
		if slices.ContainsFunc(f.Bonds[i].Members, func(m Member) bool { return m.Name == r.Netdev && r.Netdev != "" }) {
			return &f.Bonds[i]
		}
	}
	return nil
}

// railsOn returns the rails whose interfaces are members of a bond.
func (f *RailFacts) railsOn(b *Bond) (rails []*Rail) {
	for i := range f.Rails {
		if f.memberOf(&f.Rails[i]) == b {
			rails = append(rails, &f.Rails[i])
		}
	}
	return rails
}

// apart tells whether the rail stands for itself: it is on no bond that is
// wrong for RDMA as a whole, which is another check's to say.
func (f *RailFacts) apart(r *Rail) bool {
	b := f.memberOf(r)
	return b == nil || bondCarriesRDMA(b.Mode) && len(f.railsOn(b)) < 2
}

// halves returns the other functions of a rail's physical port that hang on
// another PCIe link.
func (f *RailFacts) halves(r *Rail) (twins []*Rail) {
	for i := range f.Rails {
		if t := &f.Rails[i]; t != r && r.PortKey != "" && t.PortKey == r.PortKey && rail.LinkKey(t.PCIAddress) != rail.LinkKey(r.PCIAddress) {
			twins = append(twins, t)
		}
	}
	return twins
}

// idleHalf returns the half of the rail's port that works while this one cannot
// be used; nil when this one can, or neither.
func (f *RailFacts) idleHalf(r *Rail) *Rail {
	if unknown := r.StateID == 0 || r.active() && !r.GIDsRead; unknown || r.active() && r.quality() >= ownIPv6 {
		return nil
	}
	for _, t := range f.halves(r) {
		if t.active() && t.quality() >= ownIPv6 {
			return t
		}
	}
	return nil
}

// unused tells whether nobody has ever meant to use the port: the second port
// of an adapter whose first is used, with neither an address nor, since it was
// made, a link.
func (f *RailFacts) unused(r *Rail) bool {
	used, known := f.used(r)
	return known && !used && strings.Trim(r.Board, "0:") != "" && slices.ContainsFunc(f.Rails, func(o Rail) bool {
		used, _ := f.used(&o)
		return used && o.Board == r.Board
	})
}

// used tells whether a port works, or once did, or has an address. A port
// without an interface, as InfiniBand's may be, has had no link when it has
// received nothing, not from the subnet manager either.
func (f *RailFacts) used(r *Rail) (used, known bool) {
	n := f.netdev(r.Netdev)
	links := n.Ups
	if links == nil && r.StateID == stateDown {
		links = r.Received
	}
	return r.active() || links != nil && *links > 0 || len(n.Addresses) > 0, links != nil
}

// stateDown is that of a port without a link (enum ib_port_state,
// include/rdma/ib_verbs.h).
const stateDown = 1

func (r *Rail) active() bool { return r.StateID == rail.StateActive }

// ethernet tells whether the rail speaks RoCE.
func (r *Rail) ethernet() bool { return r.LinkLayer == "Ethernet" }

// roceMTU is what the kernel derives from the interface's MTU, bytes.
func (r *Rail) roceMTU(netdev int) int {
	return rail.Rail{Software: r.Software}.ActiveMTU(netdev)
}

// quality says what the best GID of a rail is good for; the higher the better.
type quality int

const (
	noGID     quality = iota
	onlyV1            // RoCE v1 alone
	linkLocal         // RoCE v2, but no address that another subnet, or NCCL, would take
	elsewhere         // RoCE v2 over IPv4, on another interface
	ownIPv6
	ownIPv4
)

// best returns the GID that a connection would use.
func (r *Rail) best() (GID, quality) {
	table := make([]rail.GID, len(r.GIDs))
	for i, g := range r.GIDs {
		table[i] = rail.GID{Index: g.Index, Addr: g.Addr, Type: g.Type, Netdev: g.Netdev}
	}
	own := func(netdev string) bool {
		return slices.ContainsFunc(r.GIDs, func(g GID) bool { return g.Netdev == netdev && g.Own })
	}
	c := rail.ChooseGID(table, r.LinkLayer, own)
	if !c.OK {
		return GID{}, noGID
	}
	g := r.GIDs[slices.IndexFunc(r.GIDs, func(g GID) bool { return g.Index == c.GID.Index })]
	switch {
	case g.Type != rail.TypeRoCEv2:
		return g, onlyV1
	case g.Addr.Unmap().IsLinkLocalUnicast():
		return g, linkLocal
	case !g.Own:
		return g, elsewhere
	case g.Addr.Is4In6():
		return g, ownIPv4
	}
	return g, ownIPv6
}

func (r *Rail) quality() quality {
	if !r.ethernet() {
		return ownIPv4 // InfiniBand has no such thing; its first GID will do
	}
	_, q := r.best()
	return q
}

// ipv4 returns the IPv4 addresses of an interface, with their subnets.
func (n Netdev) ipv4() (list []netip.Prefix) {
	for _, p := range n.Addresses {
		if p.Addr().Is4() {
			list = append(list, p)
		}
	}
	return list
}
