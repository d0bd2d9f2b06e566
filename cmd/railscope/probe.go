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
	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/report"
)

// newProbeNode is this machine as the probe sees it. Its worker is this binary, also when the file has been replaced
// since. change, which may be nil, changes the options.
func newProbeNode(c *common, change func(*probe.NodeOptions), finder *rail.Finder, g *facts.Gatherer,
	logger *slog.Logger) *probe.Node {
	opts := probe.NodeOptions{
		Version: cmp.Or(version.Version, "unknown"),
		Name:    c.nodeName,
		Sysfs:   c.sysfs,
		Rails:   finder.Rails,
		Facts:   sharedFacts(g),
		Worker:  []string{"/proc/self/exe", workerCommand},
		Log:     func(line string) { logger.Info("Output of the worker process", "line", line) },
		Refused: func(reason, from string) {
			logger.Warn("Probe port refuses a client (logged once until it stops)", "reason", reason, "address", from)
		},
		Server: func(srv *http.Server) { srv.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug) },
	}
	if change != nil {
		change(&opts)
	}
	return probe.NewNode(opts)
}

// probing is the probe of a running exporter, and its metrics.
type probing struct {
	service *probe.Service
	metrics *exporterprobe.Source
	logger  *slog.Logger
	last    map[string]string // peer → summary of its last round, for the log

	mu   sync.Mutex     // protects opts
	opts *probe.Options // applied
}

func newProbing(node *probe.Node, logger *slog.Logger) *probing {
	p := &probing{logger: logger, last: map[string]string{}}
	p.service = probe.NewService(node, p.observe, probe.Events{
		Answering: func(a net.Addr) { logger.Info("Answering the probes of peers", "listen", a.String()) },
		Stopped: func(err error) {
			logger.Error("Peers are not answered: the probe port cannot be opened, retried at least every 30s",
				"err", err, "fix", "stop the program that uses the address, or change probe.listen")
		},
		Peers:      p.setPeers,
		Resolved:   p.resolved,
		SecretFile: p.secretFile,
		WeakToken: func(path string, bytes int) {
			logger.Warn("Token is too short; make one with: head -c 24 /dev/urandom | base64",
				"file", path, "bytes", bytes, "wanted", secret.ShortToken)
		},
	})
	p.metrics = exporterprobe.NewSource(p.service.Stats)
	return p
}

// setPeers sets the peers that have series. Like observe it is called by one goroutine at a time.
func (p *probing) setPeers(peers []string) {
	p.metrics.SetPeers(peers)
	last := map[string]string{}
	for _, peer := range peers {
		if summary, known := p.last[peer]; known {
			last[peer] = summary
		}
	}
	p.last = last
}

// resolved logs the result of a DNS lookup.
func (p *probing) resolved(name string, peers int, err error) {
	if err != nil {
		p.logger.Warn("Lookup of peers failed, those known so far remain", "name", name, "peers", peers, "err", err)
		return
	}
	p.logger.Info("Looked up peers", "name", name, "peers", peers)
}

// secretFile logs that a token or certificate file became unusable, or usable again.
func (p *probing) secretFile(path string, err error) {
	if err != nil {
		p.logger.Error("Token or certificate file is unusable, its previous content stays in use", "file", path,
			"err", err)
		return
	}
	p.logger.Info("Token or certificate file is usable again", "file", path)
}

// prepare checks options and returns what applies them, which cannot fail. Options that are applied already stay
// undisturbed. With retry, a port that is in use is no error.
func (p *probing) prepare(opts *probe.Options, retry bool) (commit func(context.Context), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reflect.DeepEqual(opts, p.opts) {
		return func(context.Context) {}, nil
	}
	change, err := p.service.Prepare(opts, retry)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		p.mu.Lock()
		defer p.mu.Unlock()
		change.Commit(ctx)
		p.opts = opts
	}, nil
}

// start applies the first options.
func (p *probing) start(ctx context.Context, opts *probe.Options) error {
	commit, err := p.prepare(opts, true)
	if err != nil {
		return err
	}
	commit(ctx)
	return nil
}

// activity names what the probe does now.
func (p *probing) activity() []string {
	if p.service.Stats().Leases > 0 {
		return []string{"a lease of a peer"}
	}
	return nil
}

// observe exports a result, and logs it when it differs from the last one. It is called by one goroutine at a time.
func (p *probing) observe(r probe.Result) {
	p.metrics.Observe(r)
	debug.FreeOSMemory() // of this round nothing is needed until the next
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
		log.Debug("Probed", "reason", r.Reason, "detail", r.Detail)
		return
	}
	p.last[r.Peer] = summary
	switch r.Outcome {
	case probe.OK:
		log.Info("Probed")
	case probe.Degraded:
		log.Warn("Probed")
	case probe.Skipped:
		log.Info("Not probed", "reason", r.Reason, "detail", r.Detail)
	default:
		log.Warn("Probed", "reason", r.Reason, "detail", r.Detail)
	}
	for _, f := range r.Failures {
		log.Warn("Failed in the round", "rail", f.Rail, "stage", f.Stage, "reason", f.Reason, "detail", f.Detail)
	}
	for _, f := range slow {
		log.Warn("Found in the round", "check", f.Check, "subject", f.Subject, "evidence", f.Evidence)
	}
}
