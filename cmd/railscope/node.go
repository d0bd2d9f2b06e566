package main

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"

	collectorprocess "github.com/railscope/railscope/collector/process"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/doctor/examine"
	"github.com/railscope/railscope/doctor/facts"
	exporterhttp "github.com/railscope/railscope/exporter/http"
	"github.com/railscope/railscope/exporter/otlp"
	exporterpage "github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
	exporterstatus "github.com/railscope/railscope/exporter/status"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/maintenance"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/probe"
)

// Time limits of a scrape for one device, and for a source, which may have to find its devices first.
const (
	deviceBudget = time.Second
	sourceBudget = 4 * deviceBudget
)

// nodeSettings are the settings of a node that serves metrics: serve, and each node of the demo.
type nodeSettings struct {
	*common
	sources       sourceSettings
	telemetryPath string
	lifecycle     bool         // reload by HTTP is allowed
	connections   int          // maximum of simultaneous connections to the web port
	pusher        *otlp.Pusher // nil: no OTLP
}

// machine is what a node reads, without the paths in its settings.
type machine struct {
	notice      string // notice on the page, with railscope_demo 1; empty: all data is real
	kernel      rail.Kernel
	nvml        *nvml.Session
	state       *state.Store               // nil: the state ends with the process
	socket      string                     // directory of the socket of the demo, which has no state; empty: no socket
	ethtool     ethtool.Ioctl              // nil: the kernel
	probe       func(o *probe.NodeOptions) // changes the options of the probe; nil: no change
	maintenance string                     // file to watch; empty: none, as in the demo
	annotation  string                     // file with the pod's annotation for maintenance; empty: none
	kmsg        string                     // kernel log; empty: /dev/kmsg
	sampled     func(*sampler.Snapshot)    // replaces readings of the sampler in tests; nil: it samples
}

func (s *nodeSettings) machine() machine {
	return machine{kernel: rdmanl.New(deviceBudget), nvml: nvml.NewSession(nvml.NewLibrary(s.sources.nvml))}
}

type node struct {
	finder  *rail.Finder
	keeper  *expect.Keeper
	local   *http.ServeMux // requests of commands on this machine, on the socket of the state directory
	probing *probing
	probed  *probe.Node
	scraper *scrape.Scraper
	watch   *maintenanceWatch // nil: no file to watch
	running []func(context.Context)
	exam    *examine.Examiner
	server  exporterhttp.Options
	logger  *slog.Logger
}

// warnUnmatched logs the configured patterns that match no port.
func warnUnmatched(finder *rail.Finder, logger *slog.Logger) {
	for _, pattern := range finder.Snapshot().Idle {
		logger.Warn("Pattern matches no RDMA port (railscope rails --all lists them)", "pattern", pattern)
	}
}

