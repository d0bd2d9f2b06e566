package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// Cure is one row of the table of reasons, the only place that says how to fix each one. Findings of rounds and
// docs/probe.md use it.
type Cure struct {
	Reasons  []result.Reason
	Seen     string // detection, in Markdown
	Cure     string // fix, for the end that has the fault
	Commands []string
}

// Cures returns the table of reasons.
func Cures() []Cure {
	return slices.Concat(hostCures(), linkCures(), memoryCures(), pathCures(), processCures(), channelCures(),
		skipCures())
}

func hostCures() []Cure {
	return []Cure{
		{[]result.Reason{"no_device"}, "an end has no rail", "load the adapter's driver, look for a device that is " +
			"gone in dmesg, or correct rails.include: the list says why each port is no rail",
			[]string{"railscope rails --all"}},
		{[]result.Reason{"no_library"}, "`dlopen` of libibverbs.so.1", "install rdma-core",
			[]string{"apt-get install -y libibverbs1 ibverbs-providers"}},
		{[]result.Reason{"no_cgo"}, "a build without C", "install a package of railscope: this binary was built " +
			"without C, which RDMA needs", nil},
		{[]result.Reason{"no_uverbs"}, "`ibv_get_device_list`: ENOSYS", "load the kernel module",
			[]string{"modprobe ib_uverbs"}},
		{[]result.Reason{"no_provider"}, "the kernel has the device, libibverbs does not",
			"install the providers of the version of libibverbs", []string{"apt-get install -y ibverbs-providers"}},
		{[]result.Reason{"dev_perm"}, "`ibv_open_device`: EACCES, EPERM, ENOENT", "give railscope " +
			"/dev/infiniband/uverbs*: devices of the container, device rules of the service, or permissions",
			[]string{"ls -l /dev/infiniband"}},
		{[]result.Reason{"no_rc"}, "`ibv_create_qp`: EOPNOTSUPP", "EFA has no RC queue pairs: measure with fi_rma_bw " +
			"of fabtests", nil},
		{[]result.Reason{"iwarp"}, "the device is an RNIC", "set irdma to RoCE and restart the node; cxgb4 and siw " +
			"have no RoCE: exclude them by rails.exclude", []string{"devlink dev param"}},
		{[]result.Reason{"pkey"}, "`ibv_query_pkey`", "set probe.pkey to a partition of the port's table, or add the " +
			"port to the partition in the subnet manager", []string{"grep . /sys/class/infiniband/*/ports/*/pkeys/0"}},
		{[]result.Reason{"memlock"}, "ENOMEM of `ibv_reg_mr`, `ibv_create_cq`, `ibv_create_qp`", "let railscope lock " +
			"memory: LimitMEMLOCK=infinity in the unit, ulimit -l unlimited in a shell, IPC_LOCK in a pod; then " +
			"restart it", nil},
	}
}

func linkCures() []Cure {
	return []Cure{
		{[]result.Reason{"port_down"}, "the port is not ACTIVE; `IBV_EVENT_PORT_ERR` during the round",
			"set the interface up, or plug in or replace the cable and its modules; in a virtual machine report it " +
				"to its provider", []string{"rdma link", "ip -br link"}},
		{[]result.Reason{"no_gid", "gid_changed"}, "the GID table", "give the rail's interface its address back; if " +
			"it is a member of a bond, use the bond's RDMA device as the rail", []string{"ip -br address"}},
		{[]result.Reason{"no_peer_rail"}, "no rail of the peer matches, and the rail is not " +
			"[unpaired](#unpaired-rails)",
			"give the rails that belong together one name (rails.names) or one subnet on both nodes; if the peer " +
				"lost the rail, look for its device there", []string{"railscope rails"}},
		{[]result.Reason{"peer_gid"}, "the peer's rail has no usable GID, another kind than this node's, or no " +
			"longer the one that was used", "give the peer's interface an address of this node's kind and subnet",
			[]string{"ip -br address"}},
		{[]result.Reason{"gid_misbound"}, "a path failed, and all RoCE v2 IPv4 GIDs of its rail at one end are those " +
			"of a bond or bridge", "remove the interface from the bond or bridge and give it an address, or use the " +
			"bond's RDMA device as the rail", []string{"ip -br link"}},
	}
}

