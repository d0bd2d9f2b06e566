package nixl

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/railscope/railscope/doctor/check"
)

// symptom is a message of nixlbench, UCX, NIXL or the etcd client, with its cause.
type symptom struct {
	message *regexp.Regexp
	cause   func(s Settings, c Combination, m []string) string // m is the message and its groups
	// general reports that the message has other causes, too: it counts only if no other symptom matches.
	general bool
}

// means returns a cause that does not depend on the message.
func means(text string) func(Settings, Combination, []string) string {
	return func(Settings, Combination, []string) string { return text }
}

func text(messages ...string) *regexp.Regexp {
	for i, m := range messages {
		messages[i] = regexp.QuoteMeta(m)
	}
	return regexp.MustCompile(strings.Join(messages, "|"))
}

// symptoms are in order of precedence. Statuses such as NIXL_ERR_BACKEND have dozens of causes and are not listed.
var symptoms = []symptom{
	// Runtime: etcd, or a direct connection.
	{text("target uri is not valid"), means("the etcd client refuses its endpoint, whatever the backend: write " +
		"--etcd=http://HOST:2379 with a host that both nodes resolve, or run without etcd"), false},
	{text("Failed to connect to ETCD", "failed to connect to all addresses", "Failed to setup ETCD runtime",
		"Failed to acquire lock"), means("etcd does not answer: start it, or run without etcd"), false},
	{text("is greater than or equal to global size"), func(s Settings, _ Combination, _ []string) string {
		return "keys of an earlier run are left in etcd: remove them by " + s.RemoveKeys()
	}, false},
	{text("unknown command line flag", "Invalid runtime"),
		means("this nixlbench is older than its flags here: it has no runtime without etcd; install a newer one, or " +
			"use --etcd"), false},
	{text("ASIO Connection timeout"), func(s Settings, _ Combination, _ []string) string {
		return fmt.Sprintf("the target did not connect within 25 s: start its command while the initiator waits, and "+
			"let TCP port %d of this node through", s.Port)
	}, false},
	{text("bind/listen error"),
		means("another process has the address: this node became the target; choose --port"), false},
	{text("ASIO Connection failed"), means("nobody listens at the initiator's address"), false},
	// Build options.
	{text("VRAM not supported without CUDA"),
		means("this nixlbench is built without CUDA: it cannot use memory of GPUs"), false},
	{regexp.MustCompile(`Unsupported NIXLBench backend|Failed to load plugin|[Pp]lugin not found|No plugin|` +
		`[Uu]nsupported backend|backend '\w+' not found`), func(_ Settings, c Combination, _ []string) string {
		return fmt.Sprintf("the plugin of the backend is missing, or a library that it needs: set NIXL_PLUGIN_DIR to "+
			"the directory of libplugin_%s.so at both ends, and see ldd libplugin_%[1]s.so", c.Backend)
	}, false},
	// UCX: memory, devices, transports, addresses.
	{
		regexp.MustCompile(
			`(?:ibv_reg_mr\([^\n]*Cannot allocate memory|max locked memory)(?:[^\n]*?current: ([^)\n]+)\))?`),
		func(_ Settings, _ Combination, m []string) string {
			limit := ""
			if m[1] != "" {
				limit = " to " + m[1]
			}
			return "locked memory is limited" + limit + ": run nixlbench under ulimit -l unlimited at both ends " +
				"(docker: --ulimit memlock=-1)"
		}, false},
	{regexp.MustCompile(`ibv_reg_(?:dmabuf_)?mr[^\n]*(?:Bad address|not supported|Invalid argument)`),
		func(_ Settings, c Combination, m []string) string {
			if c.Memory != "VRAM" {
				return "host memory could not be registered: " + strings.TrimSpace(m[0])
			}
			return "GPU memory could not be registered: on a GPU without GPUDirect RDMA (GB10) only DRAM works; see " +
				"railscope doctor"
		}, false},
	{
		regexp.MustCompile(
			`network devices? ([^\n]*?) (?:is|are) not available(?:, please use one or more of: ([^\n]*))?`),
		missingDevice, false},
	{regexp.MustCompile(`\btransports? ([^\n]*?) (?:is|are) not available`),
		func(_ Settings, _ Combination, m []string) string {
			return "UCX_TLS names " + m[1] + ", which UCX here does not have: unset it, or install UCX with it, at " +
				"both ends"
		}, false},
	{regexp.MustCompile(`ibv_create_ah\([^\n]*?dgid=(\S+)[^\n]*? on (\S+) failed: ([^\n]*)|` +
		`ibv_create_ah\([^\n]*?dgid=(\S+)[^\n]*?\)()[^\n]*?failed: ([^\n]*)`), unreachable, false},
	{regexp.MustCompile(`cuIpc\w+[^\n]*(?i:fail|error)|cuda_ipc_\w+\.c:\d+[^\n]* ERROR |CUDA IPC[^\n]*(?i:fail)`),
		means("CUDA IPC failed: between nodes it is not needed; exclude it by UCX_TLS=^cuda_ipc at both ends"), false},
	{regexp.MustCompile(`no [\w/ ]*transports? to |no usable transports/devices|Destination is unreachable`),
		means("UCX has no transport between the nodes: UCX_TLS or UCX_NET_DEVICES leaves none; unset them at both " +
			"ends, and see ucx_info -d"), true},
	{regexp.MustCompile(`Transport retry count exceeded|Endpoint timeout`),
		means("a transfer was not acknowledged: a rail does not reach the peer; see railscope bench with this peer"),
		true},
	{text("loadRemoteMD failed"), means("the metadata of the other end could not be loaded: the versions of NIXL or " +
		"UCX at both ends differ, or its connection failed before"), true},
}

