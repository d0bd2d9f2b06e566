package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/internal/terminal"
)

// errUnknown is an outcome of check that its output explains: the state of the node is unknown.
var errUnknown = errors.New("unknown")

// Times of check: without a peer, with one, and after which an examination is too old to count.
const (
	checkTime     = 2 * time.Second
	checkPeerTime = 15 * time.Second
	staleAfter    = 5 * time.Minute
)

type checkSettings struct {
	*common
	selection
	remote
	minSeverity, peer, tokenFile, format string
	timeout                              time.Duration
}

func (s *checkSettings) define(app *kingpin.Application) *checkSettings {
	cmd := app.Command("check", "Print one line about this node, for Slurm, node-problem-detector, Nagios and scripts: "+
		"of the railscope that runs here (--state.dir, else /"+packagedState+"), else of --url, else of what this command "+
		"examines itself. The exit code is 0 if all is well, 1 if a finding is as bad as --min-severity, 2 if this is not "+
		"known. See docs/check.md.")
	const variable = "RAILSCOPE_CHECK"
	cmd.Flag("min-severity", "Least severity of a finding for exit code 1: critical, warning or info.").
		Envar(variable+"_MIN_SEVERITY").Default("critical").EnumVar(&s.minSeverity, "critical", "warning", "info")
	s.selection.define(cmd, variable)
	s.remote.define(cmd, variable)
	cmd.Flag("peer", "Also probe this node now, host or host:port, as railscope bench does. It must answer probes.").
		Envar(variable + "_PEER").PlaceHolder("HOST").StringVar(&s.peer)
	tokenFlag(cmd, &s.tokenFile)
	cmd.Flag("timeout", "Longest time, after which the exit code is 2. 2s, with --peer 15s.").
		Envar(variable + "_TIMEOUT").PlaceHolder("DURATION").DurationVar(&s.timeout)
	formatFlag(cmd, variable+"_FORMAT", &s.format, "text", "json")
	return s
}

// checked is the outcome of check.
type checked struct {
	Level    string            `json:"level"` // ok, critical, warning, info, unknown
	Exit     int               `json:"exit"`
	Text     string            `json:"text"` // the line
	Source   string            `json:"source"`
	Findings []finding.Finding `json:"findings"` // those that count, the worst first
}

func (s *checkSettings) run(ctx context.Context, parts *unfinished, w io.Writer) error {
	defer parts.begin("check", nil)()
	if err := s.parse(); err != nil {
		return misuse{err}
	}
	limit := cmp.Or(s.timeout, checkTime)
	if s.timeout == 0 && s.peer != "" {
		limit = checkPeerTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	learnt := make(chan knowledge, 1)
	go func() { learnt <- s.learn(ctx) }()
	var known knowledge
	select {
	case known = <-learnt:
	case <-ctx.Done(): // what hangs is left behind
		known.unknown = fmt.Sprintf("no answer within %v", limit)
	}
	out := s.judge(known)
	var err error
	if s.format == "json" {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		err = enc.Encode(out)
	} else {
		_, err = fmt.Fprintln(w, out.Text)
	}
	switch {
	case err != nil || out.Exit == exitUnknown:
		return errors.Join(errUnknown, err)
	case out.Exit == exitFailure:
		return errReported
	}
	return nil
}

// parse refuses values that the parser accepts.
func (s *checkSettings) parse() (err error) {
	switch {
	case s.timeout < 0:
		return fmt.Errorf("--timeout must be above 0, such as 2s, not %v", s.timeout)
	case s.peer != "":
		if s.peer, err = parsePeer("--peer", s.peer); err != nil {
			return err
		}
	}
	return cmp.Or(s.selection.parse(), s.remote.parse(), checkToken(s.tokenFile))
}

// knowledge is what check learned about the node.
type knowledge struct {
	source      string // who says it
	rails, up   int
	maintenance bool
	found       []finding.Finding
	round       []finding.Finding // of the round with --peer
	peers       int               // that railscope probes
	unknown     string            // why nothing, or not all, is known
}

// learn asks the running railscope, else the one of --url, else examines the node itself, and probes the peer.
func (s *checkSettings) learn(ctx context.Context) knowledge {
	known, err := s.ask(ctx)
	if errors.Is(err, errAlone) && s.url == "" {
		if known, err = s.examine(ctx); err == nil && s.peer == "" {
			return known
		}
	}
	if err != nil {
		return knowledge{source: known.source, unknown: err.Error()}
	}
	if s.peer != "" && !known.maintenance {
		found, skipped, err := s.probe(ctx)
		if err != nil {
			skipped = err.Error()
		}
		known.round, known.unknown = found, cmp.Or(known.unknown, skipped)
	}
	return known
}

// ask asks a running railscope. Its error wraps errAlone where this command must examine the node itself.
func (s *checkSettings) ask(ctx context.Context) (knowledge, error) {
	known := knowledge{source: "status.sock"}
	at, err := s.runningStatus(ctx, cmp.Or(s.timeout, checkTime))
	if errors.Is(err, errAlone) && s.url != "" {
		known.source = "url"
		at, err = s.get(ctx)
	}
	switch {
	case err != nil:
		return known, err
	case !at.Maintenance && !at.Examined() && s.url == "":
		return known, errAlone // it has just started
	}
	known.up, known.rails = at.RailsUp()
	known.maintenance = at.Maintenance
	known.found, known.peers = standing(at), len(at.Peers)
	if known.unknown = unknownState(at); known.unknown != "" { // what stands may have been fixed since
		known.found = slices.DeleteFunc(known.found, func(f finding.Finding) bool { return !f.Peer() })
	}
	known.unknown = cmp.Or(known.unknown, unreadRails(at))
	return known, nil
}

// unknownState is why a status does not say how the node is; empty: it does.
func unknownState(s *status.Status) string {
	switch e := s.Examination; {
	case !s.Examined() || e.At == nil:
		return "railscope has not examined the node yet"
	case e.Error != nil:
		return "the last examination failed: " + *e.Error
	case s.At.Sub(*e.At) > staleAfter:
		return fmt.Sprintf("the last examination ended %v ago", s.At.Sub(*e.At).Round(time.Second))
	}
	return ""
}

// unreadRails is why not all rails are judged; empty: all are.
func unreadRails(s *status.Status) string {
	for _, r := range s.Rails {
		if r.Up == nil {
			return fmt.Sprintf("rail %s: its state could not be read", r.Name)
		}
	}
	return ""
}

// examine examines the node once. It judges the node, not what this process may do: see [check.Check.Own].
func (s *checkSettings) examine(ctx context.Context) (knowledge, error) {
	known := knowledge{source: "self"}
	cfg, err := s.load()
	if err != nil {
		return known, err
	}
	hidden, err := silences(cfg)
	if err != nil {
		return known, err
	}
	if known.maintenance = exists(cfg.MaintenanceFile()); known.maintenance {
		return known, nil
	}
	finder, store := s.newFinder(cfg, checkTime)
	f := gatherer(s.common, finder, newKeeper(s.common, cfg, finder, store, nil), nil).Gather(ctx, facts.OneNode)
	if err := ctx.Err(); err != nil {
		return known, fmt.Errorf("examine the node: %w", err) // missing facts would be reported as faults
	}
	known.rails = len(f.Rails)
	for i := range f.Rails {
		if f.Rails[i].Active() {
			known.up++
		}
	}
	found := check.Node(f, func(c check.Check) bool { return !c.Own() || slices.Contains(s.only, c.ID) })
	known.found = slices.DeleteFunc(found, func(f finding.Finding) bool {
		return slices.ContainsFunc(hidden, func(one finding.Silence) bool { return one.Covers(f, time.Now()) })
	})
	return known, nil
}

// judge makes the outcome.
func (s *checkSettings) judge(k knowledge) checked {
	found := s.of(slices.Concat(k.found, k.round))
	slices.SortStableFunc(found, finding.Finding.Compare)
	bad := append(s.counting(k), s.bad(s.of(k.round))...)
	slices.SortStableFunc(bad, finding.Finding.Compare)
	out := checked{Level: status.OK, Source: k.source, Findings: append([]finding.Finding{}, found...)}
	switch {
	case k.maintenance:
		out.Text = line(out.Level, "maintenance, nothing is judged", 0)
	case len(bad) > 0:
		out.Level, out.Exit = string(bad[0].Severity), exitFailure
		out.Text = line(out.Level, bad[0].Title(), len(bad)-1)
	case k.unknown != "":
		out.Level, out.Exit = status.Unknown, exitUnknown
		out.Text = line(out.Level, k.unknown, 0)
	default:
		out.Text = line(out.Level, rails(k)+others(found), 0)
	}
	return out
}

// bad returns the findings that are bad enough.
func (s *checkSettings) bad(list []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(list), func(f finding.Finding) bool {
		return f.Severity.Compare(finding.Severity(s.minSeverity)) > 0
	})
}