func memoryCures() []Cure {
	return []Cure{
		{[]result.Reason{"no_timestamps"}, "the device has no completion timestamps, or stamps with a clock that " +
			"cannot be read", "none: most devices but mlx5 have none; on mlx5, real-time timestamps are off by " +
			"REAL_TIME_CLOCK_ENABLE=0 of mlxconfig", nil},
		{[]result.Reason{"no_dmabuf"}, "`ibv_reg_dmabuf_mr` is missing, or returns ENOSYS, EOPNOTSUPP, EINVAL or " +
			"ENOTTY; `cuMemGetHandleForAddressRange` or `hsa_amd_portable_export_dmabuf` is missing or fails",
			"dma-buf needs Linux 5.12, rdma-core 34 and a driver that exports memory of the GPU at both ends: " +
				"NVIDIA's open kernel modules, or amdgpu of Linux 6.4 and ROCm. Without CONFIG_PCI_P2PDMA and " +
				"CONFIG_DMABUF_MOVE_NOTIFY amdgpu moves the memory to the host",
			[]string{"grep -E 'PCI_P2PDMA|DMABUF_MOVE_NOTIFY' /boot/config-$(uname -r)"}},
		{[]result.Reason{"no_peermem"}, "`ibv_reg_mr` of GPU memory: EFAULT, EINVAL, EOPNOTSUPP",
			"load the module at both ends", []string{"modprobe nvidia-peermem"}},
		{[]result.Reason{"no_libcuda"}, "`libcuda.so.1` is missing, a stub, or lacks a function",
			"install the NVIDIA driver; in a container add compute to NVIDIA_DRIVER_CAPABILITIES",
			[]string{"ldconfig -p | grep libcuda"}},
		{[]result.Reason{"no_libhsa"}, "`libhsa-runtime64.so.1` is missing, or lacks a function",
			"install ROCm's runtime: hsa-rocr, or libhsa-runtime64-1 of Debian and Ubuntu",
			[]string{"ldconfig -p | grep libhsa"}},
		{[]result.Reason{"no_gpu"}, "CUDA or ROCm has no GPU at this PCI address; `hsa_init` fails",
			"give railscope the GPU: CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES, the container's devices (of AMD: " +
				"/dev/kfd and /dev/dri/renderD*); at the peer also probe.extras: [gpu]",
			[]string{"nvidia-smi -L", "rocminfo"}},
		{[]result.Reason{"unified_memory"}, "the GPU is integrated and exports no memory",
			"none: measure host memory, which the GPU shares, as that of a DGX Spark (GB10)", nil},
		{[]result.Reason{"cuda_oom"}, "CUDA_ERROR_OUT_OF_MEMORY", "measure while no job holds the GPU's memory",
			[]string{"nvidia-smi"}},
		{[]result.Reason{"cuda_error"}, "another error of CUDA, with its name and number",
			"look for XIDs in the kernel log, and compare the versions of the driver and of its libraries",
			[]string{"dmesg | grep -i xid"}},
		{[]result.Reason{"rocm_oom"}, "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
			"measure while no job holds the GPU's memory",
			[]string{"grep -H . /sys/bus/pci/drivers/amdgpu/*:*/mem_info_vram_used"}},
		{[]result.Reason{"rocm_error"}, "another error of HSA, with its name and number",
			"look for amdgpu's messages in the kernel log, and compare the versions of the driver and of ROCm",
			[]string{"dmesg | grep -i amdgpu"}},
	}
}

