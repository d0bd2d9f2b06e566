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
)

// newProbeNode makes the probe's view of this machine. Its worker is this binary, also when the file has been replaced.
// change, which may be nil, changes the options.
func newProbeNode(c *common, change func(*probe.NodeOptions), finder *rail.Finder, keeper *expect.Keeper,
	g *facts.Gatherer, logger *slog.Logger) *probe.Node {
	opts := probe.NodeOptions{
		Version:  cmp.Or(version.Version, "unknown"),
		Name:     c.nodeName,
		Sysfs:    c.sysfs,
		Rails:    finder.Rails,
		Missing:  func() []rail.Missing { return finder.Snapshot().Missing },
		Expected: keeper.Expected,
		Facts:    sharedFacts(g),
		Worker:   []string{"/proc/self/exe", workerCommand},
		Log:      func(line string) { logger.Info("Probe worker wrote a line", "line", line) },
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
	found   *finding.Store
	logger  *slog.Logger
	past    *baseline.Keeper

	simulated bool // the demo

	peers []string // that have series

	last map[string]string // peer → summary of its last round; a change is logged
	opts *probe.Options    // in use
}

func newProbing(node *probe.Node, found *finding.Store, past *baseline.Keeper, simulated bool, logger *slog.Logger,
) *probing {
	p := &probing{found: found, logger: logger, past: past, simulated: simulated, last: map[string]string{}}
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
	p.metrics.Simulated = simulated
	return p
}

// setPeers sets the peers that have series. Like observe, it is called by one goroutine at a time.
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

// sourcePeer begins the names of the peers' sources of findings.
const sourcePeer = "peer "

// How long what rounds with a peer found stands without another one that measured.
const (
	roundsStand = time.Hour        // rounds are skipped while jobs use the rails
	formerStand = 10 * time.Minute // of a peer that is no longer asked: the next ones need two rounds to see the same
)

// keepFindings drops what is too old to be shown.
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

// observe exports a result, and logs it if it differs from the last one.
func (p *probing) observe(r probe.Result) {
	r = compareWithPast(p.past, r)
	found := check.Round(r)
	p.metrics.Observe(r, found)
	if r.Outcome != probe.Skipped {
		p.found.Update(sourcePeer+r.Peer, r.Start, found)
	}
	p.keepFindings()
	debug.FreeOSMemory() // the memory of the round is not needed until the next one
	transport := string(r.Transport)
	if p.simulated && r.Transport == probe.RDMA {
		transport = "simulated"
	}
	log := p.logger.With("peer", r.Peer, "result", r.Outcome, "transport", transport)
	summary := fmt.Sprint(r.Outcome, r.Reason)
	for _, f := range r.Failures {
		summary = fmt.Sprint(summary, " ", f.Rail, f.Stage, f.Reason)
	}
	found = slices.DeleteFunc(found, func(f finding.Finding) bool {
		return r.Outcome != probe.Degraded || f.Severity == finding.Info || f.Check == "rail_failed" // logged as a step
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
	case probe.OK:
		log.Info("Probe finished")
	case probe.Degraded:
		for _, f := range found[:min(len(found), 1)] { // all of them are findings, once they stand
			log = log.With("check", f.Check, "subject", f.Subject, "evidence", f.Evidence)
		}
		log.Warn("Probe finished")
	case probe.Skipped:
		log.Info("Probe skipped", "reason", r.Reason, "detail", r.Detail)
	default:
		log.Warn("Probe finished", "reason", r.Reason, "detail", r.Detail)
	}
	for _, f := range r.Failures {
		log.Warn("Probe step failed", "rail", f.Rail, "stage", f.Stage, "reason", f.Reason, "detail", f.Detail)
	}
}

// compareWithPast adds what the rails carried alone before, and makes a round degraded in which one has become slow.
func compareWithPast(past *baseline.Keeper, r probe.Result) probe.Result {
	if r.Transport != probe.RDMA || r.Outcome == probe.Skipped {
		return r
	}
	r.Rails = slices.Clone(r.Rails)
	for i := range r.Rails {
		one := &r.Rails[i]
		if one.Solo == nil || one.Solo.BytesPerSecond() <= 0 {
			one.Past = past.Last(r.Peer, one.Rail) // what the last full round found holds until the next one
			continue
		}
		expected := 0.0
		if one.Expected != nil {
			expected = *one.Expected
		}
		before := past.Observe(r.Peer, one.Rail, r.Start, one.Solo.BytesPerSecond(), expected)
		one.Past = &before
	}
	if r.Outcome == probe.OK && r.Degraded() {
		r.Outcome = probe.Degraded
	}
	return r
}

// newBaselines makes the keeper of what rails carried, with what the store remembers; nil: nothing.
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
