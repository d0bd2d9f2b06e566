package facts

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
)

// Network describes the rails and what they depend on.
type Network struct {
	RDMA        bool           `json:"rdma"`               // /sys/class/infiniband exists
	Hidden      bool           `json:"hidden"`             // the directory cannot be listed; see Unread
	RDMADevices []string       `json:"devices" max:"1024"` // entries of /sys/class/infiniband; only without rails
	Adapters    []Adapter      `json:"adapters"`           // PCI functions that support RDMA, without virtual functions
	Rails       []Rail         `json:"rails" max:"256"`
	LeftOut     []rail.LeftOut `json:"ports_left_out" max:"1024"`
	Idle        []string       `json:"idle_patterns" max:"256"` // configured patterns that match no port
	// Netdevs are the interfaces of rails, their bonds, and all members of those bonds.
	Netdevs  []Netdev       `json:"netdevs" max:"1024"`
	Bonds    []Bond         `json:"bonds" max:"256"` // bonds with rails
	GPUs     []GPU          `json:"gpus" max:"256"`
	GPUsRead bool           `json:"gpus_read"`         // false: not all were read, so a missing one may exist
	NUMA     []Distance     `json:"numa" max:"65536"`  // distances between all pairs of NUMA nodes
	Paths    []Path         `json:"paths" max:"256"`   // paths of rails that share a subnet
	Others   []netip.Prefix `json:"others" max:"1024"` // addresses of the node's other interfaces
	Uptime   float64        `json:"uptime_seconds"`    // uptime of the kernel; 0 if unknown

	EmptyBonds []string `json:"empty_bonds,omitempty" max:"256"` // bonds that are up without a member

	Missing  []rail.Missing `json:"missing" max:"256"` // known rails that are absent
	Expected expect.Node    `json:"expected"`          // expected state; unread figures are absent
}

// Rail is one RDMA port; see [rail.Rail] and [rail.Port].
type Rail struct {
	Name       string  `json:"name"`
	Device     string  `json:"device"`
	Port       int     `json:"port"`
	Netdev     string  `json:"netdev"`
	Role       string  `json:"role"`       // see [rail.Rail]
	LinkLayer  string  `json:"link_layer"` // Ethernet (RoCE), InfiniBand or iWARP
	Driver     string  `json:"driver"`
	Kind       string  `json:"kind"`     // driver and adapter type, which are configured alike; empty for software
	Provider   string  `json:"provider"` // libibverbs provider, such as mlx5; empty if unknown
	Software   bool    `json:"software"`
	PCIAddress string  `json:"pci_address"`
	NUMANode   int     `json:"numa_node"` // -1 if unknown
	Board      string  `json:"board"`     // equal for all functions of an adapter; empty if unknown
	PortKey    string  `json:"port_key"`  // equal for all functions of a physical port; empty if unknown
	Guest      bool    `json:"guest"`     // in a virtual machine
	Synthetic  string  `json:"synthetic"` // see [rail.Rail]
	Unused     bool    `json:"unused"`    // see [rail.Unused]
	Uncounted  bool    `json:"uncounted"` // no counter includes its bytes
	Speed      float64 `json:"speed"`     // rate of the interface if the port reports another one; bytes per second
	Reported   float64 `json:"reported"`  // rate that the port reports in that case; 0 if none
	StateID    int     `json:"state_id"`  // enum ib_port_state; 0 if unknown
	State      string  `json:"state"`
	PhysState  string  `json:"phys_state"`
	Rate       float64 `json:"rate"` // bytes per second; 0 if unknown, or the port is not active
	GIDs       []GID   `json:"gids"`
	GIDsRead   bool    `json:"gids_read"` // false: GIDs is unknown rather than empty
	Link       *Link   `json:"link"`      // link of the PCI function; nil if none, or unknown
	Slot       *Link   `json:"slot"`      // bridge above the function

	Expected expect.Rail `json:"expected"`
}

// GID is one used entry of a port's GID table.
type GID struct {
	rail.GID
	Own bool `json:"own"` // whether it is on the rail's own interface; see [rail.Own]
}

