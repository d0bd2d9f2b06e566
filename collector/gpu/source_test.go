//go:build cgo

package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

// TestGPU reads every capture of testdata/gpu through the real binding, each in its own process, and compares the
// result with its member "want". RAILSCOPE_UPDATE=1 rewrites that member.
func TestGPU(t *testing.T) {
	captures, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(captures) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	for _, path := range captures {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := captured(t, name)
			if f == nil {
				return
			}
			processes := 0
			if slices.Contains([]string{"mig", "h200_lost", "old"}, name) {
				processes = 2
			}
			got := strings.Join(readLines(f.source(time.Minute, processes)), "\n") + "\n"
			if err := f.session.Release(time.Hour); err != nil || f.Loaded(t) {
				t.Errorf("released: %v, the library is loaded: %v", err, f.Loaded(t))
			}
			// The temporary directory differs from run to run.
			got = strings.ReplaceAll(got, filepath.Dir(f.Dir), "DIR")
			compareWant(t, path, got)
		})
	}
}

func compareWant(t *testing.T, path, got string) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
	if os.Getenv("RAILSCOPE_UPDATE") != "" {
		if at < 0 {
			at = len(archive.Files)
			archive.Files = append(archive.Files, txtar.File{Name: "want"})
		}
		archive.Files[at].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if at < 0 {
		t.Fatal("no member want")
	}
	if diff := cmp.Diff(string(archive.Files[at].Data), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRows: each row occurs in at least one capture.
func TestRows(t *testing.T) {
	captures, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	amd, err := os.ReadFile("testdata/amd/mi300x-cpx.txt")
	if err != nil {
		t.Fatal(err)
	}
	all.Write(amd)
	for _, path := range captures {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if f.Name == "want" {
				all.Write(f.Data)
			}
		}
	}
	names := make(map[string]bool)
	for _, row := range New(noAMD(), "/proc", nvml.NewSession(nvml.NewLibrary("")), time.Second, 0).Metrics() {
		switch {
		case names[row.Name]:
			t.Errorf("%s is there twice", row.Name)
		case !strings.Contains(all.String(), row.Name+"{gpu=\"0\""):
			t.Errorf("%s is in no capture", row.Name)
		case row.Labels[0] != "gpu" || row.Ref == "" || row.Help == "" || len(row.From) == 0:
			t.Errorf("%s: a field is missing", row.Name)
		case (row.Kind == collector.Counter) != strings.HasSuffix(row.Name, "_total"):
			t.Errorf("%s: only counters end in _total", row.Name)
		case row.From[0].Bits == 32 && !strings.Contains(row.Help, "32 bits wide: it wraps to 0"):
			t.Errorf("%s: the help does not say that it wraps: %q", row.Name, row.Help)
		}
		names[row.Name] = true
	}
}

// TestGPUNoLibrary: there is no NVIDIA software, or the kernel has the driver and the library is missing.
func TestGPUNoLibrary(t *testing.T) {
	procfs := t.TempDir()
	lib := filepath.Join(procfs, "libnvidia-ml.so.1")
	err := New(noAMD(), procfs, nvml.NewSession(nvml.NewLibrary(lib)), time.Second, 0).
		Read(func(s collector.Sample) { t.Error(s) })
	if !errors.Is(err, collector.ErrAbsent) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), lib) {
		t.Errorf("without a driver: %v", err)
	}

	if err := os.MkdirAll(filepath.Join(procfs, "driver/nvidia"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(procfs, "driver/nvidia/version"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err = New(noAMD(), procfs, nvml.NewSession(nvml.NewLibrary(lib)), time.Second, 0).
		Read(func(s collector.Sample) { t.Error(s) })
	var f *collector.Fault
	if errors.Is(err, collector.ErrAbsent) || !errors.As(err, &f) || f.Reason != nvml.ReasonLibrary || f.Expected {
		t.Errorf("with the kernel driver: %v", err)
	}
}

// TestGPUHang: while a call for GPU 1 hangs, its series are missing and those of GPU 0 are present. After the call
// returns, all are present.
func TestGPUHang(t *testing.T) {
	t.Parallel()
	f := captured(t, "h200")
	if f == nil {
		return
	}
	patient := readLines(f.source(time.Minute, 0))
	var alone []string
	for _, line := range patient {
		if !strings.Contains(line, `gpu="1"`) {
			alone = append(alone, line)
		}
	}
	f.Set(t, "nvmlDeviceGetPowerUsage.1", "hang")
	src := f.source(time.Second, 0)
	for range 3 {
		got := readLines(src)
		last := got[len(got)-1]
		if !strings.HasPrefix(last, "fault timeout: gpu1: ") {
			t.Errorf("the last line is %q", last)
		}
		if diff := cmp.Diff(alone, got[:len(got)-1]); diff != "" {
			t.Errorf("while it hangs: -want +got:\n%s", diff)
		}
	}
	// Reinitialization for GPU 0 must wait for the call.
	f.Set(t, "nvmlDeviceGetHandleByIndex_v2.0", "1")
	for range 2 {
		got := readLines(src)
		if len(got) != 2 || !strings.HasPrefix(got[0], "fault driver_not_loaded: gpu0: ") || !strings.HasPrefix(got[1],
			"fault timeout: gpu1: ") {
			t.Errorf("while GPU 0 asks for more: %q", got)
		}
	}
	f.Set(t, "nvmlDeviceGetHandleByIndex_v2.0", "0")
	f.Set(t, "nvmlDeviceGetPowerUsage.1", "0 76123")
	untilLines(t, src, patient)
}

// TestGPUHangAll: while NVML itself hangs, Read returns only the reason, in time. When the slow initialization
// returns, its result is used.
func TestGPUHangAll(t *testing.T) {
	f := captured(t, "h200")
	if f == nil {
		return
	}
	src := f.source(100*time.Millisecond, 0)
	f.Set(t, "nvmlInit_v2", "hang")
	for range 3 {
		got := readLines(src)
		if len(got) != 1 || !strings.HasPrefix(got[0], "fault timeout: ") {
			t.Errorf("while nvmlInit hangs: %q", got)
		}
	}
	f.Set(t, "nvmlInit_v2", "0")
	untilReads(t, src)
	if n := f.Calls(t, "nvmlInit"); n != 1 {
		t.Errorf("%d initialisations, want 1", n)
	}
}

// untilLines reads until the result contains all of want, or the test times out.
func untilLines(t *testing.T, src collector.Source, want []string) {
	t.Helper()
	for {
		got := readLines(src)
		if slices.Equal(got, want) {
			return
		}
		for _, line := range got { // only the missing time may differ
			if strings.Contains(line, "fault") && !strings.HasPrefix(line, "fault timeout: ") {
				t.Fatal(line)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// untilReads reads until a read succeeds, or the test times out.
func untilReads(t *testing.T, src collector.Source) {
	t.Helper()
	for src.Read(func(collector.Sample) {}) != nil {
		time.Sleep(time.Millisecond)
	}
}

// TestGPURetry: a failed initialization is repeated after a minute, not earlier. The same holds after the driver
// disappeared.
func TestGPURetry(t *testing.T) {
	f := captured(t, "h200")
	if f == nil {
		return
	}
	lanetest.Test(t, func(t *testing.T) {
		src := f.source(time.Second, 0)
		read := func(what, want string, inits int) {
			t.Helper()
			got := readLines(src)
			if last := got[len(got)-1]; !strings.HasPrefix(last, want) || f.Calls(t, "nvmlInit") != inits {
				t.Errorf("%s: %q after %d initialisations, want %q after %d", what, last, f.Calls(t, "nvmlInit"),
					want, inits)
			}
		}
		const good = "gpu_utilization_ratio"
		f.Set(t, "nvmlInit_v2", "999")
		read("at first", "fault nvml: nvmlInit_v2: NVML error 999", 1)
		f.Set(t, "nvmlInit_v2", "0")
		time.Sleep(nvml.RetryInterval - 1)
		read("too early", "fault nvml: nvmlInit_v2", 1)
		time.Sleep(time.Nanosecond)
		read("a minute later", good, 2)

		time.Sleep(time.Hour)
		f.Set(t, "nvmlDeviceGetHandleByIndex_v2", "1")
		read("the driver went away", "fault driver_not_loaded: gpu1: nvmlDeviceGetHandleByIndex_v2", 2)
		f.Set(t, "nvmlInit_v2", "9")
		read("it is not back", "fault no_gpu: there were GPUs before", 3)
		f.Set(t, "nvmlInit_v2", "0")
		f.Set(t, "nvmlDeviceGetHandleByIndex_v2", "0")
		time.Sleep(nvml.RetryInterval)
		read("it is back", good, 4)

		time.Sleep(time.Hour)
		f.Set(t, "nvmlDeviceGetHandleByIndex_v2.1", "1")
		read("one GPU says so", "fault driver_not_loaded: gpu1", 4)
		read("the other one does not", "fault driver_not_loaded: gpu1", 4)

		f.Set(t, "nvmlDeviceGetCount_v2", "1")
		read("NVML says so", "fault driver_not_loaded: nvmlDeviceGetCount_v2", 4)
		f.Set(t, "nvmlDeviceGetCount_v2", "0 2")
		f.Set(t, "nvmlDeviceGetHandleByIndex_v2.1", "0")
		read("and can be initialised again", good, 5)
	})
}

// BenchmarkGPURead reads two GPUs whose values are in memory.
func BenchmarkGPURead(b *testing.B) {
	dir := b.TempDir()
	l := nvmltest.Build(b, dir, "testdata/h200.txtar")
	b.Setenv("FAKENVML_DIR", l.Dir)
	b.Setenv("FAKENVML_STATIC", "1")
	src := newFakeNVML(l).source(time.Second, 0)
	samples := 0
	emit := func(collector.Sample) { samples++ }
	if err := src.Read(emit); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(samples), "samples")
	b.ReportAllocs()
	for b.Loop() {
		if err := src.Read(emit); err != nil {
			b.Fatal(err)
		}
	}
}
