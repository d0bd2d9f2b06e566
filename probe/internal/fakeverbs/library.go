package fakeverbs

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

//go:embed testdata/*.c testdata/*.h
var sources embed.FS

// Library compiles the fake libibverbs, once for all test processes of this user, and returns its path. CC selects the
// compiler, as for cgo, and FAKEVERBS_CFLAGS adds flags (-fsanitize=address for go test -asan). Without a compiler or
// libibverbs' headers the test is skipped.
func Library(tb testing.TB) string {
	tb.Helper()
	return Compile(tb, sources, "libfakeverbs.so", Shared(), "fabric.c", "device.c",
		"resource.c", "stamps.c", "qp.c", "data.c")
}

// Shared returns the flags for a shared library.
func Shared() []string { return []string{"-shared", "-fPIC", "-Wl,-Bsymbolic"} }

// Compile compiles some of the sources in testdata. Results are cached by sources and command.
func Compile(tb testing.TB, sources embed.FS, name string, flags []string, files ...string) string {
	tb.Helper()
	cc := strings.Fields(os.Getenv("CC"))
	if len(cc) == 0 {
		cc = []string{"cc"}
	}
	if _, err := exec.LookPath(cc[0]); err != nil {
		tb.Skipf("needs a C compiler: %v", err)
	}
	command := append(cc, "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-pthread")
	command = append(append(command, flags...), strings.Fields(os.Getenv("FAKEVERBS_CFLAGS"))...)
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q %q", command, files)
	list, err := fs.Glob(sources, "testdata/*")
	if err != nil {
		tb.Fatal(err)
	}
	content := map[string][]byte{}
	for _, file := range list {
		data, err := sources.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		content[filepath.Base(file)] = data
		_, _ = fmt.Fprintf(sum, "%s %d %s", file, len(data), data)
	}
	dir := cacheDir(tb)
	made := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil)[:12])+"-"+name)
	if _, err := os.Stat(made); err == nil {
		return made
	}
	build := tb.TempDir()
	for file, data := range content {
		if err := os.WriteFile(filepath.Join(build, file), data, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	// The rename is atomic: other test processes may compile at the same time.
	tmp, err := os.CreateTemp(dir, "new-")
	if err != nil {
		tb.Fatal(err)
	}
	_ = tmp.Close()
	defer os.Remove(tmp.Name())
	cmd := exec.Command(command[0], append(append(command[1:], "-o", tmp.Name()), files...)...)
	cmd.Dir = build
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "infiniband/verbs.h: No such file") {
			tb.Skip("needs the headers of libibverbs: install libibverbs-dev, or rdma-core-devel")
		}
		tb.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	if err := os.Chmod(tmp.Name(), 0o755); err != nil { //nolint:gosec // a library is executable
		tb.Fatal(err)
	}
	if err := os.Rename(tmp.Name(), made); err != nil {
		tb.Fatal(err)
	}
	return made
}

// cacheDir returns a cache directory to which only this user can write.
func cacheDir(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("fakeverbs-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		tb.Fatal(err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().
		Perm() != 0o700 {
		tb.Fatalf("%s is not ours alone", dir)
	}
	return dir
}
