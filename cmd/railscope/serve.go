package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"
	"golang.org/x/sys/unix"

	exporterhttp "github.com/railscope/railscope/exporter/http"
	"github.com/railscope/railscope/exporter/otlp"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/state"
)

type serveSettings struct {
	*common
	sources       sourceSettings
	telemetryPath string
	lifecycle     bool // reload by HTTP is allowed
	connections   int  // maximum of simultaneous connections to the web port
	web           *web.FlagConfig
	otlp          otlp.Options
	annotation    string // file with the maintenance annotation
	configCheck   bool
}

func (s *serveSettings) define(app *kingpin.Application) *serveSettings {
	cmd := app.Command("serve", "Serve metrics (the default command).").Default().Validate(s.check)
	s.web = kingpinflag.AddFlags(cmd, ":10091")
	cmd.Flag("web.telemetry-path", "Path under which to expose metrics.").
		Default("/metrics").StringVar(&s.telemetryPath)
	cmd.Flag("web.max-connections", "Maximum number of connections to the web port at a time, half of them from one "+
		"address. More are closed and counted.").
		Default(strconv.Itoa(exporterhttp.DefaultMaxConnections)).IntVar(&s.connections)
	cmd.Flag("web.enable-lifecycle", "Reload the configuration on POST or PUT to /-/reload. SIGHUP always reloads it.").
		Default("false").BoolVar(&s.lifecycle)
	cmd.Flag("maintenance.annotation", "File of a downward-API volume with an annotation of the pod: while it "+
		"contains true, this node is in maintenance, as while the maintenance file exists.").
		PlaceHolder("FILE").StringVar(&s.annotation)
	cmd.Flag("otlp.endpoint", "URL of an OTLP/HTTP receiver to push all series to, besides /metrics, such as "+
		"http://collector:4318. /v1/metrics is appended unless the URL ends with it. Empty: nothing is pushed.").
		PlaceHolder("URL").StringVar(&s.otlp.Endpoint)
	cmd.Flag("otlp.interval", "Time between two pushes.").Default("15s").DurationVar(&s.otlp.Interval)
	cmd.Flag("otlp.http.config.file", "File with credentials and TLS for --otlp.endpoint, in the form of promtool's "+
		"--http.config.file. It is read at the start.").PlaceHolder("FILE").StringVar(&s.otlp.ConfigFile)
	cmd.Flag("config.check", "Check the configuration and --web.config.file, and exit: with code 0 if a reload would "+
		"apply them, else with code 2 and what is wrong.").Default("false").NoEnvar().BoolVar(&s.configCheck)
	s.sources.define(cmd, false)
	return s
}

// check returns an error for values that the parser accepts but serve does not.
func (s *serveSettings) check(*kingpin.CmdClause) error {
	path := s.telemetryPath
	switch {
	case !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/-/") || strings.ContainsAny(path, "{} "):
		return fmt.Errorf("--web.telemetry-path must begin with / and not with /-/, such as /metrics, not %q", path)
	case s.connections < 1:
		return fmt.Errorf("--web.max-connections must be 1 or more, not %d", s.connections)
	case slices.Contains(*s.web.WebListenAddresses, ""):
		return errors.New(`--web.listen-address must be host:port or :port, such as :10091, not ""`)
	}
	return s.sources.check()
}

