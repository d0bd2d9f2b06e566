//go:build dist

package packages

import (
	"bufio"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the lists of files in testdata anew")

// checkout returns the module's directory, which contains dist/.
func checkout(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// artifact returns the only file of dist/ that matches the pattern.
func artifact(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(checkout(t), "dist", pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("dist/%s: %d files, want 1: make release-snapshot (%v)", pattern, len(found), err)
	}
	return found[0]
}

// output returns the output of a command, which must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s%s", cmd, err, out, stderr.String())
	}
	return string(out)
}

// kinds are the kinds of packages, with the shell commands that examine them on Debian.
var kinds = []struct {
	name, amd64, arm64 string // pattern of the file name
	list, unpack       string // shell, with the package as $1 and a directory as $2; list prints mode owner path
	needs, recommends  string
	wantNeeds          string
	wantRecommends     string
	conffiles          string
	times              string
}{
	{
		name: "deb", amd64: "railscope_*_amd64.deb", arm64: "railscope_*_arm64.deb",
		list:       `dpkg-deb -c "$1" | awk '{ sub(/^\./, "", $6); print $1, $2, $6 }' | sed 's,/$,,'`,
		unpack:     `dpkg-deb -x "$1" "$2"`,
		needs:      `dpkg-deb -f "$1" Depends | sed 's/, /\n/g' | sort`,
		recommends: `dpkg-deb -f "$1" Recommends | sed 's/, /\n/g' | sort`,
		conffiles:  `dpkg-deb -I "$1" conffiles | sort`,
		times:      `dpkg-deb --fsys-tarfile "$1" | tar -tv --full-time | awk '{ print $4, $5 }' | sort -u`,
		wantNeeds:  "libc6 (>= 2.34)\nsystemd\n", wantRecommends: "ibverbs-providers\nlibibverbs1\n",
	},
	{
		name: "rpm", amd64: "railscope-*.x86_64.rpm", arm64: "railscope-*.aarch64.rpm",
		list:       `rpm -qp --qf '[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]' "$1"`,
		unpack:     `rpm2archive -n <"$1" | tar -x --no-same-owner -C "$2"`,
		needs:      `rpm -qp --requires "$1" | grep -v '^rpmlib(' | sed 's/ *$//' | sort`,
		recommends: `rpm -qp --recommends "$1" | sed 's/ *$//' | sort`,
		// The flag cn is config(noreplace).
		conffiles: `rpm -qp --qf '[%{FILEFLAGS:fflags} %{FILENAMES}\n]' "$1" | awk '$1 == "cn" { print $2 }' | sort`,
		times:     `rpm -qp --qf '[%{FILEMTIMES:date}\n]' "$1" | sort -u`,
		wantNeeds: "glibc >= 2.34\nsystemd\n", wantRecommends: "libibverbs\n",
	},
}

func ask(t *testing.T, script string, args ...string) string {
	t.Helper()
	return output(t, "bash", append([]string{"-euo", "pipefail", "-c", script, "ask"}, args...)...)
}

// unpacked extracts a package's files into a directory without running its scripts.
func unpacked(t *testing.T, unpack, file string) string {
	t.Helper()
	dir := t.TempDir()
	ask(t, unpack, file, dir)
	return dir
}

// documents is the directory of the documents, which must match those of the checkout.
const documents = "/usr/share/doc/railscope/"

var copied = map[string]string{"docs": "docs", "dashboards/provisioning": "dashboards/provisioning",
	"dashboards/grafana.com": "dashboards/grafana.com", "drop-ins": "deploy/systemd/drop-ins", "README.md": "README.md",
	"CHANGELOG.md": "CHANGELOG.md"}

func TestFiles(t *testing.T) {
	top := checkout(t)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			amd64, arm64 := artifact(t, kind.amd64), artifact(t, kind.arm64)
			list := ask(t, kind.list, amd64)
			if diff := cmp.Diff(list, ask(t, kind.list, arm64)); diff != "" {
				t.Errorf("amd64 and arm64 differ:\n%s", diff)
			}
			var rest []string
			for line := range strings.Lines(list) {
				name, isDocument := strings.CutPrefix(strings.Fields(line)[2], documents)
				if !isDocument || !slices.ContainsFunc([]string{"docs", "dashboards", "drop-ins"}, func(d string) bool {
					return strings.HasPrefix(name, d+"/")
				}) {
					rest = append(rest, line)
				} else if !strings.HasPrefix(line, "-rw-r--r-- root/root ") && !strings.HasPrefix(line,
					"drwxr-xr-x root/root ") {
					t.Errorf("%s", line)
				}
			}
			slices.Sort(rest)
			golden(t, kind.name+".txt", strings.Join(rest, ""))
			if times := ask(t, kind.times, amd64); strings.Count(times, "\n") != 1 {
				t.Errorf("files are of several times, want the commit's alone:\n%s", times)
			}
			root := unpacked(t, kind.unpack, amd64)
			for inside, outside := range copied {
				output(t, "diff", "-r", filepath.Join(top, outside), filepath.Join(root, documents, inside))
			}
			for what, got := range map[string][2]string{
				"needs":      {ask(t, kind.needs, amd64), kind.wantNeeds},
				"recommends": {ask(t, kind.recommends, amd64), kind.wantRecommends},
				"conffiles": {strings.TrimLeft(ask(t, kind.conffiles, amd64), " "),
					"/etc/default/railscope\n/etc/railscope/railscope.yml\n"},
			} {
				if diff := cmp.Diff(got[1], strings.ReplaceAll(got[0], "\n ", "\n")); diff != "" {
					t.Errorf("%s:\n%s", what, diff)
				}
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-update writes it anew):\n%s", file, diff)
	}
}

