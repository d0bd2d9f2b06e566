package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
)

type component struct {
	id, name string // "ucx", "UCX"
	about    string
	why      string
	fix      []string // VERSION stands for the newest that one of them has, NODE for where to install it
}

// components are those whose versions are compared, the most important first.
func components() []component {
	return []component{
		{"ucx", "UCX", "UCX has another version than the peer's: connections fail",
			"Connections between different UCX versions fail or hang (ucx #10376); NIXL reports NIXL_ERR_NOT_FOUND (nixl #386).",
			[]string{"# install UCX VERSION NODE, then check on both nodes: ucx_info -v"}},
		{"nccl", "NCCL", "NCCL has another version than the peer's: jobs do not start",
			"All ranks of a job must load one version of NCCL: otherwise the job stops or hangs in ncclCommInitRank.",
			[]string{"apt-get install -y --allow-change-held-packages 'libnccl2=VERSION*'  # NODE",
				"# in a Python environment: pip install 'nvidia-nccl-cu12==VERSION', NODE"}},
		{"nixl", "NIXL", "NIXL has another version than the peer's: agents cannot load each other's metadata",
			"Agents exchange metadata whose form changes with the version: loading a peer's metadata fails.",
			[]string{"pip install 'nixl==VERSION'  # NODE, in the environment of the job"}},
		{"rdma_core", "rdma-core", "rdma-core has another version than the peer's: seldom matters",
			"It breaks no connection, but providers differ in features and bugs: the nodes may behave differently.",
			[]string{"apt-get update && apt-get install -y rdma-core libibverbs1 ibverbs-providers  # NODE"}},
		{"firmware", "firmware", "adapters of one type have other firmware than the peer's",
			"Congestion control, adaptive routing, GIDs and RoCE bugs depend on the firmware.",
			[]string{"mlxfwmanager --online -u  # NODE, to VERSION, with NVIDIA's mft (on a DGX Spark: fwupdmgr update); " +
				"then restart the node"}},
		{"nic_driver", "driver of the adapter", "the adapter's out-of-tree driver has another version than the peer's",
			"An out-of-tree driver (MLNX_OFED, DOCA) has its own defaults for PFC, DCQCN and peer memory.",
			[]string{"# install the MLNX_OFED or DOCA-OFED release of VERSION NODE, then check on both nodes: ofed_info -s"}},
		{"nvidia_driver", "NVIDIA driver", "the NVIDIA driver has another version than the peer's",
			"GPUDirect by dma-buf needs open kernel modules from 515 on, and NCCL chooses its path by what the driver " +
				"supports: with different drivers two ranks may choose differently.",
			[]string{"# install the driver's VERSION NODE, for example with apt-get install " +
				"nvidia-driver-BRANCH-server-open, and restart the node"}},
		{"kernel", "kernel", "the kernel has another version than the peer's: matters for its own RDMA drivers",
			"The kernel's own RDMA drivers change with it. It breaks no connection, but the nodes may behave differently.",
			[]string{"apt-get update && apt-get install -y linux-image-VERSION  # NODE, then restart it"}},
	}
}

func versionTable() (list []PeerCheck) {
	for _, c := range components() {
		list = append(list, PeerCheck{"peer_" + c.id, Warning, c.about, c.compare})
	}
	return list
}

// compare finds what has another version here than there. What one side lacks, or does not show, is not compared.
func (c component) compare(here, there *facts.Facts, report reporter) {
	ours, theirs := c.versions(here), c.versions(there)
	for _, of := range slices.Sorted(maps.Keys(ours)) {
		a, b := ours[of], theirs[of]
		if len(b.list) == 0 || slices.Equal(a.list, b.list) {
			continue
		}
		what := strings.TrimSpace(c.name + " " + of)
		out := Finding{Subject: what, Why: c.why, Evidence: fmt.Sprintf("%s is %s here (%s), %s on the peer (%s)", what,
			listed(a.list), listed(a.where), listed(b.list), listed(b.where))}
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

type versionSet struct{ list, where []string }

func (c component) versions(f *facts.Facts) map[string]versionSet {
	out := map[string]versionSet{}
	for _, v := range f.Versions {
		if set := out[v.Of]; v.Component == c.id && v.Version != "" && !slices.Contains(set.list, v.Version) {
			out[v.Of] = versionSet{append(set.list, v.Version), append(set.where, v.Where)}
		}
	}
	for _, set := range out {
		slices.SortFunc(set.list, compareVersions)
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
