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

// device is one RDMA device during its examination. All values come from the kernel's memory, without firmware
// commands, except for a counter of InfiniBand ports without an interface.
type device struct {
	sysfs, dir, name string
	kernel           Kernel // nil on a captured tree
	opts             Options
}

var bdf = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

type examined struct {
	ports   []port   // in order, without name and ID
	bonded  []string // if the device is a bond's: PCI addresses of the bond's functions
	virtual []VirtualFunction
	err     error

	function function
}

func (d device) rail(l location) Rail {
	r := Rail{Device: d.name, Dir: d.dir, Place: l.place, PCIAddress: l.pciAddress, NUMANode: -1, Software: l.software,
		Firmware: d.text("fw_ver"), HCAType: d.text("hca_type"), BoardID: d.text("board_id"),
		NodeGUID: d.text("node_guid"), SystemImageGUID: d.text("sys_image_guid")}
	if l.function != "" {
		r.NUMANode, r.Driver, r.Guest = numaNode(l.function), driverOf(l.function), inGuest(d.sysfs, l.function)
	}
	return r
}

// examine locates the device, and examines it unless it is excluded.
func (d device) examine(excluded bool, found *atomic.Pointer[location]) (out examined) {
	l := d.locate()
	if excluded {
		l.nodeGUID = d.text("node_guid")
	}
	found.Store(&l)
	numbers, err := d.portNumbers()
	if err != nil && !excluded {
		return examined{err: err}
	}
	base := d.rail(l)
	out.function = function{l.function, base.NUMANode}
	for _, n := range numbers {
		p := port{Rail: base}
		p.Port = n
		switch {
		case excluded:
			p.reason, p.of = cmp.Or(l.reason, ReasonExcluded), l.of
		case l.reason == "":
			d.describe(&p, &out, l, len(numbers) == 1)
		case l.physical != "" && d.opts.VirtualFunctions:
			out.virtual = append(out.virtual, virtualFunction(p.Rail, l))
		}
		out.ports = append(out.ports, p)
	}
	if excluded {
		return out
	}
	attached := slices.ContainsFunc(out.ports, func(p port) bool { return p.Netdev != "" })
	for i := range out.ports {
		d.decide(&out.ports[i], l, len(numbers) > 1, attached)
	}
	return out
}

func (d device) portNumbers() (numbers []int, err error) {
	list, err := sysfs.List(filepath.Join(d.dir, "ports"))
	for _, e := range list {
		if n, err := strconv.Atoi(e.Name); err == nil && n >= 1 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// describe reads the properties of a port, and the bond to which it may belong.
func (d device) describe(p *port, out *examined, l location, only bool) {
	dir := filepath.Join(d.dir, "ports", strconv.Itoa(p.Port))
	p.LinkLayer, p.Netdev = d.text("ports", strconv.Itoa(p.Port), "link_layer"), d.netdev(p.Port, only)
	if d.rnic() {
		p.LinkLayer = IWARP
	}
	if strings.Contains(d.text("node_type"), "usNIC") {
		p.LinkLayer = USNIC
	}
	if p.LinkLayer != infiniBand {
		if of := d.lag(l, p.Port, p.Netdev); of.netdev != "" {
			p.Netdev, p.Members, out.bonded = of.netdev, of.members, of.functions
			p.Functions = strings.Join(of.functions, " ")
		}
		p.Synthetic = d.synthetic(p.Netdev)
	}
	if p.Software && p.Netdev != "" {
		p.NetdevPeriod = interfacePeriod(filepath.Join(d.sysfs, "class/net", p.Netdev))
	}
	if p.LinkLayer == infiniBand || !only && p.Netdev == "" { // other ports' GIDs have no influence
		gid, err := sysfs.ReadString(dir, "gids/0")
		p.gids = err == nil && strings.Trim(gid, "0:") != "" || len(d.gidNetdevs(p.Port)) > 0
	}
	p.answer = true
	if p.LinkLayer == infiniBand && p.Netdev == "" { // other ports are not read here
		_, err := sysfs.ReadUint(dir, "counters/port_xmit_data")
		p.answer = sysfs.Reason(err) != sysfs.ReasonUnsupported
	}
}

// rnic reports whether the device has RDMA over TCP (RDMA_NODE_RNIC).
func (d device) rnic() bool { return strings.HasPrefix(d.text("node_type"), "4:") }

// Function returns the directory of the PCI function at or above the target of a link in sysfs; empty if none.
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

// location is what sysfs links show about a device, without a call of its driver.
type location struct {
	function          string // directory of the PCI function; empty for a software device
	place, pciAddress string
	software          bool
	reason            Reason // reason why its ports are not rails; empty if they are
	of                string // PCI address of the function to which the ports belong
	physical          string // directory of the physical function; only for a virtual function
	nodeGUID          string // only for an excluded device
}

// locate finds the place of the device. A software device is at the PCI function of its interface, or on the
// interface.
func (d device) locate() (l location) {
	link := filepath.Join(d.dir, "device")
	l.function = Function(link)
	if netdev := d.softwareNetdev(l.function); netdev != "" || l.function == "" {
		l.function, l.software = "", netdev != ""
		// Without it the device is being added or removed (see [noParent]), and its place is unknown.
		if l.software && exists(d.sysfs, "class/net", netdev) {
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
			l.reason, l.of = ReasonSubfunction, l.pciAddress
		}
	}
	if physfn, err := os.Readlink(filepath.Join(l.function, "physfn")); err == nil {
		l.reason, l.of = ReasonVirtualFunction, filepath.Base(physfn)
		l.physical = filepath.Join(l.function, physfn)
	}
	return l
}

// softwareNetdev returns the interface of a software device: rxe names it. siw, which has the same parent as its
// interface, is an RNIC without firmware (drivers/infiniband/sw/siw/siw_main.c). Empty for hardware.
func (d device) softwareNetdev(function string) string {
	if netdev := d.text("parent"); netdev != "" {
		return netdev
	}
	if !d.rnic() || d.text("fw_ver") != "" || d.text("hca_type") != "" || function != "" && d.text("hw_rev") != "" {
		return ""
	}
	return d.netdev(1, true)
}

// text returns one of the device's small files, or "" if it cannot be read: none is required.
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

// NaturalCompare orders mlx5_2 before mlx5_10 and rocep1s0f0 before roceP2p1s0f0: by number, and ignoring case.
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
