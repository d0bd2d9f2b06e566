//go:build dist

package packages

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// glibc is the minimum version that the packages require: Debian 12, Ubuntu 22.04, RHEL 9.
const glibc = "GLIBC_2.34"

var machines = []struct {
	arch    string
	machine elf.Machine
}{{"amd64", elf.EM_X86_64}, {"arm64", elf.EM_AARCH64}}

func program(t *testing.T, arch string) string {
	t.Helper()
	return filepath.Join(unpacked(t, kinds[0].unpack, artifact(t, "railscope_*_"+arch+".deb")), "usr/bin/railscope")
}

// TestLinking checks that one binary runs everywhere: it needs only the C library, in the packages' version or older,
// and resolves symbols of NVML at the first call. It also must not contain the name of the build machine.
func TestLinking(t *testing.T) {
	for _, m := range machines {
		t.Run(m.arch, func(t *testing.T) {
			file := program(t, m.arch)
			f, err := elf.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Machine != m.machine {
				t.Errorf("built for %v", f.Machine)
			}
			needed, err := f.DynString(elf.DT_NEEDED)
			if err != nil || len(needed) == 0 {
				t.Fatalf("needs %v, %v", needed, err)
			}
			for _, lib := range needed {
				if !slices.Contains([]string{"libc.so.6", "libresolv.so.2", "ld-linux-aarch64.so.1",
					"ld-linux-x86-64.so.2"}, lib) {
					t.Errorf("needs %s", lib)
				}
			}
			flags, err := f.DynValue(elf.DT_FLAGS)
			flags1, err1 := f.DynValue(elf.DT_FLAGS_1)
			now, errNow := f.DynValue(elf.DT_BIND_NOW)
			if err != nil || err1 != nil || errNow != nil {
				t.Fatal(err, err1, errNow)
			}
			if len(now) > 0 || slices.ContainsFunc(flags, func(v uint64) bool {
				return elf.DynFlag(v)&elf.DF_BIND_NOW != 0
			}) ||
				slices.ContainsFunc(flags1, func(v uint64) bool { return elf.DynFlag1(v)&elf.DF_1_NOW != 0 }) {
				t.Error("all symbols are resolved at start: without the GPU's driver it cannot run")
			}
			symbols, err := f.ImportedSymbols()
			if err != nil {
				t.Fatal(err)
			}
			newest := ""
			for _, s := range symbols {
				if strings.HasPrefix(s.Version, "GLIBC_") && newerGlibc(s.Version, newest) {
					newest = s.Version
				}
			}
			if newerGlibc(newest, glibc) {
				t.Errorf("needs %s, the packages say %s", newest, glibc)
			}
			t.Logf("needs %v, symbols of %s at most", needed, newest)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if home, _ := os.UserHomeDir(); bytes.Contains(content, []byte(checkout(t)+"/")) || bytes.Contains(content,
				[]byte(home+"/go/")) {
				t.Error("paths of the machine that built it are in it")
			}
		})
	}
}

func newerGlibc(a, b string) bool {
	number := func(v string) (major, minor int) {
		fmt.Sscanf(v, "GLIBC_%d.%d", &major, &minor)
		return
	}
	aMajor, aMinor := number(a)
	bMajor, bMinor := number(b)
	return aMajor > bMajor || aMajor == bMajor && aMinor > bMinor
}

// TestSBOM: the document beside a program lists exactly the modules that were linked into it.
func TestSBOM(t *testing.T) {
	for _, m := range machines {
		for _, name := range []string{"railscope", "railscope-bench"} {
			sbom(t, m.arch, name)
		}
	}
}

