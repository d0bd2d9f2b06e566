//go:build cgo

package collector

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/sysfstest"
)

// fakeNVML is a libnvidia-ml made from a capture; see internal/nvml/nvmltest/nvml.c.
type fakeNVML struct {
	lib    string // path of the library
	dir    string // its answers
	procfs string
}

// Set in a process that was started for one test with its own fake library.
const fakeNVMLEnv, fakeNVMLTestEnv = "RAILSCOPE_TEST_FAKENVML", "RAILSCOPE_TEST_NAME"

// nvmlProcess gives the calling test a process of its own, in which it may load
// the fake library: go-nvml binds C symbols once in the life of a process. It
// returns nil in the process that go test started, where the test is over by
// then; output is what the other one wrote, err how it ended.
func nvmlProcess(t *testing.T, capture string) (f *fakeNVML, output string, err error) {
	t.Helper()
	if os.Getenv(fakeNVMLTestEnv) == t.Name() {
		dir := os.Getenv(fakeNVMLEnv)
		return &fakeNVML{
			lib:    filepath.Join(dir, "libnvidia-ml.so.1"),
			dir:    filepath.Join(dir, "answers"),
			procfs: filepath.Join(dir, "proc"),
		}, "", nil
	}
	dir := t.TempDir()
	buildNVML(t, dir, capture)
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	cmd := exec.Command(os.Args[0], "-test.run="+pattern, "-test.count=1", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), fakeNVMLEnv+"="+dir, fakeNVMLTestEnv+"="+t.Name(), "FAKENVML_DIR="+filepath.Join(dir, "answers"),
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // the race detector sleeps a second at every exit
	b, err := cmd.CombinedOutput()
	return nil, string(b), err
}

// inNVMLProcess is [nvmlProcess] for a test that must pass there.
func inNVMLProcess(t *testing.T, capture string) *fakeNVML {
	t.Helper()
	f, output, err := nvmlProcess(t, capture)
	if err != nil {
		t.Errorf("in its own process: %v\n%s", err, output)
	}
	return f
}

// buildNVML unpacks a capture and compiles the library beside it, without the
// functions that the capture calls lacking.
func buildNVML(tb testing.TB, dir, capture string) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/gpu", capture+".txtar"))
	if err != nil {
		tb.Fatal(err)
	}
	sysfstest.Write(tb, dir, data)
	if err := os.MkdirAll(filepath.Join(dir, "answers"), 0o755); err != nil {
		tb.Fatal(err)
	}
	answers := &fakeNVML{dir: filepath.Join(dir, "answers")}
	args := []string{"-shared", "-fPIC", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "../internal/nvml/nvmltest/nvml.c", "-lpthread"}
	for _, member := range txtar.Parse(data).Files {
		switch member.Name {
		case "nvml":
			for line := range strings.Lines(string(member.Data)) {
				function, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
				answers.set(tb, function, answer)
			}
		case "lacking":
			for function := range strings.FieldsSeq(string(member.Data)) {
				args = append(args, "-DNO_"+function)
			}
		}
	}
	if b, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		tb.Fatalf("cc: %v\n%s", err, b)
	}
}

// set changes an answer, in one step as the library sees it.
func (f *fakeNVML) set(tb testing.TB, function, answer string) {
	tb.Helper()
	path := filepath.Join(f.dir, function)
	if err := os.WriteFile(path+"~", []byte(answer), 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		tb.Fatal(err)
	}
}

// inits counts the calls of nvmlInit.
func (f *fakeNVML) inits(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "nvmlInit")
}

// source is the gpu source over the fake.
func (f *fakeNVML) source(opts GPUOptions) Source {
	return NewGPU(f.procfs, nvml.NewLibrary(f.lib), opts)
}

// gpuLines reads a source and returns all that came of it, a line each: the
// samples sorted, then the faults as they are.
func gpuLines(src Source) []string {
	var lines []string
	err := src.Read(func(s Sample) {
		var labels []string
		for i, value := range s.Labels {
			labels = append(labels, fmt.Sprintf("%s=%q", s.Metric.Labels[i], value))
		}
		lines = append(lines, fmt.Sprintf("%s{%s} %v", s.Metric.Name, strings.Join(labels, ","), s.Value))
	})
	slices.Sort(lines)
	if errors.Is(err, ErrAbsent) {
		return append(lines, "absent "+err.Error())
	}
	for _, f := range Faults(err) {
		expected := ""
		if f.Expected {
			expected = "expected "
		}
		lines = append(lines, fmt.Sprintf("%sfault %s: %s", expected, f.Reason, f.Error()))
	}
	return lines
}
