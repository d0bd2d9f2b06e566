package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/demo"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/probe/options"
)

type demoSettings struct {
	*common
	listen        string
	degrade, fail []string
	fallback      bool
	failAfter     time.Duration
	failAfterSet  bool    // set by the user
	rate          float64 // Gb/s
}

func (s *demoSettings) define(app *kingpin.Application) *demoSettings {
	cmd := app.Command("demo", "Run two simulated nodes on any machine: rails are shaped TCP connections on this "+
		"machine; GPUs and the job on them are simulated. See docs/demo.md.")
	cmd.Flag("web.listen-address", "Address of the first node; the second uses the next port.").
		Default(":10091").StringVar(&s.listen)
	cmd.Flag("rate", "Rate of each rail in Gb/s, from 0.1 to 100. Use less than the default on a slow machine.").
		Default(fmt.Sprint(demo.Rate)).Float64Var(&s.rate)
	cmd.Flag("degrade", "Limit a rail to this fraction of its rate, such as rail1=0.3. Repeatable.").
		PlaceHolder("RAIL=FRACTION").StringsVar(&s.degrade)
	cmd.Flag("fallback", "Block RDMA: job and probe use TCP.").BoolVar(&s.fallback)
	cmd.Flag("fail", "Take down the port of a rail of the first node, such as rail0. Repeatable.").
		PlaceHolder("RAIL").StringsVar(&s.fail)
	cmd.Flag("fail-after", "Time until the port of --fail goes down. Prometheus must scrape it while it is up: a port "+
		"that was never up raises no alert.").Default("1m").IsSetByUser(&s.failAfterSet).DurationVar(&s.failAfter)
	return s
}

// run runs two simulated nodes until ctx is done, the terminal is closed, or the reader of the pipe is gone. SIGHUP and
// SIGPIPE kill by default, which would leave the files. A connection that a peer has closed also raises SIGPIPE.
func (s *demoSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("demo", nil)()
	lost := make(chan os.Signal, 1)
	signal.Notify(lost, syscall.SIGPIPE)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(lost, syscall.SIGHUP)
	}
	defer signal.Stop(lost)
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() {
		for ctx.Err() == nil {
			select {
			case sig := <-lost:
				if sig == syscall.SIGHUP || outputGone() {
					cancel()
				}
			case <-ctx.Done():
			}
		}
	})
	opts, err := s.options()
	if err != nil {
		return misuse{err}
	}
	at, err := demoAddresses(s.listen)
	if err != nil {
		return misuse{err}
	}
	fmt.Fprintln(w, demo.Notice)
	for i, address := range at.web {
		fmt.Fprintf(w, "  node %d  %s\n", i+1, demoURL(address))
	}
	limitMemory()
	return s.show(ctx, opts, at, demoProbe(opts.Rate))
}

// outputGone reports whether nobody can read standard output or standard error any more.
func outputGone() bool {
	outputs := []unix.PollFd{{Fd: 1}, {Fd: 2}}
	n, err := unix.Poll(outputs, 0)
	return err == nil && n > 0 // without events to wait for, poll reports only errors and hang-ups
}

// show runs the nodes, which probe each other with these options.
func (s *demoSettings) show(ctx context.Context, opts demo.Options, at demoPlaces, rounds options.Options) error {
	d, err := demo.New("", opts)
	if err != nil {
		return err
	}
	defer d.Close()
	logger := s.logger()
	logger.Warn("Demo: all data is simulated", "files", d.Dir)
	rounds.Security.TokenFile = filepath.Join(d.Dir, "token")
	if err := os.WriteFile(rounds.Security.TokenFile, []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { d.Run(ctx) })
	ended := make(chan error, demo.Nodes)
	for i, n := range d.Nodes {
		own := rounds
		own.Name, own.Listen, own.Peers = n.Name, at.control[i], []string{at.control[1-i]}
		running.Go(func() {
			ended <- serveDemo(ctx, n, at.web[i], &own, logger.With("node", n.Name))
			cancel() // the demo needs both nodes
		})
	}
	for range d.Nodes {
		if failed := <-ended; err == nil {
			err = failed
		}
	}
	return err
}

