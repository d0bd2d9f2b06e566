// Package rail says what a rail is: one RDMA port of this node that is not a
// virtual function. It finds the rails, names them, reads their ports, and works
// out what each could carry, which GID a connection would use, and how even a
// load is. It knows neither collectors nor probes nor Prometheus.
package rail

// Rail is one RDMA port and what it hangs on. Values are never changed after
// the finder returned them.
type Rail struct {
	Name   string // "0", "1", … in natural order of devices and ports, or as configured
	Device string // RDMA device, for example mlx5_0
	Port   int    // port of the device, from 1

	// ID changes when the device is removed and comes back under the same name.
	ID string
	// Dir is the device's directory, <sysfs>/class/infiniband/<device>.
	Dir string

	// Netdev is the network interface the port belongs to: the bond's where the driver made one device of a bond; empty
	// when unknown.
	Netdev     string
	LinkLayer  string // Ethernet or InfiniBand, as the kernel says
	PCIAddress string // domain:bus:device.function; empty for a software device
	Place      string // PCI address and auxiliary device, or net: and where a software device's interface sits
	NUMANode   int    // -1 when unknown
	Software   bool   // a device made of a network interface alone (rxe, siw)
	Driver     string // kernel driver of the PCI function, for example mlx5_core; empty when unknown

	HCAType, BoardID, Firmware string // as the kernel says; empty when it does not
	NodeGUID, SystemImageGUID  string // as the kernel says; functions of one adapter share the latter
}

// LeftOut is an RDMA port that is not a rail, with the reason.
type LeftOut struct {
	Device string
	Port   int
	Reason string
}
