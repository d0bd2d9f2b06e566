package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/exporter"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/systemd"
)

// How long a scrape waits: for one device, and for a source, which may first
// have to look for the devices.
const (
	deviceBudget = time.Second
	sourceBudget = 3 * deviceBudget
)

// maxProcessSeries bounds --collector.process.limit.
const maxProcessSeries = 10000

// maxGPUProcesses bounds the series of --collector.gpu.processes, per GPU.
const maxGPUProcesses = 64

// serve serves until ctx is done, then lets running scrapes end.
func serve(ctx context.Context, s settings) error {
	cfg, err := config.Load(s.configFile)
	if err != nil {
		return misuse{err}
	}
	if err := web.Validate(*s.web.WebConfigFile); err != nil {
		return misuse{fmt.Errorf("--web.config.file %s: %w", *s.web.WebConfigFile, err)}
	}
	runtime.GOMAXPROCS(s.procs)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // a scrape now and then: small rather than quick
	}
	// 2 MiB for every thread's stack are not worth it, here and in the worker, which inherits it.
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
	logger := promslog.New(&s.log)
	finder := rail.NewFinder(s.sysfs, cfg.Rails, rdmanl.New(deviceBudget), deviceBudget)
	probing := newProbing(newNode(s, finder, logger), logger)
	defer probing.service.Close()
	list, running, err := sources(s, finder, logger)
	if err != nil {
		return err
	}
	scraper, err := exporter.NewScraper(append(list, probing.metrics), exporter.Options{Budget: sourceBudget, Logger: logger,
		Info: exporter.Info{Version: cmp.Or(version.Version, "unknown"), Revision: version.GetRevision(), GoVersion: runtime.Version()}})
	if err != nil {
		return err
	}
	reload := func() error {
		systemd.Reloading()
		defer systemd.Ready()
		cfg, err := config.Load(s.configFile)
		if err == nil {
			err = probing.apply(ctx, cfg.Probe)
		}
		scraper.Reloaded(err == nil)
		if err != nil {
			logger.Error("Reload refused, the configuration in force was kept", "err", err)
			return err
		}
		finder.SetOptions(cfg.Rails)
		logger.Info("Configuration reloaded", "file", s.configFile)
		return nil
	}
	if err := probing.apply(ctx, cfg.Probe); err != nil {
		return err
	}
	handler, err := exporter.NewServer(scraper, exporter.ServerOptions{TelemetryPath: s.telemetryPath, Reload: reload, Logger: logger, Doctor: complaints(gatherer(s, finder))})
	if err != nil {
		return err
	}
	defer onHangup(reload)()
	defer background(ctx, running)()
	return exporter.Serve(ctx, handler, s.web, logger)
}

// onHangup calls reload at every SIGHUP until stop is called.
func onHangup(reload func() error) (stop func()) {
	hup := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		defer close(done)
		for range hup {
			_ = reload() // it has logged what was wrong
		}
	}()
	return func() {
		signal.Stop(hup)
		close(hup)
		<-done
	}
}
