package demo

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/nvml"
)

// A step computes, then exchanges gradients while computing, then waits for the rest. During a checkpoint, rails
// are idle.
const (
	stepTime           = 1100 * time.Millisecond // not 1 s: a reader with an interval of 1 s must see all phases
	checkpointInterval = time.Minute
	checkpointTime     = 3 * time.Second
	startTime          = 20 * time.Second // time until all memory is allocated
)

// Duration of a pause of the job: from the start of a round until its first bytes, and after each piece.
const (
	roundPause = 3 * time.Second
	piecePause = time.Second
)

// job is a training job on both nodes that exchanges gradients over all rails.
type job struct {
	began time.Time

	mu     sync.Mutex // protects all following fields
	paused time.Time  // end of the pause
}

// pause keeps the job off the rails for a while, so that rounds are not skipped as busy. A real job would not
// pause.
func (j *job) pause(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.paused = time.Now().Add(d)
}

type moment struct {
	step       int
	part       float64 // completed share of the step
	use        float64 // used share of each rail
	checkpoint bool
	loaded     float64 // allocated share of its memory
}

func (j *job) at(now time.Time) moment {
	since := now.Sub(j.began)
	m := moment{step: int(since / stepTime), part: (since % stepTime).Seconds() / stepTime.Seconds(),
		loaded: min(since.Seconds()/startTime.Seconds(), 1)}
	m.checkpoint = since > checkpointInterval && since%checkpointInterval < checkpointTime
	j.mu.Lock()
	defer j.mu.Unlock()
	if m.checkpoint || now.Before(j.paused) {
		return m
	}
	switch { // phases of a step
	case m.part < 0.15:
	case m.part < 0.7:
		m.use = 0.6
	default:
		m.use = 0.8
	}
	return m
}

// congested reports whether the network is congested: at the end of every seventh step.
func (m moment) congested() bool { return m.step%7 == 3 && m.use > 0.7 }

// send sends the job's traffic of this moment, for a duration.
func (d *Demo) send(m moment, took time.Duration) {
	if m.use == 0 {
		return
	}
	for _, l := range d.links {
		if l.port(0).down || l.port(1).down {
			continue
		}
		for from := range Nodes {
			use := m.use * (0.95 + 0.1*rand.Float64()) //nolint:gosec // variation, not a secret
			transport, rate := byRDMA, l.rate
			if d.opts.Fallback {
				transport, rate = byTCP, l.rate*tcpPart
			}
			payload := rate * use * took.Seconds()
			l.carry(from, transport, payload)
			if transport == byRDMA && m.congested() {
				l.congest(from, payload)
			}
		}
	}
}

// congest marks some of the packets of payload; the other end reports the marks to the sender.
func (l *link) congest(from int, payload float64) {
	_, packets := onWire(byRDMA, payload)
	l.mu.Lock()
	defer l.mu.Unlock()
	marked := packets / 500
	cnps := (marked + 3) / 4
	l.ports[1-from].marked += marked
	l.ports[1-from].cnps += cnps
	l.ports[from].slowed += cnps
	l.ports[from].paused.add(2, 1)
}

const gpusPerNode = 2

// Memory of a simulated GPU.
const (
	gib           = 1 << 30
	gpuTotal      = 80 * gib
	gpuReserved   = gib / 2
	gpuIdle       = gib      // without a job
	gpuJob        = 54 * gib // memory of the job, once it runs
	gpuStep       = 9 * gib  // memory of the job, once it runs
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

// XIDs implements [nvml.Device]: none ever occurs.
func (g gpu) XIDs() (nvml.Events, error) { return noXIDs{}, nil }

type noXIDs struct{}

func (noXIDs) Next() (xid uint64, ok bool, err error) { return 0, false, nil }
func (noXIDs) Free()                                  {}

func (g gpu) Memory() (nvml.Memory, error) {
	m := g.job.at(time.Now())
	used := gpuIdle + m.loaded*gpuJob + float64(g.index)*gib/4
	if m.loaded == 1 {
		used += gpuStep * min(2*m.part,
			2-2*m.part) // activations grow in the forward pass and are freed in the backward pass
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
