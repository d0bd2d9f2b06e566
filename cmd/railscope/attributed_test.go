package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	collectorprocess "github.com/railscope/railscope/collector/process"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfstest"
)

// attributed lets the process source see the GPUs, and the queue pairs in kernel/qps, listed as device and process.
func attributed(t *testing.T, root sysfstest.Root) func(*collectorprocess.Options) {
	t.Helper()
	pairs := map[string][]rdmanl.QP{}
	answers(t, root, "qps", func(line string) error {
		var device string
		pair := rdmanl.QP{Port: 1, State: rdmanl.RTS}
		_, err := fmt.Sscan(line, &device, &pair.PID)
		pairs[device] = append(pairs[device], pair)
		return err
	})
	return func(o *collectorprocess.Options) {
		o.NVML = gpus(t, root)
		o.Kernel = func() collectorprocess.Kernel { return queuePairs{root, pairs} }
	}
}

// answers calls each for the lines of a file below kernel/.
func answers(t *testing.T, root sysfstest.Root, name string, each func(line string) error) {
	t.Helper()
	data, _ := os.ReadFile(filepath.Join(root.Dir, "kernel", name)) // empty without the file
	for line := range strings.Lines(string(data)) {
		if err := each(line); err != nil && strings.TrimSpace(line) != "" {
			t.Fatal(err)
		}
	}
}

// queuePairs replaces the kernel's list of queue pairs of a captured machine.
type queuePairs struct {
	root  sysfstest.Root
	pairs map[string][]rdmanl.QP
}

func (k queuePairs) Devices() (list []string, err error) {
	devices, _ := os.ReadDir(k.root.Sys("class/infiniband"))
	for _, d := range devices {
		list = append(list, d.Name())
	}
	return list, nil
}
func (k queuePairs) SharedDevices() (bool, error) { return true, nil }
func (k queuePairs) Close()                       {}
func (k queuePairs) QueuePairs(device string, _ rdmanl.QPLimits, each func(rdmanl.QP)) error {
	for _, pair := range k.pairs[device] {
		each(pair)
	}
	return nil
}

// gpus returns an NVML session with the GPUs in kernel/gpus, listed as index and process that holds its memory.
// Without the file NVML is not installed.
func gpus(t *testing.T, root sysfstest.Root) *nvml.Session {
	t.Helper()
	list := heldGPUs{}
	answers(t, root, "gpus", func(line string) error {
		var index int
		p := nvml.Process{GPUInstance: 1<<32 - 1, ComputeInstance: 1<<32 - 1, Memory: 1 << 30}
		_, err := fmt.Sscan(line, &index, &p.PID)
		list = append(list, heldGPU{nil, p})
		return err
	})
	if len(list) == 0 {
		return nvml.NewSession(nvml.NewLibrary(filepath.Join(root.Dir, "none")))
	}
	return nvml.NewSession(list)
}

type heldGPUs []heldGPU

func (g heldGPUs) Open() error                        { return nil }
func (g heldGPUs) Close()                             {}
func (g heldGPUs) Driver() (string, error)            { return "570", nil }
func (g heldGPUs) Count() (int, error)                { return len(g), nil }
func (g heldGPUs) GPU(index int) (nvml.Device, error) { return g[index], nil }

type heldGPU struct {
	nvml.Device
	by nvml.Process
}

func (g heldGPU) Identity() (nvml.Identity, error) {
	return nvml.Identity{UUID: fmt.Sprint("GPU-", g.by.PID)}, nil
}
func (g heldGPU) Memory() (nvml.Memory, error) {
	return nvml.Memory{Total: 80 << 30, Free: 79 << 30, Used: 1 << 30}, nil
}
func (g heldGPU) Numbers(nvml.Query) (values [4]uint64, err error) { return values, nil }
func (g heldGPU) Instances() ([]nvml.Instance, error)              { return nil, nil }
func (g heldGPU) Processes(graphics bool) ([]nvml.Process, error) {
	if graphics {
		return nil, nil
	}
	return []nvml.Process{g.by}, nil
}

// statistics returns an ethtool with the statistics in kernel/statistics: one file per interface with names and
// values.
func statistics(root sysfstest.Root) ethtool.Ioctl {
	k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{}}
	list, _ := os.ReadDir(root.Sys("class/net")) // empty without the directory
	for _, e := range list {
		device, _ := filepath.EvalSymlinks(root.Sys("class/net", e.Name(), "device"))
		netdev := &ethtooltest.Netdev{Driver: "mlx5_core", Bus: filepath.Base(device)}
		netdev.Before = func(uint32) error {
			data, err := os.ReadFile(filepath.Join(root.Dir, "kernel/statistics", e.Name()))
			if err != nil {
				return unix.EOPNOTSUPP
			}
			words := strings.Fields(string(data))
			netdev.Stats = nil
			for i := 0; i+1 < len(words); i += 2 {
				v, _ := strconv.ParseUint(words[i+1], 10, 64)
				netdev.Stats = append(netdev.Stats, ethtooltest.Stat{Name: words[i], Value: v})
			}
			return nil
		}
		k.Netdevs[e.Name()] = netdev
	}
	return k.Ioctl
}
