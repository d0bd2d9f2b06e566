package facts

import (
	"encoding/binary"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rail"
)

// PCI holds what only the configuration space shows about the adapters, and the bridges between them and GPUs.
type PCI struct {
	Virtual  bool         `json:"virtual"` // virtual machine, whose bridges are not the hardware's
	Ports    []ACSPort    `json:"ports" max:"1024"`
	Adapters []PCIAdapter `json:"adapters" max:"128"`
	// Domains are the IOMMU domains of AMD's GPUs and, beside them, of the rails' adapters.
	Domains []Domain `json:"domains,omitempty" max:"512"`
}

// ACSPort is a downstream port of a PCIe switch with Access Control Services, on the path between rails and GPUs.
type ACSPort struct {
	Address string   `json:"address"`
	Control uint16   `json:"control"` // bits of the ACS Control Register that are listed below
	Rails   []string `json:"rails"`   // names of the rails on one side
	GPUs    []string `json:"gpus"`    // PCI addresses of the GPUs on the other side
}

// Bits of the ACS Control Register that redirect writes between devices below a switch to the root complex
// (include/uapi/linux/pci_regs.h, PCI_ACS_RR and PCI_ACS_CR).
const (
	ACSRequestRedirect    = 0x04
	ACSCompletionRedirect = 0x08
)

// PCIAdapter is the Device Control Register of an adapter.
type PCIAdapter struct {
	Address string `json:"address"`
	Relaxed bool   `json:"relaxed"` // Enable Relaxed Ordering
	// ReadRequest is the Max_Read_Request_Size, in bytes; 0 if unknown.
	ReadRequest int `json:"read_request"`
	// RootPort is the vendor and device ID of the port above it, such as 8086:347a; empty if unknown.
	RootPort string `json:"root_port"`
}

// readPCI reads the configuration space of the rails' adapters and of the switch ports between them and GPUs. Only
// doctor reports missing permission: a running railscope never has it.
func (g *Gatherer) readPCI(rails []rail.Rail, gpus []GPU, scope Scope) work {
	amd := g.amd
	return func(r *reader) func(*Facts) {
		p := PCI{Virtual: g.virtual(), Domains: readDomains(r, g.o.Sysfs, amd, rails)}
		devices := filepath.Join(g.o.Sysfs, "bus/pci/devices")
		hidden := 0
		var done []string
		for _, v := range rails[:min(len(rails), maxPorts)] {
			if v.Software || v.PCIAddress == "" {
				continue
			}
			above := pathOf(filepath.Join(devices, v.PCIAddress))
			if !slices.Contains(done, v.PCIAddress) {
				done = append(done, v.PCIAddress)
				hidden += p.addAdapter(r, devices, v.PCIAddress, above)
			}
			for _, gpu := range gpus {
				for _, port := range between(above, pathOf(filepath.Join(devices, gpu.Address))) {
					hidden += p.addPort(r, filepath.Join(devices, port), v.Name, gpu.Address)
				}
			}
		}
		if hidden > 0 && scope != WithoutJobs {
			r.say("PCIe ACS and relaxed ordering: not examined: only root may read the configuration space of PCI "+
				"functions (%s/*/config); run doctor as root", devices)
		}
		slices.SortFunc(p.Ports, func(a, b ACSPort) int { return strings.Compare(a.Address, b.Address) })
		return func(f *Facts) { f.PCI = p }
	}
}

// pciSpace is the configuration space of a function, little-endian.
type pciSpace []byte

// Offsets and IDs of the configuration space (include/uapi/linux/pci_regs.h).
const (
	headerSize     = 64   // bytes that everybody may read
	legacySize     = 256  // start of the extended capabilities
	spaceSize      = 4096 // size for a PCIe function
	firstCap       = 0x34
	capExpress     = 0x10 // PCI_CAP_ID_EXP
	deviceControl  = 8    // PCI_EXP_DEVCTL
	enableRelaxed  = 0x10 // PCI_EXP_DEVCTL_RELAX_EN
	readRequest    = 12   // first of the three bits of PCI_EXP_DEVCTL_READRQ
	extCapACS      = 0x0d // PCI_EXT_CAP_ID_ACS
	acsControl     = 6    // PCI_ACS_CTRL
	maxCapsInChain = (spaceSize - legacySize) / 8
)

// readSpace reads the configuration space of a function. hidden reports that this process may not read all of it.
func readSpace(r *reader, dir string) (space pciSpace, hidden bool) {
	text, _, err := proc.Head(r.at(dir, "config"), spaceSize)
	if err != nil {
		r.fail(err)
		return nil, false
	}
	return pciSpace(text), len(text) == headerSize
}

