package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/bond"
	"github.com/railscope/railscope/collector/gpu"
	"github.com/railscope/railscope/collector/gpudirect"
	"github.com/railscope/railscope/collector/kmsg"
	"github.com/railscope/railscope/collector/nccl"
	"github.com/railscope/railscope/collector/netdev"
	"github.com/railscope/railscope/collector/pcie"
	collectorprocess "github.com/railscope/railscope/collector/process"
	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/collector/sampler"
	exportersampler "github.com/railscope/railscope/exporter/sampler"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// maxProcessSeries bounds --collector.process.limit, maxGPUProcesses the series of --collector.gpu.processes per GPU.
const (
	maxProcessSeries = 10000
	maxGPUProcesses  = 64
)

type sourceSettings struct {
	on           map[string]*bool // enabled sources, by name
	interval     time.Duration    // time between samples
	processLimit int
	gpuProcesses bool
	ncclLogs     []string
	nvml         string
}

type sourceFlag struct {
	name, reads string
	on          bool // enabled by default
}

// sourceFlags returns the sources in the order of their flags and metrics.
func sourceFlags() []sourceFlag {
	return []sourceFlag{
		{"rdma", "state, rate, counters and GIDs of RDMA ports", true},
		{"bond", "bonds, their members and LACP", true},
		{"netdev", "network interfaces of rails and bond members: PFC, discards, ECN, carrier", true},
		{"pcie", "PCIe links of rails and GPUs", true},
		{"gpu", "GPU memory, errors, clocks and power, by NVML", true},
		{"gpudirect", "how RDMA can reach GPU memory", true},
		{"process", "which processes hold which queue pairs and how much GPU memory, with their pods; " +
			"needs the host's PID namespace", false},
		{"nccl", "the NCCL log files of --nccl.log: network, GPUDirect RDMA, channels, warnings", false},
		{"kmsg", "the kernel log: what drivers report about rails, GPUs and PCIe; needs CAP_SYSLOG", false},
		{"sampler", "the traffic of rails between scrapes, every --sample.interval", true},
	}
}

func defaultSources() sourceSettings {
	s := sourceSettings{on: map[string]*bool{}, interval: sampler.DefaultInterval, processLimit: maxProcessSeries}
	for _, f := range sourceFlags() {
		s.on[f.name] = &f.on
	}
	return s
}

// followers returns the sources of events between two reads: a single read shows nothing.
func followers() []string { return []string{"nccl", "kmsg", "sampler"} }

// define defines the flags of all sources or, with once, of those for which a single read is enough.
func (s *sourceSettings) define(cmd *kingpin.CmdClause, once bool) {
	*s = defaultSources()
	for _, f := range sourceFlags() {
		if on := s.on[f.name]; once && slices.Contains(followers(), f.name) {
			*on = false
		} else {
			cmd.Flag("collector."+f.name, "Read "+f.reads+".").Default(strconv.FormatBool(f.on)).BoolVar(on)
		}
	}
	if !once {
		s.defineFollowers(cmd)
	}
	cmd.Flag("collector.process.limit", fmt.Sprintf("Maximum number of series of each metric of the process source, "+
		"from 2 to %d. The rest is summed up as other.", maxProcessSeries)).Default("256").IntVar(&s.processLimit)
	cmd.Flag("collector.gpu.processes", "Export the GPU memory of each process, by PID.").
		Default("false").BoolVar(&s.gpuProcesses)
	cmd.Flag("path.nvml", "NVML library; by default libnvidia-ml.so.1, as the dynamic linker finds it.").
		PlaceHolder("FILE").StringVar(&s.nvml)
}

func (s *sourceSettings) defineFollowers(cmd *kingpin.CmdClause) {
	cmd.Flag("sample.interval", fmt.Sprintf("Time between two samples of the traffic of each rail, from %v to %v.",
		sampler.MinInterval, sampler.MaxInterval)).Default(sampler.DefaultInterval.String()).DurationVar(&s.interval)
	cmd.Flag("nccl.log", "Pattern of NCCL log files to follow. Repeatable.").
		Default("/var/log/nccl/*.log").StringsVar(&s.ncclLogs)
}

// check returns an error for values that the parser accepts but the sources do not.
func (s *sourceSettings) check() error {
	switch {
	case s.processLimit < 2 || s.processLimit > maxProcessSeries:
		return fmt.Errorf("--collector.process.limit must be from 2 to %d, not %d", maxProcessSeries, s.processLimit)
	case s.interval < sampler.MinInterval || s.interval > sampler.MaxInterval:
		return fmt.Errorf("--sample.interval must be from %v to %v, such as %v, not %v",
			sampler.MinInterval, sampler.MaxInterval, sampler.DefaultInterval, s.interval)
	}
	return nil
}

