// Package check judges facts. Each check is one row of a table and a function of facts alone, so that a fixture with
// one fault tests it. If two checks could report the same fault, the one closer to the cause does.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/text"
)

// PeerUnanswered is the check of the finding that a peer did not send its facts.
const PeerUnanswered = "peer"

const (
	critical = finding.Critical
	warning  = finding.Warning
	info     = finding.Info
)

// reporter fills in Node, Check, Severity, Subject and Why of a finding where the check left them empty, and keeps the
// finding.
type reporter func(finding.Finding)

// thisNode is the subject of a finding about the whole node.
const thisNode = "node"

// Check is one row of the table of checks that examine one node.
type Check struct {
	ID       string           // lower_case, the name in Finding.Check and in docs/doctor.md
	Severity finding.Severity // default severity of the findings
	About    string           // description for docs/doctor.md, one line
	run      func(*facts.Facts, reporter)
}

// Live reports whether the check needs a running railscope, because it judges how counters moved.
func (c Check) Live() bool {
	return slices.ContainsFunc(liveChecks(), func(l Check) bool { return l.ID == c.ID })
}

// Own reports whether the check is about what the examining process itself can use.
func (c Check) Own() bool { return IsOwn(c.ID) }

// IsOwn is [Check.Own] for the check with this ID.
func IsOwn(id string) bool {
	return slices.Contains([]string{"memlock", "uverbs_missing", "uverbs_permission", "uverbs_device_rules", "rdma_cm",
		"libibverbs", "provider"}, id)
}

// PeerCheck is one row of the table of checks that compare two nodes.
type PeerCheck struct {
	ID       string
	Severity finding.Severity
	About    string
	run      func(here, there *facts.Facts, report reporter)
}

// Find returns the findings of one node.
func (c Check) Find(f *facts.Facts) (list []finding.Finding) {
	c.run(f, collect(&list, finding.Finding{Check: c.ID, Severity: c.Severity, Node: f.Node, Subject: thisNode}))
	return list
}

// Find returns the findings between this node and a peer.
func (c PeerCheck) Find(here, there *facts.Facts) (list []finding.Finding) {
	c.run(here, there, collect(&list, finding.Finding{Check: c.ID, Severity: c.Severity, Node: here.Node}))
	return list
}

func collect(list *[]finding.Finding, usual finding.Finding) reporter {
	severities := severitiesOf(usual.Check, usual.Severity)
	return func(f finding.Finding) {
		f.Node, f.Check = cmp.Or(f.Node, usual.Node), usual.Check
		if !slices.Contains(severities, f.Severity) {
			f.Severity = usual.Severity
		}
		f.Subject = cmp.Or(f.Subject, usual.Subject)
		f.Why, f.Fix = cmp.Or(f.Why, usual.Why), typable(f.Fix)
		*list = append(*list, f)
	}
}

func (report reporter) about(subject, where string) reporter {
	return func(f finding.Finding) {
		f.Subject, f.Where = cmp.Or(f.Subject, subject), cmp.Or(f.Where, where)
		report(f)
	}
}

// Checks returns all checks of one node, in the order of their findings.
func Checks() []Check {
	list := slices.Concat(checksOfRails(), checksOfBonds(), checksOfDevices(), checksOfAMD())
	for _, c := range jobChecks() {
		list = append(list, Check{c.id, "", c.about, c.run})
	}
	list = append(list, Check{"job_uses_few_rails", warning, "a job holds more GPUs than it has rails with connected " +
		"queue pairs, and other compute rails are active", checkFewRails},
		Check{"process_numa_far", info, "a process may run only far from all rails that it uses", checkProcessNUMA})
	return append(list, liveChecks()...)
}

