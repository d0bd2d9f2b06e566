package check

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/units"
)

type pair struct {
	here, there *facts.Facts
	a, b        *facts.Rail
}

// eachPair runs check on the rails that both nodes have under the same name and that are up.
func eachPair(check func(pair, reporter)) func(here, there *facts.Facts, report reporter) {
	return func(here, there *facts.Facts, report reporter) {
		for i := range here.Rails {
			a := &here.Rails[i]
			at := slices.IndexFunc(there.Rails, func(b facts.Rail) bool { return b.Name == a.Name })
			if at >= 0 && a.Active() && there.Rails[at].Active() {
				b := &there.Rails[at]
				where := fmt.Sprintf("%s; %s of %s", a.Where(), b.Where(), there.Node)
				check(pair{here, there, a, b}, report.about(a.Subject(), where))
			}
		}
	}
}

func (p pair) ethernet() bool { return p.a.Ethernet() && p.b.Ethernet() }

func checkPeerLinkLayer(p pair, report reporter) {
	if p.a.LinkLayer == p.b.LinkLayer || p.a.LinkLayer == "" || p.b.LinkLayer == "" {
		return
	}
	fix := note("connect ports of one link layer, or give them other names (rails.names): these adapters have one each")
	if nvidia(p.a) && nvidia(p.b) {
		fix = note("set both ports to one: mlxconfig -d %s set LINK_TYPE_P%d=2 (1 InfiniBand, 2 Ethernet), then "+
			"restart the node", shellWord(cmp.Or(p.a.PCIAddress, p.a.Device)), p.a.Port)
	}
	report(finding.Finding{
		Evidence: fmt.Sprintf("%s on %s, %s on %s", p.a.LinkLayer, p.here.Node, p.b.LinkLayer, p.there.Node),
		Why:      "The two ends speak different protocols on the wire: nothing connects over this rail.",
		Fix:      []string{fix}})
}

// checkPeerRate leaves ports that lost their rate to the examination of their own node.
func checkPeerRate(p pair, report reporter) {
	if p.a.Rate == p.b.Rate || p.a.Rate == 0 || p.b.Rate == 0 || rateLost(p.here, p.a) || rateLost(p.there, p.b) {
		return
	}
	slow, node := p.a, p.here.Node
	if p.b.Rate < p.a.Rate {
		slow, node = p.b, p.there.Node
	}
	report(finding.Finding{Node: node,
		Evidence: fmt.Sprintf("%s on %s, %s on %s", units.Gigabits(p.a.Rate), p.here.Node, units.Gigabits(p.b.Rate),
			p.there.Node),
		Why: "The goodput is the slower end's, and the switch in between pauses or drops what the faster one sends.",
		Fix: []string{note("find out why %s came up slower: a cable or transceiver for a lower rate, or a fixed "+
			"speed: ethtool %s", slow, shellWord(slow.Netdev))}})
}

// checkPeerMTU leaves MTUs that are too low to the examination of their own node.
func checkPeerMTU(p pair, report reporter) {
	a, b := p.here.Netdev(p.a.Netdev).MTU, p.there.Netdev(p.b.Netdev).MTU
	if a == b || a == 0 || b == 0 || !p.ethernet() || mtuLow(p.here, p.a) || mtuLow(p.there, p.b) {
		return
	}
	node, fix := p.here.Node, setMTU(p.here, p.a, b)
	if b < a {
		node, fix = p.there.Node, setMTU(p.there, p.b, a)
	}
	report(finding.Finding{Node: node, Fix: fix,
		Evidence: fmt.Sprintf("%s of %s has MTU %d, %s of %s has %d", p.a.Netdev, p.here.Node, a, p.b.Netdev,
			p.there.Node, b),
		Why: "RoCE uses 4096 either way, and TCP agrees on the smaller one. Other packets are not fragmented in an " +
			"Ethernet segment: large datagrams of the one end are dropped silently by the other."})
}

