package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/doctor/report"
	"github.com/railscope/railscope/doctor/verdict"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

type doctorSettings struct {
	*common
	selection
	format, peer, tokenFile string
	peerGiven               bool
}

func (s *doctorSettings) define(app *kingpin.Application) *doctorSettings {
	cmd := app.Command("doctor", "Find faults of the rails of this node and, with --peer, between two nodes. Each "+
		"finding has what was read, why it matters, and the command that fixes it. The exit code is 1 if one is "+
		"critical.")
	s.selection.define(cmd, "RAILSCOPE_DOCTOR")
	cmd.Flag("peer", "Node to examine too, to compare with and to probe, host or host:port. It must answer probes "+
		"(probe.listen in its configuration).").PlaceHolder("HOST").IsSetByUser(&s.peerGiven).StringVar(&s.peer)
	tokenFlag(cmd, &s.tokenFile)
	formatFlag(cmd, "RAILSCOPE_DOCTOR_FORMAT", &s.format, "text", "json")
	return s
}

func (s *doctorSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("doctor", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	peer, security, err := s.peerToAsk(cfg)
	if err := errors.Join(err, s.parse()); err != nil {
		return misuse{err}
	}
	start := time.Now()
	h := s.host(cfg, serve.GatherBudget)
	g := h.Gatherer(h.ReadJobs())
	var there *facts.Facts
	var peerErr error
	var asking sync.WaitGroup
	if peer != "" {
		asking.Go(func() { there, peerErr = s.factsOf(ctx, peer, security) })
	}
	var running *status.Status // nil: none runs
	asking.Go(func() { running, _ = s.runningStatus(ctx, serve.GatherBudget) })
	here := g.Gather(ctx, facts.ByHand)
	asking.Wait()
	var last *verdict.Round
	if there != nil {
		last = s.lastRound(ctx, cfg, running, peer)
	}
	if ctx.Err() != nil {
		return errors.New("stopped before everything was read") // missing facts would be reported as faults
	}
	here.Node = s.nameOf(cfg, here, running)
	if there != nil && there.Node == here.Node {
		there.Node += " at " + peer
	}
	found := report.Examine(here, there, s.Wants)
	if peerErr != nil {
		found.AddPeerFailure(peer, peerErr, peerFix(peerErr)...)
	}
	addRound(&found, last)
	if running != nil {
		found.AddRunning(last.Contradict(verdict.Remembered(running, h.Store != nil), running))
		found.Date(verdict.Standing(running))
		found.AddClasses(running.Examination.Classes)
	}
	found.Took(time.Since(start))
	if s.format == "json" {
		err = found.WriteJSON(w)
	} else {
		err = found.WriteText(w, page())
	}
	if err == nil && found.Critical > 0 {
		err = errReported
	}
	return err
}

// addRound adds the findings of a round, or why there was none; nil: no round was made.
func addRound(r *report.Report, round *verdict.Round) {
	switch {
	case round == nil:
	case round.Skipped != "":
		r.AddUnread(round.Skipped)
	default:
		r.AddRound(round.Found)
	}
}

// nameOf returns the name of this node for its peers: the configured one, else that of the running railscope, which
// may be nil. The facts contain the name of the host.
func (c *common) nameOf(cfg *config.Config, here *facts.Facts, running *status.Status) string {
	var name string
	if cfg.Probe != nil {
		name = cfg.Probe.Name
	}
	if running != nil {
		name = cmp.Or(name, running.Node)
	}
	return cmp.Or(name, c.Name, here.Node)
}

// page describes the terminal or file that receives the report.
func page() (p report.Page) {
	if isTerminal(os.Stdout) {
		p.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil {
			p.Columns = int(size.Col)
		}
	}
	return p
}

// peerToAsk returns the peer to ask, empty for none, and how this node authenticates to it.
func (s *doctorSettings) peerToAsk(cfg *config.Config) (peer string, security options.Security, err error) {
	if cfg.Probe != nil {
		security = cfg.Probe.Security
	}
	security.TokenFile = cmp.Or(s.tokenFile, security.TokenFile)
	if s.peer == "" && !s.peerGiven { // a script with an empty variable passes --peer=
		return "", security, nil
	}
	peer, err = parsePeer("--peer", s.peer)
	if err != nil {
		return "", security, err
	}
	return peer, security, checkToken(s.tokenFile)
}

// fetchFacts asks a peer for its facts, and replaces the name of its host with its probe name.
func fetchFacts(ctx context.Context, peer string, security options.Security) (*facts.Facts, error) {
	node, data, err := probe.FetchFacts(ctx, peer, security)
	if err != nil {
		return nil, err
	}
	return parseFacts(node, data)
}

func parseFacts(node string, data []byte) (*facts.Facts, error) {
	f, err := facts.Parse(data)
	if err == nil {
		f.Node = cmp.Or(node, f.Node)
	}
	return f, err
}

func peerFix(err error) []string {
	const version = "# install the same version of railscope on both nodes and restart it"
	f, ok := errors.AsType[*result.Failure](err)
	if !ok { // the form of the answer is unknown
		return []string{version}
	}
	switch f.Reason {
	case "unauthorized":
		return []string{"# give both nodes the same token: the file of probe.token_file in the peer's configuration, " +
			"and --token-file=FILE here"}
	case "tls":
		return []string{"# set probe.tls in the configuration of both nodes, or of neither; here --config.file=FILE. " +
			"Each certificate names its host and is signed by the other's client_ca_file"}
	case "peer_version":
		return []string{version}
	case "protocol":
		return []string{"# set --peer to the port of probe.listen in the peer's configuration, not to that of its " +
			"metrics", version}
	}
	return []string{"# on the peer: run railscope serve with probe.listen and probe.token_file, and this port open; " +
		"here: the same token, --token-file=FILE"}
}
