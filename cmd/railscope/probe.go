package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	"sync"

	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/doctor/facts"
	exporterprobe "github.com/railscope/railscope/exporter/probe"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/internal/trafficclass"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/report"
)

// newProbeNode makes the probe's view of this machine. Its worker is this binary, also when the file has been replaced.
// change, which may be nil, changes the options.
func newProbeNode(c *common, change func(*probe.NodeOptions), finder *rail.Finder, g *facts.Gatherer,
	logger *slog.Logger) *probe.Node {
	opts := probe.NodeOptions{
		Version: cmp.Or(version.Version, "unknown"),
		Name:    c.nodeName,
		Sysfs:   c.sysfs,
		Rails:   finder.Rails,
		Facts:   sharedFacts(g),
		Worker:  []string{"/proc/self/exe", workerCommand},
		Log:     func(line string) { logger.Info("Probe worker wrote a line", "line", line) },
		Refused: func(reason, from string) {
			logger.Warn("Probe client refused (logged once until it stops)", "reason", reason, "address", from)
		},
		Server: func(srv *http.Server) { srv.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug) },
	}
	opts.Class = jobClass(c, logger)
	if change != nil {
		change(&opts)
	}
	return probe.NewNode(opts)
}

// jobClass returns a function that finds the class of the RDMA traffic of this node's jobs, and logs a change.
func jobClass(c *common, logger *slog.Logger) func(context.Context) probe.Class {
	reader := trafficclass.New(c.procfs, rdmanl.NewForDumps(deviceBudget))
	var mu sync.Mutex
	var last probe.Class
	return func(ctx context.Context) probe.Class {
		now := reader.Choose(ctx)
		mu.Lock()
		defer mu.Unlock()
		if now.TrafficClass != last.TrafficClass || now.ServiceLevel != last.ServiceLevel {
			logger.Info("Probe uses another traffic class", "traffic_class", now.TrafficClass, "service_level",
				now.ServiceLevel, "source", now.Source)
		}
		last = now
		return now
	}
}

type probing struct {
	service *probe.Service
	metrics *exporterprobe.Source
	logger  *slog.Logger
	last    map[string]string // peer → summary of its last round; a change is logged
	opts    *probe.Options    // in use
}

func newProbing(node *probe.Node, logger *slog.Logger) *probing {
	p := &probing{logger: logger, last: map[string]string{}}
	p.service = probe.NewService(node, p.observe, probe.Events{
		Answering: func(a net.Addr) { logger.Info("Answering probes", "listen", a.String()) },
		Stopped: func(err error) {
			logger.Error("Probe port not opened, peers are not answered (retried at least every 30s)",
				"err", err, "fix", "stop the program that uses the address, or change probe.listen")
		},
		Peers: p.setPeers,
		Resolved: func(name string, peers int, err error) {
			logResult(logger, err, "Lookup of peers failed, using the last result", "Looked up peers",
				"name", name, "peers", peers)
		},
		SecretFile: func(path string, err error) {
			logResult(logger, err, "Token or certificate file invalid, its previous content stays in use",
				"Token or certificate file valid again", "file", path)
		},
		WeakToken: func(path string, bytes int) {
			logger.Warn("Token is too short; make one with: head -c 24 /dev/urandom | base64",
				"file", path, "bytes", bytes, "wanted", secret.ShortToken)
		},
	})
	p.metrics = exporterprobe.NewSource(p.service.Stats)
	return p
}

// setPeers sets the peers that have series. Like observe, it is called by one goroutine at a time.
func (p *probing) setPeers(peers []string) {
	p.metrics.SetPeers(peers)
	last := map[string]string{}
	for _, peer := range peers {
		last[peer] = p.last[peer]
	}
	p.last = last
}

// prepare checks options and returns the function that applies them, which cannot fail. It does nothing for the options
// in use. With retry, a port that is in use is not an error. Calls, including commit, must not overlap.
func (p *probing) prepare(opts *probe.Options, retry bool) (commit func(context.Context), err error) {
	if reflect.DeepEqual(opts, p.opts) {
		return func(context.Context) {}, nil
	}
	change, err := p.service.Prepare(opts, retry)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		change.Commit(ctx)
		p.opts = opts
	}, nil
}

func (p *probing) start(ctx context.Context, opts *probe.Options) error {
	commit, err := p.prepare(opts, true)
	if err != nil {
		return err
	}
	commit(ctx)
	return nil
}

// observe exports a result, and logs it if it differs from the last one.
func (p *probing) observe(r probe.Result) {
	p.metrics.Observe(r)
	debug.FreeOSMemory() // the memory of the round is not needed until the next one
	log := p.logger.With("peer", r.Peer, "result", r.Outcome, "transport", r.Transport)
	summary := fmt.Sprint(r.Outcome, r.Reason)
	for _, f := range r.Failures {
		summary = fmt.Sprint(summary, " ", f.Rail, f.Stage, f.Reason)
	}
	slow := report.Slow(r)
	for _, f := range slow {
		summary = fmt.Sprint(summary, " ", f.Check, f.Subject)
	}
	if p.last[r.Peer] == summary {
		log.Debug("Probe finished", "reason", r.Reason, "detail", r.Detail)
		return
	}
	p.last[r.Peer] = summary
	switch r.Outcome {
	case probe.OK:
		log.Info("Probe finished")
	case probe.Degraded:
		log.Warn("Probe finished")
	case probe.Skipped:
		log.Info("Probe skipped", "reason", r.Reason, "detail", r.Detail)
	default:
		log.Warn("Probe finished", "reason", r.Reason, "detail", r.Detail)
	}
	for _, f := range r.Failures {
		log.Warn("Probe step failed", "rail", f.Rail, "stage", f.Stage, "reason", f.Reason, "detail", f.Detail)
	}
	for _, f := range slow {
		log.Warn("Probe finding", "check", f.Check, "subject", f.Subject, "evidence", f.Evidence)
	}
}