// run serves until ctx is done. In-flight scrapes finish first.
func (s *serveSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	if s.configCheck {
		return s.checkConfig(w)
	}
	logger := s.logger()
	// A requested stop is a success: systemd and Kubernetes treat any other exit code as a crash.
	tracker.setExit(0, func(limit time.Duration, still string) {
		logger.Error(forced, "waited", limit, "still",
			still)
	})
	read := tracker.begin("the configuration", nil)
	var loader config.Loader
	cfg, err := loader.Load(s.configFile)
	if err != nil {
		return misuse{err}
	}
	if err := s.checkWeb(); err != nil {
		return err
	}
	pusher, err := s.newPusher(logger)
	if err != nil {
		return err
	}
	read()
	started := tracker.begin("the start", nil)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1) // ADR 7
	}
	limitMemory()
	store := serve.OpenState(s.stateDir, logger)
	if store != nil {
		defer func() { _ = store.Close() }() // the store reports its errors
	}
	n, err := serve.New(s.nodeOptions(cfg, store, pusher), cfg, logger)
	if err != nil {
		return misuse{err}
	}
	defer n.Probe.Close()
	if err := n.Start(ctx, cfg.Probe); err != nil {
		return err
	}
	reload := func() error {
		return n.Reload(ctx, s.configFile, func(file string) (*config.Config, error) {
			cfg, err := loader.Load(file)
			if err != nil {
				return nil, err
			}
			return cfg, refuseEmpty(cfg, file)
		})
	}
	defer onHangup(func() error {
		n.ReleaseDevices()
		return reload()
	})()
	started()
	return serve.Run(ctx, append(n.Tasks(), n.Web(s.web, reload)), tracker.begin)
}

// nodeOptions returns the settings of the node.
func (s *serveSettings) nodeOptions(cfg *config.Config, store *state.Store, pusher *otlp.Pusher) serve.Options {
	m := s.Machine
	m.RDMA, m.NVML = rdmanl.New(time.Second), nvml.NewSession(nvml.NewLibrary(s.sources.nvml))
	return serve.Options{Machine: m, Sources: s.sources.Sources, Store: store, SocketDir: s.stateDir,
		Maintenance: cfg.MaintenanceFile(), Annotation: s.annotation, TelemetryPath: s.telemetryPath,
		Lifecycle: s.lifecycle, MaxConnections: s.connections, Pusher: pusher}
}

func (s *serveSettings) checkWeb() error {
	if err := web.Validate(*s.web.WebConfigFile); err != nil {
		return misuse{fmt.Errorf("--web.config.file %s: %w", *s.web.WebConfigFile, err)}
	}
	return nil
}

// newPusher returns the pusher of the series; nil without --otlp.endpoint. An error is a misuse.
func (s *serveSettings) newPusher(logger *slog.Logger) (*otlp.Pusher, error) {
	o := s.otlp
	if o.Endpoint == "" {
		if o.ConfigFile != "" {
			return nil, misuse{errors.New("--otlp.http.config.file needs --otlp.endpoint")}
		}
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	o.Node, o.Version, o.Logger = cmp.Or(s.Name, host), cmp.Or(version.Version, "unknown"), logger
	p, err := otlp.New(o)
	if err != nil {
		return nil, misuse{err}
	}
	return p, nil
}

// checkConfig reports whether a reload would apply the configuration. An error is a misuse.
func (s *serveSettings) checkConfig(w io.Writer) error {
	cfg, err := s.load()
	if err != nil {
		return err
	}
	if err := refuseEmpty(cfg, s.configFile); err != nil {
		return misuse{err}
	}
	if _, err := serve.Silences(cfg); err != nil {
		return misuse{err}
	}
	if err := s.checkWeb(); err != nil {
		return err
	}
	if _, err := s.newPusher(s.logger()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, "The configuration is valid.")
	return err
}

// refuseEmpty rejects a file without a key: it may be half-written.
func refuseEmpty(cfg *config.Config, file string) error {
	if !cfg.Empty || file == "" {
		return nil
	}
	return fmt.Errorf("%s is empty: a reload refuses it, because it may be half written; write {} for an empty "+
		"configuration", file)
}

// limitMemory reduces memory use at the cost of speed.
func limitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // scrapes are rare
	}
	// With huge pages each thread's stack takes 2 MiB, here and in the worker, which inherits this setting.
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
}

// onHangup calls reload at every SIGHUP until stop is called.
func onHangup(reload func() error) (stop func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	var running sync.WaitGroup
	running.Go(func() {
		for range hup {
			_ = reload() // reload logs its errors
		}
	})
	return func() {
		signal.Stop(hup)
		close(hup)
		running.Wait()
	}
}
