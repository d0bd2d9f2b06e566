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

// ParseLinkSpeed parses a link speed as the kernel prints it, "32.0 GT/s PCIe", to GT/s; "Unknown" is an error.
func ParseLinkSpeed(s string) (float64, error) {
	number, _, found := strings.Cut(s, " GT/s")
	v, err := strconv.ParseFloat(number, 64)
	if !found || err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a PCIe link speed", s)
	}
	return v, nil
}

// ParseRate parses the rate of a port as the kernel prints it, "400 Gb/sec (4X NDR)", and returns bytes per second.
func ParseRate(text string) (float64, error) {
	const most = 1e6 // Gb/s; more than any port
	number, _, found := strings.Cut(text, " Gb/sec")
	v, err := strconv.ParseFloat(number, 64)
	if !found || err != nil || !(v > 0) || v > most {
		return 0, fmt.Errorf("%q is not a rate in Gb/sec", text)
	}
	return v * 125e6, nil
}

// BytesPerSecond is the link's bandwidth in one direction without line coding, but with packet headers: 8b/10b up to
// 5 GT/s, 128b/130b up to 32, and 236 of 256 bytes of a FLIT from 64 on (PCI Express Base 6.0, 4.2).
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

// Limits are the limits of one rail. Unknown figures are 0.
type Limits struct {
	Active  bool    // the port is ACTIVE; only then it uses what it shares
	Rate    float64 // of the port, bytes per second
	Link    float64 // of the PCIe link, bytes per second
	LinkKey string  // rails with the same key share one PCIe link
	PortKey string  // rails with the same key are functions of one physical port
}

// Capacities returns what each rail could carry with all active rails under load, in bytes per second: the lower of
// port rate and PCIe link, each divided by the active rails that share it. A DGX Spark has two functions per port and
// two per PCIe link. The value is 0 if the port is not active or nothing is known.
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
		least := math.Inf(1)
		if r.Rate > 0 {
			least = r.Rate / onPort[r.PortKey]
		}
		if r.Link > 0 {
			least = min(least, r.Link/onLink[r.LinkKey])
		}
		if r.Active && !math.IsInf(least, 1) {
			out[i] = least
		}
	}
	return out
}

// LinkKey identifies the PCIe link of a function: functions of one slot share it.
func LinkKey(pciAddress string) string {
	slot, _, _ := strings.Cut(pciAddress, ".")
	return slot
}

// PortKey identifies the physical port of a rail, by the netdev's switch and port if it reports them (phys_switch_id,
// phys_port_name). Otherwise two functions with one system image GUID and the same function number in different slots
// are one port, as on a DGX Spark or a socket-direct adapter; a device with several ports has none in common.
func (r Rail) PortKey(physSwitchID, physPortName string) string {
	_, function, ok := strings.Cut(r.PCIAddress, ".")
	switch {
	case physSwitchID != "" && physPortName != "":
		return physSwitchID + " " + physPortName
	case ok && r.Port == 1 && strings.Trim(r.SystemImageGUID, "0:") != "":
		return r.SystemImageGUID + " f" + function
	}
	return ""
}

// ActiveMTU is the RoCE MTU in bytes that the kernel derives from a netdev's: the largest of 4096, 2048, 1024, 512 and
// 256 that fits with all headers. If none fits it is 0, on rxe 256 (rxe.c, rxe_set_mtu).
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
