package rail

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// device is one RDMA device while it is examined. Everything it reads is kept
// in memory by the kernel; nothing here costs a firmware command.
type device struct {
	sysfs, dir, name string
	kernel           Kernel // nil on a captured tree
}

var (
	bdf       = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	bondNamed = regexp.MustCompile(`_bond_\d+$`) // mlx5_ib names the one device of a hardware LAG so
)

// examine returns the device's ports as rails, without name and ID.
func (d device) examine() examined {
	base := Rail{Device: d.name, Dir: d.dir, NUMANode: -1}
	base.Firmware = d.text("fw_ver")
	base.HCAType = d.text("hca_type")
	base.BoardID = d.text("board_id")
	base.NodeGUID = d.text("node_guid")
	base.SystemImageGUID = d.text("sys_image_guid")
	base.Software = d.text("parent") != ""
	why := d.place(&base)
	base.Place = d.locate().place
	ports, err := sysfs.List(filepath.Join(d.dir, "ports"))
	if err != nil {
		return examined{err: err}
	}
	var out examined
	for _, e := range ports {
		n, err := strconv.Atoi(e.Name)
		if err != nil || n < 1 {
			continue
		}
		if why != "" {
			out.leftOut = append(out.leftOut, LeftOut{Device: d.name, Port: n, Reason: why})
			continue
		}
		r := base
		r.Port = n
		r.LinkLayer = d.text("ports", e.Name, "link_layer")
		r.Netdev = d.netdev(base, n)
		out.ports = append(out.ports, r)
	}
	slices.SortFunc(out.ports, func(a, b Rail) int { return a.Port - b.Port })
	if len(out.ports) > 0 && bondNamed.MatchString(d.name) {
		out.taken = d.bonded(out.ports[0].Netdev)
	}
	return out
}

// bonded returns the PCI addresses of the functions whose interfaces are members
// of a bond: the driver made one device of them.
func (d device) bonded(bond string) (addresses []string) {
	list, err := sysfs.List(filepath.Join(d.sysfs, "class/net", bond))
	if bond == "" || err != nil {
		return nil
	}
	for _, e := range list {
		if member, found := strings.CutPrefix(e.Name, "lower_"); found {
			if function := functionOf(filepath.Join(d.sysfs, "class/net", member)); function != "" {
				addresses = append(addresses, filepath.Base(function))
			}
		}
	}
	return addresses
}

// functionOf returns the directory of the PCI function that a link in sysfs leads
// to or below, or nothing.
func functionOf(link string) string {
	function, err := filepath.EvalSymlinks(link)
	if err != nil {
		return ""
	}
	for !bdf.MatchString(filepath.Base(function)) {
		up := filepath.Dir(function)
		if up == function { // "/", or "." of a relative path
			return ""
		}
		function = up
	}
	return function
}

// location is what is known of a device without asking its driver.
type location struct {
	place, pciAddress string
	nodeGUID          string // only of an excluded device
	why               string // it is no rail
}

// locate says where the device sits, by links alone where it has any. A software
// device sits where its interface does, or, where that is none of hardware, on it.
func (d device) locate() (l location) {
	function := functionOf(filepath.Join(d.dir, "device"))
	if function == "" {
		if netdev := d.text("parent"); netdev != "" {
			l.place = "net:" + netdev
			if function = functionOf(filepath.Join(d.sysfs, "class/net", netdev)); function != "" {
				port := d.netdevPort(netdev)
				l.place = "net:" + filepath.Base(function) + "/" + port
			}
		}
		return l
	}
	l.pciAddress = filepath.Base(function)
	l.place = l.pciAddress
	if real, err := filepath.EvalSymlinks(filepath.Join(d.dir, "device")); err == nil && real != function {
		l.place += "/" + filepath.Base(real) // an auxiliary device, for example mlx5_core.sf.4
	}
	var r Rail
	l.why = d.place(&r)
	return l
}