func checksOfRails() []Check {
	return []Check{
		{"no_rails", critical, "no rail: adapters without an RDMA device, or no port that is a rail; an information " +
			"where there is no RDMA hardware, or only virtual functions", checkNoRails},
		{"adapter_without_rdma", critical, "an adapter without an RDMA device, where equal ones have one",
			checkAdapterWithoutRDMA},
		{"pattern_unmatched", warning, "a pattern of the configuration that matches no RDMA port",
			checkPatternUnmatched},
		{"netdev_down", critical, "the rail's interface is administratively down", eachRail(checkNetdevDown)},
		{"port_down", critical, "the rail's port is not ACTIVE although its interface is up", eachRail(checkPortDown)},
		{"rail_missing", critical, "a known rail is absent, or there are fewer than `expect.rails`", checkRailMissing},
		{"rate_lost", critical, "the port is slower than configured, or than it ever was; a warning if less than " +
			"half is lost", eachRail(checkRateLost)},
		{"rate_disagrees", info, "the port and its interface report different rates", eachRail(checkRateDisagrees)},
		{"bytes_not_counted", info, "no counter has the bytes of a rail: it is not measured", checkBytesNotCounted},
		{"pcie_lost", warning, "the PCIe link is slower than it ever was; critical if half of what the rail needs is " +
			"lost", checkPCIeLost},
		{"mtu_lost", warning, "the RoCE MTU is smaller than configured, or than it ever was", eachRail(checkMTULost)},
		{"gpu_missing", critical, "there are fewer GPUs on PCI than configured, or than there ever were",
			checkGPUMissing},
		{"carrier_flapping", warning, "the rail's link went down more than 20 times, and more than 4 times a day",
			eachRail(checkFlapping)},
		{"mtu_low", warning, "the interface's MTU leaves RoCE less than 4096", eachRail(checkMTULow)},
		{"mtu_unlike", warning, "rails of one rate have interfaces with different MTUs", checkMTUUnlike},
		{"gid_missing", critical, "no RoCE v2 GID, or none over IPv4", eachRail(checkGIDMissing)},
		{"gid_link_local", critical, "only link-local RoCE v2 GIDs: the interface has no address",
			eachRail(checkGIDLinkLocal)},
		{"gid_misbound", critical, "the RoCE v2 IPv4 GIDs of the rail belong to a bond or bridge over its interface",
			eachRail(checkGIDMisbound)},
		{"gid_index_unlike", warning, "the GID to use has another index than on the other rails", checkGIDIndex},
		{"half_unused", warning, "one of the two PCIe halves of a port (DGX Spark) is unused",
			eachRail(checkHalfUnused)},
		{"same_subnet", critical, "several rails in one subnet without the ARP settings or routes it needs",
			checkSameSubnet},
	}
}

func checksOfBonds() []Check {
	return []Check{
		{"bond_mode", critical, "a bond over rails in a mode that no driver supports for RDMA",
			eachBond(checkBondMode)},
		{"bond_no_lag", critical, "a bond of which the driver made no single RDMA device", eachBond(checkBondNoLAG)},
		{"bond_empty", warning, "a bond is up and has no member", checkBondEmpty},
		{"bond_member_down", critical, "a member of a bond over rails is down; a warning if less than half of them is",
			eachBond(checkBondMemberDown)},
		{"bond_lacp", critical, "an 802.3ad bond without a LACP partner, or split into aggregators; a warning if " +
			"less than half of it carries nothing", eachBond(checkBondLACP)},
	}
}