func sbom(t *testing.T, arch, name string) {
	t.Helper()
	file := filepath.Join(filepath.Dir(program(t, arch)), name)
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, dep := range info.Deps {
		want = append(want, "pkg:golang/"+dep.Path+"@"+dep.Version)
	}
	text, err := os.ReadFile(artifact(t, name+"-[0-9]*.linux-"+arch+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat, SpecVersion string
		Metadata               struct {
			Component struct{ Hashes []struct{ Content string } }
		}
		Components []struct{ Purl string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range bom.Components {
		got = append(got, c.Purl)
	}
	slices.Sort(got)
	slices.Sort(want)
	if bom.BOMFormat != "CycloneDX" || len(want) < 20 || !slices.Equal(got, want) {
		t.Errorf("%s: %s lists %q, the program is of %q", arch, bom.BOMFormat, got, want)
	}
	sum := strings.Fields(output(t, "sha256sum", file))[0]
	if h := bom.Metadata.Component.Hashes; len(h) != 1 || h[0].Content != sum {
		t.Errorf("%s: the document is of %v, the program is %s", arch, h, sum)
	}
	licenses := ask(t, `dpkg-deb --fsys-tarfile "$1" | tar -xO ./usr/share/doc/railscope/THIRD-PARTY.txt`,
		artifact(t, "railscope_*_"+arch+".deb"))
	for _, dep := range info.Deps {
		if !strings.Contains(licenses, "\n==== "+dep.Path+"@"+dep.Version+"\n") {
			t.Errorf("%s: THIRD-PARTY.txt has no license of %s", arch, dep.Path)
		}
	}
}

// TestUnit lets systemd verify the unit, alone and with each drop-in, among the files of the package, and rate its
// security.
func TestUnit(t *testing.T) {
	for _, kind := range kinds {
		root := unpacked(t, kind.unpack, artifact(t, kind.amd64))
		const unit = "usr/lib/systemd/system/railscope.service"
		dropIns, err := filepath.Glob(filepath.Join(root, documents, "drop-ins/*.conf"))
		if err != nil || len(dropIns) < 3 {
			t.Fatalf("drop-ins: %q, %v", dropIns, err)
		}
		// Programs that the unit runs must exist; units that it only orders itself after need not.
		ask(t, `mkdir -p "$1"/bin && cp /bin/sh "$1"/bin/ && ln -s usr/lib "$1"/lib
			for t in sysinit basic shutdown network-online multi-user; do cp /usr/lib/systemd/system/$t.target "$1"/usr/lib/systemd/system/; done`, root)
		for _, dropIn := range append([]string{""}, dropIns...) {
			dir := filepath.Join(root, "etc/systemd/system/railscope.service.d")
			ask(t, `rm -rf "$1"; mkdir -p "$1"; [ -z "$2" ] || cp "$2" "$1"`, dir, dropIn)
			if said := ask(t, `systemd-analyze verify --man=no --root="$1" railscope.service 2>&1`, root); said != "" {
				t.Errorf("%s, %q: %s", kind.name, filepath.Base(dropIn), said)
			}
		}
		output(t, "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=25",
			filepath.Join(root, unit))
	}
}

// TestExampleConfiguration: the file in /etc is valid as shipped, and with every commented-out key enabled.
func TestExampleConfiguration(t *testing.T) {
	railscope := program(t, "amd64")
	text, err := os.ReadFile("railscope.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sys/class"), 0o755); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(dir, "token")
	full := regexp.MustCompile(`(?m)^#([a-z]|  [a-z])`).ReplaceAllString(string(text),
		"$1") // prose follows one or three blanks
	full = strings.ReplaceAll(full, "/etc/railscope/token", token)
	for name, content := range map[string]string{"as it is": string(text), "all of it": full} {
		file := filepath.Join(dir, "railscope.yml")
		for path, text := range map[string]string{file: content, token: "sesame sesame sesame\n"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command(railscope, "rails", "--config.file="+file, "--path.sysfs="+filepath.Join(dir, "sys")).
			CombinedOutput()
		// The exit code is 1 without rails, and 2 if the configuration is refused.
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
			t.Errorf("%s: %v: %s\n%s", name, err, out, content)
		}
	}
	if !strings.Contains(full, "\nprobe:\n  listen:") || !strings.Contains(full, "\nrails:\n  include:") {
		t.Errorf("nothing is commented out:\n%s", full)
	}
}

// TestARM64 runs the program for arm64 under qemu: commands, and a scrape of the simulated machine with 10 rails.
func TestARM64(t *testing.T) {
	railscope, tree := program(t, "arm64"), t.TempDir()
	output(t, "go", "run", "../../test/peers", "-tree", tree)
	emulated := func(args ...string) *exec.Cmd {
		return exec.Command("../../scripts/emulate.sh", append([]string{railscope}, args...)...)
	}
	version, err := emulated("--version").Output()
	if err != nil || !strings.Contains(string(version), "linux/arm64") {
		t.Errorf("--version: %v: %s", err, version)
	}
	out, err := emulated("rails", "--format=json", "--path.sysfs="+tree).Output()
	if err != nil || strings.Count(string(out), `"device"`) != 10 {
		t.Errorf("rails: %v: %s", err, out)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0") // a free port
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	serve := emulated("serve", "--path.sysfs="+tree, "--web.listen-address="+address)
	var said bytes.Buffer
	serve.Stderr = &said
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		serve.Process.Signal(syscall.SIGTERM)
		defer time.AfterFunc(30*time.Second, func() { serve.Process.Kill() }).Stop()
		if err := serve.Wait(); err != nil || t.Failed() {
			t.Errorf("serve: %v: %s", err, said.String())
		}
	}()
	var text string
	for deadline := time.Now().Add(30 * time.Second); text == "" && time.Now().Before(deadline); {
		if resp, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + address + "/metrics"); err == nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
			resp.Body.Close()
			text = string(body)
		} else {
			time.Sleep(100 * time.Millisecond)
		}
	}
	if n := strings.Count(text, "\nrailscope_port_up{"); n != 10 {
		t.Errorf("a scrape shows %d ports, want 10", n)
	}
	if !strings.Contains(text, "\nrailscope_source_success{source=\"rdma\"} 1\n") {
		t.Error("the source rdma failed")
	}
}