// netdevPort distinguishes the interfaces of one PCI function.
func (d device) netdevPort(netdev string) string {
	port, err := sysfs.ReadUint(d.sysfs, "class/net", netdev, "dev_port")
	if err != nil {
		return "0"
	}
	return strconv.FormatUint(port, 10)
}

// place fills in where the device sits, and returns why it is no rail, if so.
func (d device) place(r *Rail) (why string) {
	real, err := filepath.EvalSymlinks(filepath.Join(d.dir, "device"))
	if err != nil {
		return "" // a software device, or a tree that does not say
	}
	function := functionOf(filepath.Join(d.dir, "device"))
	if function == "" {
		return ""
	}
	r.PCIAddress = filepath.Base(function)
	if s, err := sysfs.ReadString(function, "numa_node"); err == nil {
		if n, err := strconv.Atoi(s); err == nil && n >= 0 {
			r.NUMANode = n
		}
	}
	if driver, err := os.Readlink(filepath.Join(function, "driver")); err == nil {
		r.Driver = filepath.Base(driver)
	}
	if physfn, err := os.Readlink(filepath.Join(function, "physfn")); err == nil {
		return "virtual function of " + filepath.Base(physfn)
	}
	if strings.Contains(filepath.Base(real), ".sf.") {
		return "subfunction of " + r.PCIAddress
	}
	return ""
}

// netdev returns the network interface of a port, by the first way that
// answers: the kernel (RDMA_NLDEV_CMD_PORT_GET), the parent of a software
// device (drivers/infiniband/sw/rxe/rxe_verbs.c parent_show), the interface of
// the PCI function whose dev_port is the port's, the first GID's interface.
func (d device) netdev(base Rail, port int) string {
	if d.kernel != nil {
		if name, err := d.kernel.PortNetdev(d.name, port); err == nil {
			return name
		}
	}
	if name := d.text("parent"); name != "" {
		return name
	}
	if name := d.functionNetdev(port); name != "" {
		if bondNamed.MatchString(d.name) {
			if master, err := os.Readlink(filepath.Join(d.sysfs, "class/net", name, "master")); err == nil {
				return filepath.Base(master)
			}
		}
		return name
	}
	dir := filepath.Join(d.dir, "ports", strconv.Itoa(port), "gid_attrs/ndevs")
	return d.firstGIDNetdev(dir)
}

// functionNetdev returns the interface below the PCI function that belongs to
// the port: the only one, or the one with the port's number.
func (d device) functionNetdev(port int) string {
	dir := filepath.Join(d.dir, "device/net")
	list, err := sysfs.List(dir)
	if err != nil || len(list) == 0 {
		return ""
	}
	if len(list) == 1 {
		return list[0].Name
	}
	for _, e := range list {
		if n, err := sysfs.ReadUint(dir, e.Name, "dev_port"); err == nil && n == uint64(port-1) {
			return e.Name
		}
	}
	return ""
}

// firstGIDNetdev returns the interface of the lowest GID that has one.
func (d device) firstGIDNetdev(dir string) string {
	list, err := sysfs.List(dir)
	if err != nil {
		return ""
	}
	slices.SortFunc(list, func(a, b sysfs.Entry) int { return naturalCompare(a.Name, b.Name) })
	for _, e := range list {
		if name, err := sysfs.ReadString(dir, e.Name); err == nil && name != "" {
			return name
		}
	}
	return ""
}

// text returns one of the device's small files, empty when it has none: what
// identifies a device is nice to have, and rxe has hardly any of it.
func (d device) text(elem ...string) string {
	s, err := sysfs.ReadString(append([]string{d.dir}, elem...)...)
	if err != nil || !printable(s) {
		return ""
	}
	return s
}

// printable keeps binary rubbish out of labels.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' })
}

// String is the rail's name with its port, for messages.
func (r Rail) String() string { return fmt.Sprintf("rail %s (%s/%d)", r.Name, r.Device, r.Port) }
