package main

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"

	exporterhttp "github.com/railscope/railscope/exporter/http"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/probe"
)

// How long a scrape waits: for one device, and for a source, which may first
// have to look for the devices.
const (
	deviceBudget = time.Second
	sourceBudget = 4 * deviceBudget
)

// machine is what a node stands on beside the files that the settings name.
type machine struct {
	notice  string // for people who look at the page, and 1 for railscope_demo; empty: all that is told is real
	kernel  rail.Kernel
	nvml    *nvml.Session
	state   *state.Store               // nil: nothing outlives the process
	ethtool ethtool.Ioctl              // nil: the kernel's
	probe   func(o *probe.NodeOptions) // changes what the probe stands on; nil: nothing
}

// machine is the one that this process runs on.
func (s settings) machine() machine {
	return machine{kernel: rdmanl.New(deviceBudget), nvml: nvml.NewSession(nvml.NewLibrary(s.nvml))}
}

// node is all that serves one node's metrics.
type node struct {
	finder  *rail.Finder
	probing *probing
	scraper *scrape.Scraper
	running []runner
	machine machine
	server  exporterhttp.Options
	logger  *slog.Logger
}

// assemble makes a node of the machine m, whose files are where s says. Nothing
// runs yet, and the probe has no configuration.
func assemble(s settings, m machine, rails rail.Options, logger *slog.Logger) (*node, error) {
	finder := rail.NewFinder(s.sysfs, rails, m.kernel, deviceBudget)
	remember(finder, m.state)
	n := &node{finder: finder, machine: m, logger: logger}
	g := gatherer(s, finder)
	n.server = exporterhttp.Options{TelemetryPath: s.telemetryPath, Lifecycle: s.lifecycle, MaxConnections: s.connections, Node: s.nodeName, Notice: m.notice, Doctor: complaints(g), Logger: logger}
	probed := newNode(s, m, finder, g, logger)
	list, running, err := sources(s, m, finder, probed, logger)
	if err != nil {
		return nil, err
	}
	n.running = running
	n.probing = newProbing(probed, logger)
	var saved func() error
	if m.state != nil {
		saved = m.state.Err
	}
	n.scraper, err = scrape.New(append(list, n.probing.metrics), scrape.Options{Budget: sourceBudget, Logger: logger, State: saved,
		Info: scrape.Info{Version: cmp.Or(version.Version, "unknown"), Revision: version.GetRevision(), GoVersion: runtime.Version(), Demo: m.notice != ""}})
	return n, err
}

// serve serves until ctx is done, then lets running scrapes end.
func (n *node) serve(ctx context.Context, flags *web.FlagConfig, reload func() error) error {
	opts := n.server
	opts.Reload = reload
	handler, err := exporterhttp.New(n.scraper, opts)
	if err != nil {
		return err
	}
	defer background(ctx, n.running)()
	return exporterhttp.Serve(ctx, handler, flags, n.logger)
}

// close ends the probe.
func (n *node) close() { n.probing.service.Close() }
