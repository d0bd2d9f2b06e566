// Package machines is a zoo of machines from public descriptions, with the facts about each: which ports are rails,
// their capacities, their byte counters, and their faults. Tests compare railscope's output with these facts.
//
// Facts and formats are from the sources; values, addresses and names that a source does not give are made up. The
// files follow the kernel's show functions (drivers/infiniband/core/sysfs.c, drivers/pci/pci-sysfs.c,
// net/core/net-sysfs.c).
package machines

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Tree builds the sysfs and procfs of a machine. Its methods fail the test on an error.
type Tree struct {
	tb   testing.TB
	Root string // directory with sys, proc and dev

	netdevs int
	dirs    map[string]string // directories of interfaces
	answers map[string]string // device/port → interface that RDMA netlink reports
	smi     map[string]bool

	kfdNodes int // nodes of amdkfd
}

// NewTree returns an empty machine below a directory of the test.
func NewTree(tb testing.TB) *Tree {
	t := &Tree{tb: tb, Root: tb.TempDir(), answers: map[string]string{}, dirs: map[string]string{},
		smi: map[string]bool{}}
	for _, dir := range []string{"sys/class/net", "sys/bus/pci/devices", "proc"} {
		t.must(os.MkdirAll(filepath.Join(t.Root, dir), 0o755))
	}
	t.Proc("uptime", "864000.00 0.00")
	return t
}

// Sys returns the path of the machine's sysfs.
func (t *Tree) Sys() string { return filepath.Join(t.Root, "sys") }

// Procfs returns the path of the machine's procfs.
func (t *Tree) Procfs() string { return filepath.Join(t.Root, "proc") }

func (t *Tree) must(err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatal(err)
	}
}

// File writes a file of sysfs with a newline.
func (t *Tree) File(name string, value any) { t.write(filepath.Join("sys", name), fmt.Sprintln(value)) }

// Proc writes a file of procfs with a newline.
func (t *Tree) Proc(name string, value any) {
	t.write(filepath.Join("proc", name), fmt.Sprintln(value))
}

func (t *Tree) write(name, text string) {
	t.tb.Helper()
	file := filepath.Join(t.Root, name)
	t.must(os.MkdirAll(filepath.Dir(file), 0o755))
	t.must(os.WriteFile(file, []byte(text), 0o600))
}

// Files writes files to a directory of sysfs: alternating names and values.
func (t *Tree) Files(dir string, pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		t.File(path.Join(dir, pairs[i].(string)), pairs[i+1])
	}
}

// Link makes a relative link in sysfs to another path in it.
func (t *Tree) Link(name, target string) {
	t.tb.Helper()
	file := filepath.Join(t.Sys(), name)
	t.must(os.MkdirAll(filepath.Dir(file), 0o755))
	rel, err := filepath.Rel(filepath.Dir(file), filepath.Join(t.Sys(), target))
	t.must(err)
	_ = os.Remove(file)
	t.must(os.Symlink(rel, file))
}

// Refuse creates a sysfs file whose read returns EINVAL, as a driver's show function can.
func (t *Tree) Refuse(name string) {
	t.tb.Helper()
	file := filepath.Join(t.Sys(), name)
	t.must(os.MkdirAll(filepath.Dir(file), 0o755))
	_ = os.Remove(file)
	t.must(os.Symlink("/sys/class/net/lo/speed", file))
}

// Remove removes a file or directory of sysfs.
func (t *Tree) Remove(name string) { t.must(os.RemoveAll(filepath.Join(t.Sys(), name))) }

// AnswerNetdev sets the interface that RDMA netlink reports for a port (RDMA_NLDEV_CMD_PORT_GET).
func (t *Tree) AnswerNetdev(device string, port int, netdev string) {
	t.answers[device+"/"+strconv.Itoa(port)] = netdev
}

// Function is a PCI function. Zero values: an adapter's Gen5 x16 function at its maximum speed and width.
type Function struct {
	Vendor, Device, Class, Driver string
	GT, MaxGT                     string // speed of the link, for example "32.0"; empty MaxGT: as GT
	Width, MaxWidth               int
	NUMA                          int
	Of                            string // address of the physical function; only for a virtual function
	Partitions                    int    // number of partitions of an AMD GPU; 0: it is not partitioned
}

// Function creates a PCI function at a path below sys/devices, such as "pci0000:10/0000:10:01.0/0000:1a:00.0".
// Missing bridges above it are created, without limiting its link.
func (t *Tree) Function(at string, f Function) string {
	dir := path.Join("devices", at)
	for up := path.Dir(dir); strings.Count(path.Base(up), ":") == 2; up = path.Dir(up) {
		if _, err := os.Stat(filepath.Join(t.Sys(), up, "vendor")); err != nil {
			t.pci(up, Function{Vendor: "0x1000", Device: "0xc030", Class: "0x060400", Driver: "pcieport", GT: f.GT,
				Width: f.Width, MaxGT: f.MaxGT, MaxWidth: f.MaxWidth, NUMA: f.NUMA})
		}
	}
	t.pci(dir, f)
	if f.Of != "" {
		physical := path.Join(path.Dir(dir), f.Of)
		t.Link(path.Join(dir, "physfn"), physical)
		_, number, _ := strings.Cut(path.Base(dir), ".")
		n, _ := strconv.Atoi(number)
		t.Link(path.Join(physical, "virtfn"+strconv.Itoa(max(n-1, 0))), dir)
	}
	return dir
}

