package facts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// driver is what depends on the kernel driver of an adapter: what libibverbs calls the part that drives its devices
// (rdma-core, providers/*, by the PCI IDs that each claims), and the kernel module that creates an RDMA device, if that
// is another one (drivers/infiniband/hw).
type driver struct{ provider, module string }

func drivers() map[string]driver {
	return map[string]driver{
		"mlx5_core": {"mlx5", "mlx5_ib"}, "mlx4_core": {"mlx4", "mlx4_ib"}, "bnxt_en": {"bnxt_re", "bnxt_re"},
		"ice": {"irdma", "irdma"}, "i40e": {"irdma", "irdma"}, "idpf": {provider: "irdma"},
		"cxgb4": {"cxgb4", "iw_cxgb4"}, "qede": {"qedr", "qedr"}, "efa": {provider: "efa"}, "mana": {provider: "mana"},
		"erdma": {provider: "erdma"}, "hfi1": {provider: "hfi1verbs"}, "hns3": {provider: "hns"},
		"vmw_pvrdma": {provider: "vmw_pvrdma"},
	}
}

func railOf(v rail.Rail) Rail {
	r := Rail{Name: v.Name, Device: v.Device, Port: v.Port, Netdev: v.Netdev, Role: v.Role, LinkLayer: v.LinkLayer,
		Driver: v.Driver, Software: v.Software, PCIAddress: v.PCIAddress, NUMANode: v.NUMANode, Board: v.SystemImageGUID}
	if !v.Software {
		r.Kind = strings.Join(strings.Fields(v.Driver+" "+v.HCAType+" "+v.BoardID), " ")
		r.Provider = drivers()[v.Driver].provider
	}
	return r
}

func (g *Gatherer) readRail(r *reader, v rail.Rail) func(*Facts) {
	out := railOf(v)
	dir := filepath.Join(v.Dir, "ports", strconv.Itoa(v.Port))
	if out.LinkLayer == "" { // the finder could not read it
		out.LinkLayer = r.text(dir, "link_layer")
	}
	switch {
	case !v.Software:
	case v.LinkLayer == rail.IWARP:
		out.Provider = "siw"
	default:
		out.Provider = "rxe"
	}
	port := rail.NewPort(g.o.Sysfs, v, nil)
	defer port.Close()
	r.at(dir, "state")
	if state, err := port.State(); err == nil {
		out.StateID, out.State = state, rail.StateName(state)
	} else {
		r.fail(err)
	}
	out.PhysState = r.text(dir, "phys_state")
	var err error
	if out.Active() { // otherwise the rate is meaningless
		r.at(dir, "rate")
		out.Rate, err = port.Rate()
		r.fail(err)
	} else {
		out.Received = r.uint(dir, "counters", "port_rcv_packets")
	}
	r.at(dir, "gids")
	table, errs := port.GIDs()
	out.GIDsRead = len(errs) == 0
	for _, err := range errs {
		r.fail(err)
	}
	own := rail.Own(g.o.Sysfs, v.Netdev)
	for _, e := range table {
		out.GIDs = append(out.GIDs, GID{e, own(e.Netdev)})
	}
	if link, err := port.Link(); err == nil {
		out.Link, out.Slot = readLinks(r, rail.Function(filepath.Join(v.Dir, "device")), link)
	} else if !errors.Is(err, rail.ErrNoLink) {
		r.fail(err)
	}
	var netdevs []Netdev
	if v.Netdev != "" {
		out.PortKey = port.PortKey()
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
	n := Netdev{Name: name, Index: r.int(dir, "ifindex")}
	if flags, err := strconv.ParseUint(r.text(dir, "flags"), 0, 32); err == nil {
		n.Up = new(flags&1 != 0) // IFF_UP
	}
	if carrier := r.uint(dir, "carrier"); carrier != nil {
		n.Carrier = new(*carrier == 1)
	}
	port := rail.NewPort(g.o.Sysfs, rail.Rail{Netdev: name}, nil)
	defer port.Close()
	r.at(dir, "mtu")
	var err error
	n.MTU, _, err = port.MTU()
	r.fail(err)
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
		if all == nil || own == nil || max(*all, *own) > 1<<16 {
			return nil
		}
		return new(int(max(*all, *own)))
	}
	n.ARPIgnore, n.ARPAnnounce, n.ARPFilter = conf("arp_ignore"), conf("arp_announce"), conf("arp_filter")
	return n
}

// readLinks returns the PCIe link of a function, and what the bridge above it supports; nil if it is not reported.
func readLinks(r *reader, dir string, now rail.Link) (link, slot *Link) {
	if link = readMaxLink(r, dir); link == nil {
		return nil, nil
	}
	link.Speed, link.Width = now.GigaTransfers, now.Width
	if up := filepath.Dir(dir); strings.Count(filepath.Base(up), ":") == 2 {
		slot = readMaxLink(r, up)
	}
	return link, slot
}

// readMaxLink reads what the PCI function at dir supports; nil if it does not report it.
func readMaxLink(r *reader, dir string) *Link {
	speed, err := rail.ParseLinkSpeed(r.text(dir, "max_link_speed"))
	width := r.int(dir, "max_link_width")
	if err != nil || width == 0 || width > 32 {
		return nil
	}
	return &Link{Address: filepath.Base(dir), MaxSpeed: speed, MaxWidth: width}
}

// bondModes are those of the kernel (drivers/net/bonding/bond_options.c, bond_mode_tbl).
func bondModes() []string {
	return []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
}

