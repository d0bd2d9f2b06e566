// Package ncclnet determines what carries the data of an NCCL or RCCL network, from the names in its log. It lists
// known names only: a name that is in no list is unknown, and never counts as good.
package ncclnet

import (
	"slices"
	"strings"
)

// Carrier is the technology that carries the data.
type Carrier int

// Carriers of data.
const (
	Unknown Carrier = iota // no list has the name
	Sockets
	RDMA
)

// Of returns the carrier of a network ("Using network IB"). provider is libfabric's provider, for its plugin;
// empty: not in the log.
func Of(network, provider string) Carrier {
	switch name := strings.ToLower(network); {
	case name == "socket", name == "fastsocket": // NCCL; google-fast-socket
		return Sockets
	case name == "ib", name == "infiniband", name == "ibext", name == "gib", strings.HasPrefix(name, "ibext_v"):
		return RDMA // NCCL, tutorials, nccl-rdma-sharp-plugins, Google's build of NCCL for RoCE
	case name == "rocm-ib", name == "ib-cast", name == "rccl-anp":
		return RDMA // RCCL 2.27 to 2.30 (net_ib_rocm.cc, net_ib_cast), and the plugin librccl-anp.so: all use verbs
	case name == "aws libfabric", name == "libfabric", name == "ofi":
		return ofProvider(provider)
	}
	return Unknown
}

// ofProvider judges a libfabric provider (fi_provider(7)). Layers precede or follow the core: "verbs;ofi_rxm".
func ofProvider(provider string) Carrier {
	core := func(list ...string) bool {
		return slices.ContainsFunc(strings.Split(strings.ToLower(provider), ";"), func(part string) bool {
			return slices.Contains(list, part)
		})
	}
	switch {
	case core("tcp", "sockets", "udp", "net", "shm"):
		return Sockets
	case core("efa", "verbs", "cxi", "opx", "psm2"):
		return RDMA
	}
	return Unknown
}

// Provider returns the name in "NET/OFI Selected provider is tcp, fabric is … (found 1 nics)"; empty: not that message.
func Provider(message string) string {
	const start = "NET/OFI Selected "
	if len(message) < len(start) || message[:len(start)] != start {
		return ""
	}
	rest := message[len(start):]
	const noun = "provider is "
	if len(rest) < len(noun) || !strings.EqualFold(rest[:len(noun)], noun) {
		return ""
	}
	rest = rest[len(noun):]
	if i := strings.IndexAny(rest, ", ("); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

// NoVerbs reports whether a message says that libibverbs could not be opened. Since NCCL 2.29 there is one message
// for each name that was tried, and the last one counts.
func NoVerbs(message string) bool {
	return strings.HasPrefix(message, "Failed to open libibverbs.so") ||
		message == "Count not open libibverbs.so.1" || message == "Could not open libibverbs.so.1"
}

// Success reports whether a message announces a success although it is printed as a warning, as librccl-anp.so does
// (ROCm/amd-anp, src/net_ib.cc).
func Success(message string) bool {
	return strings.HasPrefix(message, "ANP plugin loaded successfully")
}

// Slower returns the device of "NET/IB : mlx5_0:1 speed change detected: 400000 -> 200000 Mbps", with the rates, if
// the new rate is lower.
func Slower(message string) (device, from, to string, ok bool) {
	rest, found := strings.CutPrefix(message, "NET/IB : ")
	device, rest, cut := strings.Cut(rest, " speed change detected: ")
	from, to, arrow := strings.Cut(strings.TrimSuffix(rest, " Mbps"), " -> ")
	number := func(s string) bool { return s != "" && len(s) < 10 && strings.Trim(s, "0123456789") == "" }
	if !found || !cut || !arrow || !number(from) || !number(to) || device == "" || strings.Contains(device, " ") {
		return "", "", "", false
	}
	slower := len(to) < len(from) || len(to) == len(from) && to < from
	device, _, _ = strings.Cut(device, ":")
	return device, from, to, slower
}
