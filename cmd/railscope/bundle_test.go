package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/bundle"
	"github.com/railscope/railscope/internal/machines"
)

// planted is a secret in every place whose content must not be in a bundle.
const planted = "swordfish"

// bundleOn returns the arguments of bundle for a machine with secrets in every place.
func bundleOn(t *testing.T, config string) (args []string, kernelLog string) {
	t.Helper()
	procfs, rootfs, other := t.TempDir(), t.TempDir(), t.TempDir()
	token := filepath.Join(other, "token")
	for path, content := range map[string]string{
		filepath.Join(procfs, "sys/kernel/hostname"):  "gpu 1/../x\n",
		filepath.Join(procfs, "sys/kernel/osrelease"): "6.12.3\n",
		filepath.Join(procfs, "cmdline"):              planted,
		filepath.Join(procfs, "4193337/comm"):         "hushjob\n",
		filepath.Join(procfs, "4193337/cmdline"):      "python3\x00--token=" + planted + "\x00",
		filepath.Join(procfs, "4193337/environ"): "NCCL_IB_DISABLE=1\x00AWS_SECRET_ACCESS_KEY=" + planted +
			"\x00NCCL_SOCKET_IFNAME=" + planted + "\x00NIXL_TOKEN=" + planted + "\x00",
		filepath.Join(rootfs, "etc/nccl.conf"):  "NCCL_NET=Socket\n# " + planted + "\nNCCL_DEBUG_FILE=" + planted + "\n",
		filepath.Join(rootfs, "etc/os-release"): "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\nHOME_URL=" + planted,
		token:                                   planted + "-token\n",
		filepath.Join(other, "kmsg"): "6,1,1,-;Command line: mlx5_core.x=1 password=" + planted + "\n" +
			"4,2,65000000,-;mlx5_core 0000:18:00.0 ens1np0: Link down\n DEVICE=+pci:0000:18:00.0\n" +
			"12,3,3,-;mlx5_core " + planted + " from user space\n",
		filepath.Join(other, "railscope.yml"): "# " + planted + "\n" + strings.ReplaceAll(config, "TOKEN", token),
	} {
		write(t, path, content)
	}
	return []string{"--path.sysfs=" + tree(t), "--path.procfs=" + procfs, "--path.rootfs=" + rootfs,
		"--config.file=" + filepath.Join(other, "railscope.yml")}, filepath.Join(other, "kmsg")
}

// bundled runs bundle in an empty directory, and returns what it printed and the files of the archive.
func bundled(t *testing.T, kernelLog string, args ...string) (printed, archive string, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	var all common
	app := kingpin.New("railscope", "")
	all.define(app)
	s := (&bundleSettings{common: &all}).define(app)
	s.kernelLog = kernelLog
	s.now = func() time.Time { return time.Date(2026, 11, 23, 3, 55, 0, 0, time.FixedZone("", 3600)) }
	if _, err := app.Parse(append([]string{"bundle"}, args...)); err != nil {
		t.Fatal(err)
	}
	all.log.Writer = io.Discard
	var out strings.Builder
	if err := s.run(t.Context(), newShutdownTracker(), &out); err != nil {
		t.Fatal(err)
	}
	list, _ := filepath.Glob("*")
	if len(list) != 1 {
		t.Fatalf("it made %q", list)
	}
	if err := s.run(t.Context(), newShutdownTracker(), io.Discard); !errors.Is(err, bundle.ErrExists) {
		t.Errorf("a second one with its name: %v", err)
	}
	return out.String(), list[0], unpack(t, list[0])
}

func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
		t.Error(info.Mode(), err)
	}
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}

const bundleManifest = `FILE            N HOLDS
doctor.txt      N railscope doctor
doctor.json     N the same
facts.json      N what was read of the node, with the processes and variables that doctor judges
rails.json      N railscope rails
expect.json     N railscope expect
metrics.txt     N railscope metrics, with names of processes and pods
status.json     N what the running railscope shows: rails, findings, last rounds
flags.txt       N flags and their values
railscope.yml   N the configuration, without comments and values of secret keys
versions.txt    N versions of railscope, kernel, drivers and libraries
kernel-log.txt  N messages of drivers of RDMA devices, bonds, GPUs and PCIe
`

