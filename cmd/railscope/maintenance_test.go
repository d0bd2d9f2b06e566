//go:build cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

// TestMaintenance: while the file exists, and for a while after SIGHUP, no device file of the GPUs is open, and the
// metrics show it.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	lib := nvmltest.Build(t, t.TempDir(), "../../collector/gpu/testdata/h200.txtar")
	path := filepath.Join(t.TempDir(), "maintenance")
	write := func() {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	r := start(t, []string{"FAKENVML_DIR=" + lib.Dir}, "--path.sysfs="+tree(t), "--path.procfs="+lib.Procfs,
		"--path.nvml="+lib.Path, "--config.file="+file(t, fmt.Sprintf("maintenance: %q\n", path)))
	want := func(when string, maintenance, devices int) {
		t.Helper()
		text := ""
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			_, text = r.get(t, "/metrics")
			if strings.Contains(text, fmt.Sprintf("\nrailscope_maintenance %d\n", maintenance)) &&
				strings.Contains(text, "\nrailscope_gpu_info{") == (devices > 0) &&
				lib.Devices(t, r.Process.Pid) == devices {
				return
			}
		}
		t.Errorf("%s: %d device files are open, want %d; metrics:\n%s", when, lib.Devices(t, r.Process.Pid),
			devices, text)
	}
	want("at the start", 1, 0)
	if !strings.Contains(func() string { _, text := r.get(t, "/metrics"); return text }(),
		`railscope_source_success{source="gpu"} 1`) {
		t.Error("a release is a failure of the source")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("without the file", 0, 1)
	write()
	want("with the file", 1, 0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("without it again", 0, 1)
	if err := r.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.line(t, `"msg":"(NVML released)"`)
	want("after SIGHUP", 0, 0)
	if n := lib.Calls(t, "nvmlInit"); n != 2 {
		t.Errorf("%d initialisations", n)
	}
}
