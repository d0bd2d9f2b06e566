package serve

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/bond"
	"github.com/railscope/railscope/collector/events"
	"github.com/railscope/railscope/collector/gpu"
	"github.com/railscope/railscope/collector/gpudirect"
	"github.com/railscope/railscope/collector/kmsg"
	"github.com/railscope/railscope/collector/lldp"
	"github.com/railscope/railscope/collector/nccl"
	"github.com/railscope/railscope/collector/netdev"
	"github.com/railscope/railscope/collector/pcie"
	"github.com/railscope/railscope/collector/process"
	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/collector/sampler"
	exportersampler "github.com/railscope/railscope/exporter/sampler"
	"github.com/railscope/railscope/internal/notice"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/rtnl"
	"github.com/railscope/railscope/probe"
)

// MaxProcessSeries bounds [Sources.ProcessLimit], maxGPUProcesses the series of the GPU memory of processes per GPU.
const (
	MaxProcessSeries = 10000
	maxGPUProcesses  = 64
)

// Sources are the settings of the sources.
type Sources struct {
	On           map[string]*bool // enabled sources, by name
	Interval     time.Duration    // time between samples
	ProcessLimit int              // maximum number of series per row of the process source
	GPUProcesses bool             // export the GPU memory of each process
	Modules      bool             // read the modules of interfaces
	NCCLLogs     []string         // patterns of files
}

// SourceInfo describes a source.
type SourceInfo struct {
	Name, Reads string
	On          bool // enabled by default
}

// SourceList returns the sources in the order of their flags and metrics.
func SourceList() []SourceInfo {
	return []SourceInfo{
		{"rdma", "state, rate, counters and GIDs of RDMA ports", true},
		{"bond", "bonds, their members and LACP", true},
		{"netdev", "network interfaces of rails and bond members: PFC, discards, ECN, carrier", true},
		{"pcie", "PCIe links of rails and GPUs", true},
		{"gpu", "GPU memory, errors, clocks and power: NVIDIA by NVML, AMD by the files of amdgpu", true},
		{"gpudirect", "how RDMA can reach GPU memory", true},
		{"process", "which processes hold which queue pairs and how much GPU memory, with their pods; " +
			"needs the host's PID namespace", false},
		{"nccl", "the NCCL log files of --nccl.log: network, GPUDirect RDMA, channels, warnings", false},
		{"kmsg", "the kernel log: what drivers report about rails, GPUs and PCIe; needs CAP_SYSLOG", false},
		{"lldp", "what each rail is plugged into, as switches announce it by LLDP; needs CAP_NET_RAW", false},
		{"events", "changes of rails that the kernel announces, and that are examined at once", true},
		{"sampler", "the traffic of rails between scrapes, every --sample.interval", true},
	}
}

// Followers returns the sources of events between two reads: a single read shows nothing.
func Followers() []string { return []string{"nccl", "kmsg", "lldp", "events", "sampler"} }

// DefaultSources returns the settings without flags.
func DefaultSources() Sources {
	s := Sources{On: map[string]*bool{}, Interval: sampler.DefaultInterval, ProcessLimit: MaxProcessSeries}
	for _, f := range SourceList() {
		s.On[f.Name] = &f.On
	}
	return s
}

// LLDPCommand starts the process that receives LLDP. Like [WorkerCommand] it is not for users.
const LLDPCommand = "lldp-helper"

// users are what sources share with the other parts of a node.
type users struct {
	probe     *probe.Node
	processes *process.Source
	events    *events.Source
	simulated bool // the rounds of the demo do not use its rails, and its job pauses only when a round begins
}

