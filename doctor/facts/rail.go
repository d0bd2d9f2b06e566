package facts

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// lastState is the highest of enum ib_port_state (include/rdma/ib_verbs.h).
const lastState = 5

// railOf is what the finder knows of a rail.
func railOf(v rail.Rail) Rail {
	r := Rail{Name: v.Name, Device: v.Device, Port: v.Port, Netdev: v.Netdev, LinkLayer: v.LinkLayer, Driver: v.Driver,
		Software: v.Software, PCIAddress: v.PCIAddress, NUMANode: v.NUMANode, Board: v.SystemImageGUID}
	if !v.Software {
		r.Kind = strings.Join(strings.Fields(v.Driver+" "+v.HCAType+" "+v.BoardID), " ")
		r.Provider = providers()[v.Driver]
	}
	return r
}

// readRail reads one rail, its interface and its PCIe link.
func (g *Gatherer) readRail(r *reader, v rail.Rail) func(*Facts) {
	out := railOf(v)
	port := filepath.Join(v.Dir, "ports", strconv.Itoa(v.Port))
	out.State, out.PhysState = r.text(port, "state"), r.text(port, "phys_state")
	if out.LinkLayer == "" { // the finder has not read it
		out.LinkLayer = r.text(port, "link_layer")
	}
	node := r.text(v.Dir, "node_type")
	if strings.HasPrefix(node, "4:") {
		out.LinkLayer = "iWARP" // RDMA over TCP, which the kernel calls Ethernet
	}
	switch {
	case !v.Software || node == "":
	case strings.HasSuffix(node, "RNIC"):
		out.Provider = "siw"
	default:
		out.Provider = "rxe"
	}
	if number, _, _ := strings.Cut(out.State, ":"); number != "" {
		id, err := strconv.Atoi(number)
		if err != nil || id < 0 || id > lastState {
			r.fail(&sysfs.Error{Path: filepath.Join(port, "state"), Reason: sysfs.ReasonInvalid,
				Err: fmt.Errorf("%.40q is not a state", out.State)})
			id = 0
		}
		out.StateID = id
	}
	if !out.Active() {
		out.Received = r.uint(port, "counters", "port_rcv_packets")
	}
	if rate := r.text(port, "rate"); rate != "" {
		out.Rate, _ = rail.ParseRate(rate)
	}
	gids := filepath.Join(port, "gids")
	r.at.Store(&gids)
	table, err := v.Glance()
	out.GIDsRead = err == nil
	if !errors.Is(err, rail.ErrNoTable) {
		r.fail(err)
	}
	own := rail.Own(g.o.Sysfs, v.Netdev)
	for _, e := range table {
		out.GIDs = append(out.GIDs, GID{Index: e.Index, Addr: e.Addr, Type: e.Type, Netdev: e.Netdev,
			Own: own(e.Netdev)})
	}
	if v.PCIAddress != "" {
		out.Link, out.Slot = readLinks(r, filepath.Join(v.Dir, "device"), v.PCIAddress)
	}
	var netdevs []Netdev
	if v.Netdev != "" {
		dir := filepath.Join(g.o.Sysfs, "class/net", v.Netdev)
		out.PortKey = v.PortKey(r.text(dir, "phys_switch_id"), r.text(dir, "phys_port_name"))
		netdevs = append(netdevs, g.readNetdev(r, v.Netdev))
	}
	return func(f *Facts) {
		f.Netdevs = append(f.Netdevs, netdevs...)
		if i := slices.IndexFunc(f.Rails, func(o Rail) bool { return o.Name == out.Name }); i >= 0 {
			f.Rails[i] = out
		}
	}
}

// readNetdev reads one interface (Documentation/ABI/testing/sysfs-class-net).
func (g *Gatherer) readNetdev(r *reader, name string) Netdev {
	dir := filepath.Join(g.o.Sysfs, "class/net", name)
	n := Netdev{Name: name, Index: r.int(0, dir, "ifindex")}
	if flags, err := strconv.ParseUint(r.text(dir, "flags"), 0, 32); err == nil {
		up := flags&1 != 0 // IFF_UP
		n.Up = &up
	}
	if carrier := r.uint(dir, "carrier"); carrier != nil {
		has := *carrier == 1
		n.Carrier = &has
	}
	if mtu := r.uint(dir, "mtu"); mtu != nil && *mtu <= 1<<20 {
		n.MTU = int(*mtu)
	}
	n.Ups, n.Downs = r.uint(dir, "carrier_up_count"), r.uint(dir, "carrier_down_count")
	if master, err := filepath.EvalSymlinks(filepath.Join(dir, "master")); err == nil {
		n.Master = filepath.Base(master)
	}
	if device, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil &&
		strings.Contains(filepath.Base(device), ":") {
		n.Slot = rail.LinkKey(filepath.Base(device))
	}
	conf := func(key string) *int {
		path := filepath.Join(g.o.Procfs, "sys/net/ipv4/conf")
		all, own := r.uint(path, "all", key), r.uint(path, name, key)
		if all == nil || own == nil || *all > 1<<16 || *own > 1<<16 {
			return nil
		}
		v := int(max(*all, *own))
		return &v
	}
	n.ARPIgnore, n.ARPAnnounce, n.ARPFilter = conf("arp_ignore"), conf("arp_announce"), conf("arp_filter")
	return n
}

