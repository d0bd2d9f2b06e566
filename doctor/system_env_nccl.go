package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// number reads a parameter as NCCL does, by strtoll with base 0
// (src/misc/param.cc): what follows the number is not looked at, and what is no
// number is 0.
func number(text string) int64 {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	negative := strings.HasPrefix(text, "-")
	if negative || strings.HasPrefix(text, "+") {
		text = text[1:]
	}
	base, digits := int64(10), "0123456789"
	switch {
	case strings.HasPrefix(text, "0x") || strings.HasPrefix(text, "0X"):
		base, digits, text = 16, "0123456789abcdef", text[2:]
	case strings.HasPrefix(text, "0"):
		base, digits = 8, "01234567"
	}
	var n int64
	for _, r := range strings.ToLower(text) {
		d := strings.IndexRune(digits, r)
		if d < 0 || n > 1<<40 {
			break
		}
		n = n*base + int64(d)
	}
	if negative {
		return -n
	}
	return n
}

const whyNCCL = "NCCL sends between nodes by TCP sockets then, far below what the rails carry, and says so only in its log (Using network Socket)"

// ibDisabled reports whether NCCL does not look at RDMA at all
// (src/transport/net_ib/init.cc).
func ibDisabled(env JobEnv) bool { return number(env.Vars["NCCL_IB_DISABLE"]) != 0 }

// otherPlugin reports whether NCCL_NET names a plugin that goes by something
// else than verbs ("AWS Libfabric", "FasTrak"), for which switching off NCCL's
// own transport is usual. Plugins on verbs (IBext, UCX) heed NCCL_IB_*.
func otherPlugin(env JobEnv) bool {
	name := strings.ToLower(env.Vars["NCCL_NET"])
	return name != "" && name != "socket" && !strings.HasPrefix(name, "ib") && !strings.HasPrefix(name, "ucx")
}

func judgeIBDisable(f *Facts, env JobEnv) (verdict, bool) {
	return verdict{severity: Fault, what: "NCCL does not look for RDMA devices", why: whyNCCL}, ibDisabled(env) && !otherPlugin(env) && !onlyEFA(f)
}

func judgeNCCLNet(_ *Facts, env JobEnv) (verdict, bool) {
	return verdict{severity: Fault, what: "NCCL takes its socket transport", why: whyNCCL}, strings.EqualFold(env.Vars["NCCL_NET"], "Socket")
}

// hca is NCCL_IB_HCA: ^ turns the list into what is not taken, = asks for whole
// names instead of the start of one, and a name may have a port.
type hca struct {
	not, exact bool
	names      []hcaName
}

type hcaName struct {
	name string
	port int // -1 for all
}

// parseHCA reads the variable as NCCL does (parseStringList in
// src/misc/utils.cc).
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

func (n hcaName) fits(p RDMAPort, exact bool) bool {
	named := strings.HasPrefix(p.Device, n.name)
	if exact {
		named = p.Device == n.name
	}
	return named && (n.port == -1 || n.port == p.Port)
}

// takes reports whether NCCL would use the port. A list without names fits all:
// so a bare ^ leaves none.
func (h hca) takes(p RDMAPort) bool {
	fits := len(h.names) == 0 || slices.ContainsFunc(h.names, func(n hcaName) bool { return n.fits(p, h.exact) })
	return fits != h.not
}

func judgeIBHCA(f *Facts, env JobEnv) (verdict, bool) {
	devices := f.System.Jobs.Devices
	if env.Foreign || ibDisabled(env) || otherPlugin(env) || onlyEFA(f) || len(devices) == 0 {
		return verdict{}, false
	}
	h := parseHCA(env.Vars["NCCL_IB_HCA"])
	var taken, names []string
	for _, p := range devices {
		if h.takes(p) {
			taken = append(taken, fmt.Sprintf("%s:%d", p.Device, p.Port))
		}
		names = append(names, fmt.Sprintf("%s:%d", p.Device, p.Port))
	}
	if len(taken) == 0 {
		return verdict{severity: Fault, what: fmt.Sprintf("it leaves none of the ports in /sys/class/infiniband (%s)", listed(names)), why: whyNCCL}, true
	}
	var absent []string
	for _, n := range h.names {
		if !h.not && !slices.ContainsFunc(devices, func(p RDMAPort) bool { return n.fits(p, h.exact) }) {
			absent = append(absent, n.String())
		}
	}
	return verdict{
		severity: Warning,
		what:     fmt.Sprintf("%s is not in /sys/class/infiniband (%s)", listed(absent), listed(names)),
		why:      "NCCL leaves out what it does not find without a word: the job goes over fewer rails than it was meant to",
		mend:     "=" + strings.Join(taken, ","),
	}, len(absent) > 0
}

func (n hcaName) String() string {
	if n.port == -1 {
		return n.name
	}
	return fmt.Sprintf("%s:%d", n.name, n.port)
}

// gidIndex is NCCL_IB_GID_INDEX, negative where NCCL chooses itself.
func gidIndex(vars map[string]string) int {
	text, set := vars["NCCL_IB_GID_INDEX"]
	if !set || text == "" {
		return -1
	}
	return int(max(-1, min(number(text), 1<<16)))
}

// judgeGIDIndex looks at the entry on each active rail that the job may use.
func judgeGIDIndex(f *Facts, env JobEnv) (verdict, bool) {
	index := gidIndex(env.Vars)
	if index < 0 || env.Foreign || ibDisabled(env) || otherPlugin(env) {
		return verdict{}, false
	}
	h := parseHCA(env.Vars["NCCL_IB_HCA"])
	var empty, v1, other []string
	for _, p := range f.System.Ports {
		i := slices.IndexFunc(f.System.Jobs.GIDs, func(g AskedGID) bool { return g.Device == p.Device && g.Port == p.Port && g.Index == index })
		if i < 0 || !p.Active || !h.takes(RDMAPort{p.Device, p.Port}) {
			continue
		}
		switch g := f.System.Jobs.GIDs[i]; {
		case !g.Used:
			empty = append(empty, p.name())
		case !strings.HasPrefix(g.Type, "RoCE v2"):
			v1 = append(v1, p.name())
		case !g.Good:
			other = append(other, fmt.Sprintf("%s (%s)", p.name(), g.GID))
		}
	}
	v := verdict{severity: Warning, why: "indices move with addresses, bonds and namespaces, and differ between nodes: NCCL finds the right entry by itself where the variable is not set (2.21 and later)"}
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
		v.why = "a connection over an empty entry fails (ibv_modify_qp to RTR: Invalid argument), and the job with it; " + v.why
	}
	v.what = fmt.Sprintf("entry %d of the GID table (ports/*/gids and gid_attrs below /sys/class/infiniband) %s", index, strings.Join(parts, ", "))
	return v, len(parts) > 0
}