func checkPeerSubnet(p pair, report reporter) {
	a, b := p.here.Netdev(p.a.Netdev).IPv4(), p.there.Netdev(p.b.Netdev).IPv4()
	if !p.ethernet() || len(a) == 0 || len(b) == 0 || meet(a, b) ||
		routed(p.here.Netdev(p.a.Netdev), b) && routed(p.there.Netdev(p.b.Netdev), a) {
		return
	}
	out := finding.Finding{Evidence: fmt.Sprintf("%s has %s, %s of %s has %s: no common subnet, and no route through "+
		"a gateway", p.a.Netdev, listed(a), p.b.Netdev, p.there.Node, listed(b)),
		Why: "Nobody answers ARP for the other end's address: queue pairs do not connect (rtr_unreachable)."}
	crossed := p.there.Where(func(o *facts.Rail) bool { return o != p.b && meet(a, p.there.Netdev(o.Netdev).IPv4()) })
	joined, ok := join(a[0], b[0])
	switch {
	case len(crossed) > 0:
		o := crossed[0]
		out.Severity = warning
		out.Evidence += fmt.Sprintf("; it meets %s there", o)
		out.Why = "Programs that pair rails by number connect rails that cannot reach each other."
		out.Fix = []string{note("give rails that meet one name on both nodes: rails.names in the configuration, %s/%d "+
			"here and %s/%d there", p.a.Device, p.a.Port, o.Device, o.Port)}
	case ok && !addressed(p.there, func(q netip.Prefix) bool { return q.Addr() == joined.Addr() }):
		out.Fix = []string{note("%s joins the subnet of the other end; use another address if your plan has one", p.a),
			sh("ip address add %s dev %s", joined, p.a.Netdev)}
	default:
		out.Fix = []string{note("give both ends addresses of one subnet: ip address add ADDRESS/LENGTH dev %s",
			shellWord(p.a.Netdev))}
	}
	report(out)
}

func meet(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool {
		return slices.ContainsFunc(b, func(q netip.Prefix) bool { return p.Contains(q.Addr()) && q.Contains(p.Addr()) })
	})
}

func routed(n facts.Netdev, to []netip.Prefix) bool {
	return slices.ContainsFunc(to, func(q netip.Prefix) bool {
		return slices.ContainsFunc(n.Gateways, func(g netip.Prefix) bool { return g.Contains(q.Addr()) })
	})
}

// join returns an address with a's host part in the subnet of b.
func join(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() < 8 || a.Bits() > 30 {
		return netip.Prefix{}, false
	}
	mask := uint32(1)<<(32-a.Bits()) - 1
	x, y := a.Addr().As4(), b.Addr().As4()
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], binary.BigEndian.Uint32(y[:])&^mask|binary.BigEndian.Uint32(x[:])&mask)
	p := netip.PrefixFrom(netip.AddrFrom4(out), a.Bits())
	return p, p.Addr() != b.Addr()
}

// checkPeerGID leaves unusable GIDs to the examination of their own node.
func checkPeerGID(p pair, report reporter) {
	a, b := p.a.BestGID(), p.b.BestGID()
	if !p.ethernet() || min(a.Rank, b.Rank) < rail.OwnIPv6 || a.Rank == b.Rank {
		return
	}
	six, owner := p.a, p.here
	if a.Rank > b.Rank {
		six, owner = p.b, p.there
	}
	report(finding.Finding{Node: owner.Node, Fix: addressFor(owner, six),
		Evidence: fmt.Sprintf("%s would use GID %d (%s), %s GID %d (%s)",
			p.here.Node, a.GID.Index, a.GID.Addr.Unmap(), p.there.Node, b.GID.Index, b.GID.Addr.Unmap()),
		Why: "A connection uses IPv4 or IPv6: these two ends have no address family in common."})
}

type component struct {
	id, name string // "ucx", "UCX"
	about    string
	why      string
	// In the fix, VERSION is the newest version that either node has, and NODE the node to install it on.
	fix []string
}