// TestOneProgram: all packages of an architecture contain the same program.
func TestOneProgram(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		tarball := artifact(t, "railscope-[0-9]*.linux-"+arch+".tar.gz")
		sums := map[string]string{"tar.gz": ask(t, `tar -xOzf "$1" --wildcards '*/railscope' | sha256sum`, tarball)}
		for _, kind := range kinds {
			file := artifact(t, map[string]string{"amd64": kind.amd64, "arm64": kind.arm64}[arch])
			sums[kind.name] = ask(t, `sha256sum <"$1"/usr/bin/railscope`, unpacked(t, kind.unpack, file))
		}
		if sums["deb"] != sums["tar.gz"] || sums["rpm"] != sums["tar.gz"] {
			t.Errorf("%s: programs differ: %v", arch, sums)
		}
	}
}

// TestStatic: the program for old distributions needs no library, has the files of the other archive, and reads
// counters.
func TestStatic(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		static := artifact(t, "railscope-static-*.linux-"+arch+".tar.gz")
		usual := artifact(t, "railscope-[0-9]*.linux-"+arch+".tar.gz")
		const list = `tar -tzf "$1" | sed 's,^[^/]*/,,' | sort`
		if diff := cmp.Diff(ask(t, list, usual), ask(t, list, static)); diff != "" {
			t.Errorf("%s: files differ: %s", arch, diff)
		}
		dir := unpacked(t, `tar -xzf "$1" -C "$2" --strip-components=1`, static)
		needs := ask(t, `LC_ALL=C readelf -d "$1" 2>&1`, dir+"/railscope")
		if !strings.Contains(needs, "no dynamic section") {
			t.Errorf("%s: %s", arch, needs)
		}
		if arch == runtime.GOARCH {
			sysfs := t.TempDir()
			if err := os.Mkdir(filepath.Join(sysfs, "class"), 0o755); err != nil {
				t.Fatal(err)
			}
			said := output(t, dir+"/railscope", "metrics", "--path.sysfs="+sysfs, "--log.level=error")
			if !strings.Contains(said, "railscope_source_success{source=\"rdma\"} 1\n") {
				t.Errorf("it says %s", said)
			}
		}
	}
}

// TestChecksums: SHA256SUMS lists every uploaded file with its correct sum.
func TestChecksums(t *testing.T) {
	f, err := os.Open(artifact(t, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	named := map[string]bool{}
	for in := bufio.NewScanner(f); in.Scan(); {
		sum, name, _ := strings.Cut(in.Text(), "  ")
		named[name] = true
		content, err := os.ReadFile(filepath.Join(filepath.Dir(f.Name()), name))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); got != sum {
			t.Errorf("%s: SHA256SUMS says %s, it is %s", name, sum, got)
		}
	}
	isPackage := regexp.MustCompile(`\.(deb|rpm|tar\.gz|cdx\.json)$`)
	uploads := regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	files, err := os.ReadDir(filepath.Dir(f.Name()))
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for _, file := range files {
		if isPackage.MatchString(file.Name()) {
			packages++
			if !uploads.MatchString(file.Name()) {
				t.Errorf("GitHub would rename %s, and SHA256SUMS not", file.Name())
			}
			if !named[file.Name()] {
				t.Errorf("%s is not in SHA256SUMS", file.Name())
			}
		}
	}
	// For two architectures: deb, rpm, and a tar.gz and an SBOM of both programs, one of them static.
	if packages != 14 {
		t.Errorf("dist has %d packages", packages)
	}
}

// TestManual lets man read the page as Debian's checks do.
func TestManual(t *testing.T) {
	for _, kind := range kinds {
		root := unpacked(t, kind.unpack, artifact(t, kind.amd64))
		page := filepath.Join(root, "usr/share/man/man1/railscope.1.gz")
		text := ask(t, `err=$(mktemp); MANWIDTH=80 man --warnings -E UTF-8 -l "$1" 2>"$err"; cat "$err" >&2; test `+
			`! -s "$err"`, page)
		for _, want := range []string{"NAME\n       railscope - Prometheus exporter", "--[no-]source.process\n",
			"   bench [<flags>] <peer>...\n", "EXIT STATUS\n", "FILES\n", "EXAMPLES\n", "SEE ALSO\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page has no %q", kind.name, want)
			}
		}
	}
}

// TestCompletion completes a command and a flag in each shell, with the files and the program of the package.
func TestCompletion(t *testing.T) {
	root := unpacked(t, kinds[0].unpack, artifact(t, kinds[0].amd64))
	t.Setenv("PATH", filepath.Join(root, "usr/bin")+":"+os.Getenv("PATH"))
	for shell, script := range map[string]string{
		"bash": `source "$1"/usr/share/bash-completion/completions/railscope
			for word in be --web.listen; do
				COMP_WORDS=(railscope $word) COMP_CWORD=1; _railscope; echo "${COMPREPLY[@]}"
			done`,
		"zsh": `zsh -fc 'compadd() { print -l -- ${(P)2}; }; completion() { source "$file"; }
			file=$1/usr/share/zsh/vendor-completions/_railscope CURRENT=2
			for PREFIX in be --web.listen; do words=(railscope $PREFIX); completion; done' zsh "$1"`,
		"fish": `HOME=$(mktemp -d) fish -c 'source $argv[1]/usr/share/fish/vendor_completions.d/railscope.fish; ` +
			`complete -C "railscope be"; complete -C "railscope --web.listen"' "$1"`,
	} {
		got := strings.Fields(ask(t, script, root))
		if !slices.Contains(got, "bench") || !slices.Contains(got, "--web.listen-address") {
			t.Errorf("%s completes with %q", shell, got)
		}
	}
}
