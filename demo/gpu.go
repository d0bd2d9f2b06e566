package demo

import (
	"fmt"
	"time"

	"github.com/railscope/railscope/internal/nvml"
)

const gpusPerNode = 2

// Memory of a simulated GPU.
const (
	gib           = 1 << 30
	gpuTotal      = 80 * gib
	gpuReserved   = gib / 2
	gpuIdle       = gib      // without a job
	gpuJob        = 54 * gib // of the job, once it runs
	gpuStep       = 9 * gib  // allocated and freed in each step
	gpuCheckpoint = 6 * gib
)

// library is an NVML whose GPUs follow the job.
type library struct {
	node int
	job  *job
}

// NVML returns the simulated NVML of the node.
func (n *Node) NVML() nvml.Library { return library{n.index, &n.demo.job} }

func (n library) Open() error             { return nil }
func (n library) Close()                  {}
func (n library) Driver() (string, error) { return "simulated", nil }
func (n library) Count() (int, error)     { return gpusPerNode, nil }

func (n library) GPU(index int) (nvml.Device, error) {
	if index < 0 || index >= gpusPerNode {
		return nil, &nvml.Error{Call: "nvmlDeviceGetHandleByIndex_v2", Code: nvml.CodeInvalidArgument}
	}
	return gpu{n, index}, nil
}

type gpu struct {
	library
	index int
}

func (g gpu) Identity() (nvml.Identity, error) {
	return nvml.Identity{UUID: fmt.Sprintf("GPU-demo-%d-%d", g.node+1, g.index), Name: "simulated GPU",
		BusID: "0000" + gpuAddress(g.index)}, nil
}

func (g gpu) Memory() (nvml.Memory, error) {
	m := g.job.at(time.Now())
	used := gpuIdle + m.loaded*gpuJob + float64(g.index)*gib/4
	if m.loaded == 1 {
		used += gpuStep * min(2*m.part, 2-2*m.part) // activations grow in the forward pass and are freed in the backward pass
	}
	if m.checkpoint {
		used += gpuCheckpoint
	}
	u := uint64(used)
	return nvml.Memory{Total: gpuTotal, Reserved: gpuReserved, Used: u, Free: gpuTotal - gpuReserved - u}, nil
}

func (g gpu) Numbers(q nvml.Query) (v [4]uint64, err error) {
	m := g.job.at(time.Now())
	load := 0.97 - 0.3*m.use // waiting for the rails
	if m.checkpoint {
		load = 0.35
	}
	switch q {
	case nvml.QueryUtilization:
		v = [4]uint64{uint64(100 * load), uint64(70 * load)}
	case nvml.QueryBAR1:
		v = [4]uint64{128 * gib, gib / 4, 128*gib - gib/4}
	case nvml.QueryTemperature:
		v[0] = 38 + uint64(30*load)
	case nvml.QueryPower:
		v[0] = uint64(90e3 + 560e3*load)
	case nvml.QueryClockSM, nvml.QueryClockGraphics:
		v[0] = 1980
	case nvml.QueryClockMemory:
		v[0] = 2619
	case nvml.QueryECCCorrected, nvml.QueryECCUncorr, nvml.QueryECCVolatile, nvml.QueryECCVolUncorr,
		nvml.QueryRemappedRows, nvml.QueryPCIeReplays, nvml.QueryThrottled, nvml.QueryMIGMode:
	case nvml.QueryThrottles:
		v[0] = 0xff
	default:
		err = &nvml.Error{Call: string(q), Code: nvml.CodeNotSupported}
	}
	return v, err
}

func (g gpu) Processes(bool) ([]nvml.Process, error) { return nil, nil }
func (g gpu) Instances() ([]nvml.Instance, error)    { return nil, nil }
