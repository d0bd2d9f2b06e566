package rail

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/railscope/railscope/internal/sysfs"
)

// device is one RDMA device while it is examined: all of it from the kernel's memory, without firmware commands.
type device struct {
	sysfs, dir, name string
	kernel           Kernel // nil on a captured tree
	virtual          bool   // examine a virtual function too
}

var (
	bdf       = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	bondNamed = regexp.MustCompile(`_bond_\d+$`) // the one device of a hardware LAG (mlx5_ib)
)

type examined struct {
	ports   []Rail // without name and ID
	leftOut []LeftOut
	bonded  []string // PCI addresses of the functions whose bond this device is
	virtual []VirtualFunction
	err     error

	function function
}

func (d device) rail(l location) Rail {
	r := Rail{Device: d.name, Dir: d.dir, Place: l.place, PCIAddress: l.pciAddress, NUMANode: -1,
		Software: d.text("parent") != "", Firmware: d.text("fw_ver"), HCAType: d.text("hca_type"),
		BoardID: d.text("board_id"), NodeGUID: d.text("node_guid"), SystemImageGUID: d.text("sys_image_guid")}
	if l.function != "" {
		r.NUMANode = numaNode(l.function)
		if driver, err := os.Readlink(filepath.Join(l.function, "driver")); err == nil {
			r.Driver = filepath.Base(driver)
		}
	}
	return r
}

// examine locates the device, and examines it unless it is excluded.
func (d device) examine(excluded bool, found *atomic.Pointer[location]) (out examined) {
	l := d.locate()
	if excluded {
		l.nodeGUID = d.text("node_guid")
	}
	if found.Store(&l); excluded {
		return out
	}
	base := d.rail(l)
	out.function = function{l.function, base.NUMANode}
	ports, err := sysfs.List(filepath.Join(d.dir, "ports"))
	if err != nil {
		return examined{err: err}
	}
	for _, e := range ports {
		n, err := strconv.Atoi(e.Name)
		if err != nil || n < 1 {
			continue
		}
		r := base
		if l.reason != "" {
			out.leftOut = append(out.leftOut, LeftOut{Device: d.name, Port: n, Reason: l.reason})
			if r.Port = n; l.physical != "" && d.virtual {
				out.virtual = append(out.virtual, virtualFunction(r, l))
			}
			continue
		}
		r.Port, r.LinkLayer, r.Netdev = n, d.text("ports", e.Name, "link_layer"), d.netdev(n)
		if strings.HasPrefix(d.text("node_type"), "4:") { // RDMA_NODE_RNIC
			r.LinkLayer = IWARP
		}
		out.ports = append(out.ports, r)
	}
	slices.SortFunc(out.ports, func(a, b Rail) int { return a.Port - b.Port })
	if len(out.ports) > 0 && out.ports[0].Netdev != "" && bondNamed.MatchString(d.name) {
		for _, member := range BondMembers(filepath.Join(d.sysfs, "class/net", out.ports[0].Netdev)) {
			if function := Function(filepath.Join(d.sysfs, "class/net", member)); function != "" {
				out.bonded = append(out.bonded, filepath.Base(function))
			}
		}
		for i := range out.ports {
			out.ports[i].Members = len(out.bonded)
		}
	}
	return out
}

// BondMembers returns the members of the bond whose interface is at dir, sorted, by the links there: reading
// bonding/slaves waits for the RTNL lock. An interface that is not a bond has none.
func BondMembers(dir string) (members []string) {
	if !exists(dir, "bonding") {
		return nil
	}
	list, _ := sysfs.List(dir) // whoever reads the interface reports the error
	for _, e := range list {
		if member, found := strings.CutPrefix(e.Name, "lower_"); found && sysfs.ValidNetdev(member) {
			members = append(members, member)
		}
	}
	slices.Sort(members)
	return members
}

