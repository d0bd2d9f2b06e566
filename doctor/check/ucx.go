package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
)

// UCX transports that use RDMA (src/uct/ib): reliable ones, those that few adapters have, and datagrams.
func ucxReliable() []string  { return []string{"rc_verbs", "rc_mlx5", "dc_mlx5"} }
func ucxRare() []string      { return []string{"gga_mlx5", "srd"} }
func ucxDatagrams() []string { return []string{"ud_verbs", "ud_mlx5"} }

// ucxAlias returns the RDMA transports of each name in UCX_TLS (ucp_tl_aliases in src/ucp/core/ucp_context.c).
func ucxAlias() map[string][]string {
	return map[string][]string{
		"ib": slices.Concat(ucxReliable(), ucxRare(), ucxDatagrams()),
		"rc": {"rc_mlx5", "rc_verbs"}, "rc_v": {"rc_verbs"}, "rc_x": {"rc_mlx5"},
		"dc": {"dc_mlx5"}, "dc_x": {"dc_mlx5"},
		"ud": ucxDatagrams(), "ud_v": {"ud_verbs"}, "ud_x": {"ud_mlx5"},
	}
}

// ucxOthers returns the names without RDMA. A list with an unknown name is not judged: a later UCX may know it.
func ucxOthers() []string {
	return []string{"tcp", "sockcm", "rdmacm", "self", "sm", "shm", "mm", "posix", "sysv", "xpmem", "knem", "cma",
		"cuda", "cuda_copy", "cuda_ipc", "gdr_copy", "rocm", "rocm_copy", "rocm_ipc", "rocm_gdr", "ze", "ze_copy",
		"ze_ipc", "ze_gdr"}
}

type ucxTransports struct {
	reliable, datagrams, tcp bool
	known                    bool // every name is known here
}

