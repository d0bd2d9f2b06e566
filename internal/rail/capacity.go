package rail

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Link is a PCIe link (drivers/pci/pci-sysfs.c, current_link_speed and current_link_width).
type Link struct {
	GigaTransfers float64 `json:"gigatransfers"` // GT/s of one lane
	Width         int     `json:"width"`         // lanes
}

// ParseLinkSpeed parses a link speed in the kernel's format, "32.0 GT/s PCIe", to GT/s; "Unknown" is an error.
func ParseLinkSpeed(s string) (float64, error) {
	number, _, found := strings.Cut(s, " GT/s")
	v, err := strconv.ParseFloat(number, 64)
	if !found || err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a PCIe link speed", s)
	}
	return v, nil
}

// ParseRate parses the rate of a port in the kernel's format, "400 Gb/sec (4X NDR)", and returns bytes per second.
func ParseRate(text string) (float64, error) {
	const most = 1e6 // Gb/s; more than any port
	number, _, found := strings.Cut(text, " Gb/sec")
	v, err := strconv.ParseFloat(number, 64)
	if !found || err != nil || !(v > 0) || v > most {
		return 0, fmt.Errorf("%q is not a rate in Gb/sec", text)
	}
	return v * 125e6, nil
}

// BytesPerSecond returns the link's bandwidth in one direction without line coding, but with packet headers: 8b/10b
// up to 5 GT/s, 128b/130b up to 32, and 236 of 256 bytes of a FLIT from 64 on (PCI Express Base 6.0, 4.2).
func (l Link) BytesPerSecond() float64 {
	coding := 236.0 / 256
	switch {
	case l.GigaTransfers <= 5:
		coding = 8.0 / 10
	case l.GigaTransfers <= 32:
		coding = 128.0 / 130
	}
	return l.GigaTransfers * 1e9 / 8 * float64(l.Width) * coding
}

// Limits holds the limits of one rail. Unknown values are 0.
type Limits struct {
	Active  bool    // the port is ACTIVE; an inactive port does not use what it shares
	Rate    float64 // rate of the port, bytes per second
	Link    float64 // bandwidth of the PCIe link, bytes per second
	LinkKey string  // rails with the same key share one PCIe link
	PortKey string  // rails with the same key are functions of one physical port
}

// Capacities returns what each rail could carry with all active rails under load, in bytes per second: the lower of
// port rate and PCIe link, each divided by the number of active rails that share it. A DGX Spark has two functions
// per port and two per PCIe link. It is 0 if the port is not active or its rate is unknown.
func Capacities(rails []Limits) []float64 {
	onLink, onPort := map[string]float64{}, map[string]float64{}
	for _, r := range rails {
		if r.Active {
			onLink[r.LinkKey]++
			onPort[r.PortKey]++
		}
	}
	onLink[""], onPort[""] = 1, 1 // without a key, it is not shared
	out := make([]float64, len(rails))
	for i, r := range rails {
		if !r.Active || r.Rate <= 0 { // the PCIe link alone says nothing about the port
			continue
		}
		out[i] = r.Rate / onPort[r.PortKey]
		if r.Link > 0 {
			out[i] = min(out[i], r.Link/onLink[r.LinkKey])
		}
	}
	return out
}

// LinkKey returns the slot of a PCI address, whose functions share one PCIe link.
func LinkKey(pciAddress string) string {
	slot, _, _ := strings.Cut(pciAddress, ".")
	return slot
}

// LinkKey identifies the PCIe link of the rail's function; empty without a function. In a guest every function has
// its own link.
func (r Rail) LinkKey() string {
	if r.Guest {
		return r.PCIAddress
	}
	return LinkKey(r.PCIAddress)
}

// PortKey identifies the physical port of a rail, by the netdev's switch and port if it reports them (phys_switch_id,
// phys_port_name). Otherwise two mlx5 functions with one system image GUID and one function number in different slots
// are one port, as on a DGX Spark; devices with several ports share none. hfi1's GUIDs and a guest's slots prove
// nothing.
func (r Rail) PortKey(physSwitchID, physPortName string) string {
	_, function, ok := strings.Cut(r.PCIAddress, ".")
	switch {
	case physSwitchID != "" && physPortName != "":
		return physSwitchID + " " + physPortName
	case ok && r.Port == 1 && !r.Guest && oneAdapterPerGUID(r.Driver) && strings.Trim(r.SystemImageGUID, "0:") != "":
		return r.SystemImageGUID + " f" + function
	}
	return ""
}

// oneAdapterPerGUID reports whether a driver gives each adapter its own system image GUID. The driver is unknown if
// the tree lacks its link, as in a container.
func oneAdapterPerGUID(driver string) bool { return driver == "" || driver == "mlx5_core" }

// ActiveMTU returns the RoCE MTU in bytes that the kernel derives from a netdev's: the largest of 4096, 2048, 1024,
// 512 and 256 that fits with all headers. If none fits it is 0, on rxe 256 (rxe.c, rxe_set_mtu).
func (r Rail) ActiveMTU(netdevMTU int) int {
	headers, least := 96, 0 // include/rdma/ib_addr.h iboe_get_mtu: GRH, UDP, BTH, XRC, AtomicETH, ICRC
	if r.Software {
		headers, least = 80, 256 // drivers/infiniband/sw/rxe/rxe_hdr.h RXE_MAX_HDR_LENGTH
	}
	for mtu := 4096; mtu >= 256; mtu /= 2 {
		if mtu+headers <= netdevMTU {
			return mtu
		}
	}
	return least
}