// components returns the components whose versions are compared, the most important first.
func components() []component {
	return []component{
		{"ucx", "UCX", "UCX has another version than the peer's: connections fail",
			"Connections between different UCX versions fail or hang (ucx #10376); NIXL reports NIXL_ERR_NOT_FOUND " +
				"(nixl #386).",
			[]string{"# install UCX VERSION NODE, then check on both nodes: ucx_info -v"}},
		{"nccl", "NCCL", "NCCL has another version than the peer's: jobs do not start",
			"All ranks of a job must load one version of NCCL: otherwise the job stops or hangs in ncclCommInitRank.",
			[]string{"apt-get install -y --allow-change-held-packages 'libnccl2=VERSION*'  # NODE",
				"# in a Python environment: pip install 'nvidia-nccl-cu12==VERSION', NODE"}},
		{"rccl", "RCCL", "RCCL is of another ROCm release than the peer's",
			"All ranks of a job must load one version of RCCL, and 2.21 does not compare them. The last number is " +
				"that of the ROCm release: 70202 is 7.2.2.",
			[]string{"# install the ROCm release of RCCL VERSION NODE, then check on both nodes: ls -l " +
				"/opt/rocm*/lib/librccl.so.*"}},
		{"nixl", "NIXL", "NIXL has another version than the peer's: agents cannot load each other's metadata",
			"Agents exchange metadata whose form changes with the version: loading a peer's metadata fails.",
			[]string{"pip install 'nixl==VERSION'  # NODE, in the environment of the job"}},
		{"rdma_core", "rdma-core", "rdma-core has another version than the peer's: seldom matters",
			"It breaks no connection, but providers differ in features and bugs: the nodes may behave differently.",
			[]string{"apt-get update && apt-get install -y rdma-core libibverbs1 ibverbs-providers  # NODE",
				"# Fedora, RHEL, Rocky: dnf install rdma-core libibverbs, NODE"}},
		{"firmware", "firmware", "adapters of one type have other firmware than the peer's",
			"Congestion control, adaptive routing, GIDs and RoCE bugs depend on the firmware.",
			[]string{"mlxfwmanager --online -u  # NODE, to VERSION, adapters of NVIDIA, with its mft (on a DGX " +
				"Spark: fwupdmgr update); then restart the node"}},
		{"nic_driver", "driver of the adapter", "the adapter's out-of-tree driver has another version than the peer's",
			"An out-of-tree driver (MLNX_OFED, DOCA) has its own defaults for PFC, DCQCN and peer memory.",
			[]string{"# install the MLNX_OFED or DOCA-OFED release of VERSION NODE, then check on both nodes: " +
				"ofed_info -s"}},
		{"nvidia_driver", "NVIDIA driver", "the NVIDIA driver has another version than the peer's",
			"GPUDirect by dma-buf needs open kernel modules from 515 on, and NCCL chooses its path by what the " +
				"driver supports: with different drivers two ranks may choose differently.",
			[]string{"# install the driver's VERSION NODE, for example with apt-get install " +
				"nvidia-driver-BRANCH-server-open, and restart the node"}},
		{"kernel", "kernel", "the kernel has another version than the peer's: matters for its own RDMA drivers",
			"The kernel's own RDMA drivers change with it. It breaks no connection, but the nodes may behave " +
				"differently.",
			[]string{"apt-get update && apt-get install -y linux-image-VERSION  # NODE, then restart it",
				"# Fedora, RHEL, Rocky: dnf install kernel-VERSION, NODE, then restart it"}},
	}
}

// compare finds components whose versions differ between the nodes. Versions that one side lacks or hides are skipped.
func (c component) compare(here, there *facts.Facts, report reporter) {
	ours, theirs := c.versions(here), c.versions(there)
	for _, of := range slices.Sorted(maps.Keys(ours)) {
		a, b := ours[of], theirs[of]
		if len(b.list) == 0 || slices.Equal(a.list, b.list) {
			continue
		}
		what := strings.TrimSpace(c.name + " " + of)
		out := finding.Finding{Subject: "peer " + there.Node, Where: what, Why: c.why,
			Evidence: fmt.Sprintf("%s is %s here (%s), %s on the peer (%s)", what,
				listed(a.list), listed(a.where), listed(b.list), listed(b.where))}
		newest, where := a.list[len(a.list)-1], "on the peer"
		switch last := b.list[len(b.list)-1]; {
		case last == newest:
			where = "on both nodes, alone"
		case rail.NaturalCompare(last, newest) > 0:
			newest, where = last, "on this node"
		}
		for _, line := range c.fix {
			out.Fix = append(out.Fix, strings.NewReplacer("VERSION", shellWord(newest), "NODE", where).Replace(line))
		}
		report(out)
	}
}

type versionSet struct{ list, where []string }

func (c component) versions(f *facts.Facts) map[string]versionSet {
	out := map[string]versionSet{}
	for _, v := range f.Versions {
		if set := out[v.Of]; v.Component == c.id && v.Version != "" && !slices.Contains(set.list, v.Version) {
			out[v.Of] = versionSet{append(set.list, v.Version), append(set.where, v.Where)}
		}
	}
	for _, set := range out {
		slices.SortFunc(set.list, rail.NaturalCompare)
	}
	return out
}
