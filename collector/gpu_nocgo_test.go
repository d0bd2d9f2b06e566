//go:build !cgo

package collector

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/internal/nvml"
)

func TestGPUWithoutCgo(t *testing.T) {
	procfs := t.TempDir()
	if err := os.MkdirAll(filepath.Join(procfs, "driver/nvidia/version"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := NewGPU(procfs, nvml.NewSession(nvml.NewLibrary("")), GPUOptions{}).Read(func(s Sample) { t.Error(s) })
	if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "built without cgo") {
		t.Errorf("Read: %v", err)
	}
}
