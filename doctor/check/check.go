// Package check judges facts: each check is one row of a table, a function of facts alone, so that a fixture with one
// fault tests it. If two checks could report the same fault, the one closer to the cause does.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/text"
)

// Severity says how much a finding matters.
type Severity string

// The severities. Only a fault makes `railscope doctor` exit with 1.
const (
	Fault   Severity = "fault"   // prevents RDMA, or certainly degrades it
	Warning Severity = "warning" // works now, but may fail or is slower than possible
)

// PeerUnanswered is the check of the finding that a peer did not send its facts.
const PeerUnanswered = "peer"

// Finding is one thing that is wrong.
type Finding struct {
	Node     string   `json:"node"`  // where it is, and where Fix is to be run
	Check    string   `json:"check"` // the ID of the check that found it
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // for example "rail 1 (mlx5_1 port 1, eth1)", "bond0", "this node"
	Evidence string   `json:"read"`    // what was read, with figures and where; lower case, no full stop
	Why      string   `json:"why"`     // why it matters, in sentences
	Fix      []string `json:"mend"`    // lines for a root shell, or comments that begin with # and say what to do
}

// reporter takes the findings of a check, and completes them with Node, Check, Severity and Subject.
type reporter func(Finding)

// Check is one row of the table of checks of one node.
type Check struct {
	ID       string   // lower_case, the name in Finding.Check and in docs/doctor.md
	Severity Severity // of a finding, unless it has another
	About    string   // one line for docs/doctor.md: what it finds
	run      func(*facts.Facts, reporter)
}

// PeerCheck is one row of the table of checks that compare two nodes.
type PeerCheck struct {
	ID       string
	Severity Severity
	About    string
	run      func(here, there *facts.Facts, report reporter)
}

// Find returns the findings of one node.
func (c Check) Find(f *facts.Facts) (list []Finding) {
	c.run(f, collect(&list, Finding{Check: c.ID, Severity: c.Severity, Node: f.Node, Subject: "this node"}))
	return list
}

// Find returns the findings between this node and a peer.
func (c PeerCheck) Find(here, there *facts.Facts) (list []Finding) {
	c.run(here, there, collect(&list, Finding{Check: c.ID, Severity: c.Severity, Node: here.Node}))
	return list
}

func collect(list *[]Finding, usual Finding) reporter {
	return func(f Finding) {
		f.Node, f.Check = cmp.Or(f.Node, usual.Node), usual.Check
		f.Severity, f.Subject = cmp.Or(f.Severity, usual.Severity), cmp.Or(f.Subject, usual.Subject)
		f.Fix = typable(f.Fix)
		*list = append(*list, f)
	}
}

func (report reporter) about(subject string) reporter {
	return func(f Finding) {
		f.Subject = cmp.Or(f.Subject, subject)
		report(f)
	}
}

