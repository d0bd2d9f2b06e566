// Package serve wires a node: it makes sources, probe, examination and web port of a machine and a configuration, as
// tasks that run beside each other. Commands that read a machine once use its [Host].
package serve

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/railscope/railscope/collector/events"
	"github.com/railscope/railscope/doctor/examine"
	"github.com/railscope/railscope/doctor/facts"
	exporterhttp "github.com/railscope/railscope/exporter/http"
	"github.com/railscope/railscope/exporter/otlp"
	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
	exporterstatus "github.com/railscope/railscope/exporter/status"
	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/fingerprint"
	"github.com/railscope/railscope/internal/nodefact"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/systemd"
	"github.com/railscope/railscope/probe/options"
)

// Options are the settings of a node.
type Options struct {
	Machine
	Sources     Sources
	Store       *state.Store // nil: the state ends with the process
	SocketDir   string       // directory of the socket for commands on this machine; empty: no socket
	Notice      string       // notice on the page, with railscope_demo 1; empty: all data is real
	Maintenance string       // file to watch; empty: none, as in the demo
	Annotation  string       // file with the pod's annotation for maintenance; empty: none

	TelemetryPath  string
	Lifecycle      bool         // reload by HTTP is allowed
	MaxConnections int          // limit of the web port; 0: its default
	Pusher         *otlp.Pusher // nil: no OTLP
}

// Node is a node that serves: its parts, of which none runs before [ProbeController.Start] and [Run].
type Node struct {
	*Host
	Scraper  *scrape.Scraper
	Findings *finding.Store
	Examiner *examine.Examiner
	Probe    *ProbeController
	Local    *http.ServeMux // requests of commands on this machine, on the socket

	maintenance *maintenanceWatch // nil: no file to watch
	events      *events.Source
	web         exporterhttp.Options
	tasks       []Task
	reloading   sync.Mutex

	configuration atomic.Value // string: digest of the configuration; empty without a file
	logger        *slog.Logger
}

// New assembles a node. An error is one in the configuration or the options. The caller closes the store, and the
// controller of the probe if its task does not run.
func New(o Options, cfg *config.Config, logger *slog.Logger) (*Node, error) {
	hidden, err := Silences(cfg)
	if err != nil {
		return nil, err
	}
	n := &Node{Host: NewHost(o.Machine, cfg, o.Store, deviceBudget), Findings: newFindings(logger), logger: logger}
	n.configuration.Store(cfg.Digest)
	applySilences(n.Findings, hidden, logger)
	n.add(background("expectations", n.Keeper.Run),
		background("unmatched patterns", func(context.Context) { n.warnUnmatched() }))
	scraping := scrape.Options{Budget: sourceBudget, Logger: logger, Info: buildInfo()}
	scraping.Info.Demo = o.Notice != ""
	scraping.Facts = func() []nodefact.Fact { return n.Examiner.Last().Facts }
	scraping.Findings = func() ([]finding.Raised, int) { return n.Findings.List(time.Now()) }
	if o.Store != nil {
		scraping.State = o.Store.Err
	}
	if o.Maintenance != "" {
		n.maintenance = newMaintenanceWatch(o.Maintenance, o.Annotation, n.NVML, logger)
		scraping.Maintenance = n.maintenance.Active
		n.add(background("maintenance", n.maintenance.Run))
	}

	past, processes := n.Baselines(), n.newProcesses(o.Sources.ProcessLimit)
	var jobs func() ([]facts.GPUJob, bool)
	if *o.Sources.On["process"] {
		jobs = func() ([]facts.GPUJob, bool) { return gpuJobs(processes) }
	}
	g := n.Gatherer(jobs)
	probed := n.ProbeNode(past, g, scraping.Maintenance, logger)
	n.events = n.newEvents()
	sources, tasks, err := o.Sources.open(n.Host, users{probed, processes, n.events, scraping.Info.Demo}, logger)
	if err != nil {
		return nil, err
	}
	n.add(tasks...)
	n.Probe = newProbeController(probed, n.Findings, past, scraping.Info.Demo, n.noteDevice(*o.Sources.On["events"]),
		logger)
	n.add(Task{Name: "the probe", Run: n.Probe.Run})
	sources = append(sources, n.Probe.metrics)
	if o.Pusher != nil {
		sources = append(sources, o.Pusher)
		n.add(background("otlp", func(ctx context.Context) { o.Pusher.Run(ctx, n.Scraper) }))
	}
	n.Scraper = scrape.New(sources, scraping)
	n.examine(g, *o.Sources.On["process"])
	if *o.Sources.On["events"] && sysfs.Live(filepath.Join(n.Sysfs, "class/net")) {
		n.follow()
	}
	n.answer(&o, past)
	return n, nil
}

func (n *Node) add(tasks ...Task) { n.tasks = append(n.tasks, tasks...) }

// Tasks returns all tasks but that of the web port.
func (n *Node) Tasks() []Task { return slices.Clone(n.tasks) }

// buildInfo returns what the metrics say about this program.
func buildInfo() scrape.Info {
	return scrape.Info{Version: cmp.Or(version.Version, "unknown"), Revision: version.GetRevision(),
		GoVersion: runtime.Version()}
}

// warnUnmatched logs the configured patterns that match no port.
func (n *Node) warnUnmatched() {
	for _, pattern := range n.Finder.Snapshot().Idle {
		n.logger.Warn("Pattern matches no RDMA port (railscope rails --all lists them)", "pattern", pattern)
	}
}