// Link is one end of a PCIe link: its current speed and width, known only for the function, and the supported ones.
type Link struct {
	Address  string  `json:"address"`
	Speed    float64 `json:"speed"` // GT/s per lane
	Width    int     `json:"width"` // lanes
	MaxSpeed float64 `json:"max_speed"`
	MaxWidth int     `json:"max_width"`
	SoC      bool    `json:"soc"` // root port of an NVIDIA processor, with soldered adapters
}

// Adapter is a PCI function that supports RDMA.
type Adapter struct {
	Address string `json:"address"`
	Driver  string `json:"driver"` // kernel driver bound to it; empty if none
	Module  string `json:"module"` // kernel module that creates its RDMA device; empty if the driver does
	Kind    string `json:"kind"`   // vendor, device and class, which equal adapters share
	RDMA    bool   `json:"rdma"`   // it, or the bond of its functions, has an RDMA device
	Netdev  string `json:"netdev"` // network interface; empty if none
	Log     string `json:"log"`    // last kernel message about it; empty if unknown
}

// Netdev is one network interface. Pointers are nil if the kernel does not report the value.
type Netdev struct {
	Name    string `json:"name"`
	Index   int    `json:"index"`
	Up      *bool  `json:"up"`      // administrative state
	Carrier *bool  `json:"carrier"` // unknown while the interface is down
	MTU     int    `json:"mtu"`     // bytes; 0 if unknown
	// NoLink is why it has no carrier, as its driver reports; empty if it does not.
	NoLink    string         `json:"no_link,omitempty"`
	Master    string         `json:"master"` // bond or bridge that it belongs to
	Slot      string         `json:"slot"`   // PCI slot without the function; empty if none
	Ups       *uint64        `json:"carrier_ups"`
	Downs     *uint64        `json:"carrier_downs"`       // carrier losses since it was created
	Addresses []netip.Prefix `json:"addresses" max:"256"` // without link-local ones
	Gateways  []netip.Prefix `json:"gateways" max:"256"`  // destinations that it reaches through a gateway

	// These are the effective values of net.ipv4.conf: the larger of all's and its own (IN_DEV_MAXCONF, IN_DEV_ORCONF).
	ARPIgnore   *int `json:"arp_ignore"`
	ARPAnnounce *int `json:"arp_announce"`
	ARPFilter   *int `json:"arp_filter"`
}

// Bond is a bond with rails.
type Bond struct {
	Name       string `json:"name"`
	Mode       string `json:"mode"`
	Aggregator int    `json:"aggregator"` // active aggregator; 0 if none, or not LACP
	// Partner is the address of its LACP partner, zeros without one; empty if unknown, or not LACP.
	Partner string   `json:"partner"`
	Members []Member `json:"members" max:"64"`
	// Log has the driver's messages about its one device, the last first.
	Log []string `json:"log,omitempty" max:"8"`
}

// Member is an interface of a bond.
type Member struct {
	Name       string `json:"name"`
	Status     string `json:"status"`            // mii_status: up, down, going down, going back
	Aggregator int    `json:"aggregator"`        // 0 if unknown, or not LACP
	VFs        int    `json:"virtual_functions"` // virtual functions of its PCI function
	ActorState *int   `json:"actor_state"`       // LACP state bits of this side, LACP_STATE_* in include/net/bond_3ad.h
}

// GPU is one GPU on PCI.
type GPU struct {
	Address  string `json:"address"`
	NUMANode int    `json:"numa_node"` // -1 if unknown
	Link     *Link  `json:"link,omitempty"`
	Slot     *Link  `json:"slot,omitempty"` // bridge above the GPU
	AMD      *AMD   `json:"amd,omitempty"`  // nil for other drivers than amdgpu
}

// Distance is the distance between two NUMA nodes in the firmware's table (ACPI SLIT): 10 within a node.
type Distance struct {
	From  int `json:"from"`
	To    int `json:"to"`
	Value int `json:"value"`
}

// Path is the kernel's choice of the interface by which a packet leaves.
type Path struct {
	From   netip.Addr `json:"from"`
	To     netip.Addr `json:"to"`
	Netdev string     `json:"netdev"` // empty if none
}

// Find returns the facts of an interface; nil if it was not read.
func (f *Network) Find(name string) *Netdev {
	if i := slices.IndexFunc(f.Netdevs, func(n Netdev) bool { return n.Name == name }); i >= 0 {
		return &f.Netdevs[i]
	}
	return nil
}