func (t *Tree) pci(dir string, f Function) {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	gt, width := or(f.GT, "32.0"), f.Width
	if width == 0 {
		width = 16
	}
	most := f.MaxWidth
	if most == 0 {
		most = width
	}
	speed := func(gt string) string {
		if gt == "Unknown" {
			return gt
		}
		return gt + " GT/s PCIe"
	}
	t.Files(dir, "vendor", or(f.Vendor, "0x15b3"), "device", or(f.Device, "0x1021"), "class", or(f.Class, "0x020000"),
		"numa_node", f.NUMA, "current_link_speed", speed(gt), "max_link_speed", speed(or(f.MaxGT, gt)),
		"current_link_width", width, "max_link_width", most)
	t.Link(path.Join("bus/pci/devices", path.Base(dir)), dir)
	if f.Driver != "" {
		t.must(os.MkdirAll(filepath.Join(t.Sys(), "bus/pci/drivers", f.Driver), 0o755))
		t.Link(path.Join(dir, "driver"), path.Join("bus/pci/drivers", f.Driver))
	}
}

// GPU creates a GPU at a path below sys/devices: NVIDIA, or AMD if the vendor is 0x1002.
func (t *Tree) GPU(at string, f Function) {
	if f.Vendor == "" {
		f.Vendor, f.Device, f.Class, f.Driver = "0x10de", "0x2330", "0x030200", "nvidia"
	}
	dir := t.Function(at, f)
	if f.Driver == "amdgpu" {
		showAMD(t, dir, f)
	}
}

// Netdev is a network interface. Zero values: up, with MTU 9000, at 400 Gb/s.
type Netdev struct {
	Speed            int // Mb/s; -1: unknown
	MTU, DevPort     int
	NoCarrier        bool
	NeverUp          bool // no carrier since the interface was created
	InfiniBand       bool
	SwitchID, Name   string // phys_switch_id, phys_port_name
	Master           string // interface above it, such as a bond
	Lower            []string
	AdministrativeNo bool // administratively down
}

// Netdev creates an interface of the function at dir, or a virtual one if dir is empty.
func (t *Tree) Netdev(dir, name string, n Netdev) {
	at := path.Join("devices/virtual/net", name)
	if dir != "" {
		at = path.Join(dir, "net", name)
		t.Link(path.Join(at, "device"), dir)
	}
	t.netdevs++
	t.dirs[name] = at
	number := func(v, other int) int {
		if v == 0 {
			return other
		}
		return v
	}
	up, state, ups, flags, kind := 1, "up", 1, "0x1003", 1
	if n.NoCarrier || n.NeverUp {
		up, state = 0, "down"
	}
	if n.NeverUp {
		ups = 0
	}
	if n.AdministrativeNo {
		flags = "0x1002"
	}
	if n.InfiniBand {
		kind = 32
	}
	speed := number(n.Speed, 400000)
	if up == 0 {
		speed = -1
	}
	t.Files(at, "ifindex", t.netdevs+1, "mtu", number(n.MTU, 9000), "speed", speed, "carrier", up, "operstate", state,
		"flags", flags, "type", kind, "dev_port", n.DevPort, "dev_id", "0x0", "duplex", "full",
		"address", fmt.Sprintf("02:00:5e:00:00:%02x", t.netdevs), "carrier_up_count", ups, "carrier_down_count", 1,
		"carrier_changes", ups+1, "statistics/rx_bytes", 1000, "statistics/tx_bytes", 1000)
	if n.SwitchID != "" {
		t.File(path.Join(at, "phys_switch_id"), n.SwitchID)
	}
	if n.Name != "" {
		t.File(path.Join(at, "phys_port_name"), n.Name)
	}
	t.Link(path.Join("class/net", name), at)
	for _, lower := range n.Lower {
		t.Link(path.Join(at, "lower_"+lower), path.Join("class/net", lower))
	}
	if n.Master != "" {
		t.Link(path.Join(at, "master"), path.Join("class/net", n.Master))
	}
}

// Bond creates an 802.3ad bond of existing interfaces, with a partner.
func (t *Tree) Bond(name string, members ...string) {
	t.Netdev("", name, Netdev{Lower: members})
	dir := path.Join("class/net", name, "bonding")
	t.Files(dir, "mode", "802.3ad 4", "slaves", strings.Join(members, " "), "miimon", 100, "mii_status", "up",
		"xmit_hash_policy", "layer3+4 1", "lacp_rate", "fast 1", "ad_aggregator", 1, "ad_num_ports", len(members),
		"ad_partner_mac", "02:00:5e:00:00:99", "ad_actor_key", 21, "ad_partner_key", 33)
	for _, m := range members {
		t.Link(path.Join(t.dirs[m], "master"), path.Join("class/net", name))
		t.Files(path.Join("class/net", m, "bonding_slave"), "mii_status", "up", "state", "active", "link_failure_count",
			0,
			"ad_aggregator_id", 1, "ad_actor_oper_port_state", 63, "ad_partner_oper_port_state", 61)
	}
	old, _ := os.ReadFile(filepath.Join(t.Sys(), "class/net/bonding_masters"))
	t.File("class/net/bonding_masters", strings.TrimSpace(string(old)+" "+name))
}