// examine adds the examination of the node.
func (n *Node) examine(g *facts.Gatherer, jobs bool) {
	errors := fingerprint.NewWatch(n.Finder.Rails)
	n.add(background("error counters", errors.Run))
	n.Examiner = n.newExaminer(g, errors, jobs)
	n.add(background("examination", n.Examiner.Run))
}

// noteDevice returns what notes the events of open devices; nil if nobody counts them.
func (n *Node) noteDevice(on bool) func(device string, port int, event string, count uint64) {
	if !on {
		return nil
	}
	return n.events.Note
}

// follow adds what follows the events of the kernel.
func (n *Node) follow() {
	n.add(background("source events", n.events.Run),
		background("examination after events", func(ctx context.Context) {
			n.Examiner.Follow(ctx, n.events.Changed())
		}))
}

// answer prepares the answers on the web port, and those to commands on this machine.
func (n *Node) answer(o *Options, past *baseline.Keeper) {
	shown := page.Options{Name: n.Probe.Node.Name, Own: n.own, Notice: o.Notice, Metrics: o.TelemetryPath,
		Started: time.Now(), Exam: n.exam, Now: n.ports, Logger: n.logger}
	n.web = exporterhttp.Options{Page: shown, Lifecycle: o.Lifecycle, MaxConnections: o.MaxConnections}
	current := exporterstatus.Handler(n.Scraper, shown)
	n.Local = http.NewServeMux()
	n.Local.Handle("GET /{$}", current)
	n.Local.Handle("GET "+status.Path, current)
	n.Local.Handle("POST "+PathReset, n.resetHandler(past))
	(&handRounds{service: n.Probe.Service, name: n.Probe.Node.Name, simulated: o.Notice != ""}).register(n.Local)
	if o.SocketDir == "" {
		return
	}
	owned := func() bool { return true }
	if o.Store != nil {
		owned = o.Store.Owned
	}
	n.add(background("socket", func(ctx context.Context) {
		statussock.New(o.SocketDir, n.Local).Run(ctx, owned, func(err error) {
			logResult(n.logger, err, "Socket of the state directory not opened, retried", "Socket opened",
				"dir", o.SocketDir)
		})
	}))
}

// own returns the bytes of the probe's own transfers over the rail of a device's port.
func (n *Node) own(device, port string) (transmit, receive, tcp *uint64) {
	one := n.Probe.Node.AllOwnTraffic()[device+"/"+port]
	return &one.All[rail.Transmit], &one.All[rail.Receive], new(one.TCP[rail.Transmit] + one.TCP[rail.Receive])
}

// Handler returns the handler of the web port. reload answers requests to reload. The caller closes the handler.
func (n *Node) Handler(reload func() error) *exporterhttp.Server {
	opts := n.web
	opts.Reload = reload
	return exporterhttp.New(n.Scraper, opts)
}

// Web returns the task of the web port. In-flight scrapes finish when it is canceled.
func (n *Node) Web(flags *web.FlagConfig, reload func() error) Task {
	return Task{Name: "the web port", Waiting: n.Scraper.Reading, Run: func(ctx context.Context) error {
		return exporterhttp.Serve(ctx, n.Handler(reload), flags, n.logger)
	}}
}

// Start checks for maintenance, so that no round starts during it, and starts the probe: see [ProbeController.Start].
func (n *Node) Start(ctx context.Context, opts *options.Options) error {
	if n.maintenance != nil {
		n.maintenance.Check()
	}
	return n.Probe.Start(ctx, opts)
}

// ReleaseDevices releases NVML and the open RDMA devices for a while, which a reset of a GPU and the unloading of a
// driver need.
func (n *Node) ReleaseDevices() {
	n.Probe.Release(hangupRelease)
	logResult(n.logger, n.NVML.Release(hangupRelease), "NVML release failed, retried at every read", "NVML released",
		"for", hangupRelease)
}

// Reload applies the configuration that load reads of a file: all of it or nothing. The probe runs until ctx is
// canceled. Reloads do not overlap.
func (n *Node) Reload(ctx context.Context, file string, load func(file string) (*config.Config, error)) error {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	systemd.Reloading()
	defer systemd.Ready()
	cfg, err := load(file)
	if err == nil {
		err = n.apply(ctx, cfg)
	}
	n.Scraper.Reloaded(err == nil)
	if err != nil {
		n.logger.Error("Reload refused, configuration unchanged", "err", err)
		return err
	}
	n.logger.Info("Configuration reloaded", "file", file)
	return nil
}

func (n *Node) apply(ctx context.Context, cfg *config.Config) error {
	hidden, err := Silences(cfg)
	if err != nil {
		return err
	}
	commit, err := n.Probe.prepare(cfg.Probe, false)
	if err != nil {
		return err
	}
	// From here on nothing can fail. The probe must find the rails under their new names.
	n.Finder.SetOptions(railOptions(cfg))
	n.warnUnmatched()
	n.Keeper.Configure(expectConfig(cfg))
	if n.maintenance != nil {
		n.maintenance.SetPath(cfg.MaintenanceFile())
	}
	n.configuration.Store(cfg.Digest)
	applySilences(n.Findings, hidden, n.logger)
	commit(ctx)
	return nil
}

// logResult logs a failure as a warning, else the success.
func logResult(logger *slog.Logger, err error, failed, succeeded string, args ...any) {
	if err != nil {
		logger.Warn(failed, append(args, "err", err)...) //nolint:sloglint // callers pass constants
		return
	}
	logger.Info(succeeded, args...) //nolint:sloglint // callers pass constants
}