// Function returns the directory of the PCI function that a link in sysfs points to or below; empty if none.
func Function(link string) string {
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

// location is what links in sysfs say of a device, without a call of its driver.
type location struct {
	function          string // directory of the PCI function; empty for a software device
	place, pciAddress string
	reason            string // why its ports are not rails; empty if they are
	physical          string // of a virtual function, the directory of its physical function
	nodeGUID          string // only of an excluded device
}

// locate finds where the device is: a software device at the PCI function of its interface, or on the interface.
func (d device) locate() (l location) {
	link := filepath.Join(d.dir, "device")
	if l.function = Function(link); l.function == "" {
		if netdev := d.text("parent"); netdev != "" {
			l.place = "net:" + netdev
			if function := Function(filepath.Join(d.sysfs, "class/net", netdev)); function != "" {
				port, _ := sysfs.ReadUint(d.sysfs, "class/net", netdev, "dev_port") // 0 if there is only one
				l.place = fmt.Sprintf("net:%s/%d", filepath.Base(function), port)
			}
		}
		return l
	}
	l.pciAddress = filepath.Base(l.function)
	l.place = l.pciAddress
	if real, err := filepath.EvalSymlinks(link); err == nil && real != l.function {
		l.place += "/" + filepath.Base(real) // an auxiliary device, for example mlx5_core.sf.4
		if strings.Contains(filepath.Base(real), ".sf.") {
			l.reason = "subfunction of " + l.pciAddress
		}
	}
	if physfn, err := os.Readlink(filepath.Join(l.function, "physfn")); err == nil {
		l.reason = "virtual function of " + filepath.Base(physfn)
		l.physical = filepath.Join(l.function, physfn)
	}
	return l
}

// netdev returns the network interface of a port from the first source that has it: the kernel
// (RDMA_NLDEV_CMD_PORT_GET), the parent of a software device (drivers/infiniband/sw/rxe/rxe_verbs.c, parent_show), the
// interface of the PCI function whose dev_port is the port's, or the first GID with an interface.
func (d device) netdev(port int) string {
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
	return d.gidNetdev(filepath.Join(d.dir, "ports", strconv.Itoa(port), "gid_attrs/ndevs"))
}

// functionNetdev returns the PCI function's interface that belongs to the port: the only one, or that of its number.
func (d device) functionNetdev(port int) string {
	dir := filepath.Join(d.dir, "device/net")
	list, err := sysfs.List(dir)
	if err == nil && len(list) == 1 {
		return list[0].Name
	}
	for _, e := range list {
		if n, err := sysfs.ReadUint(dir, e.Name, "dev_port"); err == nil && n == uint64(port-1) {
			return e.Name
		}
	}
	return ""
}

func (d device) gidNetdev(dir string) string {
	list, _ := sysfs.List(dir)
	slices.SortFunc(list, func(a, b sysfs.Entry) int { return NaturalCompare(a.Name, b.Name) })
	for _, e := range list {
		if name, err := sysfs.ReadString(dir, e.Name); err == nil && name != "" {
			return name
		}
	}
	return ""
}

// text returns one of the device's small files, empty if it cannot be read: none is required.
func (d device) text(elem ...string) string {
	s, err := sysfs.ReadString(append([]string{d.dir}, elem...)...)
	if err != nil || !printable(s) {
		return ""
	}
	return s
}

// printable keeps binary data out of labels.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' })
}

// NaturalCompare orders mlx5_2 before mlx5_10 and rocep1s0f0 before roceP2p1s0f0: by number, and without case.
func NaturalCompare(a, b string) int {
	return cmp.Or(strings.Compare(naturalKey(a), naturalKey(b)), strings.Compare(a, b))
}

// naturalKey puts the length of each number before its digits.
func naturalKey(name string) string {
	var key strings.Builder
	for rest := strings.ToLower(name); rest != ""; {
		after := strings.TrimLeft(rest, "0123456789")
		if digits := rest[:len(rest)-len(after)]; digits != "" {
			number := strings.TrimLeft(digits, "0")
			key.WriteString("0" + string(rune(len(number))) + number)
			rest = after
			continue
		}
		key.WriteByte(rest[0])
		rest = rest[1:]
	}
	return key.String()
}