// open opens the enabled sources, and returns the tasks that must run for them between scrapes.
func (s *Sources) open(h *Host, u users, logger *slog.Logger) (list []collector.Source, tasks []Task, err error) {
	gpuProcesses := 0
	if s.GPUProcesses {
		gpuProcesses = maxGPUProcesses
	}
	gpus := gpu.New(h.amd, h.Procfs, h.NVML, deviceBudget, gpuProcesses)
	ports := rdma.New(h.Sysfs, h.Finder.Snapshot, deviceBudget)
	ports.MaxMTU, ports.Expected, ports.Node = u.probe.MaxMTU, h.Keeper.Expected, h.Keeper.Node
	interfaces := netdev.New(h.Sysfs, h.Finder.Rails, deviceBudget, h.Ethtool)
	if s.Modules {
		interfaces.ReadModules()
	}
	opened := map[string]collector.Source{
		"rdma":      ports,
		"bond":      bond.New(h.Sysfs, h.Procfs, h.Finder.Rails, deviceBudget),
		"netdev":    interfaces,
		"gpudirect": gpudirect.New(h.Sysfs, h.Procfs, h.Rootfs, deviceBudget),
		"pcie":      pcie.New(h.Sysfs, h.Finder.Snapshot, deviceBudget),
		"gpu":       gpus,
		"process":   u.processes,
		"events":    u.events,
	}
	if *s.On["kmsg"] {
		opened["kmsg"] = h.newKernelLog()
	}
	if *s.On["lldp"] {
		neighbors := lldp.New(h.Sysfs, h.Finder.Rails, "/proc/self/exe", LLDPCommand)
		opened["lldp"], ports.Leaf = neighbors, neighbors.Leaf
		tasks = append(tasks, background("source lldp", neighbors.Run))
	}
	if *s.On["nccl"] {
		logs, err := nccl.New(s.NCCLLogs)
		if err != nil {
			return nil, nil, fmt.Errorf("--nccl.log: %w", err)
		}
		opened["nccl"], tasks = logs, append(tasks, background("source nccl", logs.Run))
	}
	if *s.On["sampler"] {
		if !*s.On["gpu"] {
			gpus = nil
		}
		sampling := s.newSampler(h, u, gpus, logger)
		snapshot := sampling.Snapshot
		if h.Sampled != nil {
			snapshot = h.Sampled
		}
		opened["sampler"] = exportersampler.NewSource(snapshot)
		tasks = append(tasks, background("source sampler", sampling.Run))
	}
	for _, source := range SourceList() {
		if *s.On[source.Name] {
			list = append(list, opened[source.Name])
		}
	}
	return list, tasks, nil
}

// newEvents returns the source of events.
func (h *Host) newEvents() *events.Source {
	return events.New(events.Options{Rails: h.Finder.Snapshot, Names: rdmanl.New(deviceBudget).Indices, List: rtnl.List,
		Listen: notice.Listen})
}

// newKernelLog returns the source of the kernel log. It saves its position in the store, if there is one.
func (h *Host) newKernelLog() collector.Source {
	opts := kmsg.Options{Path: cmp.Or(h.Kmsg, "/dev/kmsg"), Rails: h.Finder.Rails}
	boot, _ := os.ReadFile(filepath.Join(h.Procfs, "sys/kernel/random/boot_id")) // without it nothing is saved
	opts.Boot = strings.TrimSpace(string(boot))
	opts.Last, opts.Save = section[kmsg.Cursor](h.Store, kernelLogSection, nil)
	return kmsg.New(opts)
}

// gpuUseBudget is how long the sampler waits for GPUs, which it reads every second.
const gpuUseBudget = 500 * time.Millisecond

// newSampler returns the sampler, and lets the probe and the process source use what it samples. If gpus is not nil,
// it also samples the memory use of GPUs.
func (s *Sources) newSampler(h *Host, u users, gpus *gpu.Source, logger *slog.Logger) *sampler.Sampler {
	opts := sampler.Options{Sysfs: h.Sysfs, Rails: h.Finder.Rails, Interval: s.Interval, Ethtool: h.Ethtool,
		Own: u.probe.OwnTraffic, Histogram: exportersampler.NewHistogram}
	if u.simulated {
		opts.Own = nil
	}
	if *s.On["process"] {
		opts.InUse = u.processes.RailsInUse
	}
	opts.Paced = func(device string, every, took time.Duration) {
		if every > s.Interval {
			logger.Warn("Sampling interval raised: a read takes longer than 1/10 of it",
				"device", device, "interval", every, "read_takes", took)
		} else {
			logger.Info("Sampling interval restored", "device", device, "interval", every)
		}
	}
	if gpus != nil {
		opts.GPUs = func() ([]collector.GPUUse, bool) { return gpus.Use(gpuUseBudget) }
	}
	sampling := sampler.New(opts)
	u.processes.UseTraffic(sampling.Carried)
	if !u.simulated {
		u.probe.UseTraffic(sampling.MeanTraffic)
	}
	return sampling
}