// readLinks reads both ends of the PCIe link of a function: its own and that of
// the bridge above it.
func readLinks(r *reader, device, address string) (link, slot *Link) {
	real, err := filepath.EvalSymlinks(device)
	if err != nil {
		return nil, nil
	}
	for filepath.Base(real) != address && filepath.Dir(real) != real {
		real = filepath.Dir(real)
	}
	link = readLink(r, real, address)
	if up := filepath.Dir(real); link != nil && strings.Count(filepath.Base(up), ":") == 2 {
		slot = readLink(r, up, filepath.Base(up))
	}
	return link, slot
}

// readLink reads the link of the function at dir; nil if it reports none.
func readLink(r *reader, dir, address string) *Link {
	l := &Link{Address: address}
	ends := []struct {
		speed *float64
		width *int
		kind  string
	}{{&l.Speed, &l.Width, "current"}, {&l.MaxSpeed, &l.MaxWidth, "max"}}
	for _, e := range ends {
		speed, err := rail.ParseLinkSpeed(r.text(dir, e.kind+"_link_speed"))
		width := r.uint(dir, e.kind+"_link_width")
		if err != nil || width == nil || *width == 0 || *width > 32 {
			return nil
		}
		*e.speed, *e.width = speed, int(*width)
	}
	return l
}

// bondModes are those of the kernel (drivers/net/bonding/bond_options.c,
// bond_mode_tbl).
func bondModes() []string {
	return []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
}

// readBonds reads the bonds that rails are on, and their members
// (drivers/net/bonding/bond_sysfs.c, bond_sysfs_slave.c), but no bonds of IPoIB:
// RDMA over InfiniBand does not use interfaces.
func (g *Gatherer) readBonds(r *reader, rails []rail.Rail) func(*Facts) {
	net := filepath.Join(g.o.Sysfs, "class/net")
	var bonds []Bond
	var netdevs []Netdev
	for name := range strings.FieldsSeq(r.text(net, "bonding_masters")) {
		dir := filepath.Join(net, name, "bonding")
		members := strings.Fields(r.text(dir, "slaves"))
		if !slices.ContainsFunc(rails, func(v rail.Rail) bool {
			return v.LinkLayer != "InfiniBand" && (v.Netdev == name || v.Netdev != "" && slices.Contains(members,
				v.Netdev))
		}) {
			continue
		}
		mode, _, _ := strings.Cut(r.text(dir, "mode"), " ")
		if mode != "" && !slices.Contains(bondModes(), mode) {
			r.fail(&sysfs.Error{Path: filepath.Join(dir, "mode"), Reason: sysfs.ReasonInvalid,
				Err: fmt.Errorf("%.40q is not a bonding mode", mode)})
			mode = ""
		}
		b := Bond{Name: name, Mode: mode}
		if mode == "802.3ad" {
			b.Aggregator = max(0, r.int(0, dir, "ad_aggregator"))
			b.Partner = r.text(dir, "ad_partner_mac") // empty without CAP_NET_ADMIN
		}
		netdevs = append(netdevs, g.readNetdev(r, name))
		for _, m := range members {
			slave := filepath.Join(net, m, "bonding_slave")
			member := Member{Name: m, Status: r.text(slave, "mii_status")}
			if mode == "802.3ad" {
				member.Aggregator = max(0, r.int(0, slave, "ad_aggregator_id"))
				if state := r.uint(slave, "ad_actor_oper_port_state"); state != nil && *state <= 0xff {
					v := int(*state)
					member.ActorState = &v
				}
			}
			b.Members = append(b.Members, member)
			netdevs = append(netdevs, g.readNetdev(r, m))
		}
		bonds = append(bonds, b)
	}
	return func(f *Facts) {
		f.Bonds = bonds
		f.Netdevs = append(f.Netdevs, netdevs...)
	}
}