// open opens the enabled sources, and returns what must run for them between scrapes.
func (s *sourceSettings) open(c *common, m machine, finder *rail.Finder, keeper *expect.Keeper, node *probe.Node,
	logger *slog.Logger) (list []collector.Source, running []func(context.Context), err error) {
	gpuProcesses := 0
	if s.gpuProcesses {
		gpuProcesses = maxGPUProcesses
	}
	gpus := gpu.New(c.procfs, m.nvml, deviceBudget, gpuProcesses)
	ports := rdma.New(c.sysfs, finder.Snapshot, deviceBudget)
	ports.MaxMTU, ports.Expected, ports.Node = node.MaxMTU, keeper.Expected, keeper.Node
	processes := c.newProcesses(finder, m.nvml, s.processLimit)
	made := map[string]collector.Source{
		"rdma":      ports,
		"bond":      bond.New(c.sysfs, c.procfs, finder.Rails, deviceBudget),
		"netdev":    netdev.New(c.sysfs, finder.Rails, deviceBudget, m.ethtool),
		"gpudirect": gpudirect.New(c.sysfs, c.procfs, deviceBudget),
		"pcie":      pcie.New(c.sysfs, finder.Snapshot, deviceBudget),
		"gpu":       gpus,
		"process":   processes,
	}
	if *s.on["kmsg"] {
		made["kmsg"] = newKernelLog(c, m, finder)
	}
	if *s.on["nccl"] {
		logs, err := nccl.New(s.ncclLogs)
		if err != nil {
			return nil, nil, misuse{fmt.Errorf("--nccl.log: %w", err)}
		}
		made["nccl"], running = logs, append(running, logs.Run)
	}
	if *s.on["sampler"] {
		if !*s.on["gpu"] {
			gpus = nil
		}
		opts := sampler.Options{Own: node.OwnTraffic, Histogram: exportersampler.NewHistogram}
		if m.notice != "" { // the demo's rounds do not use its rails, and its job pauses only when a round begins
			opts.Own = nil
		}
		if *s.on["process"] {
			opts.InUse = processes.RailsInUse
		}
		sampling := s.newSampler(c, m, finder, gpus, opts, logger)
		processes.UseTraffic(sampling.Carried)
		if m.notice == "" {
			node.UseTraffic(sampling.MeanTraffic)
		}
		snapshot := sampling.Snapshot
		if m.sampled != nil {
			snapshot = m.sampled
		}
		made["sampler"], running = exportersampler.NewSource(snapshot), append(running, sampling.Run)
	}
	for _, f := range sourceFlags() {
		if *s.on[f.name] {
			list = append(list, made[f.name])
		}
	}
	return list, running, nil
}

// newProcesses returns the source of processes, with at most limit series per row; 0: its default.
func (c *common) newProcesses(finder *rail.Finder, gpus *nvml.Session, limit int) *collectorprocess.Source {
	opts := collectorprocess.Options{Sysfs: c.sysfs, Procfs: c.procfs, Rootfs: c.rootfs, Rails: finder.Rails, NVML: gpus,
		Budget: deviceBudget, Limit: limit}
	if c.processes != nil {
		c.processes(&opts)
	}
	return collectorprocess.New(opts)
}

// newKernelLog returns the source of the kernel log. It saves its position in the state of m, if there is one.
func newKernelLog(c *common, m machine, finder *rail.Finder) collector.Source {
	opts, store := kmsg.Options{Path: cmp.Or(m.kmsg, "/dev/kmsg"), Rails: finder.Rails}, m.state
	boot, _ := os.ReadFile(filepath.Join(c.procfs, "sys/kernel/random/boot_id")) // without it nothing is saved
	opts.Boot = strings.TrimSpace(string(boot))
	if store != nil {
		const section = "kernel_log"
		if _, err := store.Get(section, &opts.Last); err != nil {
			store.Reject(section, err)
			opts.Last = kmsg.Cursor{}
		}
		opts.Save = func(cursor kmsg.Cursor) { store.Set(section, cursor) }
	}
	return kmsg.New(opts)
}

// gpuUseBudget is how long the sampler waits for GPUs, which it reads every second.
const gpuUseBudget = 500 * time.Millisecond

// newSampler returns the sampler. If gpus is not nil, it also samples the memory use of GPUs. opts contains what
// others know about the traffic.
func (s *sourceSettings) newSampler(c *common, m machine, finder *rail.Finder, gpus *gpu.Source, opts sampler.Options,
	logger *slog.Logger) *sampler.Sampler {
	opts.Sysfs, opts.Rails, opts.Interval, opts.Ethtool = c.sysfs, finder.Rails, s.interval, m.ethtool
	opts.Paced = func(device string, every, took time.Duration) {
		if every > s.interval {
			logger.Warn("Sampling interval raised: a read takes longer than 1/10 of it",
				"device", device, "interval", every, "read_takes", took)
		} else {
			logger.Info("Sampling interval restored", "device", device, "interval", every)
		}
	}
	if gpus != nil {
		opts.GPUs = func() ([]collector.GPUUse, bool) { return gpus.Use(gpuUseBudget) }
	}
	return sampler.New(opts)
}

// background runs each function until stop is called. stop waits for them, but not for a file that hangs.
func background(ctx context.Context, list []func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, run := range list {
		running.Go(func() { run(ctx) })
	}
	return func() {
		cancel()
		done := make(chan struct{})
		go func() { defer close(done); running.Wait() }()
		select {
		case <-done:
		case <-time.After(deviceBudget):
		}
	}
}
