// Package check judges facts: each check is one row of a table, a function of
// facts alone, so that a fixture with one fault tests it. Each fault is one
// check's: where two could report it, the one nearer to the cause does.
package check

import (
	"slices"

	"github.com/railscope/railscope/doctor/facts"
)

// Severity says how much a finding matters.
type Severity string

// The severities. Only a fault makes `railscope doctor` exit with 1.
const (
	Fault   Severity = "fault"   // RDMA does not work, or is sure to work badly
	Warning Severity = "warning" // it works now, but may fail or is slower than it could be
)

// Finding is one thing that is wrong.
type Finding struct {
	Node     string   `json:"node"`  // where it is, and Fix is to be run
	Check    string   `json:"check"` // which check found it
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // what it is about: "rail 1 (mlx5_1 port 1, eth1)", "bond0", "this node"
	Evidence string   `json:"read"`    // what was read, with the figures and where; lower case, no full stop
	Why      string   `json:"why"`     // why it matters, in sentences
	// Fix is what fixes it: lines for a root shell, or comments that begin with #
	// and say what to do.
	Fix []string `json:"mend"`
}

// Check is one row of the table of checks of one node.
type Check struct {
	ID    string // lower_case, the name in Finding.Check and in docs/doctor.md
	About string // one line for docs/doctor.md: what it finds
	run   func(f *facts.Facts, report func(Finding))
}

// PeerCheck is one row of the table of checks that compare two nodes.
type PeerCheck struct {
	ID    string
	About string
	run   func(here, there *facts.Facts, report func(Finding))
}

// Find returns the findings of one node.
func (c Check) Find(f *facts.Facts) (list []Finding) {
	c.run(f, collect(&list, c.ID, f.Node))
	return list
}

// Find returns the findings between this node and a peer.
func (c PeerCheck) Find(here, there *facts.Facts) (list []Finding) {
	c.run(here, there, collect(&list, c.ID, here.Node))
	return list
}

// collect completes findings and adds them to list.
func collect(list *[]Finding, id, node string) func(Finding) {
	return func(f Finding) {
		f.Check, f.Node, f.Fix = id, orElse(f.Node, node), typable(f.Fix)
		*list = append(*list, f)
	}
}

// Checks are all checks of one node, in the order of their findings. Those of
// the system find nothing on a machine without rails.
func Checks() []Check {
	return append([]Check{
		{"no_rails", "no rail: no RDMA in the kernel, no RDMA device, or every port excluded", checkNoRails},
		{"netdev_down", "the rail's interface is administratively down", eachRail(checkNetdevDown)},
		{"port_down", "the rail's port is not ACTIVE although its interface is up: no link, no subnet manager, cable",
			eachRail(checkPortDown)},
		{"carrier_flapping", "the rail's link went down more than 20 times, and more than 4 times a day, since its " +
			"interface was created", eachRail(checkFlapping)},
		{"mtu_low", "the interface's MTU leaves RoCE less than 4096", eachRail(checkMTULow)},
		{"mtu_unlike", "rails of one rate have interfaces with different MTUs", checkMTUUnlike},
		{"gid_missing", "no RoCE v2 GID, or none over IPv4", eachRail(checkGIDMissing)},
		{"gid_link_local", "the only RoCE v2 GIDs are link-local: the interface has no address",
			eachRail(checkGIDLinkLocal)},
		{"gid_misbound", "the RoCE v2 IPv4 GIDs of the rail belong to a bond or bridge over its interface",
			eachRail(checkGIDMisbound)},
		{"gid_index_unlike", "the GID to use has another index than on the other rails: no fixed index fits all",
			checkGIDIndex},
		{"half_unused", "one of the two PCIe halves of a port (DGX Spark) works, the other is unused",
			eachRail(checkHalfUnused)},
		{"same_subnet", "several rails in one subnet without the ARP settings or policy routing that it needs",
			checkSameSubnet},
		{"bond_mode", "a bond over rails in a mode that no driver supports for RDMA", eachBond(checkBondMode)},
		{"bond_no_lag", "a bond over several rails of which the driver made no single RDMA device",
			eachBond(checkBondNoLAG)},
		{"bond_member_down", "a member of a bond over rails is down", eachBond(checkBondMemberDown)},
		{"bond_lacp", "an 802.3ad bond without a LACP partner, or with members in several aggregators",
			eachBond(checkBondLACP)},
		{"pcie_link_low", "a rail's PCIe link is slower or narrower than both ends support, or its slot is too " +
			"narrow for " +
			"the port", checkPCIeLink},
		{"pcie_shared", "ports share a PCIe link that cannot carry all of them at their rate", checkPCIeShared},
		{"numa_far", "GPUs in a NUMA node without a rail in it or in another node of the same processor", checkNUMA},
		{"memlock", "this process may lock too little memory for RDMA", checkMemlock},
		{"uverbs_module", "the kernel module ib_uverbs is not loaded", checkUverbsModule},
		{"uverbs_missing", "`/dev/infiniband/uverbsN` of an RDMA device is missing", checkUverbsMissing},
		{"uverbs_permission", "the permissions of `/dev/infiniband/uverbsN` refuse this user", checkUverbsPermission},
		{"uverbs_device_rules", "the device rules of a container or a service refuse `/dev/infiniband/uverbsN`",
			checkUverbsRules},
		{"rdma_cm", "`/dev/infiniband/rdma_cm` is missing: programs that connect with rdmacm fail", checkRDMACM},
		{"libibverbs", "`libibverbs.so.1` is not installed", checkLibibverbs},
		{"provider", "libibverbs has no provider for the driver of a rail, or none that its configuration names",
			checkProvider},
		{"gpudirect", "GPUs and rails, but neither peer memory nor dma-buf: transfers are copied through host memory",
			checkGPUDirect},
		{"peermem_legacy", "GPUDirect by the unmaintained module nv_peer_mem although the driver has its own",
			checkPeermemLegacy},
		{"pfc", "rails of one kind differ in PFC, trust or global pause", checkQoS(qosPFC)},
		{"dcqcn", "rails of one kind differ in DCQCN: priorities of notification and reaction point, parameters",
			checkQoS(qosDCQCN)},
		{"traffic_class", "rails of one kind differ in the traffic class of what they send", checkQoS(qosClass)},
	}, jobTable()...)
}

