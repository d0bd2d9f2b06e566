package collector

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
)

const (
	slowly     = 900 * time.Millisecond // each step on the way to a device, and each read of it
	readBudget = time.Second            // of one read
)

// slowNVML takes as long as it may for each step.
type slowNVML struct{ nvml.Library }

func (n slowNVML) Count() (int, error) { time.Sleep(slowly); return n.Library.Count() }
func (n slowNVML) GPU(index int) (nvml.Device, error) {
	time.Sleep(slowly)
	return n.Library.GPU(index)
}

// slowRDMA likewise.
type slowRDMA struct{ *fakeRDMA }

func (k slowRDMA) Devices() ([]string, error) { time.Sleep(slowly); return k.fakeRDMA.Devices() }
func (k slowRDMA) QueuePairs(device string, l rdmanl.QPLimits, each func(rdmanl.QP)) error {
	time.Sleep(slowly)
	return k.fakeRDMA.QueuePairs(device, l, each)
}

// slowSource makes a source, slow or not.
type slowSource func(t *testing.T, slow bool) Source

func slowRails(slow bool, rails func() ([]rail.Rail, error)) func() ([]rail.Rail, error) {
	return func() ([]rail.Rail, error) {
		if slow {
			time.Sleep(slowly)
		}
		return rails()
	}
}

var slowSources = map[string]slowSource{
	"process": func(t *testing.T, slow bool) Source {
		m := capture(t, "kubernetes")
		var lib nvml.Library = m.nvml
		var kernel ProcessKernel = m.kernel
		if slow {
			lib, kernel = slowNVML{lib}, slowRDMA{m.kernel}
		}
		p := NewProcess(ProcessOptions{Sysfs: filepath.Join(m.dir, "sys"), Procfs: filepath.Join(m.dir, "proc"), Rootfs: m.dir,
			Rails: slowRails(slow, someRails(m.rails...)), Kernel: func() ProcessKernel { return kernel }, NVML: nvml.NewSession(lib), Budget: readBudget})
		p.clock = func() (uint64, error) { return m.now, nil }
		return p
	},
}

// TestBudgetStartsWithTheRead: however long finding the devices took, each has
// its whole budget, in every source; and a read ends within the exporter's 4 s.
func TestBudgetStartsWithTheRead(t *testing.T) {
	for name, source := range slowSources {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				read := func(slow bool) (lines []string) {
					start := time.Now()
					err := source(t, slow).Read(func(s Sample) {
						if !strings.HasSuffix(s.Metric.Name, "_seconds") { // how long it took differs
							lines = append(lines, fmt.Sprint(s.Metric.Name, s.Labels, s.Value))
						}
					})
					for _, f := range Faults(err) {
						lines = append(lines, "fault "+f.Reason+" "+f.Device)
					}
					if took := time.Since(start); took >= 4*readBudget {
						t.Errorf("took %v", took)
					}
					slices.Sort(lines)
					return lines
				}
				if diff := cmp.Diff(read(false), read(true)); diff != "" {
					t.Errorf("(-quick +slow):\n%s", diff)
				}
			})
		})
	}
}

func someRails(rails ...rail.Rail) func() ([]rail.Rail, error) {
	return func() ([]rail.Rail, error) { return rails, nil }
}
