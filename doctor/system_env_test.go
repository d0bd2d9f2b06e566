package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseEnviron(t *testing.T) {
	long := strings.Repeat("x", maxValue+1)
	for _, tt := range []struct {
		name, text string
		want       map[string]string
	}{
		{"none of ours", environ("HOME=/root", "AWS_SECRET_ACCESS_KEY=hunter2"), nil},
		{"others of NCCL", environ("NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=eth0"), nil},
		{"ours alone", environ("HOME=/root", "NCCL_IB_DISABLE=1", "TOKEN=hunter2", "UCX_TLS=rc,sm"), map[string]string{"NCCL_IB_DISABLE": "1", "UCX_TLS": "rc,sm"}},
		{"the first counts", environ("NCCL_NET=IB", "NCCL_NET=Socket"), map[string]string{"NCCL_NET": "IB"}},
		{"in another's value", environ("X=NCCL_IB_DISABLE=1"), nil},
		{"no value", environ("UCX_TLS", "NCCL_NET="), map[string]string{"NCCL_NET": ""}},
		{"no zero byte at the end", "NCCL_NET=Socket", map[string]string{"NCCL_NET": "Socket"}},
		{"not for a terminal", environ("NCCL_NET=\x1b[2Jé\n"), map[string]string{"NCCL_NET": "\ufffd[2Jé\ufffd"}},
		{"too long", environ("UCX_TLS="+long, "NCCL_NET=IB"), map[string]string{"NCCL_NET": "IB"}},
	} {
		if diff := cmp.Diff(tt.want, parseEnviron([]byte(tt.text))); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, " 1": 1, "0": 0, "": 0, "-1": -1, "+3": 3, "0x1f": 31, "017": 15, "1abc": 1, "true": 0, "yes": 0, "99999999999999999999": 9999999999999, "--1": 0} {
		if got := number(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestIBHCA(t *testing.T) {
	ports := []RDMAPort{{"mlx5_0", 1}, {"mlx5_1", 1}, {"mlx5_1", 2}, {"mlx5_10", 1}, {"mlx5_bond_0", 1}}
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
			if parseHCA(text).takes(p) {
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
		"^rc":                              "reliable datagrams tcp", // dc is left
		"^rc,dc":                           "datagrams tcp",          // few adapters have another one
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
	f := &Facts{System: SystemFacts{Jobs: JobFacts{Devices: []RDMAPort{{"mlx5_0", 1}, {"mlx5_1", 1}}, Netdevs: []string{"eth0", "lo", "mlx5_0"}}}}
	for _, tt := range []struct {
		text    string
		foreign bool
		want    Severity
		mend    string
	}{
		{text: ""}, {text: "all"}, {text: "mlx5_0:1"}, {text: "mlx5_0"}, {text: "mlx5_0:1, mlx5_1:1"}, {text: "mlx5_0:1,eth0,lo"}, {text: "mlx5_0:1,"}, {text: "^mlx5_0"}, {text: "^mlx5_9:1"},
		{text: "mlx5_[0-7]"}, {text: "all,mlx5_9:1"}, {text: "^lo"},
		{text: "lo", want: Fault}, {text: "eth0", want: Fault}, {text: "eth0,lo", want: Fault}, {text: "mlx5_9:1", want: Fault}, {text: "eth0,mlx5_9:1", want: Fault},
		{text: "^mlx5_0,mlx5_1:1", want: Fault}, {text: "mlx5_0:2", want: Fault}, {text: "eth9", want: Fault},
		{text: "mlx5_0:1,mlx5_9:1", want: Warning, mend: "mlx5_0:1"}, {text: "mlx5_1:1,eth0,eth9", want: Warning, mend: "mlx5_1:1,eth0"},
		{text: "lo", foreign: true, want: Fault}, {text: "eth9", foreign: true}, {text: "mlx5_9:1", foreign: true},
	} {
		v, bad := judgeUCXDevices(f, JobEnv{Vars: map[string]string{"UCX_NET_DEVICES": tt.text}, Foreign: tt.foreign})
		if bad != (tt.want != "") || bad && (v.severity != tt.want || v.mend != tt.mend) {
			t.Errorf("%q (foreign %v): %+v, %v; want %q, mended by %q", tt.text, tt.foreign, v, bad, tt.want, tt.mend)
		}
	}
}

// TestJobsNotJudged has environments that look wrong, and are not.
func TestJobsNotJudged(t *testing.T) {
	foreign := func(change tree) tree { change["proc/1234/ns/net"] = "-> net:[4026532999]"; return change }
	for name, change := range map[string]tree{
		"devices of another namespace":           foreign(jobWith("NCCL_IB_HCA=mlx5_bond_0", "UCX_NET_DEVICES=eth0", "NCCL_IB_GID_INDEX=9")),
		"no RDMA wanted: devices do not matter":  jobWith("NCCL_IB_DISABLE=0", "NCCL_IB_GID_INDEX=-1"),
		"an entry that is empty on unused rails": jobWith("NCCL_IB_GID_INDEX=3", "NCCL_IB_HCA=rocep1s0f0"),
		"its own environment":                    {"proc/4242/environ": environ("NCCL_IB_DISABLE=1"), "proc/4242/comm": "railscope\n"},
		"a plugin that is not on verbs":          jobWith("NCCL_IB_DISABLE=1", "NCCL_NET=AWS Libfabric", "NCCL_IB_HCA=mlx5_9"),
		"set, but empty":                         jobWith("NCCL_IB_DISABLE=", "NCCL_NET=", "NCCL_IB_HCA=", "NCCL_IB_GID_INDEX=", "UCX_TLS=", "UCX_NET_DEVICES="),
		"no number":                              jobWith("NCCL_IB_DISABLE=false"),
		"comments in files":                      {"root/etc/nccl.conf": "#NCCL_IB_DISABLE=1\n", "root/etc/ucx/ucx.conf": "# UCX_TLS=tcp\n", "root/etc/environment": "PATH=\"/usr/bin\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if list := runSystem(systemFacts(t, systemNode(t, spark, change))); len(list) > 0 {
				t.Error(findingsText(list))
			}
		})
	}
}

// TestJobsCause says of a job that has no RDMA at all only that.
func TestJobsCause(t *testing.T) {
	list := runSystem(systemFacts(t, systemNode(t, hgx, jobWith("NCCL_IB_DISABLE=1", "NCCL_IB_HCA=mlx5_9", "NCCL_IB_GID_INDEX=77"))))
	if len(list) != 1 || list[0].Check != "nccl_ib_disable" {
		t.Error(findingsText(list))
	}
}

// TestJobsMany has more processes than anybody wants to read of: one finding for
// all that are alike, some named, and all counted.
func TestJobsMany(t *testing.T) {
	change := tree{"root/etc/environment": `export NCCL_IB_DISABLE="1"` + "\n"}
	for i := range 300 {
		dir := fmt.Sprintf("proc/%d/", 5000+i)
		change[dir+"environ"], change[dir+"comm"] = environ("NCCL_IB_DISABLE=1", "NCCL_NET=IB"), "python\n"
	}
	s := systemNode(t, hgx, change)
	f := systemFacts(t, s)
	list := runSystem(f)
	if len(list) != 1 {
		t.Fatal(findingsText(list))
	}
	for _, want := range []string{"/etc/environment, /proc/5000/environ (python), ", "/proc/5007/environ (python) and 292 more processes: "} {
		if !strings.Contains(list[0].Read, want) {
			t.Errorf("%q does not have %q", list[0].Read, want)
		}
	}
	if want := []string{`sed -i -E '/^[[:space:]]*(export[[:space:]]+)?NCCL_IB_DISABLE[[:space:]]*=/d' /etc/environment`}; !slices.Equal(list[0].Mend[:1], want) || len(list[0].Mend) != 2 {
		t.Errorf("%q", list[0].Mend)
	}
	if f.System.Jobs.Looked != 300 {
		t.Errorf("%d processes looked at", f.System.Jobs.Looked)
	}
}

// TestJobsBounds has more different environments than are kept.
func TestJobsBounds(t *testing.T) {
	change := tree{}
	for i := range maxEnvs + 10 {
		change[fmt.Sprintf("proc/%d/environ", 5000+i)] = environ(fmt.Sprintf("UCX_TLS=tcp,x%d,%s", i, strings.Repeat("y", maxValue-20)))
	}
	s := systemNode(t, hgx, change)
	f, unread := s.gather(t.Context())
	if len(f.Jobs.Envs) != maxEnvs || len(unread) != 1 || !strings.Contains(unread[0], "environments of processes (10): more than 32 different ones") {
		t.Errorf("%d environments, %q", len(f.Jobs.Envs), unread)
	}
	if data, err := json.Marshal(f.Jobs); err != nil || len(data) > 64<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// TestJobsHostile has environments that are longer than is read, and some that
// are none: what was read of them is judged, what was not is said.
func TestJobsHostile(t *testing.T) {
	long := func(last string) string { // last begins ten bytes before the end of what is read
		return environ("NCCL_NET=Socket", strings.Repeat("x", maxEnviron-len("NCCL_NET=Socket")-2-10), last)
	}
	pipe := func(s *system) {
		if err := errors.Join(os.MkdirAll(filepath.Join(s.o.Procfs, "1236"), 0o755), unix.Mkfifo(filepath.Join(s.o.Procfs, "1236/environ"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change tree
		with   func(*system)
		found  int
		unread string
	}{
		{"cut in the middle of a value", tree{"proc/1235/environ": long("UCX_TLS=tcp,rc")}, nil, 1, "environments of processes (1): what is behind their first 262144 bytes; look there by hand: tr '\\0' '\\n' < /proc/1235/environ | grep -E '^(NCCL|UCX)_'"},
		{"cut, and without an end", tree{"proc/1235/environ": strings.Repeat("NCCL_NET=Socket", maxEnviron)}, nil, 0, "environments of processes (1): what is behind their first 262144 bytes"},
		{"no zero byte", tree{"proc/1235/environ": "NCCL_IB_DISABLE=1"}, nil, 1, ""},
		{"binary", tree{"proc/1235/environ": "\xff\xfe\x00UCX_TLS\x00=\x00NCCL_NET=\x1b[31mSocket\x00NCCL_IB_DISABLE\x00"}, nil, 0, ""},
		{"a pipe", nil, pipe, 0, "environments of processes (1): read PROC/1236/environ: not a regular file; look into dmesg"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := systemNode(t, hgx, tt.change)
			if tt.with != nil {
				tt.with(s)
			}
			f, unread := s.gather(t.Context())
			want := strings.ReplaceAll(tt.unread, "PROC", s.o.Procfs)
			if text := strings.Join(unread, "\n"); !strings.HasPrefix(text, want) || want == "" && text != "" {
				t.Errorf("not read: %q, want %q", text, want)
			}
			if list := runSystem(&Facts{System: f}); len(list) != tt.found {
				t.Error(findingsText(list))
			}
		})
	}
}

// TestJobsHidden counts those that may not be read, and says it once.
func TestJobsHidden(t *testing.T) {
	s := systemNode(t, hgx, jobWith("NCCL_NET=Socket"), tree{"proc/77/environ": "x", "proc/78/environ": "x", "proc/79/environ": "x", "proc/80/environ": "x", "proc/77/cmdline": "a", "proc/78/cmdline": "b", "proc/79/cmdline": "c", "proc/80/cmdline": "\n"})
	if err := os.Truncate(filepath.Join(s.o.Procfs, "80/cmdline"), 0); err != nil { // a kernel thread
		t.Fatal(err)
	}
	s.read = func(path string, buf []byte) (int, error) {
		switch {
		case strings.HasSuffix(path, "/environ") && (strings.Contains(path, "/7") || strings.Contains(path, "/80/")):
			return 0, &os.PathError{Op: "open", Path: path, Err: os.ErrPermission}
		default:
			return readStart(path, buf)
		}
	}
	f, unread := s.gather(t.Context())
	if want := []string{"environments of processes of other users (3): permission denied; run doctor as root, outside of containers"}; !slices.Equal(unread, want) {
		t.Errorf("%q", unread)
	}
	if list := runSystem(&Facts{System: f}); len(list) != 1 || list[0].Check != "nccl_net" {
		t.Error(findingsText(list))
	}
}

// TestJobsHang has processes whose environment never comes, as one that hangs in
// the kernel with its memory locked: all others are read, and it says so.
func TestJobsHang(t *testing.T) {
	t.Parallel()
	change := jobWith("NCCL_NET=Socket")
	for i := range 50 {
		change[fmt.Sprintf("proc/%d/environ", 6000+i)] = "A=b\x00"
	}
	s := systemNode(t, hgx, change)
	never := make(chan struct{})
	defer close(never)
	s.o.Budget = 2 * time.Second
	s.read = func(path string, buf []byte) (int, error) {
		if strings.Contains(path, "/6007/") {
			<-never
			return 0, os.ErrProcessDone
		}
		return readStart(path, buf)
	}
	for range environReaders + 1 { // it costs one reader, however often one looks
		f, unread := s.gather(t.Context())
		if len(unread) != 1 || !strings.HasPrefix(unread[0], "environments of processes: 50 of 52 were read before time was over") {
			t.Errorf("%q", unread) // 50 of 6000 and 1234 but the one that hangs; and itself, which has none to read
		}
		if list := runSystem(&Facts{System: f}); len(list) != 1 || list[0].Check != "nccl_net" {
			t.Error(findingsText(list))
		}
	}
}

// TestJobFilesMended runs the printed command on the file, however its line is
// written: the variable is not found any more.
func TestJobFilesMended(t *testing.T) {
	for _, line := range []string{"NCCL_IB_DISABLE=1", "export NCCL_IB_DISABLE=1", "  export \tNCCL_IB_DISABLE = '1'", "\tUCX_TLS=tcp", "UCX_NET_DEVICES\t= mlx5_0:1,mlx5_9:1"} {
		s := systemNode(t, hgx, tree{"root/etc/environment": "A=b\n" + line + "\nC=d\n"})
		list := runSystem(systemFacts(t, s))
		if len(list) != 1 || len(list[0].Mend) != 1 {
			t.Fatalf("%q: %s", line, findingsText(list))
		}
		command := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(list[0].Mend[0], "/etc/", s.o.Rootfs+"/etc/"))
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", list[0].Mend[0], err, out)
		}
		if list := runSystem(systemFacts(t, s)); len(list) > 0 {
			t.Errorf("%q is still there: %s", line, findingsText(list))
		}
		if data, err := os.ReadFile(filepath.Join(s.o.Rootfs, "etc/environment")); err != nil || !strings.HasPrefix(string(data), "A=b\n") || !strings.HasSuffix(string(data), "C=d\n") {
			t.Errorf("%q left %q, %v", line, data, err)
		}
	}
}

// TestEFA: what EFA does without is no fault there.
func TestEFA(t *testing.T) {
	f := &Facts{System: SystemFacts{Ports: []PortFacts{{Rail: "0", Device: "rdmap16s27", Port: 1, Active: true, Provider: "efa"}},
		Devices: DeviceFacts{Known: true, Class: true, NodeDir: true, Uverbs: []UverbsFacts{{Device: "rdmap16s27", Node: "/dev/infiniband/uverbs0", State: uverbsGood}}},
		Jobs:    JobFacts{Devices: []RDMAPort{{"rdmap16s27", 1}}, Envs: []JobEnv{{Vars: map[string]string{"NCCL_IB_DISABLE": "1"}, Count: 1}, {Vars: map[string]string{"NCCL_IB_HCA": "mlx5"}, Count: 1}}}}}
	if list := runSystem(f); len(list) > 0 {
		t.Error(findingsText(list))
	}
	f.System.Jobs.Envs[0].Vars["NCCL_NET"] = "Socket"
	if list := runSystem(f); len(list) != 1 || list[0].Check != "nccl_net" {
		t.Error(findingsText(list))
	}
	f.System.Ports[0].Provider = "mlx5"
	if list := runSystem(f); len(list) != 4 {
		t.Error(findingsText(list))
	}
}

func FuzzParseEnviron(f *testing.F) {
	f.Add([]byte(environ("HOME=/root", "NCCL_IB_DISABLE=1", "UCX_TLS=tcp")), "mlx5_0:1")
	f.Add([]byte(environ("NCCL_IB_HCA=^=mlx5_0:99999999999999999999", "UCX_NET_DEVICES=^lo,,:", "NCCL_IB_GID_INDEX=0x")), "^")
	f.Add([]byte("NCCL_NET=\x1b]0;\x07"), "")
	f.Fuzz(func(t *testing.T, b []byte, value string) {
		facts := &Facts{System: SystemFacts{Ports: []PortFacts{{Rail: "0", Device: "mlx5_0", Port: 1, Active: true}}, Jobs: JobFacts{
			Devices: []RDMAPort{{"mlx5_0", 1}}, GIDs: []AskedGID{{Device: "mlx5_0", Port: 1}}}}}
		value = printable(value[:min(len(value), maxValue)])
		env := JobEnv{Vars: parseEnviron(b), Count: 1, Processes: []Process{{1, value}}}
		for name, value := range env.Vars {
			if !slices.Contains(jobVars(), name) || len(value) > maxValue || value != printable(value) {
				t.Errorf("%q=%q", name, value)
			}
		}
		all := JobEnv{Vars: map[string]string{}, File: "/etc/environment"}
		for _, name := range jobVars() {
			all.Vars[name] = value
		}
		facts.System.Jobs.Envs = []JobEnv{env, all}
		for _, finding := range runSystem(facts) {
			pasteable(t, finding)
		}
	})
}

// pasteable holds that a finding can be printed, and its commands be pasted.
func pasteable(t *testing.T, f Finding) {
	t.Helper()
	if f.Severity != Fault && f.Severity != Warning || f.Subject == "" || f.Read == "" || f.Why == "" || len(f.Mend) == 0 {
		t.Errorf("not complete: %+v", f)
	}
	for _, s := range append([]string{f.Subject, f.Read, f.Why}, f.Mend...) {
		if s != printable(s) {
			t.Errorf("%q is not fit for a terminal", s)
		}
	}
}