// Checks are all checks of one node, in the order of their findings.
func Checks() []Check {
	list := []Check{
		{"no_rails", Fault, "no rail: no RDMA in the kernel, no RDMA device, or every port excluded", checkNoRails},
		{"netdev_down", Fault, "the rail's interface is administratively down", eachRail(checkNetdevDown)},
		{"port_down", Fault, "the rail's port is not ACTIVE although its interface is up", eachRail(checkPortDown)},
		{"carrier_flapping", Warning, "the rail's link went down more than 20 times, and more than 4 times a day",
			eachRail(checkFlapping)},
		{"mtu_low", Warning, "the interface's MTU leaves RoCE less than 4096", eachRail(checkMTULow)},
		{"mtu_unlike", Warning, "rails of one rate have interfaces with different MTUs", checkMTUUnlike},
		{"gid_missing", Fault, "no RoCE v2 GID, or none over IPv4", eachRail(checkGIDMissing)},
		{"gid_link_local", Fault, "only link-local RoCE v2 GIDs: the interface has no address", eachRail(checkGIDLinkLocal)},
		{"gid_misbound", Fault, "the RoCE v2 IPv4 GIDs of the rail belong to a bond or bridge over its interface",
			eachRail(checkGIDMisbound)},
		{"gid_index_unlike", Warning, "the GID to use has another index than on the other rails", checkGIDIndex},
		{"half_unused", Warning, "one of the two PCIe halves of a port (DGX Spark) is unused", eachRail(checkHalfUnused)},
		{"same_subnet", Fault, "several rails in one subnet without the ARP settings or routes it needs", checkSameSubnet},
		{"bond_mode", Fault, "a bond over rails in a mode that no driver supports for RDMA", eachBond(checkBondMode)},
		{"bond_no_lag", Fault, "a bond of which the driver made no single RDMA device", eachBond(checkBondNoLAG)},
		{"bond_member_down", Fault, "a member of a bond over rails is down", eachBond(checkBondMemberDown)},
		{"bond_lacp", Fault, "an 802.3ad bond without a LACP partner, or split into aggregators", eachBond(checkBondLACP)},
		{"pcie_link_low", Warning, "a rail's PCIe link is below what both ends support, or its slot is too slow for the port",
			checkPCIeLink},
		{"pcie_shared", Warning, "ports share a PCIe link that cannot carry all of them at their rate", checkPCIeShared},
		{"numa_far", Warning, "GPUs of a processor without a rail", checkNUMA},
		{"memlock", Fault, "this process may lock too little memory for RDMA", checkMemlock},
		{"uverbs_module", Fault, "the kernel module ib_uverbs is not loaded", checkUverbsModule},
		{"uverbs_missing", Fault, "`/dev/infiniband/uverbsN` of an RDMA device is missing",
			eachUverbs(facts.UverbsMissing, uverbsMissing)},
		{"uverbs_permission", Fault, "the permissions of `/dev/infiniband/uverbsN` refuse this user",
			eachUverbs(facts.UverbsDenied, uverbsDenied)},
		{"uverbs_device_rules", Fault, "the device rules of a container or a service refuse `/dev/infiniband/uverbsN`",
			eachUverbs(facts.UverbsRules, uverbsRules)},
		{"rdma_cm", Warning, "`/dev/infiniband/rdma_cm` is missing: programs that connect with rdmacm fail", checkRDMACM},
		{"libibverbs", Fault, "`libibverbs.so.1` is not installed", checkLibibverbs},
		{"provider", Fault, "libibverbs has no provider for a rail's driver, or does not load it", checkProvider},
		{"gpudirect", Warning, "neither peer memory nor dma-buf: GPU memory is copied through host memory", checkGPUDirect},
		{"peermem_legacy", Warning, "GPUDirect by the unmaintained module nv_peer_mem although the driver has its own",
			checkPeermemLegacy},
		{"pfc", Warning, "rails of one kind differ in PFC, trust or global pause", checkQoS(qosPFC)},
		{"dcqcn", Warning, "rails of one kind differ in DCQCN priorities or parameters", checkQoS(qosDCQCN)},
		{"traffic_class", Warning, "rails of one kind differ in traffic class", checkQoS(qosClass)},
	}
	for _, c := range jobChecks() {
		list = append(list, Check{c.id, "", c.about, c.run})
	}
	return list
}

// PeerChecks are all checks of a pair.
func PeerChecks() []PeerCheck {
	list := []PeerCheck{
		{"peer_rails", Warning, "the nodes have different numbers of rails", checkPeerRails},
		{"peer_link_layer", Fault, "rails of one name are Ethernet on one node and InfiniBand on the other",
			eachPair(checkPeerLinkLayer)},
		{"peer_rate", Warning, "rails of one name have different rates", eachPair(checkPeerRate)},
		{"peer_mtu", Warning, "the interfaces of rails of one name have different MTUs", eachPair(checkPeerMTU)},
		{"peer_subnet", Fault, "no common subnet or route between rails of one name", eachPair(checkPeerSubnet)},
		{"peer_gid", Fault, "rails of one name would use GIDs of different types", eachPair(checkPeerGID)},
		{"peer_pfc", Warning, "PFC, trust or global pause differ from the peer's", comparePeerQoS(qosPFC)},
		{"peer_dcqcn", Warning, "DCQCN differs from the peer's", comparePeerQoS(qosDCQCN)},
		{"peer_traffic_class", Warning, "the traffic class of rails differs from the peer's", comparePeerQoS(qosClass)},
	}
	for _, c := range components() {
		list = append(list, PeerCheck{"peer_" + c.id, Warning, c.about, c.compare})
	}
	return list
}

