package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/config"
)

// maxProcessSeries bounds --collector.process.limit.
const maxProcessSeries = 10000

// maxGPUProcesses bounds the series of --collector.gpu.processes, per GPU.
const maxGPUProcesses = 64

// serve serves until ctx is done; then in-flight scrapes finish first.
func serve(ctx context.Context, s settings, parts *unfinished) error {
	logger := promslog.New(&s.log)
	// Stopped is what it was told to be: systemd and Kubernetes take any other code
	// for a crash.
	parts.become(0, func(limit time.Duration, still string) { logger.Error(forced, "waited", limit, "still", still) })
	read := parts.begin("the configuration", nil)
	var configuration config.Loader
	cfg, err := configuration.Load(s.configFile)
	if err != nil {
		return misuse{err}
	}
	if err := web.Validate(*s.web.WebConfigFile); err != nil {
		return misuse{fmt.Errorf("--web.config.file %s: %w", *s.web.WebConfigFile, err)}
	}
	read()
	runtime.GOMAXPROCS(s.procs)
	beSmall()
	m := s.machine()
	if m.state = s.openState(logger); m.state != nil {
		defer func() { _ = m.state.Close() }() // it has reported what was wrong
	}
	n, err := assemble(s, m, railOptions(cfg), logger)
	if err != nil {
		return err
	}
	defer parts.begin("the probe", n.probing.activity)()
	defer n.close()
	// The probe ends while scrapes finish, not after them.
	defer context.AfterFunc(ctx, n.close)()
	if err := n.probing.start(ctx, probeOptions(cfg)); err != nil {
		return err
	}
	reload := (&reloader{node: n, file: s.configFile, configuration: &configuration, ctx: ctx}).reload
	defer onHangup(reload)()
	defer parts.begin("the web port", n.scraper.Reading)()
	return n.serve(ctx, s.web, reload)
}

// beSmall makes this process small rather than quick.
func beSmall() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // a scrape now and then
	}
	// 2 MiB for every thread's stack are not worth it, here and in the worker, which inherits it.
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
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
