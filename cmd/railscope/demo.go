package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/demo"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// What the probe of the demo does otherwise than by default: rounds are to be
// seen soon, and often, and a burst is to take as long whatever the rails carry.
const (
	demoInterval = 15 * time.Second
	demoTransfer = 26 << 20 // for each Gb/s of a rail
	demoChunk    = 128 << 10
	demoBudget   = 26 << 30 // likewise
	demoSolos    = 2        // a rail that is slow alone is told of after two such rounds
	demoBusy     = 0.5      // the job takes more, and a machine at work with other things tells of bytes too late to be strict
)

// runDemo shows two simulated nodes until ctx is done, or nobody is there any
// more to see what it says.
func runDemo(ctx context.Context, s settings, w io.Writer) error {
	ctx, stop := whileSeen(ctx)
	defer stop()
	opts, err := s.demoOptions()
	if err != nil {
		return misuse{err}
	}
	at, err := demoAddresses(s.demo.listen)
	if err != nil {
		return misuse{err}
	}
	fmt.Fprintln(w, demo.Notice)
	for i, address := range at.web {
		fmt.Fprintf(w, "  node %d  %s\n", i+1, demoURL(address))
	}
	fmt.Fprint(w, demoTroubles(opts))
	beSmall()
	return s.showDemo(ctx, opts, at, demoProbe(opts.Rate))
}

// whileSeen is done too when the terminal was closed, or the reader of a pipe went.
// Both kill by default, and the files would stay.
func whileSeen(ctx context.Context) (context.Context, context.CancelFunc) {
	ends := []os.Signal{syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		ends = append(ends, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, ends...)
}

// showDemo shows the nodes, which ask each other as rounds says.
func (s settings) showDemo(ctx context.Context, opts demo.Options, at demoPlaces, rounds probe.Options) error {
	s.telemetryPath, s.interval, s.processLimit = "/metrics", sampler.DefaultInterval, maxProcessSeries
	for _, flag := range sourceFlags {
		*s.collectors[flag.name] = !flag.off
	}
	d, err := demo.New("", opts)
	if err != nil {
		return err
	}
	defer d.Close()
	logger := promslog.New(&s.log)
	logger.Warn("Nothing that is shown is real", "notice", demo.Notice, "files", d.Dir())
	rounds.Security.TokenFile = filepath.Join(d.Dir(), "token")
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
			ended <- s.serveDemo(ctx, n, at.web[i], &own, logger.With("node", n.Name))
			cancel() // one alone is no demo
		})
	}
	for range d.Nodes {
		if failed := <-ended; err == nil {
			err = failed
		}
	}
	return err
}

// serveDemo serves one node.
func (s settings) serveDemo(ctx context.Context, of *demo.Node, address string, opts *probe.Options, logger *slog.Logger) error {
	s.nodeName, s.sysfs, s.procfs, s.rootfs = of.Name, of.Sysfs, of.Procfs, of.Rootfs
	n, err := assemble(s, machine{notice: demo.Notice, nvml: nvml.NewSession(of.NVML()), ethtool: of.Ethtool(), probe: of.Probe}, rail.Options{}, logger)
	if err != nil {
		return err
	}
	defer n.close()
	if err := n.probing.start(ctx, opts); err != nil {
		return fourInARow(err)
	}
	file, socket := "", false
	flags := &web.FlagConfig{WebListenAddresses: &[]string{address}, WebConfigFile: &file, WebSystemdSocket: &socket}
	return fourInARow(n.serve(ctx, flags, func() error { return nil })) // there is no configuration to read again
}

// fourInARow says of a port that is taken what the demo needs.
func fourInARow(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (the demo needs four ports in a row; --web.listen-address is the first)", err)
	}
	return err
}

// demoProbe is how the nodes ask each other over rails of so many Gb/s.
func demoProbe(rate float64) probe.Options {
	opts := probe.DefaultOptions()
	opts.Interval, opts.Timeout, opts.Chunk, opts.BusyAbove = demoInterval, demoInterval, demoChunk, demoBusy
	opts.SoloEvery = demoSolos
	opts.Transfer, opts.Budget = int64(rate*demoTransfer), int64(rate*demoBudget)
	return opts
}

// demoOptions are what the flags of demo ask for.
func (s settings) demoOptions() (demo.Options, error) {
	opts := demo.Options{Rate: s.demo.rate, Degrade: map[int]float64{}, Fallback: s.demo.fallback, Fail: map[int]bool{}, FailAfter: s.demo.failAfter}
	if s.configFile != "" {
		return opts, fmt.Errorf("--config.file: the demo takes no configuration; railscope serve does")
	}
	if !(s.demo.rate >= 0.1 && s.demo.rate <= 100) {
		return opts, fmt.Errorf("--rate must be from 0.1 to 100 (Gb/s), such as %v, not %v", demo.Rate, s.demo.rate)
	}
	if s.demo.failAfterSet && len(s.demo.fail) == 0 {
		return opts, fmt.Errorf("--fail-after: nothing is to fail; --fail says what, such as --fail=rail0")
	}
	if s.demo.failAfter < 0 {
		return opts, fmt.Errorf("--fail-after must be a time from now on, such as 1m, not %v", s.demo.failAfter)
	}
	for _, text := range s.demo.degrade {
		r, part, err := demo.ParseDegrade(text)
		if err != nil {
			return opts, fmt.Errorf("--degrade: %w", err)
		}
		if _, twice := opts.Degrade[r]; twice {
			return opts, fmt.Errorf("--degrade: rail%d is given twice", r)
		}
		opts.Degrade[r] = part
	}
	for _, text := range s.demo.fail {
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

// demoTroubles says what will be wrong.
func demoTroubles(opts demo.Options) (text string) {
	for _, r := range slices.Sorted(maps.Keys(opts.Degrade)) {
		text += fmt.Sprintf("  rail%d carries %v of its rate\n", r, opts.Degrade[r])
	}
	if opts.Fallback {
		text += "  nothing gets through by RDMA\n"
	}
	for _, r := range slices.Sorted(maps.Keys(opts.Fail)) {
		text += fmt.Sprintf("  the port of rail%d on node 1 goes down after %v\n", r, opts.FailAfter)
	}
	return text
}

// demoPlaces are where the nodes serve, and where they answer each other.
type demoPlaces struct{ web, control [demo.Nodes]string }

// demoAddresses are four ports in a row from the first on, and free ones where
// that is 0.
func demoAddresses(first string) (at demoPlaces, err error) {
	host, text, err := net.SplitHostPort(first)
	port, errPort := strconv.Atoi(text)
	if err != nil || errPort != nil || port < 0 || port > 65535-2*demo.Nodes+1 {
		return at, fmt.Errorf("--web.listen-address must be host:port or :port, such as :10091, with three more ports above it, not %q", first)
	}
	for i := range demo.Nodes {
		at.web[i], at.control[i] = first, fmt.Sprintf("127.0.0.1:%d", port+demo.Nodes+i)
		if port != 0 {
			at.web[i] = net.JoinHostPort(host, strconv.Itoa(port+i))
			continue
		}
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return at, err
		}
		at.control[i] = free.Addr().String()
		defer func() { _ = free.Close() }() // it is about to be another's
	}
	return at, nil
}

// demoURL is how a browser on this machine reaches an address.
func demoURL(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
