// Package rail defines rails: a rail is an RDMA port of this node without a [Reason] against it. It finds and names
// the rails, reads their ports, and computes their capacities, the GID for a connection, and the balance of a load.
// It does not depend on collectors, probes or Prometheus.
package rail

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// IWARP is the link layer of a device with RDMA over TCP.
const IWARP = "iWARP"

// USNIC is the link layer of a device whose datagrams only its vendor's libfabric provider can send.
const USNIC = "usNIC"

const infiniBand = "InfiniBand"

// MaxQueuePairs is the maximum number of queue pairs that the probe connects over one rail.
const MaxQueuePairs = 16

// Rail is one RDMA port with its device and interface. The values are not modified after the finder returned them.
type Rail struct {
	Name   string `json:"rail"`   // "0", "1", … in natural order of devices and ports, or as configured
	Device string `json:"device"` // RDMA device, for example mlx5_0
	Port   int    `json:"port"`   // port number on the device, from 1

	// ID changes when the device is removed and returns under the same name.
	ID string `json:"-"`
	// Dir is the device's directory, <sysfs>/class/infiniband/<device>.
	Dir string `json:"-"`

	// Netdev is the network interface of the port, or of the bond if the device belongs to one; empty if unknown.
	Netdev     string `json:"netdev"`
	LinkLayer  string `json:"link_layer"`  // Ethernet or InfiniBand, as the kernel reports; [IWARP] for an RNIC
	PCIAddress string `json:"pci_address"` // domain:bus:device.function; empty for a software device
	NUMANode   int    `json:"numa_node"`   // -1 if unknown

	Role        string   `json:"role"`         // [Compute], [Other], or as configured
	GPU         string   `json:"gpu"`          // PCI address of the nearest GPU; empty without one
	GPUDistance Distance `json:"gpu_distance"` // distance of that GPU; empty without one

	Leaf string `json:"-"` // configured switch to which it is connected; empty: not known
	// PCI address and auxiliary device; for a software device net: and the place of its interface
	Place   string `json:"-"`
	Members int    `json:"-"` // number of functions in the bond to which this only device belongs; 0: no bond
	// Functions are the PCI addresses of the functions of that bond, separated by spaces; empty: no bond.
	Functions string `json:"-"`
	Named     bool   `json:"-"` // rails.names names it, so it is meant to be used
	Guest     bool   `json:"-"` // in a virtual machine, whose PCI topology is invented
	// Synthetic is the hypervisor's interface whose fast path is this rail; empty: none. No job uses such a rail.
	Synthetic string `json:"-"`
	Software  bool   `json:"-"` // a device on top of a network interface (rxe, siw)
	// NetdevPeriod is the interval at which the counters of a software device's interface are updated under load;
	// 0: current at each read.
	NetdevPeriod time.Duration `json:"-"`
	Driver       string        `json:"-"` // kernel driver of the PCI function, for example mlx5_core; empty if unknown

	HCAType, BoardID, Firmware string `json:"-"` // as the kernel reports them; empty if not reported
	// empty if not reported; functions of one adapter share SystemImageGUID
	NodeGUID, SystemImageGUID string `json:"-"`
}

// String returns the rail's name with its port, for messages.
func (r Rail) String() string { return fmt.Sprintf("rail %s (%s/%d)", r.Name, r.Device, r.Port) }

// Key is the [Key] of the rail's device and port.
func (r Rail) Key() string { return Key(r.Device, r.Port) }

// Key returns the name of a port in the form of rails.names: "device/port" or "PCI address/port".
func Key(device string, port int) string { return device + "/" + strconv.Itoa(port) }

func splitKey(key string) (device string, port int) {
	i := strings.LastIndexByte(key, '/')
	port, _ = strconv.Atoi(key[i+1:])
	return key[:max(i, 0)], port
}

