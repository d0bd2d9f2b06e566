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

// driver holds what depends on an adapter's kernel driver: the name of its libibverbs provider (rdma-core, providers/*,
// by PCI IDs), and the kernel module that creates its RDMA device if that is another one (drivers/infiniband/hw).
type driver struct{ provider, module string }

func drivers() map[string]driver {
	return map[string]driver{
		"mlx5_core": {"mlx5", "mlx5_ib"}, "mlx4_core": {"mlx4", "mlx4_ib"}, "bnxt_en": {"bnxt_re", "bnxt_re"},
		"ice": {"irdma", "irdma"}, "i40e": {"irdma", "irdma"}, "idpf": {provider: "irdma"},
		"cxgb4": {"cxgb4", "iw_cxgb4"}, "qede": {"qedr", "qedr"}, "efa": {provider: "efa"}, "mana": {provider: "mana"},
		"erdma": {provider: "erdma"}, "hfi1": {provider: "hfi1verbs"}, "hns3": {provider: "hns"},
		"vmw_pvrdma": {provider: "vmw_pvrdma"}, "ionic": {"ionic", "ionic_rdma"},
	}
}

func railOf(v rail.Rail) Rail {
	r := Rail{Name: v.Name, Device: v.Device, Port: v.Port, Netdev: v.Netdev, Role: v.Role, LinkLayer: v.LinkLayer,
		Driver: v.Driver, Software: v.Software, PCIAddress: v.PCIAddress, NUMANode: v.NUMANode,
		Board: v.SystemImageGUID, Guest: v.Guest, Synthetic: v.Synthetic}
	if !v.Software {
		r.Kind = strings.Join(strings.Fields(v.Driver+" "+v.HCAType+" "+v.BoardID), " ")
		r.Provider = drivers()[v.Driver].provider
	}
	return r
}

// readRail reads a rail, with its GIDs unless they have their own lane.
func (g *Gatherer) readRail(r *reader, v rail.Rail, gids bool) func(*Facts) {
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
	var use rail.Use
	if state, err := port.State(); err == nil {
		out.StateID, out.State = state, rail.StateName(state)
		use = port.Use(state)
	} else {
		r.fail(err)
	}
	out.PhysState = r.text(dir, "phys_state")
	var err error
	if out.Active() { // the rate of an inactive port is meaningless
		r.at(dir, "rate")
		out.Rate, err = port.Rate()
		r.fail(err)
		r.at(dir, "counters")
		out.Uncounted = errors.Is(port.FindBytes(), rail.ErrUncounted)
		out.Reported, out.Speed = port.RateDisagreement()
	}
	if gids {
		g.readTable(r, v, rail.NewGIDTable(v.Dir, v.Port).Read, &out)
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
			if !gids {
				out.GIDs, out.GIDsRead = f.Rails[i].GIDs, f.Rails[i].GIDsRead
			}
			f.Rails[i], g.uses[i] = out, use
		}
	}
}

// readTable reads the GIDs of a rail.
func (g *Gatherer) readTable(r *reader, v rail.Rail, read func() ([]rail.GID, []error), out *Rail) {
	r.at(v.Dir, "ports", strconv.Itoa(v.Port), "gids")
	list, errs := read()
	out.GIDsRead = len(errs) == 0
	for _, err := range errs {
		r.fail(err)
	}
	out.GIDs = g.owned(v, list)
}

// owned marks the GIDs that are on the rail's own interface.
func (g *Gatherer) owned(v rail.Rail, list []rail.GID) (gids []GID) {
	own := rail.Own(g.o.Sysfs, v.Netdev)
	for _, e := range list {
		gids = append(gids, GID{e, own(e.Netdev)})
	}
	return gids
}