// Netdev returns the facts of an interface; empty ones if it was not read.
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

// Judged returns the rails that are meant to be used: not those without a cable, nor the fast paths of a hypervisor's
// interfaces.
func (f *Network) Judged() []*Rail {
	return f.Where(func(r *Rail) bool { return !r.Unused && r.Synthetic == "" })
}

// Guest reports whether this is a virtual machine, whose user cannot access the hardware.
func (f *Network) Guest() bool {
	return slices.ContainsFunc(f.Rails, func(r Rail) bool { return r.Guest })
}

// RailsOn returns the rails whose interfaces are members of a bond.
func (f *Network) RailsOn(b *Bond) []*Rail {
	return f.Where(func(r *Rail) bool { return f.BondOf(r) == b })
}

// Hardware returns the rails that are PCI functions and meant to be used.
func (f *Network) Hardware() []*Rail {
	return slices.DeleteFunc(f.Judged(), func(r *Rail) bool { return r.PCIAddress == "" })
}

// Separate reports whether the rail is judged separately: not if its bond cannot carry RDMA at all, which is one
// finding.
func (f *Network) Separate(r *Rail) bool {
	b := f.BondOf(r)
	return b == nil || BondCarriesRDMA(b.Mode) && len(f.RailsOn(b)) < 2
}

// Halves returns the other PCI functions of a rail's physical port that are on another PCIe link.
func (f *Network) Halves(r *Rail) []*Rail {
	return f.Where(func(t *Rail) bool {
		return t != r && r.PortKey != "" && t.PortKey == r.PortKey && t.LinkKey() != r.LinkKey()
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

// LinkKey identifies the PCIe link of the rail's function; see [rail.Rail.LinkKey].
func (r *Rail) LinkKey() string { return rail.Rail{PCIAddress: r.PCIAddress, Guest: r.Guest}.LinkKey() }

// Active reports whether the port carries data.
func (r *Rail) Active() bool { return r.StateID == rail.StateActive }

// Ethernet reports whether the rail uses RoCE.
func (r *Rail) Ethernet() bool { return r.LinkLayer == "Ethernet" }

// RoCEMTU returns the RoCE MTU that the kernel derives from the interface's MTU, in bytes.
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

// Reachable reports whether the rail has a GID of its own address, at least a link-local one. InfiniBand needs none.
func (r *Rail) Reachable() bool { return !r.Ethernet() || r.BestGID().Rank >= rail.OwnLinkLocalIPv4 }

// IPv4 returns the IPv4 addresses of an interface, with their subnets.
func (n Netdev) IPv4() (list []netip.Prefix) {
	for _, p := range n.Addresses {
		if p.Addr().Is4() {
			list = append(list, p)
		}
	}
	return list
}

// BondCarriesRDMA reports whether drivers make one RDMA device for a bond of this mode (mlx5/core/lag, bnxt_re).
func BondCarriesRDMA(mode string) bool {
	return mode == "" || mode == "active-backup" || mode == "balance-xor" || mode == "802.3ad"
}

// String returns the rail as text for people.
func (r *Rail) String() string { return fmt.Sprintf("%s (%s)", r.Subject(), r.Where()) }

// Subject returns the rail as the subject of a finding.
func (r *Rail) Subject() string { return "rail " + r.Name }

// Where returns the rail's device and interface.
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

// End is a rail in a shared subnet.
type End struct {
	Rail   *Rail
	Prefix netip.Prefix // address of the rail
}

// Subnets returns the subnets that active rails share, with one end per interface.
func (f *Network) Subnets() []Subnet {
	var all []Subnet
	seen := map[string]bool{}
	for _, r := range f.Judged() {
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

// other returns an address of the subnet that no rail has, for a route query; invalid if all are taken.
func (s Subnet) other() netip.Addr {
	for a := s.Prefix.Addr().Next(); s.Prefix.Contains(a); a = a.Next() {
		if !slices.ContainsFunc(s.Ends, func(e End) bool { return e.Prefix.Addr() == a }) {
			return a
		}
	}
	return netip.Addr{}
}
