package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/process"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/doctor/examine"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/probe"
)

// Time limits of a scrape for one device, and for a source, which may have to find its devices first.
const (
	deviceBudget = time.Second
	sourceBudget = 4 * deviceBudget
)

// GatherBudget is how long doctor waits for one device, file or process.
const GatherBudget = 3 * time.Second

// hardBudget is how long a reading of hard facts waits for a device. A healthy device takes milliseconds.
const hardBudget = 250 * time.Millisecond

// Machine says where the state of a machine is read. The demo and tests replace parts of it.
type Machine struct {
	Name                  string // name of the node for its peers; empty: the host's
	Sysfs, Procfs, Rootfs string // mount points

	RDMA           rail.Kernel                // RDMA netlink; nil: sysfs only
	NVML           *nvml.Session              // nil: the installed library
	Ethtool        ethtool.Ioctl              // nil: the kernel
	Kmsg           string                     // kernel log; empty: /dev/kmsg
	Facts          *facts.Kernel              // interfaces that doctor reads; nil: the kernel
	ProcessOptions func(*process.Options)     // changes the options of the process source; nil: no change
	ProbeOptions   func(*probe.NodeOptions)   // changes the options of the probe; nil: no change
	Sampled        func(to *sampler.Snapshot) // replaces readings of the sampler; nil: it samples
}

// Host is a machine with its rails, and what is expected of them.
type Host struct {
	Machine
	Finder *rail.Finder
	Keeper *expect.Keeper
	Store  *state.Store // nil: the state ends with the process
	amd    *amdgpu.Finder
}

// NewHost returns the host of a machine. Rails keep their names of the store, which may be nil, and stays open. budget
// limits the wait for one device.
func NewHost(m Machine, cfg *config.Config, store *state.Store, budget time.Duration) *Host {
	m.NVML = cmp.Or(m.NVML, nvml.NewSession(nvml.NewLibrary("")))
	h := &Host{Machine: m, Finder: rail.NewFinder(m.Sysfs, railOptions(cfg), m.RDMA, budget), Store: store,
		amd: amdgpu.NewFinder(m.Sysfs)}
	remember(h.Finder, store)
	h.Keeper = newKeeper(m.Sysfs, cfg, h.Finder, store)
	return h
}

// railOptions returns the options of the finder.
func railOptions(c *config.Config) rail.Options {
	o := rail.Options{Include: c.Rails.Include, Exclude: c.Rails.Exclude, Names: c.Rails.Ports,
		Leaves: c.Rails.Leaf, VirtualFunctions: c.Rails.VirtualFunctions == config.ReportVirtual}
	for _, r := range c.Rails.RoleRules {
		o.Roles = append(o.Roles, rail.RoleRule(r))
	}
	return o
}

// Gatherer returns a reader of the node's facts. The page and peers share one, so that a file that hangs blocks one
// thread. jobs is [facts.Options.Jobs].
func (h *Host) Gatherer(jobs func() ([]facts.GPUJob, bool)) *facts.Gatherer {
	return h.gatherer(GatherBudget, jobs)
}

func (h *Host) gatherer(budget time.Duration, jobs func() ([]facts.GPUJob, bool)) *facts.Gatherer {
	return facts.New(facts.Options{Sysfs: h.Sysfs, Procfs: h.Procfs, Rootfs: h.Rootfs, Rails: h.Finder.Snapshot,
		Budget: budget, Expect: h.Keeper, Jobs: jobs, Kernel: h.Facts})
}

// newProcesses returns the source of processes, with at most limit series per row; 0: its default.
func (h *Host) newProcesses(limit int) *process.Source {
	opts := process.Options{Sysfs: h.Sysfs, Procfs: h.Procfs, Rootfs: h.Rootfs, Rails: h.Finder.Rails, NVML: h.NVML,
		AMD: h.amd, Budget: deviceBudget, Limit: limit}
	if h.ProcessOptions != nil {
		h.ProcessOptions(&opts)
	}
	return process.New(opts)
}

// ReadJobs starts to read the processes of this node, and returns a function that waits for the jobs among them.
func (h *Host) ReadJobs() func() ([]facts.GPUJob, bool) {
	processes := h.newProcesses(0)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_ = processes.Read(func(collector.Sample) {}) // without processes no job is judged
	}()
	return func() ([]facts.GPUJob, bool) {
		<-read
		return gpuJobs(processes)
	}
}

// gpuJobs returns the jobs that the process source found in its last read.
func gpuJobs(processes *process.Source) (list []facts.GPUJob, known bool) {
	jobs, known := processes.Jobs()
	for _, j := range jobs {
		list = append(list, facts.GPUJob(j))
	}
	return list, known
}

// ReadOnce returns an exposition of one read of the sources and one examination of the node. hidden are the silences,
// probed says whether the node probes peers.
func (h *Host) ReadOnce(ctx context.Context, s *Sources, hidden []finding.Silence, probed bool, logger *slog.Logger,
) ([]byte, error) {
	g := h.Gatherer(nil)
	node := h.ProbeNode(nil, g, nil, logger)
	defer node.Close()
	list, _, err := s.open(h, users{probe: node, processes: h.newProcesses(s.ProcessLimit),
		events: h.newEvents()}, logger)
	if err != nil {
		return nil, err
	}
	scope := facts.WithoutJobs
	if *s.On["process"] {
		scope = facts.All
	}
	at := time.Now()
	here := g.Gather(ctx, scope)
	if ctx.Err() != nil {
		return nil, errors.New("stopped before everything was read") // missing facts would be reported as faults
	}
	found := finding.NewStore(nil)
	found.SetSilences(hidden)
	judged := examine.Judge(here, probed)
	found.Update("node", at, judged)
	found.Update("node", at.Add(1), judged) // a finding is raised at the second examination
	return scrape.New(list, scrape.Options{Budget: sourceBudget, Logger: logger, Once: true, Info: buildInfo(),
		Findings: func() ([]finding.Raised, int) { return found.List(at) },
	}).Exposition(expfmt.NewFormat(expfmt.TypeTextPlain), false)
}
