package rail

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// LowerInterfaces returns the interfaces below the one at dir, sorted. It uses the links there, because reading
// bonding/slaves waits for the RTNL lock.
func LowerInterfaces(dir string) (lower []string) {
	list, _ := sysfs.List(dir) // the reader of the interface reports the error
	for _, e := range list {
		if name, found := strings.CutPrefix(e.Name, "lower_"); found && sysfs.ValidNetdev(name) {
			lower = append(lower, name)
		}
	}
	slices.Sort(lower)
	return lower
}

// BondMembers returns the members of the bond whose interface is at dir, sorted. An interface that is not a bond has
// none.
func BondMembers(dir string) []string {
	if !exists(dir, "bonding") {
		return nil
	}
	return LowerInterfaces(dir)
}

// netdev returns a port's network interface from the first source that has it: the kernel (RDMA_NLDEV_CMD_PORT_GET),
// the parent of a software device (rxe_verbs.c, parent_show), the interface of the PCI function that belongs to the
// port, or the first GID with an interface. only says that the device has no other port.
func (d device) netdev(port int, only bool) string {
	if d.kernel != nil {
		if name, err := d.kernel.PortNetdev(d.name, port); err == nil {
			return name
		}
	}
	if name := d.text("parent"); name != "" && name != noParent {
		return name
	}
	if name := d.functionNetdev(port, only); name != "" {
		return name
	}
	for _, name := range d.gidNetdevs(port) {
		// otherwise it is in another network namespace
		if net := filepath.Join(d.sysfs, "class/net"); !exists(net) || exists(net, name) {
			return name
		}
	}
	return ""
}

// noParent is the parent of an rxe device that is being added or removed (parent_show prints a null pointer).
const noParent = "(null)"

// functionNetdev returns the PCI function's interface that belongs to the port: the only one, or the one with its
// number. Representors belong to other functions.
func (d device) functionNetdev(port int, only bool) string {
	dir := filepath.Join(d.dir, "device/net")
	all, _ := sysfs.List(dir)
	slices.SortFunc(all, func(a, b sysfs.Entry) int { return NaturalCompare(a.Name, b.Name) }) // ib0 before ib0.8001
	list := slices.DeleteFunc(slices.Clone(all), func(e sysfs.Entry) bool { return d.representor(e.Name) })
	if len(list) == 0 {
		list = all // a representor's device, which mlx5 created before Linux 5.2
	}
	switchdev := len(list) < len(all)
	for _, e := range list {
		n, err := sysfs.ReadUint(dir, e.Name, "dev_port")
		switch {
		case only && len(list) == 1, err == nil && n == uint64(port-1), err != nil && len(list) == 1 && port == 1,
			switchdev && len(list) == 1 && port == 1:
			return e.Name
		}
	}
	return ""
}

