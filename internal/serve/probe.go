package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	exporterprobe "github.com/railscope/railscope/exporter/probe"
	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/internal/trafficclass"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// WorkerCommand starts the process that uses libibverbs. It is not for users, so the parser does not know it.
const WorkerCommand = "probe-worker"

// ProbeNode returns the probe's node for this machine. No round starts while maintenance, which may be nil, returns
// true. The worker is this binary, even after the file was replaced. The caller closes the node.
func (h *Host) ProbeNode(past *baseline.Keeper, g *facts.Gatherer, maintenance func() bool, logger *slog.Logger,
) *probe.Node {
	opts := probe.NodeOptions{
		Version:     cmp.Or(version.Version, "unknown"),
		Name:        h.Name,
		Sysfs:       h.Sysfs,
		Rails:       probedRails(h.Finder),
		Missing:     func() []rail.Missing { return h.Finder.Snapshot().Missing },
		Expected:    h.Keeper.Expected,
		Past:        past,
		AtLeast:     func() int { return h.Keeper.Node().ConfiguredRails() },
		Facts:       SharedFacts(g),
		Maintenance: maintenance,
		Worker:      []string{"/proc/self/exe", WorkerCommand},
		Log:         func(line string) { logger.Info("Probe worker wrote a line", "line", line) },
		WorkerEnded: func(why, during string) {
			logger.Warn("Probe worker process ended, another one is started when it is needed", "reason", why,
				"during", cmp.Or(during, "nothing"))
		},
		Refused: func(reason, from string) {
			logger.Warn("Probe client refused (logged once until it stops)", "reason", reason, "address", from)
		},
		Server: func(srv *http.Server) { srv.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug) },
	}
	opts.Class = jobClass(h.Procfs, logger)
	if h.ProbeOptions != nil {
		h.ProbeOptions(&opts)
	}
	return probe.NewNode(opts)
}

// SharedFacts returns the answer of the control channel to a peer's doctor.
func SharedFacts(g *facts.Gatherer) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return json.Marshal(check.Share(g.Gather(ctx, facts.All))) }
}

// probedRails returns a function that lists the rails that the probe uses. It leaves out the fast paths of a
// hypervisor's interfaces: no job runs on them and no peer answers there.
func probedRails(finder *rail.Finder) func() ([]rail.Rail, error) {
	return func() ([]rail.Rail, error) {
		list, err := finder.Rails()
		return slices.DeleteFunc(slices.Clone(list), func(r rail.Rail) bool { return r.Synthetic != "" }), err
	}
}