// missingDevice names the devices in UCX_NET_DEVICES, and the devices that exist.
func missingDevice(_ Settings, _ Combination, m []string) string {
	var here []string
	for _, device := range ucxDevice.FindAllStringSubmatch(m[2], -1) {
		here = append(here, device[1])
	}
	list := "no RDMA device is here"
	if len(here) > 0 {
		list = "here are " + strings.Join(here, ", ")
	}
	return fmt.Sprintf("UCX_NET_DEVICES names %s, which is not on this node, or not in this container: %s",
		strings.ReplaceAll(m[1], "'", ""), list)
}

var ucxDevice = regexp.MustCompile(`'([^']+)'\(ib\)`)

// unreachable explains a failed address handle: the adapter uses ARP or the kernel's routes.
func unreachable(_ Settings, _ Combination, m []string) string {
	address, device, why := m[1]+m[4], m[2], strings.TrimSpace(m[3]+m[6])
	if device == "" {
		device = "a rail"
	}
	return fmt.Sprintf("the peer's address %s is not reachable from %s (%s): give both ends of this rail addresses "+
		"of one subnet and see that ARP is answered, or leave it out by UCX_NET_DEVICES",
		strings.TrimPrefix(address, "::ffff:"), device, why)
}

// Causes returns the causes of a failed run that its output shows.
func Causes(s Settings, c Combination, output string) (list []string) {
	for _, one := range symptoms {
		if one.general && len(list) > 0 {
			continue
		}
		if m := one.message.FindStringSubmatch(output); m != nil {
			list = append(list, one.cause(s, c, m))
		}
	}
	return list
}

// Environment returns the settings in the environment that keep UCX from using RDMA.
func Environment(vars map[string]string) (list []string) {
	if v, ok := vars["UCX_TLS"]; ok && !check.UCXReliable(v) {
		list = append(list, "UCX_TLS="+v+" leaves UCX no RDMA transport (this explains 0.85 GB/s): unset it at both "+
			"ends")
	}
	for name := range strings.SplitSeq(vars["UCX_NET_DEVICES"], ",") {
		if strings.TrimSpace(name) == "lo" {
			list = append(list, "UCX_NET_DEVICES names lo, the loopback interface: unset it at both ends")
		}
	}
	return list
}