// readGIDs is readTable in its own lane, so that the state of a port does not wait for a table of 1024 entries. It
// reads the whole table if no entry before the first long gap is usable.
func (g *Gatherer) readGIDs(r *reader, v rail.Rail, table *rail.GIDTable) func(*Facts) {
	var out Rail
	g.readTable(r, v, func() ([]rail.GID, []error) {
		return table.ReadUntil(func(list []rail.GID) bool {
			some := Rail{LinkLayer: v.LinkLayer, GIDs: g.owned(v, list)}
			return v.LinkLayer == "InfiniBand" || some.BestGID().Rank == rail.OwnIPv4
		})
	}, &out)
	return func(f *Facts) {
		if i := slices.IndexFunc(f.Rails, func(o Rail) bool { return o.Name == v.Name }); i >= 0 {
			f.Rails[i].GIDs, f.Rails[i].GIDsRead = out.GIDs, out.GIDsRead
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
		if *carrier == 0 && g.kernel.LinkReason != nil {
			reason, _ := g.kernel.LinkReason(name) // many drivers do not report it
			n.NoLink = clean(reason)
		}
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

// readLinks returns the PCIe link of a function, and the limits of the bridge above it; nil if not reported.
func readLinks(r *reader, dir string, now rail.Link) (link, slot *Link) {
	link = readMaxLink(r, dir)
	if link == nil {
		return nil, nil
	}
	link.Speed, link.Width = now.GigaTransfers, now.Width
	if up := filepath.Dir(dir); strings.Count(filepath.Base(up), ":") == 2 {
		slot = readMaxLink(r, up)
		if slot != nil {
			slot.SoC = r.text(up, "vendor") == rail.SoCVendor
		}
	}
	return link, slot
}

// readMaxLink reads the supported speed and width of the PCI function at dir; nil if not reported.
func readMaxLink(r *reader, dir string) *Link {
	speed, err := rail.ParseLinkSpeed(r.text(dir, "max_link_speed"))
	width := r.int(dir, "max_link_width")
	if err != nil || width == 0 || width > 32 {
		return nil
	}
	return &Link{Address: filepath.Base(dir), MaxSpeed: speed, MaxWidth: width}
}

// bondModes returns the kernel's bond modes, by number (drivers/net/bonding/bond_options.c, bond_mode_tbl).
func bondModes() []string {
	return []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
}

// readBonds reads the bonds with rails, and their members (drivers/net/bonding/bond_sysfs.c, bond_sysfs_slave.c). It
// skips bonds of IPoIB: RDMA over InfiniBand does not use interfaces.
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
	v, _ := strconv.ParseFloat(seconds, 64) // 0 if unknown
	return func(f *Facts) { f.Uptime = v }
}

// readGPUs finds the GPUs. The links of AMD's are not judged: amdgpu also lowers the width of an idle one
// (vega20_print_clock_levels in drivers/gpu/drm/amd/pm/powerplay/hwmgr/vega20_hwmgr.c).
func (g *Gatherer) readGPUs(r *reader) func(*Facts) {
	list, err := rail.GPUs(g.o.Sysfs)
	r.fail(err)
	var gpus []GPU
	for _, one := range list {
		dir := rail.Function(filepath.Join(g.o.Sysfs, "bus/pci/devices", one.PCIAddress))
		found := GPU{Address: one.PCIAddress, NUMANode: one.NUMANode}
		if link, err := rail.ReadLink(dir, "current"); err == nil && one.NVIDIA {
			found.Link, found.Slot = readLinks(r, dir, link)
		}
		gpus = append(gpus, found)
	}
	return func(f *Facts) { f.GPUs, f.GPUsRead = gpus, err == nil }
}

// readNUMA reads the distances between NUMA nodes. Each file has one per online node (drivers/base/node.c).
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
			continue // the columns cannot be assigned to nodes
		}
		for i, word := range words {
			if v, err := strconv.Atoi(word); err == nil {
				list = append(list, Distance{id, ids[i], v})
			}
		}
	}
	return func(f *Facts) { f.NUMA = list }
}

// maxAdapters bounds the reported adapters. Virtual functions, which may be thousands, do not count.
const maxAdapters = 256

// readAdapters finds PCI functions that support RDMA: those whose driver, or a module of it, makes RDMA devices, and
// Mellanox's without a driver. It skips virtual functions and virtual machines.
func (g *Gatherer) readAdapters(r *reader, rails []rail.Rail) func(*Facts) {
	var list []Adapter
	bonded := map[string]bool{}
	for _, v := range rails {
		for address := range strings.FieldsSeq(v.Functions) {
			bonded[address] = true
		}
	}
	dir := filepath.Join(g.o.Sysfs, "bus/pci/devices")
	for _, address := range r.names(dir) {
		if !strings.HasPrefix(r.text(dir, address, "class"), "0x02") { // network controllers
			continue
		}
		if len(list) == maxAdapters {
			break
		}
		function := rail.Function(r.at(dir, address))
		if sysfs.Exists(filepath.Join(function, "physfn")) == nil {
			continue
		}
		a := Adapter{Address: address, RDMA: bonded[address] || len(r.names(function, "infiniband")) > 0,
			Kind: strings.Join([]string{r.text(dir, address, "vendor"), r.text(dir, address, "device"),
				r.text(dir, address, "class")}, " ")}
		if netdevs := r.names(function, "net"); len(netdevs) > 0 {
			a.Netdev = clean(netdevs[0])
		}
		if target, _ := os.Readlink(r.at(dir, address, "driver")); target != "" {
			a.Driver = filepath.Base(target)
			d, known := drivers()[a.Driver]
			if !known || a.Driver == "i40e" && !supportsIWARP(r.text(dir, address, "device")) {
				continue
			}
			a.Module = d.module
		} else if r.text(dir, address, "vendor") == "0x15b3" {
			a.Module = "mlx5_core"
		} else {
			continue
		}
		list = append(list, a)
	}
	return func(f *Facts) { f.Adapters = list }
}

// supportsIWARP reports whether a device ID is that of an X722, the only adapter of i40e with RDMA
// (drivers/net/ethernet/intel/i40e/i40e_devids.h).
func supportsIWARP(device string) bool {
	return slices.Contains([]string{"0x37cc", "0x37cd", "0x37ce", "0x37cf", "0x37d0", "0x37d1", "0x37d2", "0x37d3"},
		device)
}
