package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
)

// component is something whose versions two nodes should have alike.
type component struct {
	id, name string // "ucx", "UCX"
	about    string
	why      string
	fix      []string // VERSION stands for the newest that one of them has, NODE for where it belongs
}

// components are those whose versions are compared. The first ones matter most.
func components() []component {
	return []component{
		{id: "ucx", name: "UCX", about: "UCX has another version than the peer's: connections fail",
			why: "UCX is compatible with other versions of itself only within narrow bounds: a connection between " +
				"different " +
				"ones fails or hangs (ucx #10376), " +
				"and NIXL reports NIXL_ERR_NOT_FOUND (nixl #386).",
			fix: []string{"# install UCX VERSION NODE, then check on both nodes: ucx_info -v"}},
		{id: "nccl", name: "NCCL", about: "NCCL has another version than the peer's: jobs do not start",
			why: "All ranks of a job must load one version of NCCL: with different ones the job stops at " +
				"ncclCommInitRank, " +
				"or hangs in it.",
			fix: []string{"apt-get install -y --allow-change-held-packages 'libnccl2=VERSION*'  # NODE",
				"# in a Python environment: pip install 'nvidia-nccl-cu12==VERSION', NODE"}},
		{id: "nixl", name: "NIXL", about: "NIXL has another version than the peer's: agents cannot load each other's " +
			"metadata",
			why: "Agents exchange metadata whose form changes with the version: loading a peer's metadata fails.",
			fix: []string{"pip install 'nixl==VERSION'  # NODE, in the environment of the job"}},
		{id: "rdma_core", name: "rdma-core", about: "rdma-core has another version than the peer's: seldom matters",
			why: "rdma-core does not affect what is on the wire, so this alone breaks no connection. But providers " +
				"differ in " +
				"features and bugs, " +
				"so one node may behave differently.",
			fix: []string{"apt-get update && apt-get install -y rdma-core libibverbs1 ibverbs-providers  # NODE"}},
		{id: "firmware", name: "firmware",
			about: "adapters of one type have other firmware than the peer's: congestion control and GID handling " +
				"may differ",
			why: "Congestion control, adaptive routing and RoCE bugs change with the firmware: rails of one job " +
				"should " +
				"have one version.",
			fix: []string{"mlxfwmanager --online -u  # NODE, to VERSION, with NVIDIA's mft (on a DGX Spark: fwupdmgr " +
				"update); then restart the node"}},
		{id: "nic_driver", name: "driver of the adapter",
			about: "the adapter's out-of-tree driver has another version " +
				"than the peer's",
			why: "An out-of-tree driver (MLNX_OFED, DOCA) has its own defaults for PFC, DCQCN and peer memory.",
			fix: []string{"# install the MLNX_OFED or DOCA-OFED release of VERSION NODE, then check on both nodes: " +
				"ofed_info " +
				"-s"}},
		{id: "nvidia_driver", name: "NVIDIA driver", about: "the NVIDIA driver has another version than the peer's",
			why: "GPUDirect by dma-buf needs open kernel modules from 515 on, and NCCL chooses its path by what " +
				"the driver " +
				"supports: " +
				"with different drivers two ranks may choose differently.",
			fix: []string{"# install the driver's VERSION NODE, for example with apt-get install " +
				"nvidia-driver-BRANCH-server-open, and restart the node"}},
		{id: "kernel", name: "kernel", about: "the kernel has another version than the peer's: matters if the RDMA " +
			"drivers are the kernel's own",
			why: "RDMA drivers that come with the kernel change with it. It breaks no connection, but explains a " +
				"node that " +
				"behaves differently.",
			fix: []string{"apt-get update && apt-get install -y linux-image-VERSION  # NODE, then restart it"}},
	}
}

// versionTable are the rows of these checks.
func versionTable() (list []PeerCheck) {
	for _, c := range components() {
		list = append(list, PeerCheck{"peer_" + c.id, c.about, c.compare})
	}
	return list
}

// compare finds what here has in another version than there. What one side does
// not have, or does not show, is not compared.
func (c component) compare(here, there *facts.Facts, report func(Finding)) {
	ours, theirs := c.versions(here), c.versions(there)
	for _, of := range slices.Sorted(maps.Keys(ours)) {
		a, b := ours[of], theirs[of]
		if len(b.list) == 0 || slices.Equal(a.list, b.list) {
			continue
		}
		what := strings.TrimSpace(c.name + " " + of)
		out := Finding{Severity: Warning, Subject: what, Why: c.why,
			Evidence: fmt.Sprintf("%s is %s here (%s), %s on the peer (%s)", what, listed(a.list), listed(a.where),
				listed(b.list), listed(b.where))}
		newest, where := a.list[len(a.list)-1], "on the peer"
		switch last := b.list[len(b.list)-1]; {
		case last == newest:
			where = "on both nodes, alone"
		case compareVersions(last, newest) > 0:
			newest, where = last, "on this node"
		}
		for _, line := range c.fix {
			out.Fix = append(out.Fix, strings.NewReplacer("VERSION", shellWord(newest), "NODE", where).Replace(line))
		}
		report(out)
	}
}

// versionSet is the versions of one component on one node, in order.
type versionSet struct{ list, where []string }

func (c component) versions(f *facts.Facts) map[string]versionSet {
	out := map[string]versionSet{}
	for _, v := range f.Versions[:min(len(f.Versions), maxCompared)] {
		if v.Component != c.id || v.Version == "" {
			continue
		}
		of := facts.Clean(v.Of)
		set := out[of]
		if text := facts.Clean(v.Version); !slices.Contains(set.list, text) {
			set.list, set.where = append(set.list, text), append(set.where, facts.Clean(v.Where))
		}
		out[of] = set
	}
	for of, set := range out {
		slices.SortFunc(set.list, compareVersions)
		out[of] = set
	}
	return out
}

// compareVersions puts 2.9.1 before 2.21.5.
func compareVersions(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
	}
	return 0
}
