package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
)

// ucxInfo makes ucx_info list these devices in the format of UCX 1.18.
func ucxInfo(devices ...string) func(*facts.Options) {
	var text strings.Builder
	text.WriteString("#\n# Memory domain: posix\n#     Component: posix\n#\n#      Transport: posix\n" +
		"#         Device: memory\n#           Type: intra-node\n#  System device: <unknown>\n#\n" +
		"# Connection manager: tcp\n#      max_conn_priv: 2064 bytes\n")
	for _, device := range devices {
		fmt.Fprintf(&text, "#\n# Memory domain: %s\n#     Component: ib\n#\n", device)
		for _, transport := range []string{"dc_mlx5", "rc_verbs", "rc_mlx5", "ud_verbs"} {
			fmt.Fprintf(&text, "#      Transport: %s\n#         Device: %s:1\n#           Type: network\n#\n", transport, device)
		}
	}
	return func(o *facts.Options) {
		o.Kernel.UCXInfo = func(context.Context) (string, string, error) {
			return "/usr/bin/ucx_info", text.String(), nil
		}
	}
}

// TestUCXTransports: a rail that UCX lists, or does not support for its own reasons, has no finding. A failed ucx_info
// is reported. The running railscope does not run it.
func TestUCXTransports(t *testing.T) {
	all := ucxInfo("mlx5_0", "mlx5_1", "mlx5_2")
	o := doctortest.System(t, hgx)
	all(&o)
	f := systemFacts(t, o)
	if list := runSystem(f); len(list) > 0 || len(f.UCX.Transports) != 13 {
		t.Error(findingsText(list), f.UCX)
	}
	o = doctortest.System(t, hgx)
	ucxInfo("mlx5_0", "mlx5_1")(&o)
	o.Kernel.OpenDevice = func(path string) error {
		if strings.HasSuffix(path, "uverbs2") {
			return unix.EACCES
		}
		return nil
	}
	f = facts.New(o).Gather(t.Context(), facts.ByHand)
	if list := runSystem(f); len(list) != 1 || list[0].Check != "uverbs_permission" {
		t.Error(findingsText(list))
	}

	o = doctortest.System(t, hgx)
	o.Kernel.UCXInfo = func(context.Context) (string, string, error) {
		return "/usr/bin/ucx_info", "# Transport: x", errors.New("no result within 2s")
	}
	f = facts.New(o).Gather(t.Context(), facts.ByHand)
	const want = "transports of UCX: /usr/bin/ucx_info -d: no result within 2s; run it by hand"
	if len(f.Unread) != 1 || f.Unread[0] != want || len(runSystem(f)) > 0 {
		t.Errorf("%q, %s", f.Unread, findingsText(runSystem(f)))
	}
	for _, scope := range []facts.Scope{facts.All, facts.WithoutJobs} {
		if f := facts.New(o).Gather(t.Context(), scope); len(f.Unread) > 0 {
			t.Errorf("it was run: %q", f.Unread)
		}
	}
}

func nixlCases() []systemCase {
	list := []systemCase{}
	for name, value := range map[string]string{"": "http://etcd-0", " with a path": "http://etcd-0:2379/",
		" one of two": "http://etcd-0:2379;etcd-1:http", " empty": ","} {
		list = append(list, systemCase{name: "nixl_etcd" + name, fixture: hgx,
			change: doctortest.Job("NIXL_ETCD_ENDPOINTS=" + value)})
	}
	slices.SortFunc(list, func(a, b systemCase) int { return strings.Compare(a.name, b.name) })
	return list
}

// TestNIXL: processes with one etcd and several namespaces are reported, each with its own; with another etcd, or none,
// they are not. Passwords in URLs are dropped.
func TestNIXL(t *testing.T) {
	job := func(pid string, vars ...string) doctortest.Tree {
		return doctortest.Tree{"proc/" + pid + "/comm": "nixl" + pid + "\n",
			"proc/" + pid + "/environ": doctortest.Environ(vars...), "proc/" + pid + "/ns/net": "-> net:[4026531840]"}
	}
	const endpoints = "NIXL_ETCD_ENDPOINTS=http://me:swordfish@[::1]:2379"
	o := doctortest.System(t, hgx, job("1", endpoints), job("2", endpoints, "NIXL_ETCD_NAMESPACE=/a"),
		job("3", endpoints, "NIXL_ETCD_NAMESPACE=/nixl/agents"), job("4", "NIXL_ETCD_NAMESPACE=/b"),
		job("5", "NIXL_ETCD_ENDPOINTS=http://etcd-0:2379", "NIXL_ETCD_NAMESPACE=/c"))
	f := systemFacts(t, o)
	list := runSystem(f)
	text := findingsText(list)
	for _, want := range []string{"(nixl2): NIXL_ETCD_NAMESPACE is /a here, and /nixl/agents in other processes",
		"(nixl1): NIXL_ETCD_NAMESPACE is /nixl/agents here, and /a in other processes", "fix:   # if these processes"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if len(list) != 2 || strings.Contains(text+fmt.Sprint(f), "swordfish") || list[0].Severity != finding.Info ||
		strings.Contains(text, "nixl4") || strings.Contains(text, "nixl5") {
		t.Error(text)
	}
}
