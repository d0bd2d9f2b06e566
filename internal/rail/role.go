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

// Roles of rails without configuration.
const (
	Compute = "compute" // carries the traffic of jobs
	Other   = "other"   // no GPU is behind its PCIe switch, but behind those of other rails; or no job uses it
)

// RoleRule gives a role to the rails of devices.
type RoleRule struct {
	Role    string
	Devices *regexp.Regexp // matches devices, or device/port if it has a slash
}

// assignRoles sets the role of each rail to that of the first rule which matches it. If no rule sets compute, the
// other rails with a GPU behind the same switch are compute rails, or all other rails if there are none with such a
// GPU. The fast path of a synthetic interface never is.
func assignRoles(rails []Rail, near []bool, rules []RoleRule) {
	some := false
	for i := range rails {
		r := &rails[i]
		r.Role = ""
		if j := slices.IndexFunc(rules, func(rule RoleRule) bool {
			return Matches(rule.Devices, r.Device,
				r.Port)
		}); j >= 0 {
			r.Role = rules[j].Role
		} else {
			some = some || near[i] && r.Synthetic == ""
		}
	}
	explicit := slices.ContainsFunc(rules, func(rule RoleRule) bool { return rule.Role == Compute })
	for i := range rails {
		switch r := &rails[i]; {
		case r.Role != "":
		case explicit || some && !near[i] || r.Synthetic != "":
			r.Role = Other
		default:
			r.Role = Compute
		}
	}
}

// Distance is the distance between two PCI functions, in the terms of nvidia-smi topo -m.
type Distance string

// Distances, nearest first (legend of nvidia-smi topo -m; nvml.h nvmlGpuTopologyLevel_t).
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

// bridges returns the host bridge above a function, and the bridges and the function itself below it, as paths of
// their directories. Below a virtual bus (Hyper-V, VMD) the host bridge is not at the top.
func (f function) bridges() (host string, below []string) {
	names := strings.Split(f.path, "/")
	for i, name := range slices.Backward(names) {
		if hostBridge.MatchString(name) {
			return strings.Join(names[:i+1], "/"), names[i+1:]
		}
	}
	return "", nil
}

// PCIAbove returns the addresses of the PCIe root port above the rail's device, and of the upstream port of the
// switch between; empty: none, or unknown. It reads one link, in the kernel's memory.
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

// SoCVendor is the PCI vendor of root ports to which adapters are soldered: NVIDIA's processors, as in a DGX Spark
// and its siblings.
const SoCVendor = "0x10de"

// Soldered reports whether the rail's adapter is on such a port.
func (r Rail) Soldered() bool {
	path, err := filepath.EvalSymlinks(filepath.Join(r.Dir, "device"))
	if err != nil {
		return false
	}
	vendor, err := sysfs.ReadString(filepath.Dir(path), "vendor")
	return err == nil && vendor == SoCVendor
}

// NearAMD reports whether the nearest GPU is of AMD.
func (r Rail) NearAMD() bool {
	if r.GPU == "" {
		return false
	}
	vendor, err := sysfs.ReadString(filepath.Join(r.Dir, "../../..", "bus/pci/devices", r.GPU), "vendor")
	return err == nil && vendor == amd
}

// distance is empty if the place of a or b is unknown. A switch is a bridge (its upstream port) with bridges below
// it (its downstream ports): two functions are behind one switch if their paths separate at its downstream ports,
// or if they are on one bus. An unknown NUMA node counts as equal: the kernel omits it if there is only one.
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

// PCI vendors of GPUs.
const nvidia, amd = "0x10de", "0x1002"

// GPU is a PCI function that is a GPU of jobs, with or without a driver.
type GPU struct {
	PCIAddress string
	NUMANode   int // -1 if unknown
	NVIDIA     bool
	// Compute is true for NVIDIA's GPUs, and for AMD's accelerators: processing accelerators and display controllers
	// without VGA.
	Compute bool
	// Integrated is true for AMD's graphics of a processor, which share the memory of the machine. An MI300A is not
	// integrated graphics, but shares the memory, too.
	Integrated bool
	unsure     bool // a display adapter of AMD, or graphics of a processor
	vga        bool // a display adapter, of either vendor
	path       string
}

