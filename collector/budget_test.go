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
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

const (
	slowly     = 900 * time.Millisecond // each step on the way to a device, and each read of it
	readBudget = time.Second            // of one read
)

// slowNVML takes as long as it may for each step.
type slowNVML struct{ NVML }

func (n slowNVML) Count() (int, error) { time.Sleep(slowly); return n.NVML.Count() }
func (n slowNVML) GPU(index int) (NVMLDevice, error) {
	time.Sleep(slowly)
	return n.NVML.GPU(index)
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
	"netdev": func(t *testing.T, slow bool) Source {
		root := sysfstest.Unpack(t, "testdata/netdev-lag.txtar")
		kernel := lagKernel()
		return NewNetdev(root.Sys(), slowRails(slow, someRails(lagRails...)), readBudget).Ethtool(func(name string, req []byte) error {
			if slow && name == "enp1s0f0np0" {
				time.Sleep(slowly / 4) // of at most four requests
			}
			return kernel.Ioctl(name, req)
		})
	},
	"rdma": func(t *testing.T, slow bool) Source {
		tree := newRDMATree(t)
		rdma := NewRDMA(tree.sys, slowRails(slow, tree.source.rails), readBudget)
		rdma.MaxMTU(func(string, int) int {
			if slow {
				time.Sleep(slowly)
			}
			return 4096
		})
		return rdma
	},
	"bond": func(t *testing.T, slow bool) Source {
		root := sysfstest.Unpack(t, "testdata/bond-lacp.txtar")
		return NewBond(root.Sys(), root.Proc(), slowRails(slow, someRails(lagRails...)), readBudget)
	},
	"pcie": func(t *testing.T, slow bool) Source {
		root := sysfstest.Unpack(t, "../internal/rail/testdata/hgx-h100.txtar")
		finder := rail.NewFinder(root.Sys(), rail.Options{}, nil, readBudget)
		return NewPCIe(root.Sys(), slowRails(slow, finder.Rails), readBudget)
	},
	"gpu": func(t *testing.T, slow bool) Source {
		var lib NVML = &countedNVML{}
		if slow {
			lib = slowNVML{lib}
		}
		return NewGPU(t.TempDir(), lib, GPUOptions{Budget: readBudget})
	},
	"process": func(t *testing.T, slow bool) Source {
		m := capture(t, "kubernetes")
		var lib NVML = m.nvml
		var kernel ProcessKernel = m.kernel
		if slow {
			lib, kernel = slowNVML{lib}, slowRDMA{m.kernel}
		}
		p := NewProcess(ProcessOptions{Sysfs: filepath.Join(m.dir, "sys"), Procfs: filepath.Join(m.dir, "proc"), Rootfs: m.dir,
			Rails: slowRails(slow, someRails(m.rails...)), Kernel: func() ProcessKernel { return kernel }, NVML: lib, Budget: readBudget})
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

// TestNetdevSlowNeighbour: an interface whose driver does not answer in time is
// named, and costs no other one a sample.
func TestNetdevSlowNeighbour(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		root := sysfstest.Unpack(t, "testdata/netdev-lag.txtar")
		kernel, stuck := lagKernel(), false
		source := NewNetdev(root.Sys(), slowRails(true, someRails(lagRails...)), readBudget).Ethtool(func(name string, req []byte) error {
			if stuck && name == "enp1s0f0np0" {
				time.Sleep(time.Minute)
			}
			return kernel.Ioctl(name, req)
		})
		read := func() (lines []string, faults []string) {
			err := source.Read(func(s Sample) {
				if !slices.Contains(s.Labels, "enp1s0f0np0") {
					lines = append(lines, fmt.Sprint(s.Metric.Name, s.Labels, s.Value))
				}
			})
			for _, f := range Faults(err) {
				if !f.Expected {
					faults = append(faults, f.Device+" "+f.Reason)
				}
			}
			slices.Sort(lines)
			return lines, faults
		}
		want, _ := read()
		stuck = true
		for range 3 {
			got, faults := read()
			if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"enp1s0f0np0 " + sysfs.ReasonTimeout}, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		}
	})
}

// TestNetdevBondSilent: while the directory of a bond does not answer, its members
// are read all the same: they are the ones that it had.
func TestNetdevBondSilent(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		root := sysfstest.Unpack(t, "testdata/netdev-lag.txtar")
		source := NewNetdev(root.Sys(), someRails(lagRails...), readBudget).Ethtool(lagKernel().Ioctl)
		read := func() (members int, err error) {
			err = source.Read(func(s Sample) {
				if slices.Contains(s.Labels, "enp1s0f0np0") || slices.Contains(s.Labels, "enp1s0f1np1") {
					members++
				}
			})
			return members, err
		}
		want, _ := read()
		release := make(chan struct{})
		source.finders.Run(time.Millisecond, []string{"bond0"}, func(string) []string { <-release; return nil })
		for range 2 {
			got, err := read()
			if got != want || want == 0 {
				t.Errorf("%d samples of members, want %d", got, want)
			}
			if !slices.ContainsFunc(Faults(err), func(f *Fault) bool { return f.Device == "bond0" && f.Reason == sysfs.ReasonTimeout }) {
				t.Errorf("no fault of the bond in %v", err)
			}
		}
		close(release)
	})
}
