package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
)

const (
	nixlEndpoints = "NIXL_ETCD_ENDPOINTS"
	nixlNamespace = "NIXL_ETCD_NAMESPACE"
	nixlDefault   = "/nixl/agents" // src/core/nixl_listener.cpp of NIXL
)

// judgeNIXL judges where NIXL's agents exchange their metadata. A process without the variable does not use etcd.
func judgeNIXL(f *facts.Facts, env facts.Env, _ string) verdict {
	const example = "http://127.0.0.1:2379"
	endpoints := env.Vars[nixlEndpoints]
	for one := range strings.FieldsFuncSeq(endpoints, func(c rune) bool { return c == ',' || c == ';' }) {
		if !validEndpoint(one) {
			return verdict{severity: warning, what: fmt.Sprintf("%s is no URL with a port, such as %s", shellWord(one),
				example),
				why: "The client of etcd skips such an endpoint: without another one, agents do not find each other.",
				fix: "http://HOST:2379"}
		}
	}
	if strings.Trim(endpoints, ",; ") == "" {
		return verdict{severity: warning, what: "no endpoint is set, such as " + example,
			why: "NIXL uses etcd wherever the variable exists, and fails without an endpoint."}
	}
	own := namespace(env)
	var others []string
	for _, other := range f.Jobs.Envs {
		if n := namespace(other); other.Vars[nixlEndpoints] == endpoints && n != own && !slices.Contains(others, n) {
			others = append(others, n)
		}
	}
	if len(others) == 0 {
		return verdict{}
	}
	slices.Sort(others)
	return verdict{severity: info,
		what: fmt.Sprintf("%s is %s here, and %s in other processes with the same etcd", nixlNamespace, own,
			listed(others)),
		why:    "Agents find each other only within one namespace. Two jobs need two, one job needs one.",
		advice: "if these processes belong to one job: set " + nixlNamespace + " to one value where the job is started"}
}

func namespace(env facts.Env) string { return cmp.Or(env.Vars[nixlNamespace], nixlDefault) }

// validEndpoint reports whether etcd-cpp-apiv3, which NIXL uses, can resolve an endpoint: a host and a port after an
// optional scheme, and no path (dns_resolve in src/SyncClient.cpp).
func validEndpoint(text string) bool {
	if _, rest, found := strings.Cut(text, "://"); found {
		text = rest
	}
	at := strings.LastIndexByte(text, ':')
	if at < 1 || strings.ContainsAny(text, "/ \t") {
		return false
	}
	port, err := strconv.ParseUint(text[at+1:], 10, 16)
	return err == nil && port > 0
}
