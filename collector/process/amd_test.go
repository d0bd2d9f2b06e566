package process

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

// amd makes the GPUs of a capture GPUs of AMD.
func (m *processMachine) amd(tb testing.TB) {
	tb.Helper()
	var b strings.Builder
	for i := range m.nvml.gpus {
		address := fmt.Sprintf("0000:%02x:00.0", 0x11+i)
		fmt.Fprintf(&b, "-- sys/bus/pci/devices/%s/vendor --\n0x1002\n-- sys/bus/pci/devices/%[1]s/class --\n0x120000\n"+
			"-- sys/bus/pci/drivers/amdgpu/%[1]s --\n-> ../../devices/%[1]s\n"+
			"-- sys/class/kfd/kfd/topology/nodes/%d/gpu_id --\n%d\n"+
			"-- sys/class/kfd/kfd/topology/nodes/%[2]d/properties --\nsimd_count 1216\nlocation_id %[4]d\ndomain 0\n",
			address, i+2, 100+i, (0x11+i)<<8)
	}
	memory := map[uint32]map[int]uint64{}
	for i, g := range m.nvml.gpus {
		for _, p := range g.compute {
			if memory[p.PID] == nil {
				memory[p.PID] = map[int]uint64{}
			}
			memory[p.PID][i] = p.Memory
		}
	}
	for pid, of := range memory {
		for i := range m.nvml.gpus { // a process has a file for every GPU
			fmt.Fprintf(&b, "-- sys/class/kfd/kfd/proc/%d/vram_%d --\n%d\n", pid, 100+i, of[i])
		}
	}
	sysfstest.Write(tb, m.dir, []byte(b.String()))
	m.nvml.gpus = nil
}

// TestProcessAMD: jobs on AMD's GPUs have the series of jobs on NVIDIA's.
func TestProcessAMD(t *testing.T) {
	m, n := capture(t, "kubernetes"), capture(t, "kubernetes")
	for _, machine := range []*processMachine{m, n} { // amdkfd reports the memory of all processes
		gpu := machine.nvml.gpus[3]
		gpu.compute, gpu.graphics = gpu.compute[:1], nil
	}
	m.amd(t)
	amd, nvidia := m.source(0), n.source(0)
	for range 2 {
		want := processLines(nvidia)
		if !strings.Contains(strings.Join(want, "\n"), `process_gpu_without_rdma{pod="serving/vllm-7d9f"`) {
			t.Fatal(want)
		}
		same(t, want, processLines(amd))
	}
}

// TestProcessAMDUnread: a node of amdkfd that cannot be read is a fault, and hides no other GPU.
func TestProcessAMDUnread(t *testing.T) {
	m := capture(t, "kubernetes")
	m.amd(t)
	sysfstest.Write(t, m.dir, []byte("-- sys/class/kfd/kfd/topology/nodes/3/properties --\nsimd_count x\n"))
	lines := strings.Join(processLines(m.source(0)), "\n")
	if strings.Contains(lines, `gpu="1"`) || !strings.Contains(lines, `gpu="2"`) || !strings.Contains(lines, "fault invalid") {
		t.Error(lines)
	}
}

// TestProcessAMDRefused: amdkfd refuses its files to a service without the devices of GPUs. That is expected; others
// are not.
func TestProcessAMDRefused(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{unix.EPERM: true, unix.EIO: false} {
		f := amdFault(sysfs.Fail("/sys/class/kfd/kfd/topology/nodes/1/properties", errno))
		if f.Expected != want {
			t.Errorf("%v: %+v", errno, f)
		}
	}
}
