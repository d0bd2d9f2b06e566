package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
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

// workerCommand is the command of the process that touches libibverbs. It is
// not for people, so it is no command of the parser's.
const workerCommand = "probe-worker"

// newNode is this machine as the probe sees it. Its worker is this binary, also
// when the file has been replaced since.
func newNode(s settings, m machine, finder *rail.Finder, g *facts.Gatherer, logger *slog.Logger) *probe.Node {
	opts := probe.NodeOptions{
		Version: cmp.Or(version.Version, "unknown"),
		Name:    s.nodeName,
		Sysfs:   s.sysfs,
		Rails:   finder.Rails,
		Facts:   tellFacts(g),
		Worker:  []string{"/proc/self/exe", workerCommand},
		Log:     func(line string) { logger.Info("Worker process", "said", line) },
		Refused: func(reason, from string) {
			logger.Warn("Probe port refuses a client (logged once until it stops)", "reason", reason, "address", from)
		},
		Server: func(srv *http.Server) { srv.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug) },
	}
	if m.probe != nil {
		m.probe(&opts)
	}
	return probe.NewNode(opts)
}

// probing is the probe of a running exporter, and its metrics.
type probing struct {
	service *probe.Service
	metrics *exporterprobe.Source
	logger  *slog.Logger
	last    map[string]string // peer → what its last round came to, for the log

	mu   sync.Mutex     // protects opts
	opts *probe.Options // in force; only what could be applied gets here
}

func newProbing(node *probe.Node, logger *slog.Logger) *probing {
	p := &probing{logger: logger, last: map[string]string{}}
	p.service = probe.NewService(node, p.observe, probe.Events{
		Answering: func(a net.Addr) { logger.Info("Answering the probes of peers", "listen", a.String()) },
		Stopped: func(err error) {
			logger.Error("Peers are not answered: the address is tried again, at least every 30s", "err", err, "fix", "stop what else listens there, or change probe.listen")
		},
		Peers:    p.setPeers,
		Resolved: p.resolved,

		SecretFile: p.secretFile,
		WeakToken: func(path string, bytes int) {
			logger.Warn("Token can be guessed; make one with: head -c 24 /dev/urandom | base64", "file", path, "bytes", bytes, "wanted", secret.ShortToken)
		},
	})
	p.metrics = exporterprobe.NewSource(p.service.Stats)
	return p
}

// setPeers makes these the peers that there are series of. Like observe it is
// called by one goroutine at a time.
func (p *probing) setPeers(peers []string) {
	p.metrics.SetPeers(peers)
	last := map[string]string{}
	for _, peer := range peers {
		if what, known := p.last[peer]; known {
			last[peer] = what
		}
	}
	p.last = last
}

// resolved logs what the lookup of a DNS name came to.
func (p *probing) resolved(name string, peers int, err error) {
	if err != nil {
		p.logger.Warn("Peers could not be looked up, those known so far remain", "name", name, "peers", peers, "err", err)
		return
	}
	p.logger.Info("Looked up peers", "name", name, "peers", peers)
}

// secretFile logs that a token or certificate file cannot be used, and that it can
// again.
func (p *probing) secretFile(path string, err error) {
	if err != nil {
		p.logger.Error("Token or certificate file cannot be used, what it held before stays in use", "file", path, "err", err)
		return
	}
	p.logger.Info("Token or certificate file can be used again", "file", path)
}

// prepare checks a configuration and returns what puts it in force, which cannot
// fail. One that is in force already stays undisturbed. With retry, a port that is
// taken is no error.
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

// start puts the first configuration in force.
func (p *probing) start(ctx context.Context, opts *probe.Options) error {
	commit, err := p.prepare(opts, true)
	if err != nil {
		return err
	}
	commit(ctx)
	return nil
}

// activity is what of the probe goes on, for people.
func (p *probing) activity() []string {
	if p.service.Stats().Leases > 0 {
		return []string{"a lease of a peer"}
	}
	return nil
}

// observe hands a result on, and logs it when it is not what the last one was.
// It is called by one goroutine at a time.
func (p *probing) observe(r probe.Result) {
	p.metrics.Observe(r)
	debug.FreeOSMemory() // until the next round nothing of this one is needed
	log := p.logger.With("peer", r.Peer, "result", r.Outcome, "transport", r.Transport)
	what := fmt.Sprint(r.Outcome, r.Reason)
	for _, f := range r.Failures {
		what = fmt.Sprint(what, " ", f.Rail, f.Stage, f.Reason)
	}
	slow := report.Slow(r)
	for _, f := range slow {
		what = fmt.Sprint(what, " ", f.Check, f.Subject)
	}
	if p.last[r.Peer] == what {
		log.Debug("Probed", "reason", r.Reason, "detail", r.Detail)
		return
	}
	p.last[r.Peer] = what
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

// isWorker reports whether this process was started as the probe's worker.
func isWorker(args []string) bool { return len(args) == 1 && args[0] == workerCommand }

// terminal reports whether f is one.
func terminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
