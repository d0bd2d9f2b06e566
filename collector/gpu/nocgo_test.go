//go:build !cgo

package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
)

func TestGPUWithoutCgo(t *testing.T) {
	procfs := t.TempDir()
	if err := os.MkdirAll(filepath.Join(procfs, "driver/nvidia/version"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := New(noAMD(), procfs, nvml.NewSession(nvml.NewLibrary("")), time.Second, 0).
		Read(func(s collector.Sample) { t.Error(s) })
	if !errors.Is(err, collector.ErrAbsent) || !strings.Contains(err.Error(), "built without cgo") {
		t.Errorf("Read: %v", err)
	}
}
