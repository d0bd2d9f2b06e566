package check

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
)

const whyNCCL = "NCCL then uses slow TCP sockets between nodes, and only its log shows it (Using network Socket)."

// integer matches the prefix of a text that strtoll with base 0 reads.
var integer = regexp.MustCompile(`^[\s\v]*([+-]?(?:0[xX][[:xdigit:]]+|0[0-7]*|[1-9][0-9]*))`)

// number parses a parameter as NCCL does, by strtoll with base 0 (src/misc/param.cc); 0 without a number.
func number(text string) int64 {
	m := integer.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseInt(m[1], 0, 64) // strtoll also returns the limit if out of range
	return n
}

// ibDisabled reports whether NCCL is configured not to use RDMA (src/transport/net_ib/init.cc).
func ibDisabled(env facts.Env) bool { return number(env.Vars["NCCL_IB_DISABLE"]) != 0 }

// otherPlugin reports whether NCCL_NET names a plugin that does not use verbs ("AWS Libfabric", "FasTrak"), for which
// disabling NCCL's own transport is usual. Plugins on verbs (IBext, UCX; RCCL's IB-CAST, ROCM-IB and RCCL-ANP) honor
// NCCL_IB_*.
func otherPlugin(env facts.Env) bool {
	name := strings.ToLower(env.Vars["NCCL_NET"])
	return name != "" && name != "socket" && name != "rocm-ib" && name != "rccl-anp" &&
		!strings.HasPrefix(name, "ib") && !strings.HasPrefix(name, "ucx")
}

func judgeIBDisable(f *facts.Facts, env facts.Env, _ string) verdict {
	if !ibDisabled(env) || otherPlugin(env) || onlyEFA(f) {
		return verdict{}
	}
	return verdict{severity: critical, what: "NCCL does not look for RDMA devices", why: whyNCCL}
}

func judgeNCCLNet(_ *facts.Facts, env facts.Env, _ string) verdict {
	if !strings.EqualFold(env.Vars["NCCL_NET"], "Socket") {
		return verdict{}
	}
	return verdict{severity: critical, what: "NCCL uses its socket transport", why: whyNCCL}
}

// hca is NCCL_IB_HCA: ^ excludes the list, = matches whole names instead of prefixes, and a name may have a port.
type hca struct {
	not, exact bool
	names      []hcaName
}

type hcaName struct {
	text, device string
	port         int // -1 for all
}

// parseHCA parses the variable as NCCL does (parseStringList in src/misc/utils.cc).
func parseHCA(text string) (h hca) {
	text, h.not = strings.CutPrefix(text, "^")
	text, h.exact = strings.CutPrefix(text, "=")
	for entry := range strings.SplitSeq(text, ",") {
		device, port, found := strings.Cut(entry, ":")
		if device == "" {
			continue
		}
		n := hcaName{entry, device, -1}
		if found {
			n.port = int(number(strings.TrimLeft(port, "0")))
		}
		h.names = append(h.names, n)
	}
	return h
}

func (n hcaName) matches(p facts.RDMAPort, exact bool) bool {
	named := p.Device == n.device || !exact && strings.HasPrefix(p.Device, n.device)
	return named && (n.port == -1 || n.port == p.Port)
}

// selects reports whether NCCL would use the port. A list without names matches all ports, so a lone ^ excludes all.
func (h hca) selects(p facts.RDMAPort) bool {
	match := len(h.names) == 0 || slices.ContainsFunc(h.names, func(n hcaName) bool { return n.matches(p, h.exact) })
	return match != h.not
}

func judgeIBHCA(f *facts.Facts, env facts.Env, _ string) verdict {
	if env.Foreign || ibDisabled(env) || otherPlugin(env) || onlyEFA(f) || len(f.Jobs.Devices) == 0 {
		return verdict{}
	}
	h := parseHCA(env.Vars["NCCL_IB_HCA"])
	var selected, names, absent []string
	for _, p := range f.Jobs.Devices {
		name := fmt.Sprintf("%s:%d", p.Device, p.Port)
		names = append(names, name)
		if h.selects(p) {
			selected = append(selected, name)
		}
	}
	for _, n := range h.names {
		match := func(p facts.RDMAPort) bool { return n.matches(p, h.exact) }
		if !h.not && !slices.ContainsFunc(f.Jobs.Devices, match) {
			absent = append(absent, n.text)
		}
	}
	switch {
	case len(selected) == 0:
		return verdict{severity: critical, why: whyNCCL,
			what: fmt.Sprintf("it selects none of the ports in /sys/class/infiniband (%s)", listed(names))}
	case len(absent) == 0:
		return verdict{}
	}
	return verdict{severity: warning, fix: "=" + strings.Join(selected, ","),
		what: fmt.Sprintf("%s is not in /sys/class/infiniband (%s)", listed(absent), listed(names)),
		why:  "NCCL silently ignores what it does not find: the job uses fewer rails than intended."}
}

// judgeGIDIndex reports a GID index whose entry on an active rail of the job is empty, RoCE v1, link-local, or IPv6
// although the rail has IPv4.
func judgeGIDIndex(f *facts.Facts, env facts.Env, _ string) verdict {
	text := env.Vars["NCCL_IB_GID_INDEX"]
	index := number(text)
	if text == "" || index < 0 || env.Foreign || ibDisabled(env) || otherPlugin(env) {
		return verdict{}
	}
	h := parseHCA(env.Vars["NCCL_IB_HCA"])
	var empty, v1, other []string
	for i := range f.Rails {
		r := &f.Rails[i]
		if !r.Active() || !r.Ethernet() || !r.GIDsRead || !h.selects(facts.RDMAPort{Device: r.Device, Port: r.Port}) {
			continue
		}
		at := slices.IndexFunc(r.GIDs, func(g facts.GID) bool { return int64(g.Index) == index })
		switch {
		case at < 0:
			empty = append(empty, r.String())
		case r.GIDs[at].Type != rail.TypeRoCEv2:
			v1 = append(v1, r.String())
		case r.GIDs[at].Addr.Unmap().IsLinkLocalUnicast(), !r.GIDs[at].IPv4() &&
			slices.ContainsFunc(r.GIDs, facts.GID.IPv4):
			other = append(other, fmt.Sprintf("%s (%s)", r, r.GIDs[at].Addr))
		}
	}
	v := verdict{why: "Indices move with addresses and bonds. Without the variable, NCCL 2.21 or later finds the " +
		"entry."}
	var parts []string
	add := func(severity finding.Severity, what string, rails []string) {
		if len(rails) > 0 {
			v.severity, parts = cmp.Or(v.severity, severity), append(parts, what+" "+listed(rails))
		}
	}
	add(critical, "is empty on", empty)
	add(warning, "is RoCE v1 on", v1)
	add(warning, "is not IPv4 on", other)
	if v.severity == critical {
		v.why = "An empty entry fails the job (ibv_modify_qp to RTR: Invalid argument). " + v.why
	}
	v.what = fmt.Sprintf("entry %d of the GID table (ports/*/gids and gid_attrs below /sys/class/infiniband) %s", index,
		strings.Join(parts, ", "))
	return v
}