func pathCures() []Cure {
	return []Cure{
		{[]result.Reason{"rtr_einval"}, "RTR: EINVAL", "give both ends a GID of one type, and an MTU that their " +
			"ports support", []string{"railscope rails"}},
		{[]result.Reason{"rtr_unreachable"}, "RTR: ETIMEDOUT, EHOSTUNREACH",
			"put both ends into one subnet and on the same " +
				"cable or VLAN: nobody answers ARP for the other end", []string{"ip neighbour"}},
		{[]result.Reason{"rtr_noroute"}, "RTR: ENETUNREACH, ENODEV", "add a route to the peer's rail from the " +
			"interface of this rail", []string{"ip route"}},
		{[]result.Reason{"no_route"}, "from one rail of this node to another", "none if the rails are separate " +
			"networks; else route between them", []string{"ip route"}},
		{[]result.Reason{"retry_exceeded"}, "completion status 12", "find where packets are lost between the two " +
			"rails: a filter on UDP port 4791 on a host or switch, a VLAN, a switch port that drops",
			[]string{"nft list ruleset"}},
		{[]result.Reason{"mtu_black_hole"}, "status 12 for full-size packets after 8 B succeeded",
			"raise the MTU of every switch port on the path to 4200 or more, or lower that of both ends",
			[]string{"ip -br link"}},
		{[]result.Reason{"remote_access", "local_prot", "rnr", "flush", "qp_error"},
			"completion status 9-11, 4, 13, 5; `IBV_EVENT_QP_ACCESS_ERR`, `QP_REQ_ERR`, `QP_FATAL`, `CQ_ERR`", "look " +
				"for the device's messages in the kernel log of both nodes, and run one version of rdma-core and of " +
				"the firmware on both",
			[]string{"dmesg | grep -iE 'mlx5|bnxt|infiniband'"}},
		{[]result.Reason{"device_fatal"}, "EIO, ENODEV; `IBV_EVENT_DEVICE_FATAL`",
			"reset the adapter, or restart the node: " +
				"its firmware has stopped", []string{"dmesg | grep -iE 'mlx5|bnxt|health'"}},
		{[]result.Reason{"timeout"}, "no completion, or almost none while other rails were busy",
			"look for what blocks the " +
				"rail: pause frames, drops, a hung firmware", []string{"dmesg | grep -iE 'mlx5|bnxt|health'"}},
	}
}

func processCures() []Cure {
	return []Cure{
		{[]result.Reason{"worker_crashed", "worker_timeout", "worker_backoff"}, "the worker process", "look for " +
			"railscope-probe in the log of the kernel (the OOM killer, a fault) and of railscope; then compare the " +
			"version of the provider's library", []string{"dmesg | grep railscope-probe"}},
		{[]result.Reason{PeerWorker}, "the peer reports one of these of its own worker",
			"look for railscope-probe in the log of the kernel (the OOM killer, a fault of the provider's library) " +
				"and of railscope",
			[]string{"dmesg | grep railscope-probe"}},
	}
}

func channelCures() []Cure {
	return []Cure{
		{[]result.Reason{"peer_unreachable"}, "the control channel: no connection", "correct the name of the peer if " +
			"it is not found; else start railscope there with probe.listen, and open its port in the firewalls between",
			[]string{"ss -ltn"}},
		{[]result.Reason{"unauthorized"}, "the control channel: token or certificate refused",
			"give both nodes the same token (probe.token_file, here also --token-file) or certificates of one " +
				"authority; with [address translation](security.md#address-translation), name no address that leads " +
				"back to the node itself", nil},
		{[]result.Reason{"tls"}, "the control channel: no TLS session", "set probe.tls on both nodes or on neither; " +
			"each certificate names its host and is signed by the other's client_ca_file", nil},
		{[]result.Reason{"protocol"}, "the control channel: an invalid answer", "use the port of probe.listen of the " +
			"peer, not that of its metrics, and one version of railscope on both nodes", nil},
		{[]result.Reason{"peer_lost", "lease_lost"}, "the peer stopped answering during the round",
			"look on the peer for a " +
				"restart of railscope (its log) or of the node, and for a lost route between the two",
			[]string{"uptime", "ip route"}},
		{[]result.Reason{"self"}, "the peer is this node", "remove this node from probe.peers", nil},
		{[]result.Reason{"tcp_refused", "tcp_unreachable", "tcp_broken"}, "TCP failed as well", "open the port of " +
			"probe.listen on the rails' addresses, and look for the route to them", []string{"ip route"}},
		{[]result.Reason{"no_address"}, "TCP: no pair of addresses in one subnet", "give the rails of both nodes " +
			"addresses of one subnet", []string{"ip -br address"}},
		{[]result.Reason{"data_mismatch"}, "the target found wrong bytes", "run no job on the two nodes: find which " +
			"rail and which node corrupts data by measuring each with a third node, then replace the adapter, the " +
			"cable or the memory", []string{"dmesg | grep -iE 'edac|mce|aer'"}},
		{[]result.Reason{"other"}, "none of these: the detail says what", "the detail names what failed; look in " +
			"the logs of railscope and of the kernel", []string{"dmesg | tail -50"}},
	}
}

