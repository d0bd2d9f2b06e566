package rail

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// Reason is the reason why a port is not a rail.
type Reason string

// Reasons why ports are not rails.
const (
	ReasonVirtualFunction Reason = "virtual_function" // virtual function of a physical function on this node
	ReasonSubfunction     Reason = "subfunction"      // subfunction of a function on this node
	ReasonRepresentor     Reason = "representor"      // switchdev: the port represents one of a virtual function
	// Permanently disabled, beside ports of the same device with an interface.
	ReasonPlaneUnused      Reason = "plane_unused"
	ReasonSMI              Reason = "smi"               // a sub-device that carries only subnet management packets
	ReasonSwitchManagement Reason = "switch_management" // a function that manages the node's NVSwitches
	ReasonSoftwareOf       Reason = "software_of"       // rxe or siw on the interface of a hardware rail
	ReasonExcluded         Reason = "excluded"          // excluded by the configuration
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{ReasonVirtualFunction, ReasonSubfunction, ReasonRepresentor, ReasonPlaneUnused, ReasonSMI,
		ReasonSwitchManagement, ReasonSoftwareOf, ReasonExcluded}
}

// LeftOut is an RDMA port that is not a rail, with the reason.
type LeftOut struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Reason Reason `json:"reason"`
	Of     string `json:"of"` // PCI address or device to which it belongs; empty: none
}

// String returns the port with its reason, for people.
func (l LeftOut) String() string {
	text := l.Device + " port " + strconv.Itoa(l.Port) + ": " + string(l.Reason)
	if l.Of != "" {
		text += " of " + l.Of
	}
	return text
}

// ReasonCount is the number of ports that are left out for one reason.
type ReasonCount struct {
	Reason Reason
	Ports  int
}

// String returns the count for people, such as "2 smi".
func (c ReasonCount) String() string { return strconv.Itoa(c.Ports) + " " + string(c.Reason) }

// CountReasons counts ports by reason, in the order of [Reasons], without reasons that no port has.
func CountReasons(ports []LeftOut) (counts []ReasonCount) {
	for _, reason := range Reasons() {
		c := ReasonCount{Reason: reason}
		for _, p := range ports {
			if p.Reason == reason {
				c.Ports++
			}
		}
		if c.Ports > 0 {
			counts = append(counts, c)
		}
	}
	return counts
}

// port is a port during the decision whether it is a rail.
type port struct {
	Rail
	reason Reason // empty: a rail, as far as its own device shows
	of     string
	gids   bool // the GID table is not empty
	answer bool // false for an InfiniBand port without an interface whose driver refuses to read its counters
}

func (p port) included() bool { return p.reason != ReasonExcluded }

func (p port) leftOut() LeftOut { return LeftOut{p.Device, p.Port, p.reason, p.of} }

// representorName matches the names of interfaces that represent a function of a switchdev adapter
// (net/devlink/port.c, __devlink_port_phys_port_name_get). Before Linux 5.2, mlx5 used only the number.
var representorName = regexp.MustCompile(`^(c\d+)?pf\d+(vf\d+|sf\d+)?$|^-?\d+$`)

func (d device) representor(netdev string) bool {
	dir := filepath.Join(d.sysfs, "class/net", netdev)
	id, err := sysfs.ReadString(dir, "phys_switch_id")
	if err != nil || id == "" {
		return false
	}
	name, err := sysfs.ReadString(dir, "phys_port_name")
	return err == nil && representorName.MatchString(name)
}

// decide sets the reason of a port as far as its own device shows it. several reports whether the device has other
// ports, attached whether one of these has an interface.
func (d device) decide(p *port, l location, several, attached bool) {
	switch {
	case l.reason != "":
		p.reason, p.of = l.reason, l.of
	case d.opts.excludes(d.name, p.Port):
		p.reason = ReasonExcluded
	case d.smi():
		p.reason, p.of = ReasonSMI, l.pciAddress
	case p.Software:
	case p.Netdev != "" && d.representor(p.Netdev), several && p.Netdev == "" && p.Port > 1 && d.switchdev(l):
		p.reason, p.of = ReasonRepresentor, l.pciAddress
	case several && attached && p.Netdev == "" && !p.gids && d.disabled(p.Port):
		p.reason, p.of = ReasonPlaneUnused, l.pciAddress
	case p.LinkLayer == infiniBand && p.Netdev == "" && managesSwitches(l.function):
		p.reason = ReasonSwitchManagement
	}
}

func (d device) smi() bool {
	kernel, ok := d.kernel.(smiKernel)
	if !ok {
		return false
	}
	smi, err := kernel.SMI(d.name)
	return err == nil && smi
}