// gidNetdevs returns the interfaces of the port's GIDs, ordered by the index of their first GID.
func (d device) gidNetdevs(port int) (names []string) {
	dir := filepath.Join(d.dir, "ports", strconv.Itoa(port), "gid_attrs/ndevs")
	list, _ := sysfs.List(dir)
	slices.SortFunc(list, func(a, b sysfs.Entry) int { return NaturalCompare(a.Name, b.Name) })
	empty := 0
	for _, e := range list {
		name, err := sysfs.ReadString(dir, e.Name)
		if err != nil || name == "" {
			empty++
			if empty > gidGap { // most of a table is empty
				break
			}
			continue
		}
		empty = 0
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// lag is a bond or team for which the driver created a single device.
type lag struct {
	netdev    string   // its interface; empty: the device does not belong to a bond
	members   int      // number of interfaces with a PCI function
	functions []string // PCI addresses of its functions, including those whose interface is hidden
}

// lag returns the bond or team over a port's interface, if the driver created this device for it (mlx5_ib and bnxt_re):
// the GIDs belong to the bond, and a sibling function has no device any more. If every member keeps its device, it is
// not a LAG. Names prove nothing (udev renames mlx5_bond_0), nor does the kernel's interface, which is a member's.
func (d device) lag(l location, port int, netdev string) (none lag) {
	if l.function == "" || netdev == "" {
		return none
	}
	net := filepath.Join(d.sysfs, "class/net")
	master := netdev
	if len(LowerInterfaces(filepath.Join(net, netdev))) == 0 {
		link, err := os.Readlink(filepath.Join(net, netdev, "master"))
		if err != nil {
			return none
		}
		master = filepath.Base(link)
	}
	dir := filepath.Join(net, master)
	if exists(dir, "bridge") {
		return none
	}
	found := lag{netdev: master}
	var lost, kept, own bool
	for _, name := range d.membersOf(master) {
		function := Function(filepath.Join(net, name))
		if function == "" {
			continue
		}
		found.members++
		found.functions = append(found.functions, filepath.Base(function))
		switch {
		case function == l.function:
			own = true
		case hasRDMA(function):
			kept = true
		case slices.Contains([]string{"", driverOf(l.function)}, driverOf(function)): // a capture may lack the link
			lost = true
		}
	}
	for _, function := range d.hiddenSiblings(l.function) {
		if address := filepath.Base(function); !slices.Contains(found.functions, address) {
			found.functions, lost = append(found.functions, address), true
		}
	}
	gids := d.gidNetdevs(port)
	onMaster := slices.Contains(gids, master)
	switch {
	case !own || kept:
		return none
	case lost && (onMaster || !slices.Contains(gids, netdev)):
		return found
	case found.members == 1 && onMaster && (netdev == master || !slices.Contains(gids, netdev)): // its sibling is gone
		return found
	}
	return none
}

// membersOf returns the interfaces below a bond or team: from the bond's links or, in a capture without them, from
// the members' links.
func (d device) membersOf(master string) []string {
	net := filepath.Join(d.sysfs, "class/net")
	members := LowerInterfaces(filepath.Join(net, master))
	if len(members) > 0 {
		return members
	}
	all, _ := sysfs.List(net)
	for _, e := range all {
		if link, err := os.Readlink(filepath.Join(net, e.Name, "master")); err == nil && filepath.Base(link) == master {
			members = append(members, e.Name)
		}
	}
	return members
}

// hiddenSiblings returns the functions with the same slot and driver that have neither an RDMA device nor an
// interface here.
func (d device) hiddenSiblings(function string) (list []string) {
	slot := LinkKey(filepath.Base(function))
	for n := range 8 {
		path := filepath.Join(filepath.Dir(function), slot+"."+strconv.Itoa(n))
		if path == function || driverOf(path) == "" || driverOf(path) != driverOf(function) || hasRDMA(path) {
			continue
		}
		if netdevs, _ := sysfs.List(filepath.Join(path, "net")); len(netdevs) == 0 {
			list = append(list, path)
		}
	}
	return list
}

// hasRDMA reports whether the function at a path has an RDMA device.
func hasRDMA(function string) bool {
	devices, _ := sysfs.List(filepath.Join(function, "infiniband"))
	return len(devices) > 0
}

// driverOf returns the kernel driver of the function at a path; empty if it has none.
func driverOf(function string) string {
	driver, err := os.Readlink(filepath.Join(function, "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(driver)
}

// synthetic returns the hypervisor's interface for which another interface is the fast path, as in accelerated
// networking (drivers/net/hyperv/netvsc_drv.c) and virtio's failover (net/core/failover.c); empty: none.
func (d device) synthetic(netdev string) string {
	link, err := os.Readlink(filepath.Join(d.sysfs, "class/net", netdev, "master"))
	if netdev == "" || err != nil {
		return ""
	}
	master := filepath.Base(link)
	dir, err := filepath.EvalSymlinks(filepath.Join(d.sysfs, "class/net", master))
	if err != nil || exists(dir, "bonding") || exists(dir, "bridge") {
		return ""
	}
	driver := driverOf(filepath.Join(dir, "device"))
	if driver == "hv_netvsc" || strings.Contains(dir, "/VMBUS:") || strings.Contains(dir, "/virtio") {
		return master
	}
	return ""
}
