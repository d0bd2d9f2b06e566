package demo

import (
	"fmt"
	"time"

	"github.com/railscope/railscope/collector"
)

const gpusPerNode = 2

// Memory of a simulated GPU: all of it, what the driver keeps, what the job
// holds once it runs, what comes and goes in a step, and what a checkpoint takes
// beside.
const (
	gib           = 1 << 30
	gpuTotal      = 80 * gib
	gpuReserved   = gib / 2
	gpuIdle       = gib
	gpuHeld       = 54 * gib
	gpuSteps      = 9 * gib
	gpuCheckpoint = 6 * gib
)

// nvml is an NVML whose GPUs do what the job does.
type nvml struct {
	node int
	job  *job
}

var _ collector.NVML = nvml{}

// NVML returns the simulated NVML of the node.
func (n *Node) NVML() collector.NVML { return nvml{n.index, &n.demo.job} }

func (n nvml) Open() error             { return nil }
func (n nvml) Driver() (string, error) { return "simulated", nil }
func (n nvml) Count() (int, error)     { return gpusPerNode, nil }

func (n nvml) GPU(index int) (collector.NVMLDevice, error) {
	if index < 0 || index >= gpusPerNode {
		return nil, &collector.NVMLError{Call: "nvmlDeviceGetHandleByIndex_v2", Code: collector.CodeInvalidArgument}
	}
	return gpu{n, index}, nil
}

// gpu is one of them.
type gpu struct {
	nvml
	index int
}

func (g gpu) Identity() (collector.NVMLIdentity, error) {
	return collector.NVMLIdentity{UUID: fmt.Sprintf("GPU-demo-%d-%d", g.node+1, g.index), Name: "simulated GPU", BusID: "0000" + gpuAddress(g.index)}, nil
}

func (g gpu) Memory() (collector.NVMLMemory, error) {
	m := g.job.at(time.Now())
	used := gpuIdle + m.loaded*gpuHeld + float64(g.index)*gib/4
	if m.loaded == 1 {
		used += gpuSteps * min(2*m.part, 2-2*m.part) // activations grow forward and are freed backward
	}
	if m.checkpoint {
		used += gpuCheckpoint
	}
	u := uint64(used)
	return collector.NVMLMemory{Total: gpuTotal, Reserved: gpuReserved, Used: u, Free: gpuTotal - gpuReserved - u}, nil
}

func (g gpu) Numbers(q collector.Query) (v [4]uint64, err error) {
	m := g.job.at(time.Now())
	load := 0.97 - 0.3*m.use // it waits for the rails
	if m.checkpoint {
		load = 0.35
	}
	switch q {
	case collector.QueryUtilization:
		v = [4]uint64{uint64(100 * load), uint64(70 * load)}
	case collector.QueryBAR1:
		v = [4]uint64{128 * gib, gib / 4, 128*gib - gib/4}
	case collector.QueryTemperature:
		v[0] = 38 + uint64(30*load)
	case collector.QueryPower:
		v[0] = uint64(90e3 + 560e3*load)
	case collector.QueryClockSM, collector.QueryClockGraphics:
		v[0] = 1980
	case collector.QueryClockMemory:
		v[0] = 2619
	case collector.QueryECCCorrected, collector.QueryECCUncorr, collector.QueryECCVolatile, collector.QueryECCVolUncorr,
		collector.QueryRemappedRows, collector.QueryPCIeReplays, collector.QueryThrottled, collector.QueryMIGMode:
	case collector.QueryThrottles:
		v[0] = 0xff
	default:
		err = &collector.NVMLError{Call: string(q), Code: collector.CodeNotSupported}
	}
	return v, err
}

func (g gpu) Processes(bool) ([]collector.NVMLProcess, error) { return nil, nil }
func (g gpu) Instances() ([]collector.NVMLInstance, error)    { return nil, nil }