// parseUCXTLS parses UCX_TLS as UCX does (ucp_is_resource_in_transports_list).
func parseUCXTLS(text string) ucxTransports {
	text, not := strings.CutPrefix(text, "^")
	if text == "all" || text == "" {
		on := text == "all" && !not
		return ucxTransports{on, on, on, on}
	}
	names := strings.Split(text, ",")
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], `\`)
	}
	on := func(transport string) bool {
		return not != slices.ContainsFunc(names, func(name string) bool {
			return name == transport || slices.Contains(ucxAlias()[name], transport)
		})
	}
	known := func(name string) bool {
		// UCX does not match a name with a space, which makes no difference for these.
		return len(ucxAlias()[name]) > 0 || slices.Contains(ucxAlias()["ib"], name) ||
			slices.Contains(ucxOthers(), strings.TrimSpace(name))
	}
	return ucxTransports{
		reliable:  slices.ContainsFunc(ucxReliable(), on) || !not && slices.ContainsFunc(ucxRare(), on),
		datagrams: slices.ContainsFunc(ucxDatagrams(), on),
		tcp:       on("tcp"),
		known:     !slices.ContainsFunc(names, func(name string) bool { return !known(name) }),
	}
}

// UCXReliable reports whether a value of UCX_TLS allows, or may allow, a reliable RDMA transport.
func UCXReliable(value string) bool {
	t := parseUCXTLS(value)
	return !t.known || t.reliable
}

func judgeUCXTLS(_ *facts.Facts, env facts.Env, _ string) verdict {
	t := parseUCXTLS(env.Vars["UCX_TLS"])
	switch {
	case !t.known || t.reliable:
		return verdict{}
	case t.datagrams:
		return verdict{severity: warning, what: "of RDMA it leaves UCX only datagrams (ud)",
			why: "The CPU handles datagrams piece by piece: large transfers, and those to GPU memory, need rc or dc."}
	case t.tcp:
		return verdict{severity: critical, what: "it leaves UCX tcp, and no RDMA transport",
			why: "UCX, and NIXL and MPI on it, then use TCP, far below what the rails carry, and do not report it."}
	}
	return verdict{severity: warning, what: "it leaves UCX no transport between nodes",
		why: "Such a process reaches only others on this node. A job on several nodes fails (Destination is " +
			"unreachable)."}
}

// ucxDevices is the content of UCX_NET_DEVICES. A name is an RDMA port (mlx5_0:1; since UCX 1.21 also mlx5_0) or an
// interface, for tcp; since 1.21 ^ excludes the listed names.
type ucxDevices struct {
	netdevs, absent, good []string
	left                  bool // an RDMA port remains usable
}

func parseUCXDevices(jobs facts.Jobs, list string, not, foreign bool) (d ucxDevices) {
	named := map[facts.RDMAPort]bool{}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		device, port, ported := strings.Cut(name, ":")
		hit := false
		for _, p := range jobs.Devices {
			if p.Device == device && (!ported || fmt.Sprint(p.Port) == port) {
				hit, named[p] = true, true
			}
		}
		netdev := !ported && slices.Contains(jobs.Netdevs, device) || foreign
		switch {
		case hit:
			d.good = append(d.good, name)
		case netdev:
			d.netdevs, d.good = append(d.netdevs, name), append(d.good, name)
		default:
			d.absent = append(d.absent, name)
		}
	}
	d.left = slices.ContainsFunc(jobs.Devices, func(p facts.RDMAPort) bool { return named[p] != not })
	return d
}

// rdmaNames returns UCX's names of the RDMA ports of interfaces; empty if one is unknown.
func rdmaNames(jobs facts.Jobs, netdevs []string) string {
	var names []string
	for _, netdev := range netdevs {
		name, known := jobs.RDMANames[netdev]
		if !known {
			return ""
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

func judgeUCXDevices(f *facts.Facts, env facts.Env, _ string) verdict {
	jobs := f.Jobs
	list, not := strings.CutPrefix(env.Vars["UCX_NET_DEVICES"], "^")
	pattern := strings.ContainsAny(list, "[*?") || slices.Contains(strings.Split(list, ","), "all")
	if env.Foreign && list != "lo" || list == "" || pattern || len(jobs.Devices) == 0 {
		return verdict{}
	}
	d := parseUCXDevices(jobs, list, not, env.Foreign)
	const nowhere = "neither in /sys/class/infiniband nor in /sys/class/net"
	tcp := verdict{severity: critical,
		why: "UCX, and NIXL and MPI on it, then use TCP, or do not start. Name RDMA devices, for example mlx5_0:1."}
	switch {
	case d.left && (not || len(d.absent) == 0):
		return verdict{}
	case not:
		tcp.what = "it excludes every RDMA port"
	case d.left:
		return verdict{severity: warning, what: fmt.Sprintf("%s is %s", listed(d.absent), nowhere),
			fix: strings.Join(d.good, ","),
			why: "UCX ignores what it does not find, with only a warning: the job uses fewer rails than intended."}
	case len(d.absent) > 0:
		tcp.what = fmt.Sprintf("%s is %s, and no RDMA device is named", listed(d.absent), nowhere)
	default:
		tcp.what = fmt.Sprintf("it names no RDMA device, only %s", listed(d.netdevs))
		if !env.Foreign {
			tcp.fix = rdmaNames(jobs, d.netdevs)
		}
	}
	return tcp
}

// checkUCXTransports judges the output of ucx_info. The layers below UCX have their own checks.
func checkUCXTransports(f *facts.Facts, report reporter) {
	if f.UCX.Path == "" || f.Verbs.Library == "" {
		return
	}
	rdma := ucxAlias()["ib"]
	var seen, devices []string
	for _, t := range f.UCX.Transports {
		if slices.Contains(rdma, t.Name) || t.Name == "srd" {
			devices = append(devices, t.Device)
			if !slices.Contains(seen, t.Name) {
				seen = append(seen, t.Name)
			}
		}
	}
	var lost []*facts.Rail
	for _, r := range f.Judged() {
		closed := slices.ContainsFunc(f.Devices.Uverbs, func(u facts.Uverbs) bool {
			return u.Device == r.Device && u.State != facts.UverbsGood
		})
		noProvider := slices.ContainsFunc(f.Verbs.Providers, func(p facts.Provider) bool {
			return p.Name == r.Provider && p.Library == ""
		})
		if r.Active() && !r.Software && r.LinkLayer != rail.IWARP && !closed && !noProvider &&
			!slices.Contains(devices, fmt.Sprintf("%s:%d", r.Device, r.Port)) {
			lost = append(lost, r)
		}
	}
	if len(lost) == 0 {
		return
	}
	subject, where := subjects(lost)
	out := finding.Finding{Subject: subject, Where: where,
		Evidence: fmt.Sprintf("%s -d lists no RDMA transport for it", f.UCX.Path),
		Why:      "UCX, and NIXL over it, does not use the rail: its traffic goes over the others, or over TCP.",
		Fix: []string{note("what UCX says about the device: UCX_LOG_LEVEL=debug %s -d 2>&1 | grep %s",
			shellWord(f.UCX.Path), shellWord(lost[0].Device))}}
	if len(seen) == 0 {
		out.Evidence = fmt.Sprintf("%s -d lists no RDMA transport of any device", f.UCX.Path)
		out.Fix = append([]string{"# is UCX built without RDMA, or its module libuct_ib.so missing? Install the RDMA " +
			"part of the same version (packages ucx-ib and ucx-ib-mlx5, or HPC-X)"}, out.Fix...)
	} else {
		out.Evidence += fmt.Sprintf(", and %s for others", listed(seen))
	}
	report(out)
}