// assemble builds a node from the machine m and the paths in s. Nothing runs yet, and the probe has no options.
func assemble(s nodeSettings, m machine, cfg *config.Config, logger *slog.Logger) (*node, error) {
	finder := rail.NewFinder(s.sysfs, railOptions(cfg), m.kernel, deviceBudget)
	remember(finder, m.state)
	var save func(string, any)
	if m.state != nil {
		save = m.state.Set
	}
	keeper := newKeeper(s.common, cfg, finder, m.state, save)
	var watch *maintenanceWatch
	if m.maintenance != "" {
		watch = &maintenanceWatch{nvml: m.nvml, logger: logger}
		watch.Watch = maintenance.New(m.maintenance, m.annotation, watch.observe)
		m.probe = func(o *probe.NodeOptions) { o.Maintenance = watch.Active }
	}
	past := newBaselines(m.state)
	var processes *collectorprocess.Source // nil: disabled
	g := gatherer(s.common, finder, keeper, func() ([]facts.GPUJob, bool) { return gpuJobs(processes) })
	probed := newProbeNode(s.common, m.probe, finder, keeper, past, g, logger)
	list, running, err := s.sources.open(s.common, m, finder, keeper, probed, logger)
	if err != nil {
		return nil, err
	}
	for _, source := range list {
		if of, ok := source.(*collectorprocess.Source); ok {
			processes = of
		}
	}
	found := newFindings(logger)
	hidden, err := silences(cfg)
	if err != nil {
		return nil, err
	}
	applySilences(found, hidden, logger)
	n := &node{finder: finder, keeper: keeper, watch: watch, running: append(running, keeper.Run,
		func(context.Context) { warnUnmatched(finder, logger) }),
		probing: newProbing(probed, found, past, m.notice != "", logger), probed: probed, local: http.NewServeMux(),
		logger: logger}
	n.local.Handle("POST "+pathReset, resetHandler(keeper, past))
	(&handRounds{service: n.probing.service, name: probed.Name, simulated: m.notice != ""}).register(n.local)
	opts := scrape.Options{Budget: sourceBudget, Logger: logger, Info: scrape.Info{
		Version: cmp.Or(version.Version, "unknown"), Revision: version.GetRevision(), GoVersion: runtime.Version(),
		Demo: m.notice != "",
	}}
	if watch != nil {
		opts.Maintenance, n.running = watch.Active, append(n.running, watch.Run)
	}
	if m.state != nil {
		opts.State = m.state.Err
		n.answer(s.stateDir, m.state.Owned)
	} else if m.socket != "" {
		n.answer(m.socket, func() bool { return true })
	}
	opts.Findings = func() ([]finding.Raised, int) { return found.List(time.Now()) }
	list = append(list, n.probing.metrics)
	if s.pusher != nil {
		list = append(list, s.pusher)
		n.running = append(n.running, func(ctx context.Context) { s.pusher.Run(ctx, n.scraper) })
	}
	n.scraper = scrape.New(list, opts)
	n.exam = newExaminer(g, hardGatherer(s.common, finder, keeper), *s.sources.on["process"], n.scraper, n.probing, found)
	n.running = append(n.running, n.exam.Run)
	if sysfs.Live(filepath.Join(s.sysfs, "class/net")) {
		n.running = append(n.running, func(ctx context.Context) { n.exam.Follow(ctx, examine.Events(ctx)) })
	}
	page := exporterpage.Options{Name: probed.Name, Own: n.own, Notice: m.notice, Metrics: s.telemetryPath,
		Started: time.Now(), Exam: pageExam(found, n.exam), Now: portsNow(n.exam), Logger: logger}
	n.server = exporterhttp.Options{Page: page, Lifecycle: s.lifecycle, MaxConnections: s.connections}
	answer := exporterstatus.Handler(n.scraper, page)
	n.local.Handle("GET /{$}", answer)
	n.local.Handle("GET "+status.Path, answer)
	return n, nil
}

// own returns the bytes of the probe's own transfers over the rail of a device's port.
func (n *node) own(device, port string) (transmit, receive, tcp *uint64) {
	one := n.probed.AllOwnTraffic()[device+"/"+port]
	return &one.All[rail.Transmit], &one.All[rail.Receive], new(one.TCP[rail.Transmit] + one.TCP[rail.Receive])
}

// answer starts the server for commands on this machine on a socket in dir. It runs while owned returns true.
func (n *node) answer(dir string, owned func() bool) {
	n.running = append(n.running, func(ctx context.Context) {
		statussock.New(dir, n.local).Run(ctx, owned, func(err error) {
			logResult(n.logger, err, "Socket of the state directory not opened, retried", "Socket opened", "dir", dir)
		})
	})
}

// serve serves until ctx is done. In-flight scrapes finish first.
func (n *node) serve(ctx context.Context, flags *web.FlagConfig, reload func() error) error {
	opts := n.server
	opts.Reload = reload
	defer background(ctx, n.running)()
	return exporterhttp.Serve(ctx, exporterhttp.New(n.scraper, opts), flags, n.logger)
}

func (n *node) close() { n.probing.service.Close() }

// NVML stays released this long after SIGHUP, and after a check that found the maintenance file. The latter is
// longer than a check that hangs.
const (
	hangupRelease      = time.Minute
	maintenanceRelease = 5 * time.Second
)

// maintenanceWatch watches the maintenance file, and releases NVML while it exists.
type maintenanceWatch struct {
	*maintenance.Watch
	nvml   *nvml.Session
	logger *slog.Logger
	failed bool // the last check failed
}

func (w *maintenanceWatch) observe(s maintenance.State) {
	switch {
	case s.Changed && s.Active:
		w.logger.Info("Maintenance started, no round starts and NVML is released")
	case s.Changed:
		w.logger.Info("Maintenance ended")
	}
	var released error
	if s.Active {
		released = w.nvml.Release(maintenanceRelease)
	}
	failed := s.Err != nil || released != nil
	switch {
	case !failed || w.failed:
	case s.Err != nil:
		w.logger.Warn("Maintenance check failed, state unchanged (logged once)", "err", s.Err)
	default:
		w.logger.Warn("NVML release failed, retried at every check (logged once)", "err", released)
	}
	w.failed = failed
}