// readBonds reads the bonds that rails are on, and their members (drivers/net/bonding/bond_sysfs.c,
// bond_sysfs_slave.c). It skips bonds of IPoIB: RDMA over InfiniBand does not use interfaces.
func (g *Gatherer) readBonds(r *reader, rails []rail.Rail) func(*Facts) {
	net := filepath.Join(g.o.Sysfs, "class/net")
	var bonds []Bond
	var netdevs []Netdev
	var empty []string
	for name := range strings.FieldsSeq(r.text(net, "bonding_masters")) {
		dir := filepath.Join(net, name, "bonding")
		members := strings.Fields(r.text(dir, "slaves"))
		if g.emptyBond(r, name) {
			empty = append(empty, clean(name))
		}
		if !slices.ContainsFunc(rails, func(v rail.Rail) bool {
			return v.LinkLayer != "InfiniBand" && v.Netdev != "" && slices.Contains(append(members, name), v.Netdev)
		}) {
			continue
		}
		mode, _, _ := strings.Cut(r.text(dir, "mode"), " ")
		if mode != "" && !slices.Contains(bondModes(), mode) {
			r.fail(&sysfs.Error{Path: filepath.Join(dir, "mode"), Reason: sysfs.ReasonInvalid,
				Err: fmt.Errorf("unknown bonding mode %.40q", mode)})
			mode = ""
		}
		b := Bond{Name: name, Mode: mode}
		if mode == "802.3ad" {
			b.Aggregator = r.int(dir, "ad_aggregator")
			b.Partner = r.text(dir, "ad_partner_mac") // empty without CAP_NET_ADMIN
		}
		netdevs = append(netdevs, g.readNetdev(r, name))
		for _, m := range members {
			slave := filepath.Join(net, m, "bonding_slave")
			member := Member{Name: m, Status: r.text(slave, "mii_status"), VFs: r.int(net, m, "device/sriov_numvfs")}
			if mode == "802.3ad" {
				member.Aggregator = r.int(slave, "ad_aggregator_id")
				if state := r.uint(slave, "ad_actor_oper_port_state"); state != nil && *state <= 0xff {
					member.ActorState = new(int(*state))
				}
			}
			b.Members = append(b.Members, member)
			netdevs = append(netdevs, g.readNetdev(r, m))
		}
		bonds = append(bonds, b)
	}
	return func(f *Facts) {
		f.Bonds, f.EmptyBonds = bonds, empty
		f.Netdevs = append(f.Netdevs, netdevs...)
	}
}

func (g *Gatherer) readUptime(r *reader) func(*Facts) {
	seconds, _, _ := strings.Cut(r.text(g.o.Procfs, "uptime"), " ")
	v, _ := strconv.ParseFloat(seconds, 64) // 0: unknown
	return func(f *Facts) { f.Uptime = v }
}

// readGPUs finds the GPUs of NVIDIA.
func (g *Gatherer) readGPUs(r *reader) func(*Facts) {
	list, err := rail.GPUs(g.o.Sysfs)
	r.fail(err)
	var gpus []GPU
	for _, one := range list {
		if one.NVIDIA {
			dir := rail.Function(filepath.Join(g.o.Sysfs, "bus/pci/devices", one.PCIAddress))
			found := GPU{Address: one.PCIAddress, NUMANode: one.NUMANode}
			if link, err := rail.ReadLink(dir, "current"); err == nil {
				found.Link, found.Slot = readLinks(r, dir, link)
			}
			gpus = append(gpus, found)
		}
	}
	return func(f *Facts) { f.GPUs, f.GPUsRead = gpus, err == nil }
}

// readNUMA reads the distances between NUMA nodes; the files have one for each online node (drivers/base/node.c).
func (g *Gatherer) readNUMA(r *reader) func(*Facts) {
	dir := filepath.Join(g.o.Sysfs, "devices/system/node")
	var ids []int
	for _, name := range r.names(dir) {
		number, found := strings.CutPrefix(name, "node")
		if id, err := strconv.Atoi(number); found && err == nil && len(ids) < 256 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var list []Distance
	for _, id := range ids {
		words := strings.Fields(r.text(dir, "node"+strconv.Itoa(id), "distance"))
		if len(words) != len(ids) {
			continue // it is not known which is which
		}
		for i, word := range words {
			if v, err := strconv.Atoi(word); err == nil {
				list = append(list, Distance{id, ids[i], v})
			}
		}
	}
	return func(f *Facts) { f.NUMA = list }
}

// readAdapters finds PCI functions that support RDMA: of a driver with an RDMA module, or Mellanox's without one.
func (g *Gatherer) readAdapters(r *reader) func(*Facts) {
	var list []Adapter
	dir := filepath.Join(g.o.Sysfs, "bus/pci/devices")
	for _, address := range r.names(dir) {
		if !strings.HasPrefix(r.text(dir, address, "class"), "0x02") { // network controllers
			continue
		}
		a := Adapter{Address: address}
		if target, _ := os.Readlink(r.at(dir, address, "driver")); target != "" {
			a.Driver = filepath.Base(target)
			a.Module = drivers()[a.Driver].module
		} else if r.text(dir, address, "vendor") == "0x15b3" {
			a.Module = "mlx5_core"
		}
		if a.Module != "" {
			list = append(list, a)
		}
	}
	return func(f *Facts) { f.Adapters = list }
}
