package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// VersionFact is one version that is installed or running. A node may have
// several of one component.
type VersionFact struct {
	Component string `json:"component"` // id of a component
	Of        string `json:"of"`        // what of it, where only like may be compared with like: the type of adapter
	Version   string `json:"version"`
	Where     string `json:"where"` // file that says so
}

// maxVersions bounds how many versions of a node are kept.
const maxVersions = 128

// component is something whose versions two nodes should have alike.
type component struct {
	id, name string // "ucx", "UCX"
	about    string
	why      string
	mend     []string // VERSION stands for the newest that one of them has, NODE for where it belongs
}

const (
	ucxWhy  = "UCX promises to understand another version of itself only within narrow bounds: a connection between different ones fails or hangs (ucx #10376), and NIXL reports NIXL_ERR_NOT_FOUND (nixl #386)"
	ncclWhy = "all ranks of a job must load one version of NCCL: with different ones the job stops at ncclCommInitRank, or hangs in it"
	nixlWhy = "agents exchange metadata whose form changes with the version: loading a peer's metadata fails"
)

// components are those whose versions are compared. The first ones matter most.
func components() []component {
	return []component{
		{id: "ucx", name: "UCX", about: "UCX is another version than the peer's: connections fail", why: ucxWhy,
			mend: []string{"# install UCX VERSION NODE, then check on both nodes: ucx_info -v"}},
		{id: "nccl", name: "NCCL", about: "NCCL is another version than the peer's: jobs do not start", why: ncclWhy,
			mend: []string{"apt-get install -y --allow-change-held-packages 'libnccl2=VERSION*'  # NODE", "# in a Python environment: pip install 'nvidia-nccl-cu12==VERSION', NODE"}},
		{id: "nixl", name: "NIXL", about: "NIXL is another version than the peer's: agents cannot load each other's metadata", why: nixlWhy,
			mend: []string{"pip install 'nixl==VERSION'  # NODE, in the environment of the job"}},
		{id: "rdma_core", name: "rdma-core", about: "rdma-core is another version than the peer's: seldom matters",
			why:  "nothing of rdma-core goes over the wire, so this alone breaks no connection; but providers differ in features and in faults, and a difference makes one node behave unlike the other",
			mend: []string{"apt-get update && apt-get install -y rdma-core libibverbs1 ibverbs-providers  # NODE"}},
		{id: "firmware", name: "firmware", about: "adapters of one type have other firmware than the peer's: congestion control and GID handling may differ",
			why:  "congestion control, adaptive routing and faults of RoCE change with the firmware: rails of one job should have one version",
			mend: []string{"mlxfwmanager --online -u  # NODE, to VERSION, with NVIDIA's mft (on a DGX Spark: fwupdmgr update); then restart the node"}},
		{id: "nic_driver", name: "driver of the adapter", about: "the adapter's out-of-tree driver is another version than the peer's",
			why:  "an out-of-tree driver (MLNX_OFED, DOCA) brings defaults of its own for PFC, DCQCN and peer memory",
			mend: []string{"# install the MLNX_OFED or DOCA-OFED release of VERSION NODE, then check on both nodes: ofed_info -s"}},
		{id: "nvidia_driver", name: "NVIDIA driver", about: "the NVIDIA driver is another version than the peer's",
			why:  "GPUDirect by dma-buf needs open kernel modules from 515 on, and NCCL chooses its way by what the driver can: with different drivers two ranks may choose differently",
			mend: []string{"# install the driver's VERSION NODE, for example with apt-get install nvidia-driver-BRANCH-server-open, and restart the node"}},
		{id: "kernel", name: "kernel", about: "the kernel is another than the peer's: matters when the RDMA drivers are the kernel's own",
			why:  "RDMA drivers that come with the kernel change with it; it breaks no connection, but explains a node that behaves unlike its peer",
			mend: []string{"apt-get update && apt-get install -y linux-image-VERSION  # NODE, then restart it"}},
	}
}

// compare finds what here has in another version than there. What one side does
// not have, or does not show, is not compared.
func (c component) compare(here, there *Facts, found func(Finding)) {
	ours, theirs := c.versions(here), c.versions(there)
	for _, of := range slices.Sorted(maps.Keys(ours)) {
		a, b := ours[of], theirs[of]
		if len(b.list) == 0 || slices.Equal(a.list, b.list) {
			continue
		}
		what := strings.TrimSpace(c.name + " " + of)
		finding := Finding{
			Severity: Warning, Subject: what,
			Read: fmt.Sprintf("%s is %s here (%s), %s on the peer (%s)", what, listed(a.list), listed(a.where), listed(b.list), listed(b.where)),
			Why:  c.why,
		}
		newest, where := a.list[len(a.list)-1], "on the peer"
		switch last := b.list[len(b.list)-1]; {
		case last == newest:
			where = "on both nodes, alone"
		case compareVersions(last, newest) > 0:
			newest, where = last, "on this node"
		}
		for _, line := range c.mend {
			finding.Mend = append(finding.Mend, strings.NewReplacer("VERSION", shellWord(newest), "NODE", where).Replace(line))
		}
		found(finding)
	}
}

// versionSet is the versions of one component on one node, in order.
type versionSet struct{ list, where []string }

func (c component) versions(f *Facts) map[string]versionSet {
	out := map[string]versionSet{}
	for _, v := range f.System.Versions[:min(len(f.System.Versions), maxVersions)] { // a peer's is not to be trusted
		if v.Component != c.id || v.Version == "" {
			continue
		}
		set := out[clean(v.Of)]
		if text := clean(v.Version); !slices.Contains(set.list, text) {
			set.list, set.where = append(set.list, text), append(set.where, clean(v.Where))
		}
		out[clean(v.Of)] = set
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
