package rail

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// The roles that rails have without configuration.
const (
	Compute = "compute" // carries the traffic of jobs
	Other   = "other"   // no GPU is behind its PCIe switch, but behind those of other rails
)

// RoleRule gives a role to the rails of devices.
type RoleRule struct {
	Role    string
	Devices *regexp.Regexp // on device names
}

// assignRoles sets the role of each rail: that of the first rule which matches its device. Of the others, those with a
// GPU behind the same switch are for compute if there are any, else all are, unless a rule says which are for compute.
func assignRoles(rails []Rail, near []bool, rules []RoleRule) {
	some := false
	for i := range rails {
		r := &rails[i]
		r.Role = ""
		if j := slices.IndexFunc(rules, func(rule RoleRule) bool { return rule.Devices.MatchString(r.Device) }); j >= 0 {
			r.Role = rules[j].Role
		} else {
			some = some || near[i]
		}
	}
	explicit := slices.ContainsFunc(rules, func(rule RoleRule) bool { return rule.Role == Compute })
	for i := range rails {
		switch r := &rails[i]; {
		case r.Role != "":
		case explicit || some && !near[i]:
			r.Role = Other
		default:
			r.Role = Compute
		}
	}
}

// Distance is how far two PCI functions are from each other, in the words of nvidia-smi topo -m.
type Distance string

// The distances, nearest first (legend of nvidia-smi topo -m; nvml.h nvmlGpuTopologyLevel_t).
const (
	PIX  Distance = "PIX"  // behind the same switch
	PXB  Distance = "PXB"  // behind several switches below one root port
	PHB  Distance = "PHB"  // below the same host bridge
	NODE Distance = "NODE" // below different host bridges of one NUMA node
	SYS  Distance = "SYS"  // on different NUMA nodes
)

func (d Distance) rank() int { return slices.Index([]Distance{PIX, PXB, PHB, NODE, SYS}, d) }

func (d Distance) behindSwitch() bool { return d == PIX || d == PXB }

// function is a PCI function.
type function struct {
	path string // resolved directory in sysfs; empty: none
	numa int    // -1 if unknown
}

var hostBridge = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)

// bridges returns the host bridge that a function is below, and the bridges and the function itself below that, by the
// path of its directory; below a virtual bus the host bridge is not at the top (Hyper-V, VMD).
func (f function) bridges() (host string, below []string) {
	names := strings.Split(f.path, "/")
	for i, name := range slices.Backward(names) {
		if hostBridge.MatchString(name) {
			return strings.Join(names[:i+1], "/"), names[i+1:]
		}
	}
	return "", nil
}

// PCIAbove returns the PCIe root port above the rail's device, and the upstream port of the switch between, by their
// addresses; empty: there is none, or it is not known. It reads one link, in the kernel's memory.
func (r Rail) PCIAbove() (rootPort, switchPort string) {
	path, err := filepath.EvalSymlinks(filepath.Join(r.Dir, "device"))
	if err != nil {
		return "", ""
	}
	_, below := function{path: path}.bridges()
	if len(below) > 1 {
		rootPort = below[0]
	}
	if len(below) > 3 { // root port, upstream port, downstream port, function
		switchPort = below[1]
	}
	return rootPort, switchPort
}

// distance is empty if the place of one of them is unknown. A switch is a bridge, its upstream port, with bridges below
// it, its downstream ports: two functions are behind one switch if their paths part at its downstream ports, or if they
// are on one bus. NUMA nodes of which one is unknown count as the same: the kernel leaves them out where there is one.
func distance(a, b function) Distance {
	hostA, pathA := a.bridges()
	hostB, pathB := b.bridges()
	common := 0
	for common < min(len(pathA), len(pathB)) && pathA[common] == pathB[common] {
		common++
	}
	switch apart := max(len(pathA), len(pathB)) - common; {
	case hostA == "" || hostB == "":
		return ""
	case hostA != hostB && a.numa >= 0 && b.numa >= 0 && a.numa != b.numa:
		return SYS
	case hostA != hostB:
		return NODE
	case common == 0:
		return PHB
	case apart <= 2:
		return PIX
	}
	return PXB
}

// GPU is a PCI function that is a GPU, with or without a driver.
type GPU struct {
	PCIAddress string
	NUMANode   int // -1 if unknown
	NVIDIA     bool
	path       string
}

// GPUs lists the GPUs of NVIDIA and AMD below sysfsRoot, in order: also those in MIG mode, or that NVML has released,
// or that a virtual machine has. Virtual functions, of which vGPUs are made, are none. What it reads is in the
// kernel's memory. The error is of functions of which it is not known what they are.
func GPUs(sysfsRoot string) (list []GPU, err error) {
	dir := filepath.Join(sysfsRoot, "bus/pci/devices")
	functions, err := sysfs.List(dir)
	if absent(err) {
		return nil, nil // no PCI bus
	}
	for _, e := range functions {
		const nvidia, amd = "0x10de", "0x1002"
		vendor, vendorErr := sysfs.ReadString(dir, e.Name, "vendor")
		class, classErr := sysfs.ReadString(dir, e.Name, "class")
		for _, one := range []error{vendorErr, classErr} {
			if one != nil && !absent(one) {
				err = one
			}
		}
		// PCI base and sub class (include/linux/pci_ids.h): display controllers, and AMD's processing accelerators.
		display := strings.HasPrefix(class, "0x03") && (vendor == nvidia || vendor == amd)
		if !display && !(vendor == amd && strings.HasPrefix(class, "0x1200")) {
			continue
		}
		path, _ := filepath.EvalSymlinks(filepath.Join(dir, e.Name))
		if _, virtual := os.Readlink(filepath.Join(path, "physfn")); virtual == nil { // drivers/pci/iov.c
			continue
		}
		list = append(list, GPU{e.Name, numaNode(path), vendor == nvidia, path})
	}
	slices.SortFunc(list, func(a, b GPU) int { return cmp.Compare(a.PCIAddress, b.PCIAddress) })
	return list, err
}

func numaNode(function string) int {
	text, err := sysfs.ReadString(function, "numa_node")
	if n, parseErr := strconv.Atoi(text); err == nil && parseErr == nil && n >= 0 {
		return n
	}
	return -1
}

// nearest returns the GPU that is nearest to f, of equally near ones the first; empty if there is none.
func nearest(gpus []GPU, f function) (address string, d Distance) {
	for _, g := range gpus {
		if to := distance(f, function{g.path, g.NUMANode}); to != "" && (d == "" || to.rank() < d.rank()) {
			address, d = g.PCIAddress, to
		}
	}
	return address, d
}

// VirtualFunction is a port of a virtual function. It is no rail and has no name.
type VirtualFunction struct {
	Rail
	PF string // RDMA device of the physical function; its PCI address if it has none
	VF int    // number of the virtual function, from 0; -1 if unknown
}

func virtualFunction(r Rail, l location) VirtualFunction {
	v := VirtualFunction{Rail: r, PF: filepath.Base(l.physical), VF: -1}
	if devices, _ := sysfs.List(filepath.Join(l.physical, "infiniband")); len(devices) > 0 {
		v.PF = devices[0].Name
	}
	links, _ := sysfs.List(l.physical)
	for _, e := range links {
		number, found := strings.CutPrefix(e.Name, "virtfn") // drivers/pci/iov.c pci_iov_sysfs_link
		n, err := strconv.Atoi(number)
		if !found || err != nil {
			continue
		}
		if target, _ := os.Readlink(filepath.Join(l.physical, e.Name)); filepath.Base(target) == v.PCIAddress {
			v.VF = n
			break
		}
	}
	return v
}