// skipCures returns the reasons for which a round, or an additional measurement, is skipped.
func skipCures() []Cure {
	return []Cure{
		{[]result.Reason{"busy", "cooldown"}, "the rails or the transfer slot are in use",
			"none: the round is tried again", nil},
		{[]result.Reason{"budget"}, "the [budget](#budget) is used up",
			"none: the round is tried again; raise probe.budget " +
				"on both nodes to measure more", nil},
		{[]result.Reason{"draining", "canceled"}, "an end shuts down, or the caller stopped", "none", nil},
		{[]result.Reason{"maintenance"}, "an end is in [maintenance](maintenance.md)",
			"none while somebody works there; remove the maintenance file afterwards", nil},
		{[]result.Reason{"peer_version"}, "another protocol version", "install one version of railscope on both " +
			"nodes: [upgrading](upgrading.md#mixed-versions)", nil},
		{[]result.Reason{"no_gap"}, "the rails of both ends were never quiet at the same time while the round waited",
			"none: it waits again in the next round; traffic shows meanwhile what the rails carry", nil},
		{[]result.Reason{"collided"}, "a short burst in a gap met traffic of others less than an hour ago",
			"none: the round makes no burst over that rail for an hour", nil},
		{[]result.Reason{"ramping"}, "a rail still became faster in the last of four windows",
			"raise probe.burst; compare the start rates of the adapters' congestion control", nil},
		{[]result.Reason{"disturbed"}, "the polling thread did not run in time, or writes completed unevenly",
			"give railscope more CPU time: the " +
				"pod's " +
				"request or limit, or a node that is less busy; or raise depth, if the detail names it", nil},
	}
}

// CuresText returns the table of docs/probe.md.
func CuresText() string {
	var b strings.Builder
	b.WriteString("| reason | detected by | what to do |\n|---|---|---|\n")
	for _, c := range Cures() {
		var names []string
		for _, r := range c.Reasons {
			names = append(names, "`"+string(r)+"`")
		}
		text := strings.ReplaceAll(c.Cure, "uverbs*", `uverbs\*`)
		if len(c.Commands) > 0 {
			text += ": `" + strings.ReplaceAll(strings.Join(c.Commands, "`, `"), "|", `\|`) + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.Join(names, ", "), c.Seen, text)
	}
	return b.String()
}

// links removes Markdown links, which are useless on a terminal.
var links = strings.NewReplacer("[address translation](security.md#address-translation)", "address translation",
	": [upgrading](upgrading.md#mixed-versions)", "")

// cure returns the fix for a failure on this node, or on the peer if a name is given.
func cure(reason result.Reason, peer string) []string {
	list := Cures()
	i := slices.IndexFunc(list, func(c Cure) bool { return slices.Contains(c.Reasons, reason) })
	if i < 0 { // reason of a newer peer
		i = slices.IndexFunc(list, func(c Cure) bool { return slices.Contains(c.Reasons, "other") })
	}
	text := links.Replace(list[i].Cure)
	if peer == "" {
		return append([]string{note("%s", text)}, list[i].Commands...)
	}
	lines := []string{note("on %s: %s", terminal.Plain(peer), text)}
	for _, c := range list[i].Commands {
		lines = append(lines, note("on %s: %s", terminal.Plain(peer), c))
	}
	return lines
}

// cureOf returns the fix for a failure, at the end that has the fault.
func cureOf(r *result.Result, f result.Failure) []string {
	if f.AtPeer() || slices.Contains([]result.Reason{PeerWorker, "peer_gid", "peer_unreachable", "peer_lost",
		"lease_lost"},
		f.Reason) {
		return cure(f.Reason, r.Peer)
	}
	return cure(f.Reason, "")
}
