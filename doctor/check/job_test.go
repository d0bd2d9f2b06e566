package check

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
)

func TestIBHCA(t *testing.T) {
	ports := []facts.RDMAPort{{Device: "mlx5_0", Port: 1}, {Device: "mlx5_1", Port: 1}, {Device: "mlx5_1", Port: 2},
		{Device: "mlx5_10", Port: 1}, {Device: "mlx5_bond_0", Port: 1}}
	for text, want := range map[string]string{
		"":                  "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_bond_0:1",
		"mlx5":              "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_bond_0:1",
		"mlx5_1":            "mlx5_1:1 mlx5_1:2 mlx5_10:1",
		"mlx5_1:2":          "mlx5_1:2",
		"=mlx5_1":           "mlx5_1:1 mlx5_1:2",
		"=mlx5_1:1,mlx5_0":  "mlx5_0:1 mlx5_1:1",
		"^mlx5_1":           "mlx5_0:1 mlx5_bond_0:1",
		"^=mlx5_1":          "mlx5_0:1 mlx5_10:1 mlx5_bond_0:1",
		"^=mlx5_bond_0":     "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1",
		"^mlx5_7":           "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_bond_0:1",
		"^":                 "",
		"^mlx5":             "",
		"=mlx5":             "",
		"rocep":             "",
		",,mlx5_0,":         "mlx5_0:1",
		"mlx5_1:":           "",
		"mlx5_0:1,mlx5_1:1": "mlx5_0:1 mlx5_1:1 mlx5_10:1",
	} {
		var got []string
		for _, p := range ports {
			if parseHCA(text).selects(p) {
				got = append(got, fmt.Sprintf("%s:%d", p.Device, p.Port))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestUCXTLS(t *testing.T) {
	for text, want := range map[string]string{
		"all":                              "reliable datagrams tcp",
		"rc":                               "reliable",
		"rc,ud,sm,self":                    "reliable datagrams",
		"rc_verbs,rc_mlx5,tcp,cuda_copy":   "reliable tcp",
		"rc_x,self":                        "reliable",
		`\rc_verbs`:                        "reliable",
		"dc_x,sm":                          "reliable",
		"srd,self":                         "reliable",
		"ib":                               "reliable datagrams",
		"ud_v,sm":                          "datagrams",
		"tcp":                              "tcp",
		"tcp,cuda_copy,cuda_ipc":           "tcp",
		"tcp, cuda_copy, cuda_ipc":         "tcp",
		"tcp, rc":                          "unknown",
		"sm,self,cuda":                     "",
		"^ib":                              "tcp",
		"^tcp":                             "reliable datagrams",
		"^rc":                              "reliable datagrams tcp", // leaves dc
		"^rc,dc":                           "datagrams tcp",          // few adapters have another reliable transport
		"^cuda_ipc,gdr_copy":               "reliable datagrams tcp",
		"^rc,dc,ud,srd,gga_mlx5":           "tcp",
		"tcp,a_transport_of_a_later_ucx":   "unknown",
		"^ib,a_transport_of_a_later_ucx":   "unknown",
		"":                                 "unknown",
		"^all":                             "unknown",
		"rc,a_transport_of_a_later_ucx,sm": "unknown",
	} {
		tls := parseUCXTLS(text)
		var got []string
		for _, w := range []struct {
			on   bool
			name string
		}{{tls.reliable, "reliable"}, {tls.datagrams, "datagrams"}, {tls.tcp, "tcp"}} {
			if w.on {
				got = append(got, w.name)
			}
		}
		if !tls.known {
			got = []string{"unknown"}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestUCXDevices(t *testing.T) {
	f := &facts.Facts{System: facts.System{Jobs: facts.Jobs{Devices: []facts.RDMAPort{{Device: "mlx5_0", Port: 1},
		{Device: "mlx5_1", Port: 1}}, Netdevs: []string{"eth0", "lo", "mlx5_0"}}}}
	for _, tt := range []struct {
		text    string
		foreign bool
		want    finding.Severity
		fix     string
	}{
		{text: ""}, {text: "all"}, {text: "mlx5_0:1"}, {text: "mlx5_0"}, {text: "mlx5_0:1, mlx5_1:1"},
		{text: "mlx5_0:1,eth0,lo"}, {text: "mlx5_0:1,"}, {text: "^mlx5_0"}, {text: "^mlx5_9:1"},
		{text: "mlx5_[0-7]"}, {text: "all,mlx5_9:1"}, {text: "^lo"},
		{text: "lo", want: finding.Critical}, {text: "eth0", want: finding.Critical}, {text: "eth0,lo", want: finding.Critical},
		{text: "mlx5_9:1", want: finding.Critical}, {text: "eth0,mlx5_9:1", want: finding.Critical},
		{text: "^mlx5_0,mlx5_1:1", want: finding.Critical}, {text: "mlx5_0:2", want: finding.Critical}, {text: "eth9", want: finding.Critical},
		{text: "mlx5_0:1,mlx5_9:1", want: finding.Warning, fix: "mlx5_0:1"},
		{text: "mlx5_1:1,eth0,eth9", want: finding.Warning, fix: "mlx5_1:1,eth0"},
		{text: "lo", foreign: true, want: finding.Critical}, {text: "eth9", foreign: true}, {text: "mlx5_9:1", foreign: true},
	} {
		v := judgeUCXDevices(f, facts.Env{Vars: map[string]string{"UCX_NET_DEVICES": tt.text},
			Foreign: tt.foreign}, "UCX_NET_DEVICES")
		if v.severity != tt.want || v.fix != tt.fix {
			t.Errorf("%q (foreign %v): %+v; want %q, fixed by %q", tt.text, tt.foreign, v, tt.want, tt.fix)
		}
	}
}

// TestFewRails: a job needs as many compute rails as it has GPUs, limited by the number of active ones.
func TestFewRails(t *testing.T) {
	active := func(name, role string) facts.Rail {
		return facts.Rail{Name: name, Device: "mlx5_" + name, Port: 1, Role: role, StateID: rail.StateActive}
	}
	down := active("3", rail.Compute)
	down.StateID = 1
	f := &facts.Facts{Network: facts.Network{Rails: []facts.Rail{active("0", rail.Compute), active("1", rail.Compute),
		active("2", rail.Compute), down, active("4", "storage")}}}
	for _, tt := range []struct {
		gpus  int
		rails string
		want  bool
	}{
		// A job cannot use more rails than exist.
		{8, "0 1 2", false}, {3, "0 1 2", false}, {2, "0 1", false}, {1, "0", false}, {0, "0", false},
		{8, "0 1", true}, {3, "0 1", true}, {2, "0", true},
		{3, "0 1 4", true}, {3, "0 1 3", true}, // storage rails and ports that are down do not count
		{8, "", false}, {8, "4", false}, // a job without rails may need none
	} {
		f.Jobs.GPU = []facts.GPUJob{{Name: "x", GPUs: tt.gpus, Rails: strings.Fields(tt.rails)}}
		found := false
		checkFewRails(f, func(finding.Finding) { found = true })
		if found != tt.want {
			t.Errorf("%d GPUs, rails %s: %v, want %v", tt.gpus, tt.rails, found, tt.want)
		}
	}
	if Share(f).Jobs.GPU != nil {
		t.Error("peers get the names of jobs")
	}
}

// TestJobsNotJudged: environments that look wrong but are valid.
func TestJobsNotJudged(t *testing.T) {
	foreign := func(change doctortest.Tree) doctortest.Tree {
		change["proc/1234/ns/net"] = "-> net:[4026532999]"
		return change
	}
	for name, change := range map[string]doctortest.Tree{
		"devices of another namespace": foreign(doctortest.Job("NCCL_IB_HCA=mlx5_bond_0",
			"UCX_NET_DEVICES=eth0", "NCCL_IB_GID_INDEX=9")),
		"no RDMA wanted: devices do not matter":  doctortest.Job("NCCL_IB_DISABLE=0", "NCCL_IB_GID_INDEX=-1"),
		"an entry that is empty on unused rails": doctortest.Job("NCCL_IB_GID_INDEX=3", "NCCL_IB_HCA=rocep1s0f0"),
		"its own environment": {"proc/4242/environ": doctortest.Environ("NCCL_IB_DISABLE=1"),
			"proc/4242/comm": "railscope\n"},
		"a plugin that is not on verbs": doctortest.Job("NCCL_IB_DISABLE=1", "NCCL_NET=AWS Libfabric",
			"NCCL_IB_HCA=mlx5_9"),
		"set, but empty": doctortest.Job("NCCL_IB_DISABLE=", "NCCL_NET=", "NCCL_IB_HCA=",
			"NCCL_IB_GID_INDEX=", "UCX_TLS=", "UCX_NET_DEVICES="),
		"no number": doctortest.Job("NCCL_IB_DISABLE=false"),
		"comments in files": {"root/etc/nccl.conf": "#NCCL_IB_DISABLE=1\n",
			"root/etc/ucx/ucx.conf": "# UCX_TLS=tcp\n", "root/etc/environment": "PATH=\"/usr/bin\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if list := runSystem(systemFacts(t, doctortest.System(t, spark, change))); len(list) > 0 {
				t.Error(findingsText(list))
			}
		})
	}
}

// TestJobsCause: a job without RDMA has only that finding.
func TestJobsCause(t *testing.T) {
	list := runSystem(systemFacts(t,
		doctortest.System(t, hgx, doctortest.Job("NCCL_IB_DISABLE=1", "NCCL_IB_HCA=mlx5_9", "NCCL_IB_GID_INDEX=77"))))
	if len(list) != 1 || list[0].Check != "nccl_ib_disable" {
		t.Error(findingsText(list))
	}
}

// TestJobsMany: many equal processes are one finding, which names some and counts all.
func TestJobsMany(t *testing.T) {
	change := doctortest.Tree{"root/etc/environment": `export NCCL_IB_DISABLE="1"` + "\n"}
	for i := range 300 {
		dir := fmt.Sprintf("proc/%d/", 5000+i)
		change[dir+"environ"], change[dir+"comm"] = doctortest.Environ("NCCL_IB_DISABLE=1", "NCCL_NET=IB"), "python\n"
	}
	s := doctortest.System(t, hgx, change)
	f := systemFacts(t, s)
	list := runSystem(f)
	if len(list) != 1 {
		t.Fatal(findingsText(list))
	}
	for _, want := range []string{"/etc/environment, /proc/5000/environ (python), ",
		"/proc/5007/environ (python) and 292 more processes: "} {
		if !strings.Contains(list[0].Where, want) {
			t.Errorf("%q does not have %q", list[0].Where, want)
		}
	}
	if want := []string{`sed -i -E '/^[[:space:]]*(export[[:space:]]+)?NCCL_IB_DISABLE[[:space:]]*=/d' ` +
		`/etc/environment`}; !slices.Equal(list[0].Fix[:1], want) || len(list[0].Fix) != 2 {
		t.Errorf("%q", list[0].Fix)
	}
	if f.Jobs.Read != 300 {
		t.Errorf("%d processes looked at", f.Jobs.Read)
	}
}

// TestJobFilesFixed runs the printed command on the file. It must remove the variable, however the line is written.
func TestJobFilesFixed(t *testing.T) {
	for _, line := range []string{"NCCL_IB_DISABLE=1", "export NCCL_IB_DISABLE=1", "  export \tNCCL_IB_DISABLE = '1'",
		"\tUCX_TLS=tcp", "UCX_NET_DEVICES\t= mlx5_0:1,mlx5_9:1"} {
		s := doctortest.System(t, hgx, doctortest.Tree{"root/etc/environment": "A=b\n" + line + "\nC=d\n"})
		list := runSystem(systemFacts(t, s))
		if len(list) != 1 || len(list[0].Fix) != 1 {
			t.Fatalf("%q: %s", line, findingsText(list))
		}
		command := exec.CommandContext(t.Context(), "sh", "-c",
			strings.ReplaceAll(list[0].Fix[0], "/etc/", s.Rootfs+"/etc/"))
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", list[0].Fix[0], err, out)
		}
		if list := runSystem(systemFacts(t, s)); len(list) > 0 {
			t.Errorf("%q is still there: %s", line, findingsText(list))
		}
		if data, err := os.ReadFile(filepath.Join(s.Rootfs,
			"etc/environment")); err != nil || !strings.HasPrefix(string(data),
			"A=b\n") || !strings.HasSuffix(string(data), "C=d\n") {
			t.Errorf("%q left %q, %v", line, data, err)
		}
	}
}

// TestEFA: settings that EFA does not need are not reported as faults.
func TestEFA(t *testing.T) {
	f := &facts.Facts{Network: facts.Network{Rails: []facts.Rail{{Name: "0", Device: "rdmap16s27", Port: 1, StateID: 4,
		Provider: "efa"}}}, System: facts.System{
		Devices: facts.Devices{Known: true, Class: true, NodeDir: true,
			Uverbs: []facts.Uverbs{{Device: "rdmap16s27", Node: "/dev/infiniband/uverbs0", State: facts.UverbsGood}}},
		Jobs: facts.Jobs{Devices: []facts.RDMAPort{{Device: "rdmap16s27", Port: 1}},
			Envs: []facts.Env{{Vars: map[string]string{"NCCL_IB_DISABLE": "1"}, Count: 1},
				{Vars: map[string]string{"NCCL_IB_HCA": "mlx5"}, Count: 1}}}}}
	if list := runSystem(f); len(list) > 0 {
		t.Error(findingsText(list))
	}
	f.Jobs.Envs[0].Vars["NCCL_NET"] = "Socket"
	if list := runSystem(f); len(list) != 1 || list[0].Check != "nccl_net" {
		t.Error(findingsText(list))
	}
	f.Rails[0].Provider = "mlx5"
	if list := runSystem(f); len(list) != 4 {
		t.Error(findingsText(list))
	}
}

// FuzzJobs: a finding about an arbitrary environment can be printed and pasted.
func FuzzJobs(f *testing.F) {
	for _, value := range []string{"mlx5_0:1", "^", "^=mlx5_0:99999999999999999999", "^lo,,:", "0x", "\x1b]0;\x07"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		node := &facts.Facts{Network: facts.Network{Rails: []facts.Rail{{Name: "0", Device: "mlx5_0", Port: 1,
			LinkLayer: "Ethernet", GIDsRead: true, StateID: 4}}}}
		node.Jobs.Devices = []facts.RDMAPort{{Device: "mlx5_0", Port: 1}}
		value = terminal.PlainName(value)
		file := facts.Env{Vars: map[string]string{}, File: "/etc/environment"}
		process := facts.Env{Vars: file.Vars, Count: 1, Processes: []facts.Process{{PID: 1, Comm: value}}}
		for _, name := range facts.JobVariables() {
			file.Vars[name] = value
		}
		node.Jobs.Envs = []facts.Env{file, process}
		for _, f := range runSystem(node) {
			pasteable(t, f)
		}
	})
}

// pasteable checks that a finding can be printed and its commands pasted.
func pasteable(t *testing.T, f finding.Finding) {
	t.Helper()
	known := f.Severity == finding.Critical || f.Severity == finding.Warning
	if !known || f.Subject == "" || f.Evidence == "" || f.Why == "" ||
		len(f.Fix) == 0 {
		t.Errorf("not complete: %+v", f)
	}
	for _, s := range append([]string{f.Subject, f.Evidence, f.Why}, f.Fix...) {
		if s != terminal.PlainName(s) {
			t.Errorf("%q is not fit for a terminal", s)
		}
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, " 1": 1, "0": 0, "": 0, "-1": -1, "+3": 3, "0x1f": 31, "017": 15,
		"1abc": 1, "true": 0, "yes": 0, "99999999999999999999": math.MaxInt64, "--1": 0} {
		if got := number(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
