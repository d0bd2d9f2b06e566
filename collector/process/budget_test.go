package process

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rdmanl"
)

// slowNVML takes the maximum allowed time for each step.
type slowNVML struct{ nvml.Library }

func (n slowNVML) Count() (int, error) { time.Sleep(collectortest.Slow); return n.Library.Count() }
func (n slowNVML) GPU(index int) (nvml.Device, error) {
	time.Sleep(collectortest.Slow)
	return n.Library.GPU(index)
}

// slowRDMA takes the maximum allowed time for each step.
type slowRDMA struct{ *fakeRDMA }

func (k slowRDMA) Devices() ([]string, error) {
	time.Sleep(collectortest.Slow)
	return k.fakeRDMA.Devices()
}

func (k slowRDMA) QueuePairs(device string, l rdmanl.QPLimits, each func(rdmanl.QP)) error {
	time.Sleep(collectortest.Slow)
	return k.fakeRDMA.QueuePairs(device, l, each)
}

func TestBudget(t *testing.T) {
	collectortest.TestBudget(t, func(t *testing.T, slow bool) collector.Source {
		m := capture(t, "kubernetes")
		var lib nvml.Library = m.nvml
		var kernel Kernel = m.kernel
		if slow {
			lib, kernel = slowNVML{lib}, slowRDMA{m.kernel}
		}
		p := New(Options{Sysfs: filepath.Join(m.dir, "sys"), Procfs: filepath.Join(m.dir, "proc"), Rootfs: m.dir,
			Rails:  collectortest.SlowRails(slow, collectortest.Rails(m.rails...)),
			Kernel: func() Kernel { return kernel }, NVML: nvml.NewSession(lib), Budget: collectortest.Budget})
		p.clock = func() uint64 { return m.now }
		return p
	})
}

func TestTable(t *testing.T) {
	collectortest.TestTable(t, New(Options{Rails: collectortest.NoRails}))
}
