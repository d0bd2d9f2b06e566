package gpu

import (
	"testing"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

// TestBudget: each GPU has its whole budget, even if NVML was slow.
func TestBudget(t *testing.T) {
	collectortest.TestBudget(t, func(t *testing.T, slow bool) collector.Source {
		lib := &nvmltest.GPUs{}
		if slow {
			lib.FindTakes = collectortest.Slow
		}
		return New(amdgpu.NewFinder(t.TempDir()), t.TempDir(), nvml.NewSession(lib), collectortest.Budget, 0)
	})
}