// checksOfDevices returns the checks of PCIe, of what programs need, and of the configuration of adapters.
func checksOfDevices() []Check {
	return []Check{
		{"pcie_link_low", warning, "a rail's PCIe link is below what both ends support, or its slot is too slow for " +
			"the port; critical if half of what the rail needs is lost", checkPCIeLink},
		{"pcie_shared", warning, "ports share a PCIe link that cannot carry all of them at their rate",
			checkPCIeShared},
		{"gpu_pcie_low", warning, "a GPU's PCIe link has fewer lanes than both ends support, or under load a lower " +
			"speed", checkGPULink},
		{"numa_far", warning, "GPUs of a processor without a rail", checkNUMA},
		{"memlock", critical, "this process may lock too little memory for RDMA", checkMemlock},
		{"uverbs_module", critical, "the kernel module ib_uverbs is not loaded", checkUverbsModule},
		{"uverbs_missing", critical, "`/dev/infiniband/uverbsN` of an RDMA device is missing",
			eachUverbs(facts.UverbsMissing, uverbsMissing)},
		{"uverbs_permission", critical, "the permissions of `/dev/infiniband/uverbsN` refuse this user",
			eachUverbs(facts.UverbsDenied, uverbsDenied)},
		{"uverbs_device_rules", critical, "the device rules of a container or a service refuse " +
			"`/dev/infiniband/uverbsN`", eachUverbs(facts.UverbsRules, uverbsRules)},
		{"rdma_cm", warning, "`/dev/infiniband/rdma_cm` is missing: programs that connect with rdmacm fail",
			checkRDMACM},
		{"libibverbs", critical, "`libibverbs.so.1` is not installed", checkLibibverbs},
		{"provider", critical, "libibverbs has no provider for a rail's driver, does not load it, or it supports " +
			"other versions of the driver", checkProvider},
		{"ucx_no_transport", warning, "UCX lists no RDMA transport for a rail (`ucx_info -d`)", checkUCXTransports},
		{"gpudirect", warning, "neither peer memory nor dma-buf: GPU memory is copied through host memory",
			checkGPUDirect},
		{"peermem_legacy", warning, "GPUDirect by the unmaintained module nv_peer_mem although the driver has its own",
			checkPeermemLegacy},
		{"acs_enabled", warning, "PCIe ACS sends traffic between a rail and a GPU below one switch through the root " +
			"complex", checkACS},
		{"relaxed_ordering_off", info, "an adapter may not use PCIe relaxed ordering", checkRelaxedOrdering},
		{"pfc", warning, "rails of one kind differ in PFC, trust or global pause", checkQoS(qosPFC)},
		{"dcqcn", warning, "rails of one kind differ in DCQCN priorities or parameters", checkQoS(qosDCQCN)},
		{"traffic_class", warning, "rails of one kind differ in traffic class", checkQoS(qosClass)},
	}
}

// Node runs the checks of one node that wanted accepts (nil: all) and returns their findings.
func Node(f *facts.Facts, wanted func(Check) bool) (list []finding.Finding) {
	for _, c := range Checks() {
		if wanted == nil || wanted(c) {
			list = append(list, c.Find(f)...)
		}
	}
	return list
}