// TestBundle: the archive contains what its manifest lists, and no secret of the node.
func TestBundle(t *testing.T) {
	args, kernelLog := bundleOn(t, "probe: {peers: [spark-02], token_file: TOKEN}\n")
	state := answer(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "status of %s\n", r.URL.Path) })
	printed, archive, files := bundled(t, kernelLog, append(args, "--state.dir="+state)...)
	if archive != "railscope-gpu-1-..-x-20261123T025500Z.tar.gz" {
		t.Error(archive)
	}
	manifest := files["manifest.txt"]
	masked := regexp.MustCompile(`(SIZE|[0-9.]+ (Ki)?B) +`).ReplaceAllString(manifest, "N ")
	if diff := cmp.Diff(bundleManifest, masked); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
	if want := manifest + "\nWrote " + archive + " (mode 0600). Read it before you pass it on.\n"; printed != want {
		t.Errorf("it printed %q, want %q", printed, want)
	}
	if len(files) != strings.Count(manifest, "\n") {
		t.Errorf("%d files", len(files))
	}
	for name, want := range map[string]string{
		"doctor.txt": "NCCL_IB_DISABLE=1 in /proc/4193337/environ (hushjob)", "doctor.json": `"check": "nccl_net"`,
		"facts.json": `"NCCL_IB_DISABLE": "1"`, "rails.json": `"device": "mlx5_1"`, "expect.json": `"rows"`,
		"metrics.txt": `railscope_finding{check="nccl_ib_disable"`, "status.json": "status of /-/status\n",
		"flags.txt": "--state.dir=" + state + "\n", "railscope.yml": "peers: [spark-02]",
		"versions.txt":   "kernel: 6.12.3\nsystem: Debian GNU/Linux 12\n",
		"kernel-log.txt": "[   65.000000] mlx5_core 0000:18:00.0 ens1np0: Link down\n",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, files[name])
		}
	}
	for name, text := range files {
		if strings.Contains(text+name, planted) {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
	for _, name := range []string{"doctor.json", "facts.json", "rails.json", "expect.json"} {
		if !json.Valid([]byte(files[name])) {
			t.Errorf("%s is not JSON: %s", name, files[name])
		}
	}
}

// TestBundleAMD: of a node with AMD's GPUs, the archive has the files that describe them (amdgpu.TestDump builds the
// machine from them). A file that fails is noted.
func TestBundleAMD(t *testing.T) {
	all := machines.All()
	tree := machines.NewTree(t)
	all[slices.IndexFunc(all, func(m machines.Machine) bool { return m.Name == "mi300x-thor2" })].Build(tree)
	const unreadable = "bus/pci/devices/0000:19:00.0/gpu_busy_percent"
	tree.Remove(unreadable)
	tree.File(unreadable+"/directory", "")
	_, _, files := bundled(t, "/dev/null", "--path.sysfs="+tree.Sys(), "--path.procfs="+tree.Procfs(),
		"--path.rootfs="+tree.Root)
	text := files["amd.txtar"]
	for part, want := range map[string]int{"/current_compute_partition --\nSPX\n": 8, "/gpu_busy_percent --\n0\n": 7,
		"/ras/umc_err_count --\nue: 0\nce: 0\nde: 0\n": 8, "\nlocation_id ": 8, "unique_id": 0} {
		if n := strings.Count(text, part); n != want {
			t.Errorf("%q is there %d times, want %d:\n%s", part, n, want, text)
		}
	}
	if !strings.Contains(files["manifest.txt"], "amd.txtar: read ") {
		t.Error("the file that failed is not noted:", files["manifest.txt"])
	}
}

// TestBundleStatus: a railscope that is not running, or cannot answer yet, is not noted. Another failure is.
func TestBundleStatus(t *testing.T) {
	args, kernelLog := bundleOn(t, "{}")
	answer := func(status int) string {
		return answer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	for _, tc := range []struct{ dir, want string }{
		{"", "status.json: --state.dir is not set, so the running railscope was not asked"},
		{t.TempDir(), ""},
		{answer(404), ""},
		{answer(500), "status.json: the running railscope answered 500 Internal Server Error"},
	} {
		_, _, files := bundled(t, kernelLog+".none", append(args, "--state.dir="+tc.dir)...)
		_, notes, _ := strings.Cut(files["manifest.txt"], "Not complete:\n  ")
		want := "kernel-log.txt: open " + kernelLog + ".none: no such file or directory\n"
		if tc.want != "" {
			want = tc.want + "\n  " + want
		}
		if notes != want || files["status.json"] != "" {
			t.Errorf("%q, want %q; %q", notes, want, files["status.json"])
		}
	}
}

// TestBundlePeers: peers are asked, and their facts added, only on request.
func TestBundlePeers(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, planted+"-token\n")
	answering := launch(t, []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)},
		"--config.file="+file(t, "probe: {name: spark-02, listen: 127.0.0.1:0, token_file: "+token+"}\n"))
	peer := answering.line(t, `"msg":"Answering.*"listen":"([^"]+)"`)
	args, kernelLog := bundleOn(t, "probe: {token_file: TOKEN, peers: ["+peer+", 127.0.0.1:1, dns+nodes]}\n")
	if _, _, files := bundled(t, kernelLog, args...); strings.Contains(fmt.Sprint(files), "spark-02") {
		t.Error("a peer was asked")
	}
	_, _, files := bundled(t, kernelLog, append(args, "--include-peers")...)
	dir := "peers/" + strings.ReplaceAll(peer, ":", "-") + "/"
	there, err := facts.Parse([]byte(files[dir+"facts.json"]))
	if err != nil || there.Node != "spark-02" || len(there.Rails) != 2 {
		t.Error(err, there, files["manifest.txt"])
	}
	if !strings.Contains(files[dir+"doctor.txt"], "spark-02: 2 rails") {
		t.Error(files[dir+"doctor.txt"])
	}
	for _, want := range []string{"\n  peers: those of dns+ and file: entries (1) are not asked\n",
		"\n  peer 127.0.0.1:1: "} {
		if !strings.Contains(files["manifest.txt"], want) {
			t.Errorf("no %q in %s", want, files["manifest.txt"])
		}
	}
	if all := fmt.Sprint(files); strings.Contains(all, planted) {
		t.Error("a secret in", all)
	}
}