// counting returns the findings that make the node bad. Left out, unless --only names their check, are those about what
// a process may do itself: jobs may work. Those about peers count only if they are about more than half of the peers:
// one faulty node must not take all that probe it out of service.
func (s *checkSettings) counting(k knowledge) []finding.Finding {
	list, peers := s.bad(s.of(k.found)), map[string]bool{}
	for _, f := range list {
		if f.Peer() {
			peers[f.Subject] = true
		}
	}
	most := 2*len(peers) > k.peers
	return slices.DeleteFunc(list, func(f finding.Finding) bool {
		switch {
		case slices.Contains(s.only, f.Check):
			return false
		case f.Peer():
			return !most
		}
		return check.IsOwn(f.Check)
	})
}

// rails is how many are up.
func rails(k knowledge) string {
	if k.up == k.rails {
		return terminal.Count(k.rails, "rail") + " up"
	}
	return fmt.Sprintf("%d of %s up", k.up, terminal.Count(k.rails, "rail"))
}

// others is how many findings there are that are less severe than asked for.
func others(found []finding.Finding) (text string) {
	for _, severity := range []finding.Severity{finding.Critical, finding.Warning} {
		n := 0
		for _, f := range found {
			if f.Severity == severity {
				n++
			}
		}
		if n > 0 {
			text += ", " + terminal.Count(n, string(severity))
		}
	}
	return text
}

// maxLine is the length of the line in bytes, as node-problem-detector counts it.
const maxLine = 80

// line is a line of at most maxLine bytes. more is how many other findings there are.
func line(level, text string, more int) string {
	prefix, suffix := "railscope: "+level+": ", ""
	if more > 0 {
		suffix = fmt.Sprintf(" (+%d more)", more)
	}
	text = strings.Join(strings.Fields(terminal.Plain(text)), " ")
	if room := maxLine - len(prefix) - len(suffix); len(text) > room {
		text = strings.ToValidUTF8(text[:room-len("...")], "") + "..."
	}
	return prefix + text + suffix
}

// probe probes the peer once. skipped is why there was no round.
func (s *checkSettings) probe(ctx context.Context) (found []finding.Finding, skipped string, err error) {
	cfg, err := s.load()
	if err != nil {
		return nil, "", err
	}
	res, err := s.quickRound(ctx, cfg, s.peer, s.tokenFile)
	if err != nil {
		return nil, "", err
	}
	return check.Round(res), skippedBecause(res), nil
}
