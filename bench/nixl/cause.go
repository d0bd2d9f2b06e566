package nixl

import (
	"fmt"
	"strings"

	"github.com/railscope/railscope/doctor/check"
)

// symptom is what nixlbench, UCX or the etcd client print, and what that means.
type symptom struct {
	texts []string
	cause string
}

// symptoms are in the order in which they are judged: the first is the cause, what follows from it comes later.
func symptoms(s Settings) []symptom {
	stale := "keys of an earlier run are left in etcd: remove them by " + s.RemoveKeys()
	return []symptom{
		{[]string{"target uri is not valid"}, "the etcd client refuses its endpoint, whatever the backend: write " +
			"--etcd=http://HOST:2379 with a host that both nodes resolve, or run without etcd"},
		{[]string{"Failed to connect to ETCD", "failed to connect to all addresses", "Failed to setup ETCD runtime",
			"Failed to acquire lock"}, "etcd does not answer: start it, or run without etcd"},
		{[]string{"is greater than or equal to global size"}, stale},
		{[]string{"unknown command line flag", "Invalid runtime"}, "this nixlbench is older than its flags here: it has no " +
			"runtime without etcd; install a newer one, or use --etcd"},
		{[]string{"ASIO Connection timeout"}, "the target did not connect within 25 s: start its command while the " +
			"initiator waits, and let TCP port " + fmt.Sprint(s.Port) + " of this node through"},
		{[]string{"bind/listen error"}, "another process has the address: this node became the target; choose --port"},
		{[]string{"ASIO Connection failed"}, "nobody listens at the initiator's address"},
		{[]string{"VRAM not supported without CUDA"}, "this nixlbench is built without CUDA: it cannot use memory of GPUs"},
		{[]string{"cuda_ipc", "CUDA IPC", "cuIpc"}, "CUDA IPC failed: between nodes it is not needed; exclude it by " +
			"UCX_TLS=^cuda_ipc at both ends"},
		{[]string{"Unsupported NIXLBench backend", "NIXL_ERR_NOT_FOUND", "Failed to load plugin", "plugin not found",
			"No plugin", "Unsupported backend"}, "the plugin of the backend is missing: set NIXL_PLUGIN_DIR to the directory " +
			"of libplugin_UCX.so at both ends"},
		{[]string{"NIXL_ERR_BACKEND", "ibv_reg_mr", "Bad address"}, "memory could not be registered: on a GPU without " +
			"GPUDirect RDMA (GB10) only DRAM works; see railscope doctor"},
		{[]string{"loadRemoteMD failed"}, "the versions of NIXL or UCX at both ends differ"},
	}
}

// Causes are what the output of a run that failed says.
func Causes(s Settings, output string) (list []string) {
	for _, one := range symptoms(s) {
		for _, text := range one.texts {
			if strings.Contains(output, text) {
				list = append(list, one.cause)
				break
			}
		}
	}
	return list
}

// Environment says what in the environment keeps UCX from RDMA.
func Environment(vars map[string]string) (list []string) {
	if v, ok := vars["UCX_TLS"]; ok && !check.UCXReliable(v) {
		list = append(list, "UCX_TLS="+v+" leaves UCX no RDMA transport (this explains 0.85 GB/s): unset it at both ends")
	}
	for name := range strings.SplitSeq(vars["UCX_NET_DEVICES"], ",") {
		if strings.TrimSpace(name) == "lo" {
			list = append(list, "UCX_NET_DEVICES names lo, the loopback interface: unset it at both ends")
		}
	}
	return list
}
