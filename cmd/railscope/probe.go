package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	exporterprobe "github.com/railscope/railscope/exporter/probe"
	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/internal/trafficclass"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// newProbeNode returns the probe's node for this machine. Its worker is this binary, even after the file was
// replaced. change, which may be nil, changes the options.
func newProbeNode(c *common, change func(*probe.NodeOptions), finder *rail.Finder, keeper *expect.Keeper,
	past *baseline.Keeper, g *facts.Gatherer, logger *slog.Logger) *probe.Node {
	opts := probe.NodeOptions{
		Version:  cmp.Or(version.Version, "unknown"),
		Name:     c.nodeName,
		Sysfs:    c.sysfs,
		Rails:    probed(finder),
		Missing:  func() []rail.Missing { return finder.Snapshot().Missing },
		Expected: keeper.Expected,
		Past:     past,
		AtLeast:  func() int { return keeper.Node().ConfiguredRails() },
		Facts:    sharedFacts(g),
		Worker:   []string{"/proc/self/exe", workerCommand},
		Log:      func(line string) { logger.Info("Probe worker wrote a line", "line", line) },
		WorkerEnded: func(why, during string) {
			logger.Warn("Probe worker process ended, another one is started when it is needed", "reason", why,
				"during", cmp.Or(during, "nothing"))
		},
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

// probed returns a function that lists the rails that the probe uses. It leaves out the fast paths of a
// hypervisor's interfaces: no job runs on them and no peer answers there.
func probed(finder *rail.Finder) func() ([]rail.Rail, error) {
	return func() ([]rail.Rail, error) {
		list, err := finder.Rails()
		return slices.DeleteFunc(slices.Clone(list), func(r rail.Rail) bool { return r.Synthetic != "" }), err
	}
}

// jobClass returns a function that finds the class of this node's RDMA jobs, and logs changes.
func jobClass(c *common, logger *slog.Logger) func(context.Context) result.Class {
	reader := trafficclass.New(c.procfs, rdmanl.NewForDumps(deviceBudget))
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

type probing struct {
	service *probe.Service
	metrics *exporterprobe.Source
	found   *finding.Store
	logger  *slog.Logger
	past    *baseline.Keeper

	simulated bool // the node is part of the demo

	peers []string // peers that have series

	last map[string]string // summary of the last round by peer; changes are logged
	opts *options.Options  // options in use
}

func newProbing(node *probe.Node, found *finding.Store, past *baseline.Keeper, simulated bool, logger *slog.Logger,
) *probing {
	p := &probing{found: found, logger: logger, past: past, simulated: simulated, last: map[string]string{}}
	p.service = probe.NewService(node, p.observe, options.Events{
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
	p.metrics.Simulated = simulated
	return p
}

// setPeers sets the peers that have series. Calls of setPeers and observe must not overlap.
func (p *probing) setPeers(peers []string) {
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
func (p *probing) prepare(opts *options.Options, retry bool) (commit func(context.Context), err error) {
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

func (p *probing) start(ctx context.Context, opts *options.Options) error {
	commit, err := p.prepare(opts, true)
	if err != nil {
		return err
	}
	commit(ctx)
	return nil
}

// sourcePeer is the prefix of the peers' sources of findings.
const sourcePeer = "peer "

// How long the findings of a round with a peer stay without another round that measured.
const (
	roundsStand = time.Hour        // rounds are skipped while jobs use the rails
	formerStand = 10 * time.Minute // findings about a former peer: the next peers need two rounds to confirm them
)

// keepFindings drops findings that are too old.
func (p *probing) keepFindings() {
	p.found.Keep(func(source string, last time.Time) bool {
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
func (p *probing) observe(r result.Result) {
	found := check.Round(r)
	p.metrics.Observe(r, found)
	if r.Outcome != result.Skipped {
		p.found.UpdateJudged(sourcePeer+r.Peer, r.Start, found, func(f finding.Finding) bool {
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
		return r.Outcome != result.Degraded || f.Severity == finding.Info || f.Check == "rail_failed" // logged as a step
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
	case result.Skipped:
		log.Info("Probe skipped", "reason", r.Reason, "detail", r.Detail)
	default:
		log.Warn("Probe finished", "reason", r.Reason, "detail", r.Detail)
	}
	for _, f := range r.Failures {
		log.Warn("Probe step failed", "rail", f.Rail, "stage", f.Stage, "reason", f.Reason, "detail", f.Detail)
	}
}

// newBaselines returns the keeper of what rails carried, with the data of the store, which may be nil.
func newBaselines(store *state.Store) *baseline.Keeper {
	const section = "baselines"
	if store == nil {
		return baseline.New(nil, nil)
	}
	var known baseline.State
	_, err := store.Get(section, &known)
	if err = errors.Join(err, known.Check()); err != nil {
		store.Reject(section, err)
		known = nil
	}
	return baseline.New(known, func(s baseline.State) { store.Set(section, s) })
}
