package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/doctor/report"
	exporterhttp "github.com/railscope/railscope/exporter/http"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/probe"
)

// doctorBudget is how long the doctor waits for one thing.
const doctorBudget = 3 * time.Second

// errFaults is a fault that was found: the report has said all.
var errFaults = errors.New("")

// gatherer reads what doctor examines. A process has one, for the page and for
// peers: what hangs is then stuck once.
func gatherer(s settings, finder *rail.Finder) *facts.Gatherer {
	return facts.New(facts.Options{Sysfs: s.sysfs, Procfs: s.procfs, Rootfs: s.rootfs, Rails: finder.Snapshot, Budget: doctorBudget})
}

// tellFacts is what the probe's control channel answers a peer's doctor.
func tellFacts(g *facts.Gatherer) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return json.Marshal(check.Share(g.Gather(ctx, facts.All))) }
}

// complaints is what the live page shows of what doctor finds on this node:
// strangers see it, so nothing of processes.
func complaints(g *facts.Gatherer) func(context.Context) ([]exporterhttp.Finding, error) {
	return func(ctx context.Context) (list []exporterhttp.Finding, err error) {
		here := g.Gather(ctx, facts.WithoutJobs)
		for _, f := range report.Examine(here, nil).Sorted() {
			list = append(list, exporterhttp.Finding{Fault: f.Severity == check.Fault, Check: f.Check, Subject: f.Subject, Read: f.Evidence, Why: f.Why, Fix: f.Fix})
		}
		return append(list, unjudged(here.Unread)...), ctx.Err()
	}
}

// unjudged is what is said of what doctor could not read: that nothing is wrong
// with the rest is not all that is to be known.
func unjudged(unread []string) []exporterhttp.Finding {
	if len(unread) == 0 {
		return nil
	}
	const shown = 3
	read := strings.Join(unread[:min(len(unread), shown)], "; ")
	if more := len(unread) - shown; more > 0 {
		read += fmt.Sprintf("; and %d more", more)
	}
	return []exporterhttp.Finding{{Subject: "not read", Read: read, Why: "What could not be read was not judged; railscope doctor on the node says all of it."}}
}

// examine is the command doctor.
func examine(ctx context.Context, s settings, w io.Writer) error {
	cfg, err := config.Load(s.configFile)
	if err != nil {
		return misuse{err}
	}
	peer, security, err := s.doctorPeer(cfg)
	if err != nil {
		return misuse{err}
	}
	start := time.Now()
	g := gatherer(s, s.finder(rail.NewFinder(s.sysfs, railOptions(cfg), rdmanl.New(doctorBudget), doctorBudget)))
	var there *facts.Facts
	var peerErr error
	var asking sync.WaitGroup
	if peer != "" {
		asking.Go(func() { there, peerErr = fetch(ctx, peer, security) })
	}
	here := g.Gather(ctx, facts.All)
	asking.Wait()
	if ctx.Err() != nil {
		return errors.New("told to stop before all was read") // what is missing would be told as faults
	}
	here.Node = cmp.Or(s.called(cfg), here.Node)
	if there != nil && there.Node == here.Node {
		there.Node += " at " + peer
	}
	found := report.Examine(here, there)
	if peerErr != nil {
		found.AddPeerFailure(peer, peerErr, peerMend(peerErr)...)
	}
	found.Took(time.Since(start))
	if s.format == "json" {
		err = found.WriteJSON(w)
	} else {
		err = found.WriteText(w, page())
	}
	if err == nil && found.Faults > 0 {
		err = errFaults
	}
	return err
}

// called is what this node calls itself to peers; empty: the host's name.
func (s settings) called(cfg *config.Config) string {
	if cfg.Probe == nil {
		return s.nodeName
	}
	return cmp.Or(cfg.Probe.Name, s.nodeName)
}

// page is what the report is written on.
func page() (p report.Page) {
	if terminal(os.Stdout) {
		p.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil {
			p.Columns = int(size.Col)
		}
	}
	return p
}

// doctorPeer is the peer to ask, empty for none, and how this node proves who it
// is.
func (s settings) doctorPeer(cfg *config.Config) (peer string, security probe.Security, err error) {
	if cfg.Probe != nil {
		security = probeOptions(cfg).Security
	}
	if s.doctor.tokenFile != "" {
		security.TokenFile = s.doctor.tokenFile
	}
	if s.doctor.peer == "" && !s.doctor.peerGiven { // given and empty is a name that a script did not have
		return "", security, nil
	}
	peer, ok := config.ParsePeer(s.doctor.peer)
	if !ok {
		return "", security, fmt.Errorf("--peer must be host or host:port, such as spark-02 or [fd00::2]:%s, not %q", config.DefaultPort, s.doctor.peer)
	}
	return peer, security, checkToken(s.doctor.tokenFile)
}

// fetch asks a peer for its facts. Its node is what it calls itself to peers,
// which its host's name may not be.
func fetch(ctx context.Context, peer string, security probe.Security) (*facts.Facts, error) {
	node, data, err := probe.FetchFacts(ctx, peer, security)
	if err != nil {
		return nil, err
	}
	f, err := facts.Parse(data)
	if err == nil {
		f.Node = cmp.Or(node, f.Node)
	}
	return f, err
}

// peerMend says what to do about a peer that could not be asked.
func peerMend(err error) []string {
	const version = "# install the same version of railscope on both nodes, and start it anew"
	f, ok := errors.AsType[*probe.Failure](err)
	if !ok { // it answers, and not as this version does
		return []string{version}
	}
	switch f.Reason {
	case "unauthorized":
		return []string{"# give both nodes one token: the file that probe.token_file names in the peer's configuration, and here --token-file=FILE"}
	case "tls":
		return []string{"# set probe.tls in the configuration of both nodes, or of neither; here --config.file=FILE. Each certificate names its host, and is of the other's client_ca_file"}
	case "peer_version":
		return []string{version}
	case "protocol":
		return []string{"# give --peer the port of probe.listen in the peer's configuration, not that of its metrics", version}
	}
	return []string{"# on the peer: railscope serve with probe.listen and probe.token_file in its configuration, and this port open; here the same token: --token-file=FILE"}
}
