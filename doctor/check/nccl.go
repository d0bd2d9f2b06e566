package check

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/rail"
)

const whyNCCL = "NCCL then uses TCP sockets between nodes, far below what the rails carry, and reports it only in " +
	"its log (Using network Socket)."

// integer matches what strtoll with base 0 reads of a text.
var integer = regexp.MustCompile(`^[\s\v]*([+-]?(?:0[xX][[:xdigit:]]+|0[0-7]*|[1-9][0-9]*))`)

// number parses a parameter as NCCL does, by strtoll with base 0 (src/misc/param.cc): it ignores what follows the
// number, and returns 0 without one.
func number(text string) int64 {
	m := integer.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseInt(m[1], 0, 64) // out of range: the limit, as strtoll
	return n
}

// ibDisabled reports whether NCCL does not look for RDMA at all (src/transport/net_ib/init.cc).
func ibDisabled(env facts.Env) bool { return number(env.Vars["NCCL_IB_DISABLE"]) != 0 }

// otherPlugin reports whether NCCL_NET names a plugin that does not use verbs ("AWS Libfabric", "FasTrak"), for which
// disabling NCCL's own transport is usual. Plugins on verbs (IBext, UCX) honor NCCL_IB_*.
func otherPlugin(env facts.Env) bool {
	name := strings.ToLower(env.Vars["NCCL_NET"])
	return name != "" && name != "socket" && !strings.HasPrefix(name, "ib") && !strings.HasPrefix(name, "ucx")
}

func judgeIBDisable(f *facts.Facts, env facts.Env) (verdict, bool) {
	return verdict{severity: Fault, what: "NCCL does not look for RDMA devices", why: whyNCCL},
		ibDisabled(env) && !otherPlugin(env) && !onlyEFA(f)
}

func judgeNCCLNet(_ *facts.Facts, env facts.Env) (verdict, bool) {
	return verdict{severity: Fault, what: "NCCL uses its socket transport", why: whyNCCL},
		strings.EqualFold(env.Vars["NCCL_NET"], "Socket")
}

// hca is NCCL_IB_HCA: ^ excludes the list, = matches whole names instead of prefixes, and a name may have a port.
type hca struct {
	not, exact bool
	names      []hcaName
}

type hcaName struct {
	name string
	port int // -1 for all
}

// parseHCA parses the variable as NCCL does (parseStringList in src/misc/utils.cc).
func parseHCA(text string) (h hca) {
	text, h.not = strings.CutPrefix(text, "^")
	text, h.exact = strings.CutPrefix(text, "=")
	for entry := range strings.SplitSeq(text, ",") {
		name, port, found := strings.Cut(entry, ":")
		if name == "" {
			continue
		}
		n := hcaName{name: name, port: -1}
		if found {
			n.port = int(number(strings.TrimLeft(port, "0")))
		}
		h.names = append(h.names, n)
	}
	return h
}

func (n hcaName) matches(p facts.RDMAPort, exact bool) bool {
	named := strings.HasPrefix(p.Device, n.name)
	if exact {
		named = p.Device == n.name
	}
	return named && (n.port == -1 || n.port == p.Port)
}

func (n hcaName) String() string {
	if n.port == -1 {
		return n.name
	}
	return fmt.Sprintf("%s:%d", n.name, n.port)
}

// selects reports whether NCCL would use the port. A list without names matches all ports, so a lone ^ excludes all.
func (h hca) selects(p facts.RDMAPort) bool {
	match := len(h.names) == 0 || slices.ContainsFunc(h.names, func(n hcaName) bool { return n.matches(p, h.exact) })
	return match != h.not
}

func judgeIBHCA(f *facts.Facts, env facts.Env) (verdict, bool) {
	ports := f.Jobs.Devices
	if env.Foreign || ibDisabled(env) || otherPlugin(env) || onlyEFA(f) || len(ports) == 0 {
		return verdict{}, false
	}
	h := parseHCA(env.Vars["NCCL_IB_HCA"])
	var selected, names, absent []string
	for _, p := range ports {
		name := fmt.Sprintf("%s:%d", p.Device, p.Port)
		names = append(names, name)
		if h.selects(p) {
			selected = append(selected, name)
		}
	}
	if len(selected) == 0 {
		return verdict{severity: Fault, why: whyNCCL,
			what: fmt.Sprintf("it selects none of the ports in /sys/class/infiniband (%s)", listed(names))}, true
	}
	for _, n := range h.names {
		if !h.not && !slices.ContainsFunc(ports, func(p facts.RDMAPort) bool { return n.matches(p, h.exact) }) {
			absent = append(absent, n.String())
		}
	}
	return verdict{severity: Warning, fix: "=" + strings.Join(selected, ","),
		what: fmt.Sprintf("%s is not in /sys/class/infiniband (%s)", listed(absent), listed(names)),
		why:  "NCCL silently ignores what it does not find: the job uses fewer rails than intended."}, len(absent) > 0
}

// judgeGIDIndex examines the entry on each active rail that the job may use. An entry is wrong unless it is RoCE v2
// over routable IPv4, or IPv6 if the rail has no IPv4.
func judgeGIDIndex(f *facts.Facts, env facts.Env) (verdict, bool) {
	text := env.Vars["NCCL_IB_GID_INDEX"]
	index := number(text)
	if text == "" || index < 0 || env.Foreign || ibDisabled(env) || otherPlugin(env) {
		return verdict{}, false
	}
	h := parseHCA(env.Vars["NCCL_IB_HCA"])
	var empty, v1, other []string
	for i := range f.Rails {
		r := &f.Rails[i]
		if !r.Active() || !r.Ethernet() || !r.GIDsRead || !h.selects(facts.RDMAPort{Device: r.Device, Port: r.Port}) {
			continue
		}
		at := slices.IndexFunc(r.GIDs, func(g facts.GID) bool { return int64(g.Index) == index })
		if at < 0 {
			empty = append(empty, r.String())
			continue
		}
		switch g := r.GIDs[at]; {
		case g.Type != rail.TypeRoCEv2:
			v1 = append(v1, r.String())
		case g.Addr.Unmap().IsLinkLocalUnicast() || !g.Addr.Is4In6() && slices.ContainsFunc(r.GIDs, overIPv4):
			other = append(other, fmt.Sprintf("%s (%s)", r, g.Addr))
		}
	}
	v := verdict{severity: Warning, why: "Indices move with addresses, bonds and namespaces, and differ between nodes. " +
		"Without the variable, NCCL 2.21 and later finds the right entry."}
	var parts []string
	for _, part := range []struct {
		what  string
		rails []string
	}{{"is empty on", empty}, {"is RoCE v1 on", v1}, {"is not IPv4 on", other}} {
		if len(part.rails) > 0 {
			parts = append(parts, part.what+" "+listed(part.rails))
		}
	}
	if len(empty) > 0 {
		v.severity = Fault
		v.why = "A connection over an empty entry fails (ibv_modify_qp to RTR: Invalid argument), and the job with it. " +
			v.why
	}
	v.what = fmt.Sprintf("entry %d of the GID table (ports/*/gids and gid_attrs below /sys/class/infiniband) %s", index,
		strings.Join(parts, ", "))
	return v, len(parts) > 0
}