// jobClass returns a function that finds the class of this node's RDMA jobs, and logs changes.
func jobClass(procfs string, logger *slog.Logger) func(context.Context) result.Class {
	reader := trafficclass.New(procfs, rdmanl.NewForDumps(deviceBudget))
	var mu sync.Mutex
	var last result.Class
	return func(ctx context.Context) result.Class {
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

// ProbeController runs the probe: it applies its options, and exports, judges and logs its rounds.
type ProbeController struct {
	Node    *probe.Node
	Service *probe.Service

	metrics   *exporterprobe.Source
	findings  *finding.Store
	past      *baseline.Keeper
	simulated bool // the node is part of the demo
	logger    *slog.Logger

	peers []string                  // peers that have series
	last  map[string]string         // summary of the last round by peer; changes are logged
	letGo atomic.Pointer[time.Time] // until then no device stays open for its events
	class atomic.Pointer[uint8]     // traffic class of the last round; nil: there was none
	opts  *options.Options          // options in use
}

// newProbeController returns the controller of a node, which it closes.
func newProbeController(node *probe.Node, findings *finding.Store, past *baseline.Keeper, simulated bool,
	device func(device string, port int, event string, count uint64), logger *slog.Logger) *ProbeController {
	p := &ProbeController{Node: node, findings: findings, past: past, simulated: simulated, logger: logger,
		last: map[string]string{}}
	p.Release(0)
	p.Service = probe.NewService(node, p.observe, options.Events{
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
		Device: device,
		LetGo:  func() bool { return time.Now().Before(*p.letGo.Load()) },
	})
	p.metrics = exporterprobe.NewSource(p.Service.Stats)
	p.metrics.Simulated = simulated
	return p
}

// setPeers sets the peers that have series. Calls of setPeers and observe must not overlap.
func (p *ProbeController) setPeers(peers []string) {
	p.metrics.SetPeers(peers)
	p.past.SetPeers(peers)
	p.peers = peers
	p.keepFindings()
	last := map[string]string{}
	for _, peer := range peers {
		last[peer] = p.last[peer]
	}
	p.last = last
}

// prepare checks options and returns a function that applies them, which cannot fail. For the options in use it
// does nothing. With retry, a port in use is not an error. Calls, including commit, must not overlap.
func (p *ProbeController) prepare(opts *options.Options, retry bool) (commit func(context.Context), err error) {
	if reflect.DeepEqual(opts, p.opts) {
		return func(context.Context) {}, nil
	}
	change, err := p.Service.Prepare(opts, retry)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		change.Commit(ctx)
		p.opts = opts
	}, nil
}

// Start applies the first options, nil for none. The probe runs until ctx is canceled or Close is called. A port in
// use is not an error: it is retried.
func (p *ProbeController) Start(ctx context.Context, opts *options.Options) error {
	commit, err := p.prepare(opts, true)
	if err != nil {
		return err
	}
	commit(ctx)
	return nil
}

// Run closes the probe when ctx is canceled, while scrapes finish.
func (p *ProbeController) Run(ctx context.Context) error {
	<-ctx.Done()
	p.Close()
	return nil
}

// Close ends rounds, leases, the listener and the worker process. It may be called twice.
func (p *ProbeController) Close() { p.Service.Close() }

// Release lets go of the devices that are open for their events, for a while.
func (p *ProbeController) Release(d time.Duration) {
	until := time.Now().Add(d)
	p.letGo.Store(&until)
}

// sourcePeer is the prefix of the peers' sources of findings.
const sourcePeer = "peer "

// How long the findings of rounds with a peer stay without another round.
const (
	roundsStand = finding.KeepUnjudged
	formerStand = 10 * time.Minute // findings about a former peer: the next peers need two rounds to confirm them
)

// keepFindings drops findings that are too old.
func (p *ProbeController) keepFindings() {
	p.findings.Keep(func(source string, last time.Time) bool {
		peer, ok := strings.CutPrefix(source, sourcePeer)
		switch {
		case !ok:
			return true
		case len(p.peers) == 0:
			return false
		case !slices.Contains(p.peers, peer):
			return time.Since(last) < formerStand
		}
		return time.Since(last) < roundsStand
	})
}

// observe exports a result, and logs it if it differs from the previous one.
func (p *ProbeController) observe(r result.Result) {
	found := check.Round(r)
	p.metrics.Observe(r, found)
	if r.Class.Source != "" {
		p.class.Store(&r.Class.TrafficClass)
	}
	if r.Outcome != result.Skipped {
		p.findings.UpdateJudged(sourcePeer+r.Peer, r.Start, found, func(f finding.Finding) bool {
			return check.RoundJudges(&r, f)
		})
	}
	p.keepFindings()
	debug.FreeOSMemory() // the memory of the round is not needed until the next one
	transport := string(r.Transport)
	if p.simulated && r.Transport == result.RDMA {
		transport = "simulated"
	}
	log := p.logger.With("peer", r.Peer, "result", r.Outcome, "transport", transport)
	summary := fmt.Sprint(r.Outcome, r.Reason)
	for _, f := range r.Failures {
		summary = fmt.Sprint(summary, " ", f.Rail, f.Stage, f.Reason)
	}
	found = slices.DeleteFunc(found, func(f finding.Finding) bool {
		return r.Outcome != result.Degraded || f.Severity == finding.Info ||
			f.Check == "rail_failed" // logged as a step
	})
	for _, f := range found {
		summary = fmt.Sprint(summary, " ", f.Check, f.Subject)
	}
	if p.last[r.Peer] == summary {
		log.Debug("Probe finished", "reason", r.Reason, "detail", r.Detail)
		return
	}
	p.last[r.Peer] = summary
	switch r.Outcome {
	case result.OK:
		log.Info("Probe finished")
	case result.Degraded:
		for _, f := range found[:min(len(found), 1)] { // the others are logged when the store raises them
			log = log.With("check", f.Check, "subject", f.Subject, "evidence", f.Evidence)
		}
		log.Warn("Probe finished")
	case result.Reached:
		log.Info("Probe reached the peer, without a burst", "reason", r.Reason, "detail", r.Detail)
	case result.Skipped:
		log.Info("Probe skipped", "reason", r.Reason, "detail", r.Detail)
	default:
		log.Warn("Probe finished", "reason", r.Reason, "detail", r.Detail)
	}
	for _, f := range r.Failures {
		log.Warn("Probe step failed", "rail", f.Rail, "stage", f.Stage, "reason", f.Reason, "detail", f.Detail)
	}
}