// PeerChecks are all checks of a pair.
func PeerChecks() []PeerCheck {
	return append([]PeerCheck{
		{"peer_rails", "the nodes have different numbers of rails", checkPeerRails},
		{"peer_link_layer", "rails of one name are Ethernet on one node and InfiniBand on the other",
			eachPair(checkPeerLinkLayer)},
		{"peer_rate", "rails of one name have different rates", eachPair(checkPeerRate)},
		{"peer_mtu", "the interfaces of rails of one name have different MTUs", eachPair(checkPeerMTU)},
		{"peer_subnet", "rails of one name share no subnet, and have no route to each other",
			eachPair(checkPeerSubnet)},
		{"peer_gid", "rails of one name would use GIDs of different types", eachPair(checkPeerGID)},
		{"peer_pfc", "PFC, trust or global pause differ from the peer's", comparePeerQoS(qosPFC)},
		{"peer_dcqcn", "DCQCN differs from the peer's", comparePeerQoS(qosDCQCN)},
		{"peer_traffic_class", "the traffic class of what rails send differs from the peer's",
			comparePeerQoS(qosClass)},
	}, versionTable()...)
}

// eachRail is a check of each rail that is not known to be unused.
func eachRail(check func(*facts.Facts, *facts.Rail, func(Finding))) func(*facts.Facts, func(Finding)) {
	return func(f *facts.Facts, report func(Finding)) {
		for i := range f.Rails {
			if r := &f.Rails[i]; !f.Unused(r) {
				check(f, r, report)
			}
		}
	}
}

func eachBond(check func(*facts.Facts, *facts.Bond, func(Finding))) func(*facts.Facts, func(Finding)) {
	return func(f *facts.Facts, report func(Finding)) {
		for i := range f.Bonds {
			check(f, &f.Bonds[i], report)
		}
	}
}

// onlyEFA reports whether all rails are EFA: that has no connection manager, and
// NCCL reaches it by the plugin of libfabric, which ignores what is said to
// NCCL's own InfiniBand transport. It is true of no rails, too.
func onlyEFA(f *facts.Facts) bool {
	return !slices.ContainsFunc(f.Rails, func(r facts.Rail) bool { return r.Provider != "efa" })
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