// Record is the memory of one rail: its number, and what identifies it. It is written to the state directory.
type Record struct {
	Number     int    `json:"number"`
	Device     string `json:"device"` // last name; identifies the rail only if there is no other identity
	Port       int    `json:"port"`
	Place      string `json:"place,omitempty"` // see Rail.Place
	PCIAddress string `json:"pci_address,omitempty"`
	NodeGUID   string `json:"node_guid,omitempty"`  // only while no other device has the same GUID
	Configured string `json:"configured,omitempty"` // device/port by which rails.names named it
	// Superseded is set while the rail is absent and another one is at its place, because bus numbers have shifted.
	Superseded bool `json:"superseded,omitempty"`
	// Synthetic is set for the fast path of a synthetic interface, which the hypervisor may remove at any time.
	Synthetic bool `json:"synthetic,omitempty"`
	// Reserved is set until the device answers: the number is reserved for its first port.
	Reserved bool `json:"reserved,omitempty"`

	Bond bool `json:"-"` // the port is that of a bond's device; only for [Recognize]
}

// Missing is a known rail that is absent.
type Missing struct {
	Name       string `json:"rail"`
	Device     string `json:"device"`
	Port       int    `json:"port"`
	PCIAddress string `json:"pci_address"`
}

// Limits of records, also of those from a file.
const (
	maxRecords = 256
	maxNumber  = 9999
	maxPort    = 255
	maxText    = 128
)

var validText = regexp.MustCompile(`^[ -~]*$`)

// CheckRecords validates records that were read from a file.
func CheckRecords(records []Record) error {
	if len(records) > maxRecords {
		return fmt.Errorf("%d rails; at most %d are allowed", len(records), maxRecords)
	}
	taken := map[int]bool{}
	for i, r := range records {
		why := r.check()
		if why == nil && taken[r.Number] {
			why = fmt.Errorf("duplicate number %d", r.Number)
		}
		if why != nil {
			return fmt.Errorf("rail %d of the list: %w", i+1, why)
		}
		taken[r.Number] = true
	}
	return nil
}

func (r Record) check() error {
	switch {
	case r.Number < 0 || r.Number > maxNumber:
		return fmt.Errorf("number %d is not from 0 to %d", r.Number, maxNumber)
	case r.Port < 1 || r.Port > maxPort:
		return fmt.Errorf("port %d is not from 1 to %d", r.Port, maxPort)
	case r.Device == "":
		return errors.New("no device")
	case r.PCIAddress != "" && !bdf.MatchString(r.PCIAddress):
		return fmt.Errorf("invalid PCI address %.40q", r.PCIAddress)
	}
	for _, text := range []string{r.Device, r.Place, r.NodeGUID, r.Configured} {
		if len(text) > maxText || !validText.MatchString(text) {
			return fmt.Errorf("invalid text %.40q", text)
		}
	}
	return nil
}

// Forget returns the records without the rail of that name, and that rail. Its name is the one in names, by
// "device/port" or "PCI address/port"; if several have the same name, it is the number.
func Forget(records []Record, name string, names map[string]string) (left []Record, forgotten Record, found bool) {
	configured := func(r Record) string {
		return cmp.Or(names[Key(r.Device, r.Port)], names[Key(r.PCIAddress, r.Port)], names[r.Configured])
	}
	count := map[string]int{}
	for _, r := range records {
		count[configured(r)]++
	}
	for _, r := range records {
		called := configured(r)
		if called == "" || count[called] > 1 {
			called = strconv.Itoa(r.Number)
		}
		if called == name && !found {
			forgotten, found = r, true
			continue
		}
		left = append(left, r)
	}
	return left, forgotten, found
}

// Foreign reports whether rails with these node GUIDs all belong to another node, as after a copy of the state with
// a disk image. All adapters of this node must have answered, and their GUIDs must all differ from these.
func (f *Finder) Foreign(guids []string) bool {
	recorded := map[string]bool{}
	for _, guid := range guids {
		guid = usableGUID(guid)
		if guid != "" {
			recorded[guid] = true
		}
	}
	if len(recorded) == 0 {
		return false
	}
	here := NewFinder(f.sysfs, Options{}, nil, f.budget).Snapshot() // assigns no number to a rail of f
	adapters := 0
	for _, r := range here.Rails {
		guid := usableGUID(r.NodeGUID)
		if recorded[guid] {
			return false
		}
		if guid != "" && r.PCIAddress != "" {
			adapters++
		}
	}
	return adapters > 0 && here.Err == nil
}

// usableGUID returns a node GUID that can identify a device, or "".
func usableGUID(guid string) string {
	if strings.Trim(guid, "0:") == "" || len(guid) > maxText || !validText.MatchString(guid) {
		return ""
	}
	return strings.ToLower(guid)
}