// Names returns the names of all checks: of a node, of a pair and of a round.
func Names() []string {
	list := []string{PeerUnanswered}
	for _, c := range Checks() {
		list = append(list, c.ID)
	}
	for _, c := range PeerChecks() {
		list = append(list, c.ID)
	}
	for _, c := range RoundChecks() {
		list = append(list, c.ID)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Suggest returns the end of an error about a check that does not exist.
func Suggest(name string) string {
	known := Names()
	if near := config.Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; the checks are " + strings.Join(known, ", ")
}

// Remembered reports whether only a running railscope can make a check: it needs rounds, counters over time or, unless
// the state directory is known, the best values seen before.
func Remembered(id string, stateKnown bool) bool {
	return slices.ContainsFunc(RoundChecks(), func(c RoundCheck) bool { return c.ID == id }) ||
		Check{ID: id}.Live() ||
		!stateKnown && slices.Contains([]string{"no_rails", "rail_missing", "rate_lost", "pcie_lost", "mtu_lost",
			"gpu_missing"}, id)
}

// OfRoundAlone reports whether only rounds of the probe make a check, never examinations of a node.
func OfRoundAlone(id string) bool {
	return slices.ContainsFunc(RoundChecks(), func(c RoundCheck) bool { return c.ID == id }) &&
		!slices.ContainsFunc(Checks(), func(c Check) bool { return c.ID == id })
}

// Replaced returns the weaker check that check id supersedes where the best values seen before are known; empty: none.
func Replaced(id string) string {
	return map[string]string{"pcie_lost": "pcie_link_low", "mtu_lost": "mtu_low", "no_rails": "no_rails"}[id]
}

// Served returns a finding as a running railscope shows it to everybody: without its processes and the values of their
// variables.
func Served(f finding.Finding) finding.Finding {
	job := slices.ContainsFunc(jobChecks(), func(c jobCheck) bool { return c.id == f.Check })
	if job || f.Check == "process_numa_far" {
		f.Where, f.Fix = "", []string{onThatNode}
	}
	return f
}

// PeerChecks returns all checks of a pair of nodes.
func PeerChecks() []PeerCheck {
	list := []PeerCheck{
		{unpaired, info, "rails without a partner because the other node has fewer, or because they lead to a " +
			"third node", checkPeerUnpaired},
		{"peer_link_layer", critical, "rails of one name are Ethernet on one node and InfiniBand on the other",
			eachPair(checkPeerLinkLayer)},
		{"peer_rate", warning, "rails of one name have different rates", eachPair(checkPeerRate)},
		{"peer_mtu", warning, "the interfaces of rails of one name have different MTUs", eachPair(checkPeerMTU)},
		{"peer_subnet", critical, "no common subnet or route between rails of one name", eachPair(checkPeerSubnet)},
		{"peer_gid", warning, "rails of one name would use GIDs of different types", eachPair(checkPeerGID)},
		{"peer_pfc", warning, "PFC, trust or global pause differ from the peer's", comparePeerQoS(qosPFC)},
		{"class_mismatch", warning, "the class of jobs is lossless at one end, and leads to a priority without PFC " +
			"of another adapter at the other", eachPair(checkPeerClass)},
		{"peer_dcqcn", warning, "DCQCN differs from the peer's", comparePeerQoS(qosDCQCN)},
		{"peer_traffic_class", warning, "the traffic class of rails differs from the peer's", comparePeerQoS(qosClass)},
	}
	for _, c := range components() {
		list = append(list, PeerCheck{"peer_" + c.id, warning, c.about, c.compare})
	}
	return list
}

// eachRail runs check on each rail that is meant to be used.
func eachRail(check func(*facts.Facts, *facts.Rail, reporter)) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		for _, r := range f.Judged() {
			check(f, r, report.about(r.Subject(), r.Where()))
		}
	}
}

func eachBond(check func(*facts.Facts, *facts.Bond, reporter)) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		for i := range f.Bonds {
			check(f, &f.Bonds[i], report.about("bond "+f.Bonds[i].Name, ""))
		}
	}
}

// onlyEFA reports whether every rail is EFA (true without rails). EFA has no connection manager, and NCCL uses it
// through a libfabric plugin, which ignores the settings of NCCL's own InfiniBand transport.
func onlyEFA(f *facts.Facts) bool {
	return !slices.ContainsFunc(f.Rails, func(r facts.Rail) bool { return r.Provider != "efa" })
}

// untypable marks a name that cannot be typed, until the line is printed. No other text contains it.
const untypable = "\x00"

// shellWord quotes a name as one word for a shell: kernels and peers allow characters that a shell interprets.
func shellWord(s string) string {
	if word, ok := text.ShellWord(s); ok {
		return word
	}
	return untypable + strconv.QuoteToASCII(s) + untypable
}

// sh formats one shell command, with each argument quoted as a word.
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

// bounce takes an interface down and up in one command: a user who is logged in over it could not type the second one.
func bounce(netdev string) []string {
	return []string{
		note("interrupts traffic over %s, and loses routes and IPv6 addresses that were added to it by hand", netdev),
		sh("ip link set dev %s down && ip link set dev %s up", netdev, netdev)}
}

// typable returns the lines as printed, without any command if one contains a name that cannot be typed.
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
		out = append(out, note("no command is printed: the name %s has characters that cannot be typed; rename it, "+
			"and run doctor again", refused))
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
	subject, where := subjects(rails)
	return fmt.Sprintf("%s (%s)", subject, where)
}

// subjects returns the subject and the place of a finding about several rails.
func subjects(rails []*facts.Rail) (subject, where string) {
	if len(rails) == 1 {
		return rails[0].Subject(), rails[0].Where()
	}
	var names, devices []string
	for _, r := range rails {
		names, devices = append(names, r.Name), append(devices, r.Device)
	}
	return "rails " + listed(names), listed(devices)
}
