package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfstest"
)

// processMachine is a fake node from a txtar file: procfs and the kubelet's directories as files, and the answers
// of kernel and driver as lines.
type processMachine struct {
	dir      string
	now      uint64 // ticks
	rails    []rail.Rail
	railsErr error
	kernel   *fakeRDMA
	nvml     *fakeGPUs
}

// newProcessMachine unpacks a capture. Its members other than files are
//
//	tasks: pid, process, parent, session, terminal, start, cgroup, name
//	qps: device, port, state, thread (0: ended, k: the kernel's), how many
//	gpus: index, UUID, pid, bytes or n/a, c or g, and gi/ci on a MIG device
func newProcessMachine(tb testing.TB, data []byte) *processMachine {
	tb.Helper()
	m := &processMachine{dir: tb.TempDir(), now: 1_000_000,
		rails: []rail.Rail{{Name: "0", Device: "mlx5_0", Port: 1, PCIAddress: "0000:1a:00.0"},
			{Name: "1", Device: "mlx5_1", Port: 1, PCIAddress: "0000:3d:00.0"}},
		kernel: &fakeRDMA{devices: []string{"mlx5_0", "mlx5_1"}, shared: true, qps: map[string][]rdmanl.QP{}},
		nvml:   &fakeGPUs{}}
	sysfstest.Write(tb, m.dir, data)
	for _, f := range txtar.Parse(data).Files {
		for line := range strings.Lines(string(f.Data)) {
			fields := strings.Fields(line)
			switch f.Name {
			case "tasks":
				m.task(tb, fields)
			case "qps":
				m.kernel.add(tb, fields)
			case "gpus":
				m.nvml.add(tb, fields)
			}
		}
	}
	return m
}

// task writes the files of one process or thread.
func (m *processMachine) task(tb testing.TB, f []string) {
	tb.Helper()
	dir := filepath.Join(m.dir, "proc", f[0])
	name := strings.Join(f[7:], " ")
	for file, content := range map[string]string{
		"stat": fmt.Sprintf("%s (%s) S %s %s %s %s 0 1 2 3 4 5 6 7 8 9 20 0 1 0 %s 22"+strings.Repeat(" 0", 29)+"\n",
			f[0], name, f[2], f[3], f[3], f[4], f[5]),
		"status": fmt.Sprintf("Name:\t%s\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t%s\nNgid:\t0\nPid:\t%s\n"+
			"PPid:\t%s\n", name, f[1], f[0], f[2]),
		"cgroup": "0::" + f[6] + "\n",
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

// device makes the directory of an RDMA device in sysfs.
func (m *processMachine) device(tb testing.TB, name string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Join(m.dir, "sys/class/infiniband", name), 0o755); err != nil {
		tb.Fatal(err)
	}
}

// environ writes the environment of a process.
func (m *processMachine) environ(tb testing.TB, pid int, env ...string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, "proc", strconv.Itoa(pid), "environ"),
		[]byte(strings.Join(env, "\x00")+"\x00"), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func (m *processMachine) source(limit int) *Source {
	p := New(Options{
		Sysfs: filepath.Join(m.dir, "sys"), Procfs: filepath.Join(m.dir, "proc"), Rootfs: m.dir,
		Rails:  func() ([]rail.Rail, error) { return m.rails, m.railsErr },
		Kernel: func() Kernel { return m.kernel },
		NVML:   nvml.NewSession(m.nvml),
		Limit:  limit,
	})
	p.clock = func() uint64 { return m.now }
	return p
}

// fakeRDMA is a fake RDMA core.
type fakeRDMA struct {
	devices []string
	shared  bool
	qps     map[string][]rdmanl.QP
	err     map[string]error // error of a device, after its queue pairs
	each    func()           // called before each queue pair
}

func (k *fakeRDMA) Devices() ([]string, error)   { return k.devices, k.err[""] }
func (k *fakeRDMA) SharedDevices() (bool, error) { return k.shared, nil }
func (k *fakeRDMA) Close()                       {}
func (k *fakeRDMA) QueuePairs(device string, _ rdmanl.QPLimits, each func(rdmanl.QP)) error {
	for _, qp := range k.qps[device] {
		if k.each != nil {
			k.each()
		}
		each(qp)
	}
	return k.err[device]
}

func (k *fakeRDMA) add(tb testing.TB, f []string) {
	tb.Helper()
	qp := rdmanl.QP{Kernel: f[3] == "k"}
	port, err1 := strconv.Atoi(f[1])
	pid, err2 := strconv.Atoi(strings.Replace(f[3], "k", "0", 1))
	n, err3 := strconv.Atoi(f[4])
	state := slices.IndexFunc([]int{0, 1, 2, 3, 4, 5, 6}, func(s int) bool {
		return rdmanl.QPState(s).String() == f[2]
	})
	if err1 != nil || err2 != nil || err3 != nil || state < 0 {
		tb.Fatalf("no queue pair: %q", f)
	}
	qp.Port, qp.PID, qp.State = uint32(port), uint32(pid), rdmanl.QPState(state)
	for range n {
		k.qps[f[0]] = append(k.qps[f[0]], qp)
	}
}

// fakeGPUs is a fake NVML.
type fakeGPUs struct {
	err   error // error of Open
	opens int
	gpus  []*fakeGPU
}

type fakeGPU struct {
	compute, graphics []nvml.Process
	err               error // error of Processes
	mig               uint64
	nvml.Device
}

func (g *fakeGPUs) Open() error {
	g.opens++
	return g.err
}
func (g *fakeGPUs) Close()                             {}
func (g *fakeGPUs) Driver() (string, error)            { return "570", nil }
func (g *fakeGPUs) Count() (int, error)                { return len(g.gpus), nil }
func (g *fakeGPUs) GPU(index int) (nvml.Device, error) { return g.gpus[index], nil }

func (g *fakeGPUs) add(tb testing.TB, f []string) {
	tb.Helper()
	index, err := strconv.Atoi(f[0])
	if err != nil {
		tb.Fatal(err)
	}
	for len(g.gpus) <= index {
		g.gpus = append(g.gpus, &fakeGPU{})
	}
	d := g.gpus[index]
	if len(f) == 2 {
		return
	}
	pid, err1 := strconv.Atoi(f[2])
	p := nvml.Process{PID: uint32(pid), GPUInstance: 1<<32 - 1, ComputeInstance: 1<<32 - 1, Memory: nvml.NotAvailable}
	var err2, err3 error
	if f[3] != "n/a" {
		p.Memory, err2 = strconv.ParseUint(f[3], 10, 64)
	}
	if len(f) > 5 {
		_, err3 = fmt.Sscanf(f[5], "%d/%d", &p.GPUInstance, &p.ComputeInstance)
	}
	if err1 != nil || err2 != nil || err3 != nil {
		tb.Fatalf("no process: %q", f)
	}
	if f[4] == "g" {
		d.graphics = append(d.graphics, p)
	} else {
		d.compute = append(d.compute, p)
	}
}

func (d *fakeGPU) Numbers(nvml.Query) ([4]uint64, error) { return [4]uint64{d.mig}, nil } // the MIG mode
func (d *fakeGPU) Processes(g bool) ([]nvml.Process, error) {
	if g {
		return slices.Clone(d.graphics), nil
	}
	return slices.Clone(d.compute), d.err
}