func (s pciSpace) word(at int) (uint16, bool) {
	if at < 0 || at+2 > len(s) {
		return 0, false
	}
	return binary.LittleEndian.Uint16(s[at:]), true
}

// deviceControl returns the Device Control Register of a PCIe function.
func (s pciSpace) deviceControl() (uint16, bool) {
	at := 0
	if len(s) > firstCap {
		at = int(s[firstCap]) &^ 3
	}
	for range legacySize / 4 {
		if at < headerSize || at+2 > min(len(s), legacySize) {
			return 0, false
		}
		if s[at] == capExpress {
			return s.word(at + deviceControl)
		}
		at = int(s[at+1]) &^ 3
	}
	return 0, false
}

// acsControl returns the ACS Control Register; ok reports whether the function has one.
func (s pciSpace) acsControl() (control uint16, ok bool) {
	at := legacySize
	for range maxCapsInChain {
		if at < legacySize || at+4 > len(s) {
			return 0, false
		}
		header := binary.LittleEndian.Uint32(s[at:])
		if header == 0 || header == ^uint32(0) { // no capability, or the function does not answer
			return 0, false
		}
		if header&0xffff == extCapACS {
			return s.word(at + acsControl)
		}
		at = int(header >> 20 &^ 3)
	}
	return 0, false
}

func (p *PCI) addAdapter(r *reader, devices, address string, above []string) (hidden int) {
	space, denied := readSpace(r, filepath.Join(devices, address))
	if denied {
		return 1
	}
	control, ok := space.deviceControl()
	if !ok {
		return 0
	}
	a := PCIAdapter{Address: address, Relaxed: control&enableRelaxed != 0,
		ReadRequest: 128 << (control >> readRequest & 7)}
	if len(above) > 1 {
		root := filepath.Join(devices, above[0])
		vendor, device := strings.TrimPrefix(r.text(root, "vendor"), "0x"), strings.TrimPrefix(r.text(root, "device"),
			"0x")
		if vendor != "" && device != "" {
			a.RootPort = clean(vendor + ":" + device)
		}
	}
	p.Adapters = append(p.Adapters, a)
	return 0
}

func (p *PCI) addPort(r *reader, dir, railName, gpu string) (hidden int) {
	address := filepath.Base(dir)
	i := slices.IndexFunc(p.Ports, func(a ACSPort) bool { return a.Address == address })
	if i < 0 {
		space, denied := readSpace(r, dir)
		if denied {
			return 1
		}
		control, ok := space.acsControl()
		if !ok {
			return 0
		}
		p.Ports, i = append(p.Ports, ACSPort{Address: address, Control: control}), len(p.Ports)
	}
	port := &p.Ports[i]
	if !slices.Contains(port.Rails, railName) {
		port.Rails = append(port.Rails, railName)
	}
	if !slices.Contains(port.GPUs, gpu) {
		port.GPUs = append(port.GPUs, gpu)
	}
	return 0
}

var pciFunction = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// pathOf returns the PCI functions from the root port down to, and including, the target of a link in sysfs.
func pathOf(link string) (list []string) {
	dir, err := filepath.EvalSymlinks(link)
	if err != nil {
		return nil
	}
	for ; pciFunction.MatchString(filepath.Base(dir)); dir = filepath.Dir(dir) {
		list = append(list, filepath.Base(dir))
	}
	slices.Reverse(list)
	return list
}

// between returns the bridges on the path between two functions if it turns round in a switch, whose upstream port is
// below a root port and on both paths. The bridges are downstream ports, and switches below them.
func between(a, b []string) (ports []string) {
	common := 0
	for common < min(len(a), len(b)) && a[common] == b[common] {
		common++
	}
	if common < 2 || common == len(a) || common == len(b) {
		return nil
	}
	return slices.Concat(a[common:len(a)-1], b[common:len(b)-1])
}

// virtual reports whether this is a virtual machine: x86 processors have a flag for it (CPUID 1, ECX 31); elsewhere the
// firmware's tables identify the hypervisor.
func (g *Gatherer) virtual() bool {
	text, _, _ := proc.Head(filepath.Join(g.o.Procfs, "cpuinfo"), 64<<10) // flags of the first processor
	for line := range strings.Lines(text) {
		if name, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return slices.Contains(strings.Fields(flags), "hypervisor")
		}
	}
	dmi, _, _ := proc.Head(filepath.Join(g.o.Sysfs, "class/dmi/id/modalias"), 4096)
	for _, maker := range []string{"svnQEMU", "pnKVM", "pnVirtualMachine", "svnVMware", "svnXen", "svnGoogle",
		"svnAmazonEC2"} {
		if strings.Contains(dmi, maker) && !strings.Contains(dmi, "metal") {
			return true
		}
	}
	return false
}