// GPUs lists the GPUs of NVIDIA and AMD below sysfsRoot, in order, including those in MIG mode, released by NVML,
// or passed to a virtual machine. Virtual functions, which vGPUs use, are not listed. AMD's display adapters are not
// listed beside accelerators of either vendor, and AMD's integrated graphics are not listed beside any other GPU. All
// values come from the kernel's memory. The error is about functions that could not be identified.
func GPUs(sysfsRoot string) (list []GPU, err error) {
	dir := filepath.Join(sysfsRoot, "bus/pci/devices")
	functions, err := sysfs.List(dir)
	if absent(err) {
		return nil, nil // no PCI bus
	}
	for _, e := range functions {
		g, oneErr := readGPU(dir, e.Name)
		if oneErr != nil {
			err = oneErr
		}
		if g != nil {
			list = append(list, *g)
		}
	}
	slices.SortFunc(list, func(a, b GPU) int { return cmp.Compare(a.PCIAddress, b.PCIAddress) })
	discrete := slices.ContainsFunc(list, func(g GPU) bool { return !g.Integrated && !g.unsure })
	accelerator := slices.ContainsFunc(list, func(g GPU) bool { return !g.vga && !g.Integrated })
	return slices.DeleteFunc(list, func(g GPU) bool {
		return (g.Integrated || g.unsure) && discrete || !g.Compute && accelerator
	}), err
}

// readGPU returns nil if the PCI function is no GPU.
func readGPU(dir, address string) (g *GPU, err error) {
	vendor, vendorErr := sysfs.ReadString(dir, address, "vendor")
	class, classErr := sysfs.ReadString(dir, address, "class")
	for _, one := range []error{vendorErr, classErr} {
		if one != nil && !absent(one) {
			err = one
		}
	}
	// PCI base class and subclass (include/linux/pci_ids.h): display controllers, and AMD's processing accelerators.
	display := strings.HasPrefix(class, "0x03") && (vendor == nvidia || vendor == amd)
	if !display && !(vendor == amd && strings.HasPrefix(class, "0x1200")) {
		return nil, err
	}
	path, _ := filepath.EvalSymlinks(filepath.Join(dir, address))
	if _, virtual := os.Readlink(filepath.Join(path, "physfn")); virtual == nil { // drivers/pci/iov.c
		return nil, err
	}
	g = &GPU{PCIAddress: address, NUMANode: numaNode(path), NVIDIA: vendor == nvidia, path: path}
	vga := strings.HasPrefix(class, "0x0300")
	g.Compute, g.vga = g.NVIDIA || !vga, vga
	if !g.NVIDIA && display {
		// amdgpu gives the memory's activity of no processor's graphics but an MI300A's (default_attr_update in
		// drivers/gpu/drm/amd/pm/amdgpu_pm.c, Linux 6.11). Without amdgpu, and in some guests, both files are missing.
		exists := func(name string) bool { return sysfs.Exists(filepath.Join(path, name)) == nil }
		known := exists("mem_busy_percent") || exists("gpu_busy_percent")
		g.Integrated, g.unsure = known && !exists("mem_busy_percent"), vga && !known
	}
	return g, err
}

func numaNode(function string) int {
	text, err := sysfs.ReadString(function, "numa_node")
	if n, parseErr := strconv.Atoi(text); err == nil && parseErr == nil && n >= 0 {
		return n
	}
	return -1
}

// nearest returns the GPU nearest to f, the first of several equally near ones; empty if there is none.
func nearest(gpus []GPU, f function) (address string, d Distance) {
	for _, g := range gpus {
		if to := distance(f, function{g.path, g.NUMANode}); to != "" && (d == "" || to.rank() < d.rank()) {
			address, d = g.PCIAddress, to
		}
	}
	return address, d
}

// VirtualFunction is a port of a virtual function. It is not a rail and has no name.
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