// eachRail is a check of each rail that is meant to be used.
func eachRail(check func(*facts.Facts, *facts.Rail, reporter)) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		for i := range f.Rails {
			if r := &f.Rails[i]; !f.Unused(r) {
				check(f, r, report.about(r.String()))
			}
		}
	}
}

func eachBond(check func(*facts.Facts, *facts.Bond, reporter)) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		for i := range f.Bonds {
			check(f, &f.Bonds[i], report.about(f.Bonds[i].Name))
		}
	}
}

// onlyEFA reports whether all rails are EFA, or there is none. EFA has no connection manager, and NCCL uses it through
// a libfabric plugin, which ignores the settings of NCCL's own InfiniBand transport.
func onlyEFA(f *facts.Facts) bool {
	return !slices.ContainsFunc(f.Rails, func(r facts.Rail) bool { return r.Provider != "efa" })
}

// untypable encloses a name that cannot be typed, until the line is printed; no other text has it.
const untypable = "\x00"

// shellWord is a name as one word for a shell. Kernels and peers allow more than a shell takes literally.
func shellWord(s string) string {
	if word, ok := text.ShellWord(s); ok {
		return word
	}
	return untypable + strconv.QuoteToASCII(s) + untypable
}

// sh is one line for a shell, in which each argument is quoted as a word.
func sh(format string, args ...any) string {
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = shellWord(fmt.Sprint(a))
	}
	return fmt.Sprintf(format, words...)
}

func note(format string, args ...any) string {
	return "# " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
}

// bounce takes an interface down and up, in one line: a user who is logged in over it could not type the second.
func bounce(netdev string) []string {
	return []string{
		note("interrupts traffic over %s, and loses routes and IPv6 addresses that were added to it by hand", netdev),
		sh("ip link set dev %s down && ip link set dev %s up", netdev, netdev)}
}

// typable are the lines as printed, without any command if one has a name that cannot be typed.
func typable(lines []string) []string {
	refused := ""
	for _, line := range lines {
		if _, name, found := strings.Cut(line, untypable); found && refused == "" && !strings.HasPrefix(line, "#") {
			refused, _, _ = strings.Cut(name, untypable)
		}
	}
	out := []string{}
	for _, line := range lines {
		if refused == "" || strings.HasPrefix(line, "#") {
			out = append(out, terminal.PlainName(strings.ReplaceAll(line, untypable, "")))
		}
	}
	if refused != "" {
		out = append(out, note("no command is printed: the name %s has characters that cannot be typed; rename it, and "+
			"run doctor again", refused))
	}
	return out
}

func listed[T any](list []T) string {
	const most = 16
	var words []string
	for _, v := range list[:min(len(list), most)] {
		words = append(words, fmt.Sprint(v))
	}
	switch n := len(words) - 1; {
	case len(list) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(words, ", "), len(list)-most)
	case n > 0:
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

func railsOf(rails []*facts.Rail) string {
	if len(rails) == 1 {
		return rails[0].String()
	}
	var names, devices []string
	for _, r := range rails {
		names, devices = append(names, r.Name), append(devices, r.Device)
	}
	return fmt.Sprintf("rails %s (%s)", listed(names), listed(devices))
}

func gigabits(bytesPerSecond float64) string { return fmt.Sprintf("%.4g Gb/s", bytesPerSecond*8/1e9) }
