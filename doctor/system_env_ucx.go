package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// The transports of UCX that go over RDMA: those that are reliable, those that
// are and that few adapters have, and datagrams (src/uct/ib).
func ucxReliable() []string  { return []string{"rc_verbs", "rc_mlx5", "dc_mlx5"} }
func ucxRare() []string      { return []string{"gga_mlx5", "srd"} }
func ucxDatagrams() []string { return []string{"ud_verbs", "ud_mlx5"} }

// ucxAlias is what names in UCX_TLS stand for (ucp_tl_aliases in
// src/ucp/core/ucp_context.c), as far as RDMA is concerned; what a name brings
// along for wire-up alone does not count.
func ucxAlias() map[string][]string {
	return map[string][]string{
		"ib":   {"rc_verbs", "ud_verbs", "rc_mlx5", "ud_mlx5", "dc_mlx5", "gga_mlx5", "srd"},
		"rc":   {"rc_mlx5", "rc_verbs"},
		"rc_v": {"rc_verbs"}, "rc_x": {"rc_mlx5"},
		"dc": {"dc_mlx5"}, "dc_x": {"dc_mlx5"},
		"ud": {"ud_mlx5", "ud_verbs"}, "ud_v": {"ud_verbs"}, "ud_x": {"ud_mlx5"},
	}
}

// ucxOthers are the names that have nothing to do with RDMA. A list with a name
// that is neither is not judged: a later UCX may know it.
func ucxOthers() []string {
	return []string{"tcp", "sockcm", "rdmacm", "self", "sm", "shm", "mm", "posix", "sysv", "xpmem", "knem", "cma",
		"cuda", "cuda_copy", "cuda_ipc", "gdr_copy", "rocm", "rocm_copy", "rocm_ipc", "rocm_gdr", "ze", "ze_copy", "ze_ipc", "ze_gdr"}
}

// ucxTransports is what UCX_TLS leaves.
type ucxTransports struct {
	reliable, datagrams, tcp bool
	known                    bool // every name is one that is known here
}

// parseUCXTLS reads UCX_TLS as UCX does (ucp_is_resource_in_transports_list).
func parseUCXTLS(text string) (t ucxTransports) {
	text, not := strings.CutPrefix(text, "^")
	names := strings.Split(text, ",")
	if text == "all" || text == "" {
		on := text == "all" && !not
		return ucxTransports{on, on, on, on}
	}
	named := func(transport string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return strings.TrimPrefix(name, `\`) == transport || slices.Contains(ucxAlias()[name], transport)
		})
	}
	on := func(transport string) bool { return named(transport) != not }
	t.reliable, t.datagrams, t.tcp = slices.ContainsFunc(ucxReliable(), on), slices.ContainsFunc(ucxDatagrams(), on), on("tcp")
	t.reliable = t.reliable || !not && slices.ContainsFunc(ucxRare(), on)
	t.known = true
	for _, name := range names {
		name = strings.TrimPrefix(name, `\`)
		_, alias := ucxAlias()[name]
		t.known = t.known && (alias || slices.Contains(ucxReliable(), name) || slices.Contains(ucxRare(), name) || slices.Contains(ucxDatagrams(), name) ||
			slices.Contains(ucxOthers(), strings.TrimSpace(name))) // a blank hides a name from UCX, and nothing is lost with these
	}
	return t
}

func judgeUCXTLS(_ *Facts, env JobEnv) (verdict, bool) {
	t := parseUCXTLS(env.Vars["UCX_TLS"])
	switch {
	case !t.known || t.reliable:
		return verdict{}, false
	case t.datagrams:
		return verdict{severity: Warning, what: "of RDMA it leaves UCX datagrams (ud) alone",
			why: "datagrams are sent and received piece by piece, by the CPU: large transfers, and those to GPU memory, need rc or dc"}, true
	case t.tcp:
		return verdict{severity: Fault, what: "it leaves UCX tcp, and no RDMA transport",
			why: "UCX, and NIXL and MPI on it, go by TCP then, far below what the rails carry, and do not say so"}, true
	default:
		return verdict{severity: Warning, what: "it leaves UCX no transport between nodes",
			why: "such a process reaches others on this node alone: right for a job on one node, and an error (Destination is unreachable) for any other"}, true
	}
}

// ucxNames are the names in UCX_NET_DEVICES, without ^ and ports.
func ucxNames(text string) (names []string) {
	for name := range strings.SplitSeq(strings.TrimPrefix(text, "^"), ",") {
		name, _, _ = strings.Cut(strings.TrimSpace(name), ":")
		names = append(names, name)
	}
	return names
}

// judgeUCXDevices looks at which devices UCX_NET_DEVICES leaves. A name may be
// an RDMA port (mlx5_0:1; since UCX 1.21 also mlx5_0) or an interface, for tcp;
// since 1.21 ^ leaves out the named ones.
func judgeUCXDevices(f *Facts, env JobEnv) (verdict, bool) {
	jobs := f.System.Jobs
	text := env.Vars["UCX_NET_DEVICES"]
	list, not := strings.CutPrefix(text, "^")
	tcp := verdict{severity: Fault, why: "UCX, and NIXL and MPI on it, go by TCP then, or do not start; RDMA devices have to be named, for example mlx5_0:1"}
	if env.Foreign && list != "lo" || list == "" || strings.ContainsAny(list, "[*?") || slices.Contains(strings.Split(list, ","), "all") || len(jobs.Devices) == 0 {
		return verdict{}, false
	}
	var rdma, netdevs, absent, good []string
	left := map[RDMAPort]bool{}
	for _, p := range jobs.Devices {
		left[p] = not
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		device, port, ported := strings.Cut(name, ":")
		hit := false
		for _, p := range jobs.Devices {
			if p.Device == device && (!ported || fmt.Sprint(p.Port) == port) {
				hit, left[p] = true, !not
			}
		}
		switch {
		case hit:
			rdma, good = append(rdma, name), append(good, name)
		case !ported && slices.Contains(jobs.Netdevs, device) || env.Foreign:
			netdevs, good = append(netdevs, name), append(good, name)
		default:
			absent = append(absent, name)
		}
	}
	some := false
	for _, on := range left {
		some = some || on
	}
	switch {
	case not && some, !not && some && len(absent) == 0:
		return verdict{}, false
	case not:
		tcp.what = "it leaves out every RDMA port there is"
	case some:
		return verdict{severity: Warning, what: fmt.Sprintf("%s is neither in /sys/class/infiniband nor in /sys/class/net", listed(absent)),
			why: "UCX leaves out what it does not find with no more than a warning: the job goes over fewer rails than it was meant to", mend: strings.Join(good, ",")}, true
	case len(absent) > 0:
		tcp.what = fmt.Sprintf("%s is neither in /sys/class/infiniband nor in /sys/class/net, and no RDMA device is named", listed(absent))
	default:
		tcp.what = fmt.Sprintf("it names no RDMA device, only %s", listed(netdevs))
	}
	return tcp, true
}
