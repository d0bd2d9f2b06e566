// Package rail defines what a rail is: one RDMA port of this node that is not a virtual function. It finds and names
// the rails, reads their ports, and computes what each could carry, which GID a connection would use, and how balanced
// a load is. It does not depend on collectors, probes or Prometheus.
package rail

import (
	"fmt"
	"strconv"
	"strings"
)

// IWARP is the link layer of a device that has RDMA over TCP.
const IWARP = "iWARP"

// MaxQueuePairs is the most that the probe connects over one rail.
const MaxQueuePairs = 16

// Rail is one RDMA port with its device and interface. Values are not changed after the finder returned them.
type Rail struct {
	Name   string `json:"rail"`   // "0", "1", … in natural order of devices and ports, or as configured
	Device string `json:"device"` // RDMA device, for example mlx5_0
	Port   int    `json:"port"`   // port of the device, from 1

	// ID changes when the device is removed and comes back under the same name.
	ID string `json:"-"`
	// Dir is the device's directory, <sysfs>/class/infiniband/<device>.
	Dir string `json:"-"`

	// Netdev is the network interface of the port, that of the bond if the device is one of a bond; empty if unknown.
	Netdev     string `json:"netdev"`
	LinkLayer  string `json:"link_layer"`  // Ethernet or InfiniBand, as the kernel says; [IWARP] of an RNIC
	PCIAddress string `json:"pci_address"` // domain:bus:device.function; empty for a software device
	NUMANode   int    `json:"numa_node"`   // -1 if unknown

	Place    string `json:"-"` // PCI address and auxiliary device, or net: and that of a software device's interface
	Members  int    `json:"-"` // functions in the bond whose only device this is; 0: no bond
	Software bool   `json:"-"` // a device on top of a network interface (rxe, siw)
	Driver   string `json:"-"` // kernel driver of the PCI function, for example mlx5_core; empty if unknown

	HCAType, BoardID, Firmware string `json:"-"` // as the kernel reports them; empty if it does not
	NodeGUID, SystemImageGUID  string `json:"-"` // likewise; functions of one adapter share the latter
}

// String is the rail's name with its port, for messages.
func (r Rail) String() string { return fmt.Sprintf("rail %s (%s/%d)", r.Name, r.Device, r.Port) }

// Key is the [Key] of the rail's device and port.
func (r Rail) Key() string { return Key(r.Device, r.Port) }

// LeftOut is an RDMA port that is not a rail, with the reason.
type LeftOut struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Reason string `json:"reason"`
}

// Key names a port as rails.names does: "device/port" or "PCI address/port".
func Key(device string, port int) string { return device + "/" + strconv.Itoa(port) }

func splitKey(key string) (device string, port int) {
	i := strings.LastIndexByte(key, '/')
	port, _ = strconv.Atoi(key[i+1:])
	return key[:max(i, 0)], port
}