// switchdev reports whether the function's device has a port for each virtual port: one of its interfaces is a
// representor, or it has virtual functions and an interface with a switch, and the representors are elsewhere.
func (d device) switchdev(l location) bool {
	netdevs, _ := sysfs.List(filepath.Join(l.function, "net"))
	functions, _ := sysfs.ReadUint(l.function, "sriov_numvfs")
	return slices.ContainsFunc(netdevs, func(e sysfs.Entry) bool {
		id, err := sysfs.ReadString(d.sysfs, "class/net", e.Name, "phys_switch_id")
		return d.representor(e.Name) || functions > 0 && err == nil && id != ""
	})
}

// disabled reports whether the port is DOWN and physically disabled. On mlx5 this costs a firmware command, so only
// ports without an interface are checked.
func (d device) disabled(port int) bool {
	dir := filepath.Join(d.dir, "ports", strconv.Itoa(port))
	state, _ := sysfs.ReadString(dir, "state")
	physical, _ := sysfs.ReadString(dir, "phys_state")
	return strings.HasPrefix(state, "1:") && strings.HasPrefix(physical, "3:")
}

// managesSwitches reports whether a function's vital product data marks it as one for NVSwitches, which is how
// NVIDIA's Fabric Manager finds it. Only root may read the data.
func managesSwitches(function string) bool {
	const most = 32 << 10 // PCI_VPD_MAX_SIZE of drivers/pci/vpd.c
	data, err := readBinary(filepath.Join(function, "vpd"), most)
	return err == nil && strings.Contains(string(data), "SW_MNG")
}

func readBinary(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	buf := make([]byte, most)
	n, err := f.Read(buf)
	return buf[:n], err
}

// compare sets the reasons that follow from other devices: a device is a sub-device of one at its place, it manages
// switches, or hardware has its interface. It returns copies.
func (f *Finder) compare(devices [][]port) [][]port {
	out := make([][]port, len(devices))
	for i, ports := range devices {
		out[i] = slices.Clone(ports)
	}
	rails := func(yield func(*port) bool) {
		for i := range out {
			for j := range out[i] {
				if p := &out[i][j]; p.reason == "" && !yield(p) {
					return
				}
			}
		}
	}
	for p := range rails {
		for o := range rails {
			switch {
			case o.Device == p.Device:
				continue
			case subdevice(p, o):
				p.reason, p.of = ReasonSMI, o.Device
			case p.LinkLayer == infiniBand && !p.answer && (p.thin() || o.LinkLayer == infiniBand &&
				o.Driver == p.Driver) &&
				o.answer:
				p.reason = ReasonSwitchManagement
			case p.Software && !o.Software && o.Netdev != "" && f.stackedOn(p.Netdev, o.Netdev, maxStacked):
				p.reason, p.of = ReasonSoftwareOf, o.Device
			default:
				continue
			}
			break
		}
	}
	for _, ports := range out {
		for _, manager := range ports {
			for p := range rails {
				if manager.reason == ReasonSwitchManagement && p.sameSlot(manager) && p.LinkLayer == infiniBand &&
					p.Netdev == "" {
					p.reason = ReasonSwitchManagement // not all functions of that adapter refuse reads
				}
			}
		}
	}
	return out
}

// thin reports whether the PCIe link carries less than any port of a fabric, like that of a management function.
func (p port) thin() bool {
	link, err := ReadLink(filepath.Join(p.Dir, "device"), "current")
	return err == nil && link.BytesPerSecond() < 2.5e9
}

func (p port) sameSlot(o port) bool { return p.PCIAddress != "" && p.LinkKey() == o.LinkKey() }

// subdevice reports whether p belongs to a sub-device of o's device: at the same place with the same GUID, and
// without a GID, which every usable port has (drivers/infiniband/core/device.c, ib_add_sub_device).
func subdevice(p, o *port) bool {
	return p.LinkLayer == infiniBand && p.Place != "" && p.Place == o.Place && usableGUID(p.NodeGUID) != "" &&
		p.NodeGUID == o.NodeGUID && !p.gids && o.gids
}

// maxStacked limits the number of interfaces that are stacked: a VLAN on a bond on a port is three.
const maxStacked = 4

// stackedOn reports whether an interface equals other, or is stacked on it (VLAN, bond, bridge).
func (f *Finder) stackedOn(netdev, other string, most int) bool {
	if netdev == other {
		return true
	}
	if netdev == "" || most == 0 {
		return false
	}
	return slices.ContainsFunc(LowerInterfaces(filepath.Join(f.sysfs, "class/net", netdev)), func(lower string) bool {
		return f.stackedOn(lower, other, most-1)
	})
}