func serveDemo(ctx context.Context, of *demo.Node, address string, opts *options.Options, logger *slog.Logger) error {
	m := serve.Machine{Name: of.Name, Sysfs: of.Sysfs, Procfs: of.Procfs, Rootfs: of.Rootfs, Ethtool: of.Ethtool(),
		NVML: nvml.NewSession(of.NVML()), ProbeOptions: of.Probe}
	n, err := serve.New(serve.Options{Machine: m, Sources: serve.DefaultSources(), Notice: demo.Notice,
		SocketDir: filepath.Dir(of.Sysfs), TelemetryPath: "/metrics"}, &config.Config{}, logger)
	if err != nil {
		return err
	}
	defer n.Probe.Close()
	if err := n.Start(ctx, opts); err != nil {
		return portError(err)
	}
	file, socket := "", false
	flags := &web.FlagConfig{WebListenAddresses: &[]string{address}, WebConfigFile: &file, WebSystemdSocket: &socket}
	nothing := func() error { return nil } // there is no configuration to reload
	return portError(serve.Run(ctx, append(n.Tasks(), n.Web(flags, nothing)), nil))
}

// portError adds the ports that the demo needs to the error of a port in use.
func portError(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (the demo needs four consecutive ports; --web.listen-address is the first)", err)
	}
	return err
}

// demoProbe returns the options of probes over rails of this rate, in Gb/s. Bursts take the same time at every
// rate.
func demoProbe(rate float64) options.Options {
	opts := options.DefaultOptions()
	opts.Interval, opts.Timeout, opts.Burst = 15*time.Second, 15*time.Second, 100*time.Millisecond
	// Only the demo uses these rails.
	opts.Budget = options.Budget{Share: 1}
	opts.SoloEvery = 2 // a rail that is slow alone is reported after two full rounds
	// The simulated job uses more; a loaded machine counts bytes too late for a lower limit.
	opts.BusyAbove = 0.5
	return opts
}

func (s *demoSettings) options() (demo.Options, error) {
	opts := demo.Options{Rate: s.rate, Degrade: map[int]float64{}, Fallback: s.fallback, Fail: map[int]bool{},
		FailAfter: s.failAfter}
	switch {
	case s.configFile != "":
		return opts, errors.New("--config.file: the demo has no configuration; railscope serve has")
	case !(s.rate >= 0.1 && s.rate <= 100):
		return opts, fmt.Errorf("--rate must be from 0.1 to 100 (Gb/s), such as %v, not %v", demo.Rate, s.rate)
	case s.failAfterSet && len(s.fail) == 0:
		return opts, errors.New("--fail-after needs --fail, which names the rail, such as --fail=rail0")
	case s.failAfter < 0:
		return opts, fmt.Errorf("--fail-after must not be negative, such as 1m, not %v", s.failAfter)
	}
	for _, text := range s.degrade {
		r, part, err := demo.ParseDegrade(text)
		if err != nil {
			return opts, fmt.Errorf("--degrade: %w", err)
		}
		if _, twice := opts.Degrade[r]; twice {
			return opts, fmt.Errorf("--degrade: rail%d is given twice", r)
		}
		opts.Degrade[r] = part
	}
	for _, text := range s.fail {
		r, err := demo.ParseRail(text)
		if err != nil {
			return opts, fmt.Errorf("--fail: %w", err)
		}
		opts.Fail[r] = true
	}
	if err := opts.Check(); err != nil {
		return opts, fmt.Errorf("--fail: %w", err)
	}
	return opts, nil
}

type demoPlaces struct{ web, control [demo.Nodes]string }

// demoAddresses returns addresses with four consecutive ports, starting with the port of first.
func demoAddresses(first string) (at demoPlaces, err error) {
	host, text, err := net.SplitHostPort(first)
	port, errPort := strconv.Atoi(text)
	if err != nil || errPort != nil || port < 1 || port > 65536-2*demo.Nodes {
		return at, fmt.Errorf("--web.listen-address must be host:port or :port, such as :10091, with three more ports "+
			"above it, not %q", first)
	}
	for i := range demo.Nodes {
		at.web[i] = net.JoinHostPort(host, strconv.Itoa(port+i))
		at.control[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port+demo.Nodes+i))
	}
	return at, nil
}

// demoURL returns the URL of an address for a browser on this machine.
func demoURL(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
