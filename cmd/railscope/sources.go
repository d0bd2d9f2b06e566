package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/bond"
	"github.com/railscope/railscope/collector/gpu"
	"github.com/railscope/railscope/collector/gpudirect"
	"github.com/railscope/railscope/collector/nccl"
	"github.com/railscope/railscope/collector/netdev"
	"github.com/railscope/railscope/collector/pcie"
	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/collector/sampler"
	exportersampler "github.com/railscope/railscope/exporter/sampler"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// runner is what does something between scrapes.
type runner interface{ Run(ctx context.Context) }

// sources constructs the sources that are switched on, and what must run for
// them.
func sources(s settings, m machine, finder *rail.Finder, node *probe.Node, logger *slog.Logger) (list []collector.Source, running []runner, err error) {
	processes := 0
	if s.gpuProcesses {
		processes = maxGPUProcesses
	}
	gpus := gpu.New(s.procfs, m.nvml, gpu.Options{Budget: deviceBudget, Processes: processes})
	interfaces := netdev.New(s.sysfs, finder.Rails, deviceBudget)
	if m.ethtool != nil {
		interfaces.Ethtool(m.ethtool)
	}
	ports := rdma.New(s.sysfs, finder.Rails, deviceBudget)
	ports.Excluded(finder.Excluded)
	ports.Missing(finder.Missing)
	ports.MaxMTU(node.MaxMTU)
	made := map[string]collector.Source{
		"rdma":      ports,
		"bond":      bond.New(s.sysfs, s.procfs, finder.Rails, deviceBudget),
		"netdev":    interfaces,
		"gpudirect": gpudirect.New(s.sysfs, s.procfs, deviceBudget),
		"pcie":      pcie.New(s.sysfs, finder.Rails, deviceBudget),
		"gpu":       gpus,
		"process": collector.NewProcess(collector.ProcessOptions{Sysfs: s.sysfs, Procfs: s.procfs, Rootfs: s.rootfs,
			Rails: finder.Rails, NVML: m.nvml, Budget: deviceBudget, Limit: s.processLimit}),
	}
	if *s.collectors["nccl"] {
		logs, err := nccl.New(s.ncclLogs)
		if err != nil {
			return nil, nil, misuse{fmt.Errorf("--nccl.log: %w", err)}
		}
		made["nccl"], running = logs, append(running, logs)
	}
	if *s.collectors["sampler"] {
		sampling := newSampler(s, m, finder, gpus, logger)
		made["sampler"], running = exportersampler.NewSource(sampling.Snapshot), append(running, sampling)
	}
	for _, flag := range sourceFlags {
		if *s.collectors[flag.name] {
			list = append(list, made[flag.name])
		}
	}
	return list, running, nil
}

// gpuLookBudget is how long the sampler waits for GPUs, which it asks every
// second.
const gpuLookBudget = 500 * time.Millisecond

// newSampler makes the sampler. What GPUs hold it learns from the gpu source,
// scraped or not; with that switched off there are none for it.
func newSampler(s settings, m machine, finder *rail.Finder, gpus *gpu.Source, logger *slog.Logger) *sampler.Sampler {
	opts := sampler.Options{Sysfs: s.sysfs, Rails: finder.Rails, Interval: s.interval, Ethtool: m.ethtool,
		Paced: func(device string, every, took time.Duration) {
			if every > s.interval {
				logger.Warn("Sampling slower: a read takes longer than a tenth of the interval", "device", device, "interval", every, "read_takes", took)
			} else {
				logger.Info("Sampling as asked again", "device", device, "interval", every)
			}
		},
	}
	if *s.collectors["gpu"] {
		opts.GPUs = func() (list []sampler.GPU, known bool) {
			uses, known := gpus.Use(gpuLookBudget)
			for _, u := range uses {
				list = append(list, sampler.GPU(u))
			}
			return list, known
		}
	}
	return sampler.New(opts)
}

// background runs each until stop is called, which waits for them, though not
// for a file that hangs.
func background(ctx context.Context, list []runner) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, r := range list {
		running.Go(func() { r.Run(ctx) })
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
