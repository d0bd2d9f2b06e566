// Package nvmltest builds libraries that replace libnvidia-ml.so.1 and return the answers of a capture, so that
// tests use the real binding, the real dlopen and the real structure layouts.
package nvmltest

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/railscope/railscope/internal/sysfstest"
)

//go:embed testdata/nvml.c
var source embed.FS

// Library is a library made from a capture.
type Library struct {
	Path   string // path of the library
	Dir    string // directory of its answers
	Procfs string
}

func at(dir string) *Library {
	return &Library{
		Path:   filepath.Join(dir, "libnvidia-ml.so.1"),
		Dir:    filepath.Join(dir, "answers"),
		Procfs: filepath.Join(dir, "proc"),
	}
}

// Environment of the process that [Process] starts: the directory of its library, and the test.
const dirEnv, testEnv = "RAILSCOPE_TEST_NVML", "RAILSCOPE_TEST_NAME"

// Process runs the calling test in a separate process, because go-nvml remembers which versions of functions it found.
// There it returns the library of the capture at path, which may be loaded. In the process that go test started it
// returns nil after the test is over, with the output and the result of the other process.
func Process(t *testing.T, path string) (l *Library, output string, err error) {
	t.Helper()
	if os.Getenv(testEnv) == t.Name() {
		return at(os.Getenv(dirEnv)), "", nil
	}
	l = Build(t, t.TempDir(), path)
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	cmd := exec.Command(os.Args[0], "-test.run="+pattern, "-test.count=1", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), dirEnv+"="+filepath.Dir(l.Path), testEnv+"="+t.Name(), "FAKENVML_DIR="+l.Dir,
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // otherwise the race detector sleeps a second at every exit
	b, err := cmd.CombinedOutput()
	return nil, string(b), err
}

// Passing is like [Process], for a test that must pass there.
func Passing(t *testing.T, path string) *Library {
	t.Helper()
	l, output, err := Process(t, path)
	if err != nil {
		t.Errorf("in its own process: %v\n%s", err, output)
	}
	return l
}

// Build unpacks a capture into dir and compiles the library there, without the functions that the capture lists as
// lacking.
func Build(tb testing.TB, dir, path string) *Library {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	sysfstest.Write(tb, dir, data)
	l := at(dir)
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	var flags []string
	for _, member := range txtar.Parse(data).Files {
		switch member.Name {
		case "nvml":
			for line := range strings.Lines(string(member.Data)) {
				function, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
				l.Set(tb, function, answer)
			}
		case "lacking":
			for function := range strings.FieldsSeq(string(member.Data)) {
				flags = append(flags, "-DNO_"+function)
			}
		}
	}
	l.Compile(tb, flags...)
	return l
}

// Compile replaces the library, as a driver upgrade does. With the flag -DNO_function it lacks that function.
func (l *Library) Compile(tb testing.TB, flags ...string) {
	tb.Helper()
	file := l.Path + ".c"
	source, err := source.ReadFile("testdata/nvml.c")
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, source, 0o644); err != nil {
		tb.Fatal(err)
	}
	args := []string{"-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", l.Path + "~", file, "-lpthread"}
	if b, err := exec.Command("cc", append(args, flags...)...).CombinedOutput(); err != nil {
		tb.Fatalf("cc: %v\n%s", err, b)
	}
	if err := os.Rename(l.Path+"~", l.Path); err != nil {
		tb.Fatal(err)
	}
}

// Set changes an answer, atomically for the library.
func (l *Library) Set(tb testing.TB, function, answer string) {
	tb.Helper()
	path := filepath.Join(l.Dir, function)
	if err := os.WriteFile(path+"~", []byte(answer), 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		tb.Fatal(err)
	}
}

// Calls returns the number of calls of a function: nvmlInit (either version), nvmlShutdown, nvmlEventSetCreate or
// nvmlEventSetFree.
func (l *Library) Calls(tb testing.TB, function string) int {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(l.Dir, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Count(string(b), function)
}

// Loaded reports whether this process has the library loaded.
func (l *Library) Loaded(tb testing.TB) bool {
	tb.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Contains(string(maps), l.Path)
}

// Devices returns the number of a process's descriptors for the device file that the library keeps open while it is
// initialized.
func (l *Library) Devices(tb testing.TB, pid int) (n int) {
	tb.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		if path, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil &&
			path == filepath.Join(l.Dir, "nvidiactl") {
			n++
		}
	}
	return n
}
